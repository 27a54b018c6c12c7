"""Exploration noise that is correlated in time."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np


class OrnsteinUhlenbeckNoise:
    """Ornstein-Uhlenbeck noise from white noise: one process per environment, reset with each episode.

    x ← x − θ x dt + √dt N(0, 1) (Uhlenbeck and Ornstein 1930; Lillicrap et al. 2016, section 7).

    Args:
        theta: speed of the return to 0; larger values have shorter correlation times.
        dt: length of a step; 0.01 gives noise that is correlated over many steps.
    """

    def __init__(self, theta: float = 0.15, dt: float = 0.01):
        self._keep = np.float32(1.0 - theta * dt)
        self._root = np.float32(dt**0.5)
        self._x = np.zeros((0, 0), np.float32)

    def __call__(self, noise: np.ndarray, valid: np.ndarray) -> np.ndarray:
        """Return correlated noise [N, A] from white noise [N, A] of standard deviation 1.

        The next call overwrites the returned array. The noise of environments that are not `valid` [N], which only
        reset, is 0.
        """
        if self._x.shape != noise.shape:
            self._x = np.zeros(noise.shape, np.float32)
        self._x *= self._keep
        self._x += self._root * noise
        self._x *= valid[:, None]
        return self._x

    def state(self) -> dict[str, np.ndarray]:
        """Return the state of the processes as an array."""
        return {'x': self._x.copy()}

    def load(self, state: Mapping[str, np.ndarray]) -> None:
        """Load a state from `state`."""
        self._x = np.array(state['x'], np.float32)
