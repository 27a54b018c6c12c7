r"""A wrapper that hides elements of an observation, such as velocities, so that an agent needs memory.

    xagents train ppo --env CartPole-v1 --wrapper examples.partial_observations:SelectElements 'elements=[0,2]' \
        --memory 64 --tuned --seed 2 --run-dir runs/cartpole
    xagents play --run-dir runs/cartpole --checkpoint last --video-dir video

These commands run in a clone of the repository. The agent sees the position of the cart and the angle of the pole, and
no velocity.
"""

from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces


class SelectElements(gymnasium.ObservationWrapper):
    """Return only some elements of an observation vector.

    Args:
        env: the environment, with a Box of one axis.
        elements: the indices of the elements that the agent sees.
    """

    def __init__(self, env: gymnasium.Env, elements: Sequence[int]):
        super().__init__(env)
        self.elements, whole = list(elements), env.observation_space
        assert isinstance(whole, spaces.Box)
        low, high = (bound[self.elements] for bound in (whole.low, whole.high))
        self.observation_space = spaces.Box(low, high, dtype=whole.dtype.type)

    def observation(self, observation: Any) -> np.ndarray:
        """Return the selected elements, float [len(elements)]."""
        return observation[self.elements]
