"""The scaling of a network's outputs to the bounds of actions, in float32. Does not load TensorFlow."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from gymnasium import spaces


class BoxScaling(NamedTuple):
    """The scaling of outputs to the bounds of a Box, float32 [A] each: clip to ±limit, · half + middle, clip to bounds.

    Attributes:
        limit: 1, or infinity for an element without finite bounds.
        half: half the range; 1 for an element without finite bounds.
        middle: the middle of the range; 0 for an element without finite bounds.
        low: the lower bounds.
        high: the upper bounds.
    """

    limit: np.ndarray
    half: np.ndarray
    middle: np.ndarray
    low: np.ndarray
    high: np.ndarray


def box_scaling(space: spaces.Box) -> BoxScaling:
    """Return the scaling of outputs to the bounds of a Box."""
    low, high = (bound.astype(np.float64).ravel() for bound in (space.low, space.high))
    finite = np.isfinite(low) & np.isfinite(high)
    limit = np.where(finite, np.float32(1), np.float32(np.inf))
    low32, high32 = _round_inward(low, np.inf), _round_inward(high, -np.inf)
    low, high = np.where(finite, low, -1.0), np.where(finite, high, 1.0)
    half, middle = (high / 2 - low / 2).astype(np.float32), (high / 2 + low / 2).astype(np.float32)
    return BoxScaling(limit, half, middle, low32, high32)


def _round_inward(bounds: np.ndarray, direction: float) -> np.ndarray:
    """Return bounds in float32, rounded towards the inside of the space.

    Args:
        bounds: lower or upper bounds.
        direction: inf for lower bounds, -inf for upper bounds.
    """
    rounded = bounds.astype(np.float32)
    outside = rounded < bounds if direction > 0 else rounded > bounds
    return np.where(outside, np.nextafter(rounded, np.float32(direction)), rounded)
