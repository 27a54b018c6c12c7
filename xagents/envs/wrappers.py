"""Wrappers of a single environment: statistics from raw rewards, and the standard Atari preprocessing.

The order from the inside out is `RawReward`, the Atari wrappers, the user's own wrappers, `EpisodeReport`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, cast

import gymnasium
import numpy as np
from gymnasium import spaces

from xagents.envs.values.infos import InfoReader
from xagents.envs.values.parameters import find_params, set_params
from xagents.options.errors import OptionError, format_value
from xagents.system.values import describe, is_number

# The key of an episode's report in an info: float64 [4] of reward, length, success and the name of the opponent of a
# game (NaN if not reported).
REPORT = 'xagents_episode'
# the key in infos of the name of the opponent, a whole number, at the end of a game
OPPONENT = 'xagents_opponent'
# the keys of success in infos; the first one present counts
SUCCESS = ('is_success', 'success')

Step = tuple[Any, Any, bool, bool, dict[str, Any]]


class RawReward(gymnasium.Wrapper):
    """A wrapper that sums the environment's own rewards before any wrapper changes them.

    It also checks the results of the first reset and the first step, which no other class may do for a class of users.

    Attributes:
        total: the sum of rewards since the last reset.
        previous: the sum of rewards of the episode before.
        resets: the number of resets.
    """

    def __init__(self, env: gymnasium.Env) -> None:
        super().__init__(env)
        self.total = self.previous = 0.0
        self.resets = 0
        self._has_stepped = False

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Reset the environment and the sum of rewards."""
        self.previous, self.total = self.total, 0.0
        self.resets += 1
        result = self.env.reset(seed=seed, options=options)
        if self.resets == 1:
            self._check(result, 'reset', 2, 'observation and info')
        return result

    def step(self, action: Any) -> Step:
        """Step the environment and add the reward."""
        result = self.env.step(action)
        if not self._has_stepped:
            self._check(result, 'step', 5, 'observation, reward, terminated, truncated and info')
            self._has_stepped = True
        self.total += float(result[1])
        return cast(Step, result)

    def _check(self, result: Any, method: str, length: int, names: str) -> None:
        """Raise OptionError if the first result of a method of the environment has another form than Gymnasium's."""
        name, space = f'{type(self.env.unwrapped).__name__}.{method}', self.env.observation_space
        if not (isinstance(result, tuple) and len(result) == length and isinstance(result[-1], Mapping)):
            got = f'a tuple of {len(result)}' if isinstance(result, tuple) else describe(result)
            raise OptionError('env', f'{name} returned {got}, expected {names}')
        shape = np.shape(result[0]) if isinstance(space, spaces.Box) else None
        if shape is not None and shape != space.shape:
            got = f'an observation of shape {list(shape)}'
            raise OptionError(
                'env', f'{name} returned {got}, expected {list(space.shape or ())}, as its observation_space'
            )
        if length == 5 and not is_number(result[1]):
            raise OptionError('env', f'{name} returned the reward {format_value(result[1])}, expected a number')


class EpisodicLife(gymnasium.Wrapper):
    """A wrapper that ends an episode with each life, and resets the game only when the game is over.

    Mnih et al., "Human-level control through deep reinforcement learning" (2015), methods. After a lost life, `reset`
    takes one no-op step to continue with the next life. A reset with a seed always resets the game.

    Attributes:
        life_lost: whether the last step lost a life but did not end the game.
    """

    def __init__(self, env: gymnasium.Env) -> None:
        super().__init__(env)
        self.life_lost = False
        self._lives = 0

    def step(self, action: Any) -> Step:
        """Step the environment; terminated is also True if a life was lost."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        lives = _lives(self)
        # Some games report zero lives for a few frames before they end.
        self.life_lost = 0 < lives < self._lives and not (terminated or truncated)
        self._lives = lives
        return observation, reward, terminated or self.life_lost, truncated, info

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Continue with the next life, or reset the game if it is over."""
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
    """A wrapper that presses FIRE at the start of each life, for games that wait for FIRE.

    If a life is lost and the episode continues (without `EpisodicLife`), that step includes the press.
    """

    def __init__(self, env: gymnasium.Env) -> None:
        super().__init__(env)
        self._fire = cast(Any, env.unwrapped).get_action_meanings().index('FIRE')
        self._lives = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Reset the environment and press FIRE."""
        self.env.reset(seed=seed, options=options)
        observation, _, terminated, truncated, info = self.env.step(self._fire)
        if terminated or truncated:
            observation, info = self.env.reset(options=options)
        self._lives = _lives(self)
        return observation, info

    def step(self, action: Any) -> Step:
        """Step the environment, and press FIRE if a new life starts within the episode."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        lives = _lives(self)
        if 0 < lives < self._lives and not (terminated or truncated):
            observation, more, terminated, truncated, info = self.env.step(self._fire)
            reward = float(reward) + float(more)
            lives = _lives(self)
        self._lives = lives
        return observation, reward, terminated, truncated, info


class StickyActions(gymnasium.Wrapper):
    """A wrapper that repeats the previous action with the ALE's repeat probability, in each frame (`frameskip=1`).

    It switches off the emulator's own repetition, because the emulator's saved state lacks the previous action. Machado
    et al., "Revisiting the Arcade Learning Environment" (2018), section 5.2.
    """

    def __init__(self, env: gymnasium.Env) -> None:
        super().__init__(env)
        inner = cast(Any, env.unwrapped)
        self.probability: float = inner.ale.getFloat('repeat_action_probability')
        self._last: Any = 0
        inner.ale.setFloat('repeat_action_probability', 0.0)
        inner.load_game()  # the emulator reads its settings here

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Reset the environment; the action before the first one is the no-op."""
        self._last = 0
        return self.env.reset(seed=seed, options=options)

    def step(self, action: Any) -> Step:
        """Take the action, or repeat the previous action."""
        if self.env.unwrapped.np_random.random() >= self.probability:
            self._last = int(action)
        return self.env.step(self._last)


class FrameStack(gymnasium.Wrapper):
    """A wrapper whose observation is the last `size` frames [H, W] as one image [H, W, size], newest frame last.

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
        """Reset the environment and fill the stack."""
        frame, info = self.env.reset(seed=seed, options=options)
        self._stack = np.repeat(frame[..., None], self._size, axis=-1)
        return self._stack, info

    def step(self, action: Any) -> Step:
        """Step the environment and shift the stack by one frame."""
        frame, reward, terminated, truncated, info = self.env.step(action)
        # A new array each time, so that earlier observations stay unchanged.
        self._stack = np.concatenate([self._stack[..., 1:], frame[..., None]], axis=-1)
        return self._stack, reward, terminated, truncated, info


class ClipReward(gymnasium.RewardWrapper):
    """A wrapper that clips rewards to their sign (Mnih et al. 2015)."""

    def reward(self, reward: Any) -> float:
        """Return -1.0, 0.0 or 1.0."""
        return float(np.sign(reward))


class EpisodeReport(gymnasium.Wrapper):
    """The outermost wrapper, whose info contains only the report (key `REPORT`) of an episode that ended.

    A life lost under `EpisodicLife` does not end an episode. A wrapper that terminates or truncates does.

    Attributes:
        info_reader: the reader of numbers that infos contain in addition; None for no numbers.
    """

    def __init__(self, env: gymnasium.Env) -> None:
        super().__init__(env)
        raw = _find(env, RawReward)
        if raw is None:
            raise TypeError('EpisodeReport: got no RawReward among the inner wrappers, expected one')
        self._raw: RawReward = raw
        self._life: EpisodicLife | None = _find(env, EpisodicLife)
        self.info_reader: InfoReader | None = None
        self._base = 0.0
        self._length = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Reset the environment; after a lost life, the episode and its statistics continue."""
        continues = seed is None and self._life is not None and self._life.life_lost
        resets = self._raw.resets
        observation, _ = self.env.reset(seed=seed, options=options)
        if continues and self._raw.resets == resets:
            return observation, {}
        # The game may end in the step that starts the next life: report that episode here.
        info = self._report(self._raw.previous, {}) if continues else {}
        # A user's wrapper may end episodes without a reset of the environment; the sum then continues.
        self._base = 0.0 if self._raw.resets != resets else self._raw.total
        self._length = 0
        return observation, info

    def step(self, action: Any) -> Step:
        """Step the environment; the info contains the report of an episode that ended, and the selected numbers."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        self._length += 1
        passed: dict[str, Any] = {} if self.info_reader is None else self.info_reader.read(info or {})
        if not (terminated or truncated):
            return observation, reward, False, False, passed
        if self._life is not None and self._life.life_lost:
            if not truncated:
                return observation, reward, True, False, passed
            # An outer wrapper truncated the episode in the step that lost a life: the next reset must reset the game.
            self._life.life_lost = False
        return observation, reward, bool(terminated), bool(truncated), passed | self._report(self._raw.total, info)

    def set_env_params(self, params: Mapping[str, Any]) -> str:
        """Set parameters of the environment and return a problem; see `xagents.envs.values.parameters`."""
        return set_params(self, params)

    def find_env_params(self, params: Mapping[str, Sequence[float]]) -> tuple[dict[str, str], list[str]]:
        """Return why names are no parameters of the environment, and the names of all its parameters."""
        return find_params(self, params)

    def _report(self, total: float, info: dict[str, Any]) -> dict[str, Any]:
        opponent = info.get(OPPONENT, np.nan) if info else np.nan
        return {REPORT: np.array([total - self._base, self._length, success_of(info), opponent], np.float64)}


def is_success_value(value: Any) -> bool:
    """Return whether a value of an info is a number or bool; environments may store any object as `success`."""
    return np.size(value) == 1 and np.asarray(value).dtype.kind in 'biuf'


def success_of(info: Mapping[str, Any]) -> float:
    """Return the success that an environment's info reports, or NaN if it reports none."""
    if not info:  # the usual case; a search would cost as much as a step of a small environment
        return np.nan
    return next((float(info[name]) for name in SUCCESS if is_success_value(info.get(name))), np.nan)


def _find(env: gymnasium.Env, kind: type[Any]) -> Any:
    """Return the outermost wrapper of a class, or None."""
    while isinstance(env, gymnasium.Wrapper):
        if isinstance(env, kind):
            return env
        env = env.env
    return None


def _lives(env: gymnasium.Env) -> int:
    return int(cast(Any, env.unwrapped).ale.lives())


def with_report(env: gymnasium.Env) -> gymnasium.Env:
    """Add statistics of raw rewards to a ready-made environment; `RawReward` is inserted below all its wrappers."""
    if isinstance(env, EpisodeReport):
        return env
    if _find(env, RawReward) is None:
        if not isinstance(env, gymnasium.Wrapper):
            return EpisodeReport(RawReward(env))
        innermost = env
        while isinstance(innermost.env, gymnasium.Wrapper):
            innermost = innermost.env
        innermost.env = RawReward(innermost.env)
    return EpisodeReport(env)


@dataclasses.dataclass(frozen=True)
class AtariConfig:
    """The settings of the Atari preprocessing; see `EnvFactory`."""

    frame_stack: int
    frame_skip: int
    screen_size: tuple[int, int]
    clip_rewards: bool
    episodic_life: bool
    fire_reset: bool
    sticky_actions: bool


def preprocess_atari(env: gymnasium.Env, atari: AtariConfig, limit: int | None) -> gymnasium.Env:
    """Wrap an Atari game in the standard preprocessing, with statistics of raw rewards.

    Frames are grey, 84x84 by default. An episode starts with up to 30 no-op steps. Each action is repeated for some
    frames, and the maximum of the last two frames is taken. Machado et al., "Revisiting the Arcade Learning
    Environment" (2018).

    Args:
        env: the game, made with `frameskip=1`.
        atari: the settings of the preprocessing.
        limit: a time limit in steps (not frames); None for none.

    Returns:
        an environment with uint8 observations [H, W, frame_stack].
    """
    inner = cast(Any, env.unwrapped)
    if inner.ale.getFloat('repeat_action_probability') > 0:
        env = StickyActions(env)
    env = gymnasium.wrappers.AtariPreprocessing(env, frame_skip=atari.frame_skip, screen_size=atari.screen_size[::-1])
    if limit is not None:
        env = gymnasium.wrappers.TimeLimit(env, limit)
    env = RawReward(env)
    if atari.episodic_life:
        env = EpisodicLife(env)
    if atari.fire_reset and 'FIRE' in inner.get_action_meanings():
        env = FireReset(env)
    env = FrameStack(env, atari.frame_stack)
    return ClipReward(env) if atari.clip_rewards else env
