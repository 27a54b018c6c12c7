"""Checks of methods that agents override: one line instead of an error of NumPy or TensorFlow.

A value of shape [B, 1] where [B] is expected would be broadcast to [B, B], and learning would fail silently.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any

from xagents.registry.traits import Traits
from xagents.system.values import describe, is_number, sizes_of

Check = Callable[[Any, tuple[Any, ...]], str]


# parameters of the methods that a run calls
PARAMETERS = {'collect': ('schedule',), 'learn': ('batch', 'schedule'), 'replay': ('n_updates', 'schedule')}
# class attributes that are fields of `traits`
FORMER_ATTRIBUTES = {
    **{'NO_OVERLAP_REASON': 'no_overlap_reason', '_NO_BATCH_STATISTICS': 'no_batch_statistics_reason'},
    **{'raw_rollouts': 'raw_rollouts', 'keeps_outputs': 'keeps_outputs', 'BUFFER_USE': 'buffer_use'},
    **{'model_names': 'model_names', 'ACTOR_OUTPUTS': 'actor_outputs', 'DISCRETE_AGENTS': 'discrete_agents'},
    'POLICY_METRICS': 'policy_metrics',
}


def check_parameters(cls: Any) -> None:
    """Check the traits of a class, and the parameters of the methods that a run calls.

    Raises:
        TypeError: if a class attribute is a field of the traits, or the parameters of a method are different.
    """
    for attribute, field in FORMER_ATTRIBUTES.items():
        if attribute in vars(cls):
            raise TypeError(f'{cls.__name__}.{attribute}: expected traits = ….traits.changed({field}=…)')
    if not isinstance(cls.traits, Traits):
        got = type(cls.traits).__name__
        raise TypeError(f'{cls.__name__}.traits: got a {got}, expected ….traits.changed(…)')
    for name, expected in PARAMETERS.items():
        method = getattr(cls, name, None)
        parameters = [*inspect.signature(method).parameters.values()] if inspect.isfunction(method) else []
        if len(parameters) < 2 and name == 'replay':  # an agent may sample whole rollouts
            continue
        n = len(expected) + 1
        names = tuple(parameter.name for parameter in parameters[1:n])
        fits = names == expected and {p.kind for p in parameters[:n]} == {inspect.Parameter.POSITIONAL_OR_KEYWORD}
        if not fits or any(parameter.default is parameter.empty for parameter in parameters[n:]):
            shown = ', '.join(map(str, parameters[1:])) or '()'
            problem = f'got the parameters {shown}, expected (self, {", ".join(expected)})'
            raise TypeError(f"{cls.__name__}.{name}: {problem}: schedule['learning_rate'] is the learning rate")


def check_results(cls: type) -> None:
    """Wrap the methods that a class defines so that a wrong result raises a TypeError with the method's name."""
    for name, check in _CHECKS.items():
        method = vars(cls).get(name)
        if isinstance(method, classmethod) and inspect.isfunction(method.__func__):
            setattr(cls, name, classmethod(_checked(f'{cls.__name__}.{name}', method.__func__, check)))
        elif inspect.isfunction(method):
            setattr(cls, name, _checked(f'{cls.__name__}.{name}', method, check))


def _checked(name: str, method: Callable[..., Any], check: Check) -> Callable[..., Any]:
    @functools.wraps(method)
    def checked(self: Any, *arguments: Any, **others: Any) -> Any:
        result = method(self, *arguments, **others)
        if expected := check(result, arguments):
            raise TypeError(f'{name} returned {describe(result)}, expected {expected}')
        return result

    return checked


def _values(result: Any, arguments: tuple[Any, ...]) -> str:
    """Expect one value for each observation of the first argument."""
    sizes, n = sizes_of(result), (sizes_of(arguments[0]) or [None])[0] if arguments else None
    known = hasattr(result, 'shape') and 'float' in str(getattr(result, 'dtype', 'float'))
    if known and (sizes is None or (len(sizes) == 1 and (None in (n, sizes[0]) or n == sizes[0]))):
        return ''
    return 'one float for each observation, of shape ' + ('[B]' if n is None else f'[{n}]')


def _two_tensors(result: Any, arguments: tuple[Any, ...]) -> str:
    is_pair = isinstance(result, tuple | list) and len(result) == 2
    return '' if is_pair else 'the values [T + 1, N] and the advantages [T, N]'


def _value_table(result: Any, arguments: tuple[Any, ...]) -> str:
    sizes = sizes_of(result)
    return '' if hasattr(result, 'shape') and (sizes is None or len(sizes) == 2) else 'action values of shape [B, n]'


def _atoms(result: Any, arguments: tuple[Any, ...]) -> str:
    sizes = sizes_of(result)
    return '' if hasattr(result, 'shape') and (sizes is None or len(sizes) == 2) else 'distributions of shape [B, K]'


def _scalar(result: Any, arguments: tuple[Any, ...]) -> str:
    return '' if hasattr(result, 'shape') and not sizes_of(result) else 'a scalar loss'


def _mapping(result: Any, arguments: tuple[Any, ...]) -> str:
    return '' if isinstance(result, Mapping) else 'a dict'


def _rollout(result: Any, arguments: tuple[Any, ...]) -> str:
    return '' if isinstance(result, Mapping) else 'a rollout, as self.collector.collect(n_steps) returns'


def _actions(result: Any, arguments: tuple[Any, ...]) -> str:
    return '' if isinstance(result, Mapping) and 'actions' in result else "a dict with 'actions'"


def _logs(result: Any, arguments: tuple[Any, ...]) -> str:
    if result is not None and not isinstance(result, Mapping):
        return 'a dict of metrics by name'
    wrong = [name for name, value in (result or {}).items() if not is_number(value)]
    return f'a number as {wrong[0]!r}, not {describe(result[wrong[0]])}' if result and wrong else ''


def _parts(result: Any, arguments: tuple[Any, ...]) -> str:
    if not isinstance(result, Mapping):
        return 'a dict of parts'
    wrong = [
        n for n, x in result.items() if not hasattr(x, 'dtype') and not (hasattr(x, 'state') and hasattr(x, 'load'))
    ]
    kind = 'a NumPy array, or an object with state() and load(state)'
    return f'{kind}, under the name {wrong[0]!r}' if wrong else ''


_CHECKS: dict[str, Check] = {
    'advantages': _two_tensors,
    'collect': _rollout,
    'learn': _logs,
    'next_atoms': _atoms,
    'next_values': _values,
    'output_units': _mapping,
    'parts': _parts,
    'policy': _actions,
    'policy_loss': _scalar,
    'q_values': _value_table,
}
