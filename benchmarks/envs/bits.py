"""Bit flip, the environment of the paper on hindsight replay: `--env benchmarks.envs.bits:BitFlip-v0`."""

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces


class BitFlip(gymnasium.Env):
    """Flip one bit in each step until all bits equal the goal.

    The reward is -1 for each step and 0 for the last. Episodes are truncated after as many steps as there are bits.

    Andrychowicz et al. 2017, arXiv:1707.01495, section 3.1.
    """

    def __init__(self, bits: int = 6):
        self.bits = bits
        vector = spaces.Box(0, 1, (bits,), np.float32)
        self.observation_space = spaces.Dict({'achieved_goal': vector, 'desired_goal': vector, 'observation': vector})
        self.action_space = spaces.Discrete(bits)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.state, self.goal = self.np_random.integers(0, 2, (2, self.bits)).astype(np.float32)
        self.age = 0
        return self.observation(), {}

    def observation(self) -> dict[str, np.ndarray]:
        state = self.state.copy()
        return {'achieved_goal': state, 'desired_goal': self.goal.copy(), 'observation': state}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.state[action] = 1 - self.state[action]
        self.age += 1
        reward = float(self.compute_reward(self.state, self.goal, {}))
        won = bool(self.compute_terminated(self.state, self.goal, {}))
        return self.observation(), reward, won, self.age == self.bits and not won, {'is_success': won}

    def compute_reward(self, achieved: np.ndarray, desired: np.ndarray, info: Any) -> np.ndarray:
        return -np.any(achieved != desired, axis=-1).astype(np.float32)

    def compute_terminated(self, achieved: np.ndarray, desired: np.ndarray, info: Any) -> np.ndarray:
        return np.all(achieved == desired, axis=-1)


if 'BitFlip-v0' not in gymnasium.registry:
    gymnasium.register('BitFlip-v0', 'benchmarks.envs.bits:BitFlip')
