"""The goal functions of goal-conditioned environments: rewards and terminations for other goals.

The observations of such an environment are a Dict of `observation`, `achieved_goal` and `desired_goal`. Like the
environments of Gymnasium-Robotics (Plappert et al. 2018, arXiv:1802.09464), it has the method
`compute_reward(achieved, desired, info)`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from xagents.envs.spaces import ObservationEncoder
from xagents.options.errors import OptionError, one_line

KEYS = ('observation', 'achieved_goal', 'desired_goal')
# the number of steps on whose goals batched and single calls are compared
N_COMPARED_STEPS = 16


class GoalFunctions:
    """The goal functions of one environment in this process.

    Attributes:
        achieved: the slice of the achieved goal in an encoded observation.
        desired: the slice of the desired goal, of equal length.
        env: the environment.

    Args:
        name: the environment's name, for messages.
        encoder: the encoder of the environment's observations.
        make: a function that makes the environment; it is called after the space has been checked.

    Raises:
        OptionError: for an environment without the three keys or `compute_reward`, with images, or with goals that are
            not vectors.
    """

    def __init__(self, name: str, encoder: ObservationEncoder, make: Callable[[], gymnasium.Env]):
        self._space = _goal_space(name, encoder.raw_space)
        slices = encoder.slices()
        self.achieved, self.desired = slices['achieved_goal'], slices['desired_goal']
        self.env = make()
        try:
            if not self.env.has_wrapper_attr('compute_reward'):
                problem = f'{name} has no compute_reward, expected one: HER computes the rewards of other goals with it'
                raise OptionError('her', problem)
            seen = _sample_observations(self.env, encoder)
            pairs = self._pairs(seen[:, self.achieved], seen[:, self.desired])
            names = [n for n in ('compute_reward', 'compute_terminated') if self.env.has_wrapper_attr(n)]
            self._functions = [_GoalFunction(name, self.env.get_wrapper_attr(n), pairs) for n in names]
        except BaseException:
            self.env.close()
            raise

    def compute_rewards(self, achieved: np.ndarray, desired: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
        """Return the rewards and terminations for pairs of achieved and desired goals.

        Args:
            achieved: encoded achieved goals [B, g].
            desired: encoded desired goals [B, g].

        Returns:
            rewards, float32 [B], and terminated, bool [B] or None if the environment has no `compute_terminated`.
        """
        goals = self._decode(achieved), self._decode(desired)
        rewards, *terminated = (function(*goals) for function in self._functions)
        return rewards.astype(np.float32), terminated[0].astype(bool) if terminated else None

    def _decode(self, goals: np.ndarray) -> np.ndarray:
        """Return encoded goals [B, g] in the shape and dtype of the goal space, [B, *shape]."""
        return goals.reshape(len(goals), *self._space.shape).astype(self._space.dtype)

    def _pairs(self, achieved: np.ndarray, desired: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return pairs of goals for the comparison: observed pairs, equal goals, and achieved goals of two steps."""
        pairs = [(achieved, desired), (achieved, achieved), (achieved, np.roll(achieved, 1, axis=0))]
        one, other = (np.concatenate(goals) for goals in zip(*pairs, strict=True))
        return self._decode(one), self._decode(other)


class _GoalFunction:
    """A goal function that is called with whole batches if they give the results of single calls, else row by row."""

    def __init__(self, name: str, function: Callable[[Any, Any, dict[str, Any]], Any], pairs: tuple[Any, Any]):
        self._function = function
        try:
            one_by_one = self._loop(*pairs)
        except Exception as error:  # a user's function may raise any exception
            problem = f'{function.__name__} of {name} fails without an info: {type(error).__name__}: {one_line(error)}'
            raise OptionError('her', problem) from error
        try:
            self._batched = bool(np.allclose(self._batch(*pairs), one_by_one, rtol=1e-5, atol=1e-6))
        except Exception:  # the function accepts single goals only
            self._batched = False

    def __call__(self, achieved: np.ndarray, desired: np.ndarray) -> np.ndarray:
        """Return one value for each row, [B], of goals [B, *shape]."""
        return (self._batch if self._batched else self._loop)(achieved, desired)

    def _batch(self, achieved: np.ndarray, desired: np.ndarray) -> np.ndarray:
        # a function may return one value for all rows, such as a constant False
        return np.broadcast_to(np.asarray(self._function(achieved, desired, {})), len(achieved))

    def _loop(self, achieved: np.ndarray, desired: np.ndarray) -> np.ndarray:
        return np.array([float(self._function(*goals, {})) for goals in zip(achieved, desired, strict=True)])


def _goal_space(name: str, space: spaces.Space) -> spaces.Box | spaces.MultiBinary:
    """Return the space of goals in an observation space; raise OptionError if the space has no supported goals."""
    keys = list(space.spaces) if isinstance(space, spaces.Dict) else []
    if not isinstance(space, spaces.Dict) or not set(KEYS) <= set(keys):
        shown = f'a Dict of {", ".join(map(str, keys))}' if keys else f'a {type(space).__name__}'
        raise OptionError('her', f'{name} has observations of {shown}, expected a Dict of {", ".join(KEYS)}')
    for key, part in space.spaces.items():
        if isinstance(part, spaces.Box) and len(part.shape) + (part.dtype == np.uint8) > 2:
            raise OptionError('her', f'{name} has an image, {key} {list(part.shape)}, expected vectors')
    achieved, desired = space['achieved_goal'], space['desired_goal']
    floats = isinstance(achieved, spaces.Box) and achieved.dtype != np.uint8
    if not floats and not isinstance(achieved, spaces.MultiBinary):
        problem = f'{name} has goals of {one_line(achieved)}, expected Box (but not uint8) or MultiBinary'
        raise OptionError('her', problem)
    if type(desired) is not type(achieved) or desired.shape != achieved.shape or desired.dtype != achieved.dtype:
        problem = f'{name} achieves {one_line(achieved)} and desires {one_line(desired)}, expected equal spaces'
        raise OptionError('her', problem)
    assert isinstance(achieved, spaces.Box | spaces.MultiBinary)
    return achieved


def _sample_observations(env: gymnasium.Env, encoder: ObservationEncoder) -> np.ndarray:
    """Return the encoded observations of a few random steps."""
    env.action_space.seed(0)
    shown, over = [encoder([env.reset(seed=0)[0]])], False
    while len(shown) < N_COMPARED_STEPS:
        if over:
            observation, over = env.reset()[0], False
        else:
            observation, _, terminated, truncated, _ = env.step(env.action_space.sample())
            over = terminated or truncated
        shown.append(encoder([observation]))
    return np.concatenate(shown)
