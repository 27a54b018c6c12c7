"""Checks of the results of methods that agents override: one line instead of an error of NumPy or TensorFlow.

A value of shape [B, 1] where [B] is expected would be broadcast to [B, B], and learning would fail silently.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any

from xagents.system.values import describe

Check = Callable[[Any, tuple[Any, ...]], str]


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
    shape = getattr(result, 'shape', None)
    n = getattr(arguments[0], 'shape', [None])[0] if arguments else None
    if shape is not None and len(shape) == 1 and (None in (n, shape[0]) or n == shape[0]):
        return ''
    return 'one value for each observation, of shape ' + ('[B]' if n is None else f'[{n}]')


def _scalar(result: Any, arguments: tuple[Any, ...]) -> str:
    return '' if getattr(result, 'shape', None) is not None and len(result.shape) == 0 else 'a scalar loss'


def _mapping(result: Any, arguments: tuple[Any, ...]) -> str:
    return '' if isinstance(result, Mapping) else 'a dict'


def _rollout(result: Any, arguments: tuple[Any, ...]) -> str:
    return '' if isinstance(result, Mapping) else 'a rollout, as self.collector.collect(n_steps) returns'


def _actions(result: Any, arguments: tuple[Any, ...]) -> str:
    return '' if isinstance(result, Mapping) and 'actions' in result else "a dict with 'actions'"


def _logs(result: Any, arguments: tuple[Any, ...]) -> str:
    return '' if result is None or isinstance(result, Mapping) else 'a dict of metrics by name'


def _parts(result: Any, arguments: tuple[Any, ...]) -> str:
    if not isinstance(result, Mapping):
        return 'a dict of parts'
    wrong = [
        n for n, x in result.items() if not hasattr(x, 'dtype') and not (hasattr(x, 'state') and hasattr(x, 'load'))
    ]
    kind = 'a NumPy array, or an object with state() and load(state)'
    return f'{kind}, under the name {wrong[0]!r}' if wrong else ''


_CHECKS: dict[str, Check] = {
    'collect': _rollout,
    'learn': _logs,
    'next_values': _values,
    'output_units': _mapping,
    'parts': _parts,
    'policy': _actions,
    'policy_loss': _scalar,
}
