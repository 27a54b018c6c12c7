"""Prefixes for named arrays: the array `name` of a part is `part/name` in the state of the whole."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np


def add_prefix(part: str, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return arrays with the prefix `part/` before their names."""
    return {f'{part}/{name}': array for name, array in arrays.items()}


def strip_prefix(part: str, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the arrays whose names have the prefix `part/`, without the prefix."""
    return {name.removeprefix(f'{part}/'): array for name, array in arrays.items() if name.startswith(f'{part}/')}
