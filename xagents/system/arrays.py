"""Prefixes for named arrays: the array `name` of a part is `part/name` in the state of the whole.

The part '' is the whole itself: its arrays have no prefix.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

T = TypeVar('T')


def add_prefix(part: str, arrays: Mapping[str, T]) -> dict[str, T]:
    """Return arrays with the prefix `part/` before their names."""
    return {f'{part}/{name}': array for name, array in arrays.items()} if part else dict(arrays)


def strip_prefix(part: str, arrays: Mapping[str, T]) -> dict[str, T]:
    """Return the arrays whose names have the prefix `part/`, without the prefix."""
    prefix = f'{part}/' if part else ''
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}
