"""The goal functions of an environment whose episodes each have a goal: rewards and ends, by any other goal.

Such an environment shows a Dict of `observation`, `achieved_goal` and `desired_goal`, and has
`compute_reward(achieved, desired, info)`, as those of Gymnasium-Robotics (Plappert et al. 2018, arXiv:1802.09464).
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
# steps whose goals batches and single calls are compared on
N_COMPARED_STEPS = 16


class GoalFunctions:
    """The goal functions of one environment, which lives in this process.

    Attributes:
        achieved: where the goal that was achieved stands in an encoded observation.
        desired: where the one that is desired stands, as wide.
        env: the environment.

    Args:
        name: the environment's, for messages.
        encoder: of its observations.
        make: makes the environment, after its space has been checked.

    Raises:
        OptionError: for an environment without the three keys or `compute_reward`, with images, or with goals that are
            no vectors.
    """

    def __init__(self, name: str, encoder: ObservationEncoder, make: Callable[[], gymnasium.Env]):
        self._space = _goal_space(name, encoder.raw_space)
        slices = encoder.slices()
        self.achieved, self.desired = slices['achieved_goal'], slices['desired_goal']
        self.env = make()
        try:
            if not self.env.has_wrapper_attr('compute_reward'):
                problem = f'{name} has no compute_reward, by which other goals would be rewarded, and HER needs one'
                raise OptionError('her', problem)
            seen = _sample_observations(self.env, encoder)
            pairs = self._pairs(seen[:, self.achieved], seen[:, self.desired])
            self._reward = _GoalFunction(name, self.env.get_wrapper_attr('compute_reward'), pairs)
            self._terminated: _GoalFunction | None = None
            if self.env.has_wrapper_attr('compute_terminated'):
                self._terminated = _GoalFunction(name, self.env.get_wrapper_attr('compute_terminated'), pairs)
        except BaseException:
            self.env.close()
            raise

    def compute_rewards(self, achieved: np.ndarray, desired: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
        """Say what it is worth to have achieved goals where others were desired, encoded ones [B, g] each.

        Returns:
            Rewards, float32 [B], and whether episodes end by it, bool [B]; None where the environment does not say.
        """
        goals = self._decode(achieved), self._decode(desired)
        terminated = None if self._terminated is None else self._terminated(*goals).astype(bool)
        return self._reward(*goals).astype(np.float32), terminated

    def _decode(self, goals: np.ndarray) -> np.ndarray:
        """Return encoded goals [B, g] as the environment has them, [B, *shape]."""
        return goals.reshape(len(goals), *self._space.shape).astype(self._space.dtype)

    def _pairs(self, achieved: np.ndarray, desired: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return pairs of goals to compare calls on: as they came, equal ones, and achieved ones of two steps."""
        pairs = [(achieved, desired), (achieved, achieved), (achieved, np.roll(achieved, 1, axis=0))]
        one, other = (np.concatenate(goals) for goals in zip(*pairs, strict=True))
        return self._decode(one), self._decode(other)


class _GoalFunction:
    """A goal function, called on whole batches where that gives what single calls give, else for one row at a time."""

    def __init__(self, name: str, function: Callable[[Any, Any, dict[str, Any]], Any], pairs: tuple[Any, Any]):
        self._function = function
        try:
            one_by_one = self._loop(*pairs)
        except Exception as error:  # whatever somebody's function raises
            problem = f'{function.__name__} of {name} fails without an info: {type(error).__name__}: {one_line(error)}'
            raise OptionError('her', problem) from error
        try:
            self._batched = bool(np.allclose(self._batch(*pairs), one_by_one, rtol=1e-5, atol=1e-6))
        except Exception:  # it takes single goals only
            self._batched = False

    def __call__(self, achieved: np.ndarray, desired: np.ndarray) -> np.ndarray:
        """Return a value a row, [B], for goals [B, *shape]."""
        return (self._batch if self._batched else self._loop)(achieved, desired)

    def _batch(self, achieved: np.ndarray, desired: np.ndarray) -> np.ndarray:
        # one value for all, as of a function that always says no, stands for each
        return np.broadcast_to(np.asarray(self._function(achieved, desired, {})), len(achieved))

    def _loop(self, achieved: np.ndarray, desired: np.ndarray) -> np.ndarray:
        return np.array([float(self._function(*goals, {})) for goals in zip(achieved, desired, strict=True)])


def _goal_space(name: str, space: spaces.Space) -> spaces.Box | spaces.MultiBinary:
    """Return the space of the goals in an observation space that has some; raises OptionError for any other."""
    keys = list(space.spaces) if isinstance(space, spaces.Dict) else []
    if not isinstance(space, spaces.Dict) or not set(KEYS) <= set(keys):
        shown = f'a Dict of {", ".join(map(str, keys))}' if keys else f'a {type(space).__name__}'
        raise OptionError('her', f'{name} shows {shown}, expected a Dict of {", ".join(KEYS)}')
    for key, part in space.spaces.items():
        if isinstance(part, spaces.Box) and len(part.shape) + (part.dtype == np.uint8) > 2:
            raise OptionError('her', f'{name} shows an image, {key} {list(part.shape)}, expected vectors')
    achieved, desired = space['achieved_goal'], space['desired_goal']
    floats = isinstance(achieved, spaces.Box) and achieved.dtype != np.uint8
    if not floats and not isinstance(achieved, spaces.MultiBinary):
        raise OptionError(
            'her', f'{name} has goals of {one_line(achieved)}, expected Box (but of bytes) or MultiBinary'
        )
    if type(desired) is not type(achieved) or desired.shape != achieved.shape or desired.dtype != achieved.dtype:
        raise OptionError(
            'her', f'{name} achieves {one_line(achieved)} and desires {one_line(desired)}, expected one space'
        )
    assert isinstance(achieved, spaces.Box | spaces.MultiBinary)
    return achieved


def _sample_observations(env: gymnasium.Env, encoder: ObservationEncoder) -> np.ndarray:
    """Return what an environment shows in a few steps at random, encoded."""
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
