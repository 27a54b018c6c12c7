"""A corridor: reaching its right end gives the reward 1; every other step gives -0.01."""

import gymnasium
import numpy as np
from gymnasium import spaces


class Corridor(gymnasium.Env):
    """Observations are the position from 0 to 1; actions are left and right.

    Args:
        length: number of steps from the left end to the right end.
        render_mode: 'rgb_array' or None.
    """

    metadata = {'render_modes': ['rgb_array'], 'render_fps': 10}

    def __init__(self, length=8, render_mode=None):
        self.length, self.render_mode = length, render_mode
        self.observation_space = spaces.Box(0.0, 1.0, (1,), np.float32)
        self.action_space = spaces.Discrete(2)
        self.place = self.age = 0

    def reset(self, *, seed=None, options=None):
        """Start a new episode in the left half."""
        super().reset(seed=seed)
        self.place, self.age = int(self.np_random.integers(self.length // 2)), 0
        return self._seen(), {}

    def step(self, action):
        """Move one position to the left or to the right."""
        self.place = int(np.clip(self.place + (1 if action else -1), 0, self.length))
        self.age += 1
        there = self.place == self.length
        return self._seen(), 1.0 if there else -0.01, there, self.age >= 4 * self.length, {}

    def _seen(self):
        return np.array([self.place / self.length], np.float32)

    def render(self):
        """Return an image of the corridor with the position in white."""
        picture = np.zeros((32, 32 * (self.length + 1), 3), np.uint8)
        picture[:, 32 * self.place : 32 * (self.place + 1)] = 255
        return picture
