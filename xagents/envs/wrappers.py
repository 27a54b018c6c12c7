"""The wrappers one environment gets: statistics from raw rewards, and the Atari preprocessing of the field.

From the inside out: `RawReward`, the Atari wrappers, the user's own wrappers, `EpisodeReport`.
"""

from __future__ import annotations

from typing import Any, cast

import gymnasium
import numpy as np
from gymnasium import spaces

# The key of an episode's report in an info: float64 [3], namely reward, length and success (NaN where not reported).
REPORT = 'xagents_episode'

Step = tuple[Any, Any, bool, bool, dict[str, Any]]


class RawReward(gymnasium.Wrapper):
    """Adds up the environment's own rewards, before any wrapper changes them.

    Attributes:
        total: the sum since the environment was reset.
        previous: the sum of the episode before.
        resets: how often the environment was reset.
    """

    def __init__(self, env: gymnasium.Env) -> None:
        super().__init__(env)
        self.total = self.previous = 0.0
        self.resets = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Resets the environment and the sum."""
        self.previous, self.total = self.total, 0.0
        self.resets += 1
        return self.env.reset(seed=seed, options=options)

    def step(self, action: Any) -> Step:
        """Steps and adds."""
        result = self.env.step(action)
        self.total += float(result[1])
        return cast(Step, result)


class EpisodicLife(gymnasium.Wrapper):
    """Ends what the learner sees as an episode with each life, and resets the game only when it is over.

    Mnih et al., "Human-level control through deep reinforcement learning" (2015), methods: a life lost ends the
    episode in training. After it, `reset` goes on with the next life by one step that does nothing. A `reset` with a
    seed always resets the game.

    Attributes:
        lost: whether the last step lost a life and left the game going on.
    """

    def __init__(self, env: gymnasium.Env) -> None:
        super().__init__(env)
        self.lost = False
        self._lives = 0

    def step(self, action: Any) -> Step:
        """Steps; terminated is also True when a life was lost."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        lives = _lives(self)
        # Some games show zero lives for a few frames before they are over.
        self.lost = 0 < lives < self._lives and not (terminated or truncated)
        self._lives = lives
        return observation, reward, terminated or self.lost, truncated, info

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Goes on with the next life, or resets the game where it is over."""
        over = True
        if self.lost and seed is None:
            observation, _, terminated, truncated, info = self.env.step(0)
            over = terminated or truncated
        if over:
            observation, info = self.env.reset(seed=seed, options=options)
        self.lost = False
        self._lives = _lives(self)
        return observation, info


class FireReset(gymnasium.Wrapper):
    """Presses FIRE at the start of each life, for games that wait for it.

    Where a life is lost and the episode goes on (without `EpisodicLife`), the press is added to the step that lost it.
    """

    def __init__(self, env: gymnasium.Env) -> None:
        super().__init__(env)
        self._fire = cast(Any, env.unwrapped).get_action_meanings().index('FIRE')
        self._lives = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Resets and presses FIRE."""
        self.env.reset(seed=seed, options=options)
        observation, _, terminated, truncated, info = self.env.step(self._fire)
        if terminated or truncated:
            observation, info = self.env.reset(options=options)
        self._lives = _lives(self)
        return observation, info

    def step(self, action: Any) -> Step:
        """Steps, and presses FIRE where a new life begins within the episode."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        lives = _lives(self)
        if 0 < lives < self._lives and not (terminated or truncated):
            observation, more, terminated, truncated, info = self.env.step(self._fire)
            reward = float(reward) + float(more)
            lives = _lives(self)
        self._lives = lives
        return observation, reward, terminated, truncated, info


class StickyActions(gymnasium.Wrapper):
    """Repeats the action before with a probability, in each frame anew, as the Arcade Learning Environment does.

    The emulator's own repetition remembers an action that no copy of its state holds, so here it is told not to repeat.
    Machado et al., "Revisiting the Arcade Learning Environment" (2018), section 5.2.

    Args:
        env: an ALE environment made with `frameskip=1`, which takes over the probability it was made with.
    """

    def __init__(self, env: gymnasium.Env) -> None:
        super().__init__(env)
        inner = cast(Any, env.unwrapped)
        self.probability: float = inner.ale.getFloat('repeat_action_probability')
        self._last: Any = 0
        inner.ale.setFloat('repeat_action_probability', 0.0)
        inner.load_game()  # which is when the emulator reads its settings

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Resets; the action before the first one is to do nothing."""
        self._last = 0
        return self.env.reset(seed=seed, options=options)

    def step(self, action: Any) -> Step:
        """Takes the action, or once more the one before."""
        if self.env.unwrapped.np_random.random() >= self.probability:
            self._last = int(action)
        return self.env.step(self._last)


class FrameStack(gymnasium.Wrapper):
    """Shows the last `size` frames [H, W] as one image [H, W, size], the newest last.

    A reset fills the stack with the first frame.
    """

    def __init__(self, env: gymnasium.Env, size: int) -> None:
        super().__init__(env)
        frame = cast(spaces.Box, env.observation_space)
        low, high = (np.repeat(bound[..., None], size, axis=-1) for bound in (frame.low, frame.high))
        self.observation_space = spaces.Box(low, high, dtype=cast(Any, frame.dtype))
        self._size = size
        self._stack = np.zeros(low.shape, frame.dtype)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Resets and fills the stack."""
        frame, info = self.env.reset(seed=seed, options=options)
        self._stack = np.repeat(frame[..., None], self._size, axis=-1)
        return self._stack, info

    def step(self, action: Any) -> Step:
        """Steps and moves the stack on by one frame."""
        frame, reward, terminated, truncated, info = self.env.step(action)
        # A new array each time: whoever holds the last one keeps it as it was.
        self._stack = np.concatenate([self._stack[..., 1:], frame[..., None]], axis=-1)
        return self._stack, reward, terminated, truncated, info


class ClipReward(gymnasium.RewardWrapper):
    """Clips rewards to their sign (Mnih et al. 2015)."""

    def reward(self, reward: Any) -> float:
        """Returns -1.0, 0.0 or 1.0."""
        return float(np.sign(reward))


class EpisodeReport(gymnasium.Wrapper):
    """The outermost wrapper: reports an episode that ended, and passes on nothing else of the info.

    The report stands under the key `REPORT` of the info: float64 [3], the sum of the environment's raw rewards, the
    number of steps the agent took, and `is_success` (NaN where the environment says nothing about it). A life lost
    under `EpisodicLife` is no episode's end; a wrapper that ends the episode itself is.
    """

    def __init__(self, env: gymnasium.Env) -> None:
        super().__init__(env)
        raw = _find(env, RawReward)
        if raw is None:
            raise TypeError('EpisodeReport needs a RawReward within')
        self._raw: RawReward = raw
        self._life: EpisodicLife | None = _find(env, EpisodicLife)
        self._base = 0.0
        self._length = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Resets; after a life lost, the episode and its statistics go on."""
        goes_on = seed is None and self._life is not None and self._life.lost
        resets = self._raw.resets
        observation, _ = self.env.reset(seed=seed, options=options)
        if goes_on and self._raw.resets == resets:
            return observation, {}
        # The game may be over with the very step that begins the next life: that episode is reported here.
        info = self._report(self._raw.previous, {}) if goes_on else {}
        # A wrapper of the user's may end episodes without ever resetting the environment: then the sum goes on.
        self._base = 0.0 if self._raw.resets != resets else self._raw.total
        self._length = 0
        return observation, info

    def step(self, action: Any) -> Step:
        """Steps; the info holds the report of an episode that ended, or nothing."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        self._length += 1
        if not (terminated or truncated):
            return observation, reward, False, False, {}
        if self._life is not None and self._life.lost:
            if not truncated:
                return observation, reward, True, False, {}
            # A wrapper outside cut the episode on the step that lost a life: the next reset must be one of the game.
            self._life.lost = False
        return observation, reward, bool(terminated), bool(truncated), self._report(self._raw.total, info)

    def _report(self, total: float, info: dict[str, Any]) -> dict[str, Any]:
        success = info.get('is_success')
        success = np.nan if success is None else float(success)
        return {REPORT: np.array([total - self._base, self._length, success], np.float64)}


def _find(env: gymnasium.Env, kind: type[Any]) -> Any:
    """Returns the outermost wrapper of a kind, or None."""
    while isinstance(env, gymnasium.Wrapper):
        if isinstance(env, kind):
            return env
        env = env.env
    return None


def _lives(env: gymnasium.Env) -> int:
    return int(cast(Any, env.unwrapped).ale.lives())


def with_report(env: gymnasium.Env) -> gymnasium.Env:
    """Gives a ready-made environment statistics from its raw rewards, below all its wrappers.

    The chain of wrappers is changed in place: what it wraps innermost gets a `RawReward` around it.
    """
    if isinstance(env, EpisodeReport):
        return env
    if _find(env, RawReward) is None:
        if isinstance(env, gymnasium.Wrapper):
            innermost = env
            while isinstance(innermost.env, gymnasium.Wrapper):
                innermost = innermost.env
            innermost.env = RawReward(innermost.env)
        else:
            env = RawReward(env)
    return EpisodeReport(env)


def preprocess_atari(
    env: gymnasium.Env,
    *,
    frame_skip: int = 4,
    frame_stack: int = 4,
    clip_rewards: bool = True,
    episodic_life: bool = True,
    fire_reset: bool = True,
    max_episode_steps: int | None = None,
) -> gymnasium.Env:
    """Wraps an Atari game the way the field does, raw statistics included.

    84x84 greyscale frames, up to 30 steps of doing nothing at the start, each action repeated `frame_skip` frames with
    the maximum of the last two, then the switches. Machado et al., "Revisiting the Arcade Learning Environment" (2018).

    Args:
        env: an ALE environment made with `frameskip=1`; `StickyActions` repeats actions as it was made to.
        frame_skip: frames an action.
        frame_stack: frames an observation.
        clip_rewards: whether rewards are clipped to their sign (after the statistics).
        episodic_life: whether a life lost is `terminated`.
        fire_reset: whether FIRE is pressed at the start of a life, in games that have it.
        max_episode_steps: truncates after so many steps (not frames).

    Returns:
        an environment of observations uint8 [84, 84, frame_stack].
    """
    meanings = cast(Any, env.unwrapped).get_action_meanings()
    if cast(Any, env.unwrapped).ale.getFloat('repeat_action_probability') > 0:
        env = StickyActions(env)
    env = gymnasium.wrappers.AtariPreprocessing(env, frame_skip=frame_skip)
    if max_episode_steps is not None:
        env = gymnasium.wrappers.TimeLimit(env, max_episode_steps)
    env = RawReward(env)
    if episodic_life:
        env = EpisodicLife(env)
    if fire_reset and 'FIRE' in meanings:
        env = FireReset(env)
    env = FrameStack(env, frame_stack)
    return ClipReward(env) if clip_rewards else env
