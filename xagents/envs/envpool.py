"""EnvPool's C++ environments as a Gymnasium vector; imported only for `--vector envpool`."""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from xagents.envs.vectors import add_info
from xagents.envs.wrappers import REPORT, SUCCESS, AtariConfig
from xagents.options.errors import OptionError, did_you_mean, one_line

_ATARI = re.compile(r'^(?:ALE/)?(?P<game>.+?)(?:NoFrameskip|Deterministic)?-v\d+$')


class EnvPoolVectorEnv(VectorEnv):
    """A vector of EnvPool's environments with seeds at every reset and statistics from raw rewards.

    See `EnvFactory` for the arguments.

    - EnvPool sets seeds at construction only. The first reset, and each reset with seeds, therefore constructs a pool.
    - This class clips rewards, not EnvPool, and uses the info to distinguish a lost life from the end of a game.
      Statistics are therefore those of raw rewards of whole games.
    - EnvPool silently accepts actions outside a Discrete space; this class raises an error.
    - EnvPool reports a termination in the same step as the time limit as truncated only; its results do not
      distinguish the two.
    - The frames [stack, H, W] of Atari and ViZDoom become [H, W, stack].

    Attributes:
        passes_infos: whether infos contain those of EnvPool, in addition to reports of episodes.

    Raises:
        OptionError: if EnvPool is not installed, or does not have the environment or the argument.
    """

    def __init__(
        self,
        name: str,
        n_envs: int,
        atari_config: AtariConfig,
        *,
        kwargs: Mapping[str, Any] | None = None,
        preprocess: bool | None = None,
        max_episode_steps: int | None = None,
        render_mode: str | None = None,
    ) -> None:
        try:
            import envpool
        except ImportError:
            raise OptionError('vector', "envpool needs an extra: pip install '.[envpool]'") from None
        self._envpool: Any = envpool
        self._id = _envpool_id(name, envpool.list_all_envs())
        self._kwargs = dict(kwargs or {})
        if max_episode_steps is not None:
            self._kwargs['max_episode_steps'] = max_episode_steps
        spec = self._make_spec(name)
        if spec.config.max_num_players > 1:
            raise OptionError('env', f'{name} has several players in envpool, expected an environment with one')
        atari = hasattr(spec.config, 'repeat_action_probability')  # EnvPool's games only
        if preprocess is not None and preprocess != atari:
            expected = 'preprocessed Atari only' if atari else 'Atari games only'
            raise OptionError('preprocess', f'got {preprocess} for {name} with envpool, expected {expected}')
        if atari:
            sticky = 0.25 if atari_config.sticky_actions else 0.0
            fixed: dict[str, Any] = {'reward_clip': False, 'stack_num': atari_config.frame_stack}
            fixed |= {'episodic_life': atari_config.episodic_life, 'use_fire_reset': atari_config.fire_reset}
            self._kwargs = {'repeat_action_probability': sticky, **self._kwargs, **fixed}
            spec = self._make_spec(name)
        self._clip = atari_config.clip_rewards and atari
        self.num_envs, self.render_mode, self.atari = n_envs, render_mode, atari
        self.metadata = {'autoreset_mode': AutoresetMode.NEXT_STEP, 'render_modes': ['rgb_array']}
        # EnvPool casts bounds from float64 to float32, with a warning for each.
        with warnings.catch_warnings(action='ignore'):
            self.single_action_space = spec.gymnasium_action_space
            self.single_observation_space = spec.gymnasium_observation_space
        self._has_frames = hasattr(spec.config, 'stack_num')
        if self._has_frames:
            frames = spec.gymnasium_observation_space
            low, high = (np.moveaxis(bound, 0, -1) for bound in (frames.low, frames.high))
            self.single_observation_space = spaces.Box(low, high, dtype=np.uint8)
        self.observation_space = batch_space(self.single_observation_space, n_envs)
        self.action_space = batch_space(self.single_action_space, n_envs)
        actions = self.single_action_space
        self._n_actions = int(actions.n) if isinstance(actions, spaces.Discrete) else None
        self._pool: Any = None
        self.passes_infos = False
        self._totals, self._lengths = np.zeros(n_envs, np.float64), np.zeros(n_envs, np.int64)
        self._ended = np.zeros(n_envs, bool)

    def _make_spec(self, name: str) -> Any:
        try:
            with warnings.catch_warnings(action='ignore'):
                return self._envpool.make_spec(self._id, num_envs=1, **self._kwargs)
        except TypeError as error:
            raise OptionError('env_kwargs', f'{name} with envpool: {one_line(error)[:150]}') from error

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Reset all environments; seeds, one for each environment, construct a new pool."""
        if self._pool is None or seed is not None:
            self.close_extras()
            arguments: dict[str, Any] = {} if seed is None else {'seed': [int(s) for s in seed]}
            arguments |= {} if self.render_mode is None else {'render_mode': self.render_mode}
            with warnings.catch_warnings(action='ignore'):
                self._pool = self._envpool.make(
                    self._id, env_type='gymnasium', num_envs=self.num_envs, **{**self._kwargs, **arguments}
                )
                _ = self._pool.observation_space  # EnvPool makes the space, with a warning, at its first use
        for counts in (self._totals, self._lengths, self._ended):
            counts[:] = 0
        observations, _ = self._pool.reset()
        return self._to_observations(observations), {}

    def step(self, actions: Any) -> tuple[Any, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """Step all environments."""
        if self._n_actions is not None:
            # Negative actions are large as unsigned integers, so that one comparison checks both bounds.
            unsigned = np.asarray(actions, np.int64).view(np.uint64)
            if np.count_nonzero(unsigned >= self._n_actions):
                got = np.asarray(actions).tolist()
                raise ValueError(f'actions: got {got}, expected elements of {self.single_action_space}')
        observations, rewards, terminated, truncated, info = self._pool.step(actions)
        self._totals += info['reward'] if self.atari and 'reward' in info else rewards
        # Rows that only reset do not count as steps. Their rewards are 0, except for the first step of a life.
        self._lengths += ~self._ended
        self._ended = terminated | truncated
        infos: dict[str, Any] = dict(info) if self.passes_infos else {}
        if np.count_nonzero(self._ended):
            self._report(truncated, info, infos)
        rewards = np.sign(rewards) if self._clip else rewards
        return self._to_observations(observations), rewards, terminated, truncated, infos

    def _report(self, truncated: np.ndarray, info: dict[str, Any], infos: dict[str, Any]) -> None:
        """Report the episodes that ended; a lost life does not end an episode."""
        over = self._ended & (truncated | info['terminated'].astype(bool)) if self.atari else self._ended
        for i in np.flatnonzero(over).tolist():
            success = next((info[name][i] for name in SUCCESS if name in info), np.nan)
            report = np.array([self._totals[i], self._lengths[i], success, np.nan], np.float64)
            add_info(infos, i, {REPORT: report}, self.num_envs)
        self._totals[over] = self._lengths[over] = 0

    def _to_observations(self, observations: Any) -> Any:
        return np.ascontiguousarray(np.moveaxis(observations, 1, -1)) if self._has_frames else observations

    def render(self) -> tuple[Any, ...] | None:
        """Return a frame of each environment."""
        if self.render_mode is None or self._pool is None:
            return None
        return tuple(self._pool.render(env_ids=np.arange(self.num_envs)))

    def close_extras(self, **kwargs: Any) -> None:
        """Stop EnvPool's threads."""
        if self._pool is not None:
            self._pool.close()
        self._pool = None


def _envpool_id(name: str, known: list[str]) -> str:
    """Return EnvPool's id of an environment; EnvPool names all Atari games `<game>-v5`."""
    match = _ATARI.match(name)
    of_atari = name.startswith('ALE/') or 'NoFrameskip' in name or 'Determ' in name
    for found in (name, f'{match["game"]}-v5' if match and of_atari else ''):
        if found in known:
            return found
    raise OptionError('env', f'envpool has no environment {name!r}{did_you_mean(name, known)}')
