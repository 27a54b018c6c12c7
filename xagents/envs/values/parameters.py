"""Parameters of environments that change during a run: attributes, or methods `set_NAME`, of an environment."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from xagents.options.errors import OptionError, did_you_mean, one_line
from xagents.system.values import describe

MISSING: Any = object()


def set_params(env: Any, params: Mapping[str, Any]) -> str:
    """Set parameters of an environment whose present values differ.

    Args:
        env: an environment of Gymnasium or PettingZoo, with its wrappers.
        params: values by name. The method `set_NAME` sets a parameter if it exists, otherwise the attribute NAME.

    Returns:
        The problem of a value that the environment does not accept; empty without one. Worker processes return it,
        because their errors lose their type.
    """
    for name, value in params.items():
        present = _get(env, name)
        if present is not MISSING and np.array_equal(present, value):
            continue
        try:
            _set(env, name, value)
        except Exception as error:  # the code of an environment
            return f'{name}={value}: {type(error).__name__}: {one_line(error)}'
    return ''


def _set(env: Any, name: str, value: Any) -> None:
    innermost = _chain(env)[-1]
    if name in getattr(_functional(innermost), 'default_params', ()):
        innermost.set_params(**{name: value})
    elif callable(method := _get(env, f'set_{name}')):
        method(value)
    else:
        setattr(next(one for one in _chain(env) if _has(one, name)), name, value)


def find_params(env: Any, params: Mapping[str, Sequence[float]]) -> tuple[dict[str, str], list[str]]:
    """Return why names are no parameters of an environment, and the names of all its parameters.

    Args:
        env: an environment of Gymnasium or PettingZoo with its wrappers, or a vector of functions.
        params: the values that are to be set, by name.

    Returns:
        What is wrong by name, empty for a missing attribute; and the names of all parameters.
    """
    innermost = _chain(env)[-1]
    functional = _functional(innermost)
    own = getattr(functional, 'default_params', {})
    wrong = {}
    for name, values in params.items():
        if name in own:
            try:
                for value in values:
                    functional.checked_params({name: value})
            except ValueError as error:
                wrong[name] = one_line(error)
            continue
        if callable(_get(env, f'set_{name}')):
            continue
        present = _get(env, name)
        if present is MISSING:
            wrong[name] = ''
        elif not _is_number(present):
            got = f'{name} is {"a method" if callable(present) else describe(present)}'
            wrong[name] = f'{got}, expected a number, or a method set_{name}'
        elif isinstance(present, int | np.integer) and (fractions := [x for x in values if x != int(x)]):
            got = f'{name} is the int {present}, got {fractions[0]:g}'
            wrong[name] = f'{got}, expected whole numbers, or a method set_{name}'
    numbers = [n for n, x in _attributes(innermost).items() if n[0] != '_' and _is_number(x) and _has(innermost, n)]
    methods = [name.removeprefix('set_') for name in dir(type(innermost)) if name.startswith('set_')]
    return wrong, [*own, *numbers, *(name for name in methods if name not in ('wrapper_attr', 'params', 'attr'))]


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)


def check_params(env_id: str, wrong: Mapping[str, str], known: Iterable[str]) -> None:
    """Raise OptionError if a name is no parameter; for a missing one, with the nearest name.

    Args:
        env_id: the name of the environment.
        wrong: what is wrong by name; empty for a missing attribute.
        known: the names of all parameters.
    """
    for name, what in wrong.items():
        if what:
            raise OptionError('curriculum', f'{env_id}: {what}')
        names = list(dict.fromkeys(known))
        expected = f'expected one of {", ".join(names[:20])}' if names else 'expected an environment that has one'
        problem = f'{env_id} has no attribute {name} and no method set_{name}'
        raise OptionError('curriculum', f'{problem}{did_you_mean(name, names)}, {expected}')


def _chain(env: Any) -> list[Any]:
    """Return the wrappers of an environment, outermost first, and the environment."""
    chain = [env]
    while (inner := _attributes(chain[-1]).get('env')) is not None:
        chain.append(inner)
    return chain


def _attributes(env: Any) -> Mapping[str, Any]:
    return getattr(env, '__dict__', {})


def _functional(env: Any) -> Any:
    """Return the functions of an adapter or a vector of functions; None for other environments."""
    return _attributes(env).get('functional')


def _has(env: Any, name: str) -> bool:
    """Return whether an environment or a wrapper, which is not of this package, has an attribute of its own."""
    is_ours = type(env).__module__.startswith('xagents.envs.')
    return not is_ours and (name in _attributes(env) or hasattr(type(env), name))


def _get(env: Any, name: str) -> Any:
    owner = next((one for one in _chain(env) if _has(one, name)), None)
    return MISSING if owner is None else getattr(owner, name)
