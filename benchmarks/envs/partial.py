"""A wrapper that hides elements of an observation, such as velocities."""

from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces


class Shown(gymnasium.ObservationWrapper):
    """Shows some elements of an observation vector only.

    Args:
        env: the environment, with a Box of one axis.
        elements: the indices of the elements that are shown.
    """

    def __init__(self, env: gymnasium.Env, elements: Sequence[int]):
        super().__init__(env)
        self.elements, whole = list(elements), env.observation_space
        assert isinstance(whole, spaces.Box)
        low, high = (bound[self.elements] for bound in (whole.low, whole.high))
        self.observation_space = spaces.Box(low, high, dtype=whole.dtype.type)

    def observation(self, observation: Any) -> np.ndarray:
        """Return the elements that are shown."""
        return observation[self.elements]
