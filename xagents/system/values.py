"""Conversion of values to types that JSON and YAML support."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any


def survives_json(value: Any) -> bool:
    """Return whether a value is unchanged after writing and reading JSON."""
    if isinstance(value, list):
        return all(map(survives_json, value))
    if isinstance(value, dict):
        return all(type(key) is str and survives_json(one) for key, one in value.items())
    return value is None or type(value) in (bool, int, float, str)


def to_plain_value(value: Any, finite: bool = False) -> Any:
    """Return a value as dicts, lists, strings, numbers and None; other objects become strings.

    Args:
        value: the value; scalars and arrays of NumPy become numbers and lists.
        finite: whether to replace infinite numbers and NaN, which JSON lacks, by None.
    """
    if isinstance(value, Mapping):
        return {str(name): to_plain_value(one, finite) for name, one in value.items()}
    if hasattr(value, 'tolist'):
        value = value.tolist()
    if isinstance(value, list | tuple):
        return [to_plain_value(one, finite) for one in value]
    if isinstance(value, float) and finite and not math.isfinite(value):
        return None
    return value if value is None or isinstance(value, str | int | float) else str(value)


def is_number(value: Any) -> bool:
    """Return whether a value is one number: of Python, or an array or tensor without axes."""
    if isinstance(value, str | bytes) or not hasattr(value, '__float__'):
        return False
    return not hasattr(value, 'shape') or (sizes_of(value) == [] and not str(value.dtype).startswith(('<U', 'object')))


def sizes_of(value: Any) -> list[int | None] | None:
    """Return the sizes of the axes of an array or a tensor, None for unknown ones; None if their number is unknown."""
    shape = getattr(value, 'shape', None)
    return None if shape is None or getattr(shape, 'rank', 0) is None else list(shape)


def describe(value: Any) -> str:
    """Return the type of a value in words, with its shape if it has one."""
    if value is None:
        return 'None'
    sizes = sizes_of(value)
    dims = '' if sizes is None else f' of shape [{", ".join("?" if n is None else str(n) for n in sizes)}]'
    name = type(value).__name__
    return f'{"tensor" if "Tensor" in name else name}{dims}'
