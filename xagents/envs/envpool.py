"""EnvPool's environments in C++, behind the same face; loaded only for `--vector envpool`."""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from xagents.envs.vectors import add_report
from xagents.envs.wrappers import SUCCESS, AtariConfig
from xagents.options.errors import OptionError, did_you_mean, one_line

_ATARI = re.compile(r'^(?:ALE/)?(?P<game>.+?)(?:NoFrameskip|Deterministic)?-v\d+$')


class EnvPoolVectorEnv(VectorEnv):
    """EnvPool with seeds at every reset and raw episode statistics; for the arguments see `create_envs`.

    - EnvPool fixes its seeds when it is made: it is made at the first reset, and anew at each reset with seeds.
    - Rewards are clipped here, not in EnvPool, and the info distinguishes a lost life from the end of a game, so that
      statistics come from raw rewards of whole games.
    - EnvPool accepts actions outside of a Discrete space silently: they are refused here.
    - A failure on the very step of the time limit is reported by EnvPool as truncated only, not terminated; nothing
      in what it returns tells the two apart.
    - Atari frames come as [stack, H, W] and are shown as [H, W, stack].

    Raises:
        OptionError: if EnvPool is not installed, has no such environment or takes no such argument.
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
            raise OptionError('vector', "envpool needs an extra: pip install 'xagents[envpool]'") from None
        self._envpool: Any = envpool
        self._id = _envpool_id(name, envpool.list_all_envs())
        self._kwargs = dict(kwargs or {})
        if max_episode_steps is not None:
            self._kwargs['max_episode_steps'] = max_episode_steps
        spec = self._make_spec(name)
        atari = hasattr(spec.config, 'stack_num') and hasattr(spec.config, 'episodic_life')
        if preprocess is not None and preprocess != atari:
            admitted = 'preprocessed Atari only' if atari else 'Atari games only'
            raise OptionError('preprocess', f'got {preprocess} for {name} with envpool, expected {admitted}')
        if atari:
            sticky = 0.25 if atari_config.sticky_actions else 0.0
            fixed: dict[str, Any] = {'reward_clip': False, 'stack_num': atari_config.frame_stack}
            fixed |= {'episodic_life': atari_config.episodic_life, 'use_fire_reset': atari_config.fire_reset}
            self._kwargs = {'repeat_action_probability': sticky, **self._kwargs, **fixed}
            spec = self._make_spec(name)
        self._clip = atari_config.clip_rewards and atari
        self.atari = atari
        self.num_envs = n_envs
        self.render_mode = render_mode
        self.metadata = {'autoreset_mode': AutoresetMode.NEXT_STEP, 'render_modes': ['rgb_array']}
        # Bounds are cast from float64 to float32, a line of warning each.
        with warnings.catch_warnings(action='ignore'):
            self.single_action_space = spec.gymnasium_action_space
            self.single_observation_space = spec.gymnasium_observation_space
        if atari:
            frames = spec.gymnasium_observation_space
            low, high = (np.moveaxis(bound, 0, -1) for bound in (frames.low, frames.high))
            self.single_observation_space = spaces.Box(low, high, dtype=np.uint8)
        self.observation_space = batch_space(self.single_observation_space, n_envs)
        self.action_space = batch_space(self.single_action_space, n_envs)
        action_space = self.single_action_space
        self._n_actions = int(action_space.n) if isinstance(action_space, spaces.Discrete) else None
        self._pool: Any = None
        self._seeded = False
        self._totals = np.zeros(n_envs, np.float64)
        self._lengths = np.zeros(n_envs, np.int64)
        self._ended = np.zeros(n_envs, bool)

    def _make_spec(self, name: str) -> Any:
        try:
            with warnings.catch_warnings(action='ignore'):
                return self._envpool.make_spec(self._id, num_envs=1, **self._kwargs)
        except TypeError as error:
            raise OptionError('env_kwargs', f'{name} with envpool: {one_line(error)[:150]}') from error

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Resets all environments, which are made anew where seeds, one for each, are given."""
        if self._pool is None or seed is not None:
            self.close_extras()
            arguments = dict(self._kwargs)
            if seed is not None:
                arguments['seed'] = [int(s) for s in seed]
            if self.render_mode is not None:
                arguments['render_mode'] = self.render_mode
            with warnings.catch_warnings(action='ignore'):
                self._pool = self._envpool.make(self._id, env_type='gymnasium', num_envs=self.num_envs, **arguments)
                _ = self._pool.observation_space  # made, and warned about, at its first use
        for counts in (self._totals, self._lengths, self._ended):
            counts[:] = 0
        observations, _ = self._pool.reset()
        return self._to_observations(observations), {}

    def step(self, actions: Any) -> tuple[Any, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """Steps all environments."""
        if self._n_actions is not None:
            # As unsigned numbers negative actions are large: one comparison checks both ends.
            unsigned = np.asarray(actions, np.int64).view(np.uint64)
            if np.count_nonzero(unsigned >= self._n_actions):
                got = np.asarray(actions).tolist()
                raise ValueError(f'the actions {got} are not all in {self.single_action_space}')
        observations, rewards, terminated, truncated, info = self._pool.step(actions)
        raw = info['reward'] if self.atari and 'reward' in info else rewards
        self._totals += raw
        # Reset rows count for no length; their rewards are 0, except for what the first step of a life may bring.
        self._lengths += ~self._ended
        self._ended = terminated | truncated
        infos: dict[str, Any] = {}
        if np.count_nonzero(self._ended):
            self._report(truncated, info, infos)
        if self._clip:
            rewards = np.sign(rewards)
        return self._to_observations(observations), rewards, terminated, truncated, infos

    def _report(self, truncated: np.ndarray, info: dict[str, Any], infos: dict[str, Any]) -> None:
        """Reports the episodes that ended; a life lost in a game that goes on is none."""
        over = self._ended
        if self.atari:
            over = over & (truncated | info['terminated'].astype(bool))
        for i in np.flatnonzero(over).tolist():
            success = next((info[name][i] for name in SUCCESS if name in info), np.nan)
            add_report(infos, i, np.array([self._totals[i], self._lengths[i], success], np.float64), self.num_envs)
        self._totals[over] = self._lengths[over] = 0

    def _to_observations(self, observations: Any) -> Any:
        return np.ascontiguousarray(np.moveaxis(observations, 1, -1)) if self.atari else observations

    def render(self) -> tuple[Any, ...] | None:
        """Returns a frame of each environment."""
        if self.render_mode is None or self._pool is None:
            return None
        return tuple(self._pool.render(env_ids=np.arange(self.num_envs)))

    def close_extras(self, **kwargs: Any) -> None:
        """Ends EnvPool's threads."""
        if self._pool is not None:
            self._pool.close()
            self._pool = None


def _envpool_id(name: str, known: list[str]) -> str:
    """Returns EnvPool's id of an environment; its Atari games are `<game>-v5` whatever Gymnasium calls them."""
    if name in known:
        return name
    match = _ATARI.match(name)
    of_atari = name.startswith('ALE/') or 'NoFrameskip' in name or 'Determ' in name
    if match and of_atari and f'{match["game"]}-v5' in known:
        return f'{match["game"]}-v5'
    raise OptionError('env', f'envpool has no environment {name!r}{did_you_mean(name, known)}')
