"""Environments and a wrapper with one fault each, which a user could have made: rewards, goal, or units."""

from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces


class Rewards(gymnasium.RewardWrapper):
    """Multiplies rewards, such as those in cents instead of thousands of euros.

    Args:
        env: the environment.
        factor: the factor.
    """

    def __init__(self, env: gymnasium.Env, factor: float):
        super().__init__(env)
        self.factor = factor

    def reward(self, reward: Any) -> float:
        """Return the multiplied reward."""
        return float(reward) * self.factor


class Goal(gymnasium.Wrapper):
    """Replaces rewards by 1 in the step that terminates an episode, and by 0 in all others."""

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Do a step."""
        observation, _, terminated, truncated, info = self.env.step(action)
        return observation, float(terminated), terminated, truncated, info


class Units(gymnasium.ObservationWrapper):
    """Shows an observation vector in other units, such as millimetres from a distant origin.

    Args:
        env: the environment, with a Box of one axis.
        scale: the factor of each element.
        offset: what is added to each element.
    """

    def __init__(self, env: gymnasium.Env, scale: Sequence[float], offset: Sequence[float]):
        super().__init__(env)
        self.scale, self.offset = np.float32(scale), np.float32(offset)
        self.observation_space = spaces.Box(-np.inf, np.inf, env.observation_space.shape, np.float32)

    def observation(self, observation: Any) -> np.ndarray:
        """Return the observation in the other units."""
        return observation * self.scale + self.offset


def cents() -> gymnasium.Env:
    """Return Pendulum with rewards of up to -16 millions."""
    return Rewards(gymnasium.make('Pendulum-v1').unwrapped, 1e6)


def goal() -> gymnasium.Env:
    """Return MountainCar with a reward at its goal only."""
    return Goal(gymnasium.make('MountainCar-v0').unwrapped)


gymnasium.register('Cents-v0', cents, max_episode_steps=200)
gymnasium.register('Goal-v0', goal, max_episode_steps=200)
