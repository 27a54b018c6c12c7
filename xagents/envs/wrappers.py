"""The wrappers one environment gets: statistics from raw rewards, and the Atari preprocessing of the field.

From the inside out: `RawReward`, the Atari wrappers, the user's own wrappers, `EpisodeReport`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, cast

import gymnasium
import numpy as np
from gymnasium import spaces

# The key of an episode's report in an info: float64 [3], namely reward, length and success (NaN where not reported).
REPORT = 'xagents_episode'
# what environments call it in an info; the first that is there counts
SUCCESS = ('is_success', 'success')

Step = tuple[Any, Any, bool, bool, dict[str, Any]]


class RawReward(gymnasium.Wrapper):
    """Adds up the environment's own rewards, before any wrapper changes them.

    `total` is the sum since the environment was reset, `previous` that of the episode before, `resets` how many.
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

    Mnih et al., "Human-level control through deep reinforcement learning" (2015), methods. After a life `life_lost`,
    `reset`
    goes on with the next one by one step that does nothing; with a seed it always resets the game.
    """

    def __init__(self, env: gymnasium.Env) -> None:
        super().__init__(env)
        self.life_lost = False
        self._lives = 0

    def step(self, action: Any) -> Step:
        """Steps; terminated is also True when a life was lost."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        lives = _lives(self)
        # Some games show zero lives for a few frames before they are over.
        self.life_lost = 0 < lives < self._lives and not (terminated or truncated)
        self._lives = lives
        return observation, reward, terminated or self.life_lost, truncated, info

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Goes on with the next life, or resets the game where it is over."""
        over = True
        if self.life_lost and seed is None:
            observation, _, terminated, truncated, info = self.env.step(0)
            over = terminated or truncated
        if over:
            observation, info = self.env.reset(seed=seed, options=options)
        self.life_lost = False
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
    """Repeats the action before with the probability that the ALE was made with, in each frame (`frameskip=1`) anew.

    The emulator's own repetition keeps an action that its saved state does not contain, so it is switched off here.
    Machado et al., "Revisiting the Arcade Learning Environment" (2018), section 5.2.
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
    """The outermost wrapper: reports an episode that ended under `REPORT`, and passes on nothing else of the info.

    A life lost under `EpisodicLife` is no episode's end; a wrapper that ends the episode itself is.
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
        goes_on = seed is None and self._life is not None and self._life.life_lost
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
        if self._life is not None and self._life.life_lost:
            if not truncated:
                return observation, reward, True, False, {}
            # A wrapper outside cut the episode on the step that lost a life: the next reset must be one of the game.
            self._life.life_lost = False
        return observation, reward, bool(terminated), bool(truncated), self._report(self._raw.total, info)

    def _report(self, total: float, info: dict[str, Any]) -> dict[str, Any]:
        return {REPORT: np.array([total - self._base, self._length, success_of(info)], np.float64)}


def is_success_value(value: Any) -> bool:
    """Whether a value of an info is a number or a truth value: under `success`, environments may keep anything."""
    return np.size(value) == 1 and np.asarray(value).dtype.kind in 'biuf'


def success_of(info: Mapping[str, Any]) -> float:
    """Return what an environment's info says about success, NaN where it says nothing."""
    if not info:  # mostly, and looking at it costs as much as a small environment's step
        return np.nan
    return next((float(info[name]) for name in SUCCESS if is_success_value(info.get(name))), np.nan)


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
    """Gives a ready-made environment statistics from its raw rewards, by a `RawReward` put below all its wrappers."""
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


@dataclasses.dataclass(frozen=True)
class AtariConfig:
    """How an Atari game is preprocessed; see `create_envs`."""

    frame_stack: int
    clip_rewards: bool
    episodic_life: bool
    fire_reset: bool
    sticky_actions: bool

    def for_evaluation(self) -> AtariConfig:
        """Return the same for watching: only the game ends an episode, and rewards stay raw."""
        return dataclasses.replace(self, clip_rewards=False, episodic_life=False)


def preprocess_atari(
    env: gymnasium.Env, atari: AtariConfig, frame_skip: int = 4, max_episode_steps: int | None = None
) -> gymnasium.Env:
    """Wraps an Atari game, made with `frameskip=1`, the way the field does, raw statistics included.

    84x84 greyscale frames, up to 30 steps of doing nothing at the start, each action repeated `frame_skip` frames with
    the maximum of the last two, then the switches. Machado et al., "Revisiting the Arcade Learning Environment" (2018).

    Returns:
        an environment of observations uint8 [84, 84, frame_stack], truncated after `max_episode_steps` (not frames).
    """
    inner = cast(Any, env.unwrapped)
    if inner.ale.getFloat('repeat_action_probability') > 0:
        env = StickyActions(env)
    env = gymnasium.wrappers.AtariPreprocessing(env, frame_skip=frame_skip)
    if max_episode_steps is not None:
        env = gymnasium.wrappers.TimeLimit(env, max_episode_steps)
    env = RawReward(env)
    if atari.episodic_life:
        env = EpisodicLife(env)
    if atari.fire_reset and 'FIRE' in inner.get_action_meanings():
        env = FireReset(env)
    env = FrameStack(env, atari.frame_stack)
    return ClipReward(env) if atari.clip_rewards else env
