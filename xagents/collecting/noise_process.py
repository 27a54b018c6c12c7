"""Exploration with a memory: noise that drifts instead of trembling."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np


class OrnsteinUhlenbeckNoise:
    """Makes drifting noise of white noise: one process an environment, which begins anew with each episode.

    x ← x − θ x dt + √dt N(0, 1) (Uhlenbeck and Ornstein 1930; Lillicrap et al. 2016, section 7).

    Args:
        theta: how fast it returns to 0; a larger one forgets sooner.
        dt: length of a step; with 0.01 an episode's noise drifts rather than trembles.
    """

    def __init__(self, theta: float = 0.15, dt: float = 0.01):
        self._keep = np.float32(1.0 - theta * dt)
        self._root = np.float32(dt**0.5)
        self._x = np.zeros((0, 0), np.float32)

    def __call__(self, noise: np.ndarray, valid: np.ndarray) -> np.ndarray:
        """Return noise [N, A], the next call's array, too, of white noise [N, A] of standard deviation 1.

        Environments that are not `valid` [N], within an episode, begin at 0.
        """
        if self._x.shape != noise.shape:
            self._x = np.zeros(noise.shape, np.float32)
        self._x *= self._keep
        self._x += self._root * noise
        self._x *= valid[:, None]
        return self._x

    def state(self) -> dict[str, np.ndarray]:
        """Return the processes as an array."""
        return {'x': self._x.copy()}

    def load(self, state: Mapping[str, np.ndarray]) -> None:
        """Take over what `state` returned."""
        self._x = np.array(state['x'], np.float32)
