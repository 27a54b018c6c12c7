"""Environments with one fault each, and one without."""

from __future__ import annotations

import gymnasium
import numpy as np
from gymnasium import spaces


class Walk(gymnasium.Env):
    """A walk on a line of 10 positions that begins in the middle; the right end has the reward 1."""

    observation_space = spaces.Box(-1.0, 1.0, (2,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self) -> None:
        self.position = self.steps = 0

    def observe(self):
        return np.array([self.position / 10, self.steps / 100], np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.position, self.steps = int(self.np_random.integers(-1, 2)), 0
        return self.observe(), {}

    def step(self, action):
        self.position += 1 if action else -1
        self.steps += 1
        ended = abs(self.position) >= 5
        return self.observe(), float(self.position >= 5), ended, self.steps >= 100 and not ended, {}


class OutOfBounds(Walk):
    def observe(self):
        return super().observe() * 20


class Constant(Walk):
    def observe(self):
        return np.array([0.5, self.position / 10], np.float32)


class Huge(Walk):
    observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float32)

    def observe(self):
        return super().observe() * 1e4


class NoReward(Walk):
    def step(self, action):
        observation, _, *others = super().step(action)
        return observation, 0.0, *others


class HugeReward(Walk):
    def step(self, action):
        observation, reward, *others = super().step(action)
        return observation, reward * 1e6, *others


class Endless(Walk):
    def step(self, action):
        observation, reward, _, _, info = super().step(action)
        self.position = int(np.clip(self.position, -5, 5))
        self.steps %= 100
        return observation, reward, False, False, info


class HiddenLimit(Walk):
    """A time limit that ends episodes as terminated."""

    def step(self, action):
        observation, reward, _, _, info = super().step(action)
        self.position = int(np.clip(self.position, -5, 5))
        return observation, reward, self.steps >= 20, False, info


class Unseeded(Walk):
    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.position = int(np.random.default_rng().integers(-4, 5))
        return self.observe(), {}


class NotFinite(Walk):
    def step(self, action):
        observation, _, *others = super().step(action)
        return observation, float('nan'), *others


class Unbounded(Walk):
    action_space = spaces.Box(-np.inf, np.inf, (1,), np.float32)

    def step(self, action):
        return super().step(int(action[0] > 0))


class WrongDtype(Walk):
    """Observations of another dtype than that of the space."""

    def observe(self):
        return super().observe().astype(np.float64)
