"""Parameters of environments that change during a run: attributes, or methods `set_NAME`, of an environment."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from xagents.options.errors import OptionError, did_you_mean

MISSING: Any = object()


def set_params(env: Any, params: Mapping[str, Any]) -> None:
    """Set parameters of an environment whose present values differ.

    Args:
        env: an environment of Gymnasium or PettingZoo, with its wrappers.
        params: values by name. The method `set_NAME` sets a parameter if it exists, otherwise the attribute NAME.

    Raises:
        OptionError: for an attribute that cannot be set.
    """
    for name, value in params.items():
        present = _get(env, name)
        if present is not MISSING and np.array_equal(present, value):
            continue
        innermost = _chain(env)[-1]
        if name in _functional_params(innermost):
            innermost.set_params(**{name: value})
        elif callable(method := _get(env, f'set_{name}')):
            method(value)
        else:
            owner = next(one for one in _chain(env) if _has(one, name))
            try:
                setattr(owner, name, value)
            except AttributeError as error:
                raise OptionError('curriculum', f'{name} of {type(owner).__name__} cannot be set') from error


def find_params(env: Any, names: Iterable[str]) -> tuple[list[str], list[str]]:
    """Return the names that are no parameters of an environment, and the names of all its parameters."""
    innermost = _chain(env)[-1]
    own = _functional_params(innermost)
    missing = [
        name
        for name in names
        if name not in own and _get(env, name) is MISSING and not callable(_get(env, f'set_{name}'))
    ]
    numbers = [n for n, value in _attributes(innermost).items() if n[0] != '_' and isinstance(value, int | float)]
    methods = [name.removeprefix('set_') for name in dir(type(innermost)) if name.startswith('set_')]
    return missing, [*own, *numbers, *(name for name in methods if name not in ('wrapper_attr', 'params', 'attr'))]


def check_params(env_id: str, missing: Iterable[str], known: Iterable[str]) -> None:
    """Raise OptionError if a parameter is missing, with the nearest name.

    Args:
        env_id: the name of the environment.
        missing: the names that are no parameters.
        known: the names of all parameters.
    """
    for name in missing:
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


def _functional_params(env: Any) -> Mapping[str, Any]:
    """Return the parameters of an adapter of functions; empty for other environments."""
    return getattr(_attributes(env).get('functional'), 'default_params', {})


def _has(env: Any, name: str) -> bool:
    """Return whether an environment or a wrapper, which is not of this package, has an attribute of its own."""
    is_ours = type(env).__module__.startswith('xagents.envs.')
    return not is_ours and (name in _attributes(env) or hasattr(type(env), name))


def _get(env: Any, name: str) -> Any:
    owner = next((one for one in _chain(env) if _has(one, name)), None)
    return MISSING if owner is None else getattr(owner, name)
