"""Arrays by name: those of a part stand in the state of the whole with the part's name and a slash before theirs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np


def add_prefix(part: str, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the arrays of a part by the names that they have in the whole."""
    return {f'{part}/{name}': array for name, array in arrays.items()}


def strip_prefix(part: str, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return those arrays of the whole that a part has, by its own names for them: undo `add_prefix`."""
    return {name.removeprefix(f'{part}/'): array for name, array in arrays.items() if name.startswith(f'{part}/')}
