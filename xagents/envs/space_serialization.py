"""Conversion of observation and action spaces to and from dicts for JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium import spaces

from xagents.options.errors import one_line


def space_to_dict(space: spaces.Space) -> dict[str, Any]:
    """Return a space as a dict for JSON; equal bounds of all elements become one number, infinite bounds None.

    Raises:
        ValueError: for a space other than Box, Discrete, MultiDiscrete, MultiBinary, or a Dict or Tuple of them.
    """
    if isinstance(space, spaces.Box):
        bounds = {'low': bound_to_json(space.low), 'high': bound_to_json(space.high)}
        return {'space': 'Box', 'shape': list(space.shape), 'dtype': space.dtype.name, **bounds}
    if isinstance(space, spaces.Discrete):
        return {'space': 'Discrete', 'n': int(space.n), 'start': int(space.start), 'dtype': space.dtype.name}
    if isinstance(space, spaces.MultiDiscrete):
        sizes = {'nvec': space.nvec.tolist(), 'start': space.start.tolist()}
        return {'space': 'MultiDiscrete', **sizes, 'dtype': space.dtype.name}
    if isinstance(space, spaces.MultiBinary):
        return {'space': 'MultiBinary', 'n': space.n if isinstance(space.n, int) else list(space.n)}
    if isinstance(space, spaces.Dict):
        return {'space': 'Dict', 'parts': [[key, space_to_dict(part)] for key, part in space.spaces.items()]}
    if isinstance(space, spaces.Tuple):
        return {'space': 'Tuple', 'parts': [space_to_dict(part) for part in space.spaces]}
    raise ValueError(f'the space {one_line(space)} cannot be converted to JSON')


def space_from_dict(record: Mapping[str, Any]) -> spaces.Space:
    """Return the space that `space_to_dict` converted.

    Raises:
        ValueError: if the dict is not that of a space, in one line.
    """
    try:
        return _space(record)
    except (KeyError, TypeError, AttributeError, AssertionError, OverflowError) as error:
        raise ValueError(f'it is no record of a space ({type(error).__name__}: {one_line(error)})') from error


def _space(record: Mapping[str, Any]) -> spaces.Space:
    kind = record['space']
    dtype: Any = np.dtype(record.get('dtype', 'int8'))
    if kind == 'Box':
        shape = tuple(record['shape'])
        low, high = (_array(record[name], shape, dtype, sign) for name, sign in (('low', -1), ('high', 1)))
        return spaces.Box(low, high, shape, dtype)
    if kind == 'Discrete':
        return spaces.Discrete(record['n'], start=record['start'], dtype=dtype)
    if kind == 'MultiDiscrete':
        return spaces.MultiDiscrete(np.array(record['nvec'], dtype), dtype, start=np.array(record['start'], dtype))
    if kind == 'MultiBinary':
        return spaces.MultiBinary(record['n'])
    if kind == 'Dict':
        return spaces.Dict([(key, _space(part)) for key, part in record['parts']])
    if kind == 'Tuple':
        return spaces.Tuple([_space(part) for part in record['parts']])
    raise KeyError(kind)


def bound_to_json(array: np.ndarray) -> Any:
    """Return a bound as one number if it is equal for all elements, otherwise as a list of numbers."""
    numbers = [number if np.isfinite(number) else None for number in array.ravel().tolist()]
    return numbers[0] if len(set(numbers)) == 1 else numbers


def _array(bound: Any, shape: tuple[int, ...], dtype: Any, sign: int) -> np.ndarray:
    if not isinstance(bound, list):
        return np.full(shape, sign * np.inf if bound is None else bound, dtype)
    return np.array([sign * np.inf if number is None else number for number in bound], dtype).reshape(shape)
