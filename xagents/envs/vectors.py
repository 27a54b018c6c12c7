"""Vector environments: Gymnasium's native vectors, a plain loop, and worker processes.

All of them are `gymnasium.vector.VectorEnv`s in NEXT_STEP mode: the observation after an episode's last step is the
episode's true last observation. The next step only resets: its action is ignored and its reward is 0.
"""

from __future__ import annotations

import dataclasses
import multiprocessing
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.envs.registration import load_env_creator
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space, concatenate, create_empty_array, iterate

from xagents.envs.functional.interface import FunctionalEnv
from xagents.envs.functional_forms import functional_form, no_form
from xagents.envs.maker import EnvMaker, parameters_of
from xagents.envs.multi_agent import AGENT_SET, AgentRows, ParallelVector
from xagents.envs.observations.images import ImageOptions
from xagents.envs.spaces import ObservationEncoder
from xagents.options.errors import OptionError, did_you_mean

# The number of environments from which Gymnasium's native vectors are faster than the loop. The cost of a native step
# does not depend on the number of environments; the cost of a step of the loop is proportional to it.
NATIVE_FROM = 6


class EnvNeeds(NamedTuple):
    """What a run needs of environments, which not all forms of an environment have.

    Attributes:
        infos: whether numbers of infos are needed.
        params: the names of parameters that change during the run.
    """

    infos: bool = False
    params: tuple[str, ...] = ()

    def problem(self, functional: FunctionalEnv) -> str:
        """Return why functions that replace an environment do not fit, or an empty text."""
        if self.infos and not functional.has_info:
            return 'has no infos as functions (see --log-info)'
        known = list(functional.default_params)
        missing = [name for name in self.params if name not in known]
        hint = f'{did_you_mean(missing[0], known)}, only {", ".join(known)}' if missing and known else ''
        return f'has no parameter {missing[0]} as functions{hint} (see --curriculum)' if missing else ''


NO_NEEDS = EnvNeeds()


class LoopVectorEnv(VectorEnv):
    """A vector that steps environments with equal spaces one after the other in one process.

    The next step overwrites the returned arrays. The environments must be made by `EnvMaker` or `with_report`: their
    infos contain a report if an episode ended, and the numbers of an `InfoReader`, and are empty otherwise.
    """

    def __init__(self, envs: Sequence[gymnasium.Env]) -> None:
        self.envs = list(envs)
        self.num_envs = len(self.envs)
        first = self.envs[0]
        self.metadata = {**first.metadata, 'autoreset_mode': AutoresetMode.NEXT_STEP}
        self.render_mode = first.render_mode
        self.single_observation_space, self.single_action_space = first.observation_space, first.action_space
        self.observation_space = batch_space(first.observation_space, self.num_envs)
        self.action_space = batch_space(first.action_space, self.num_envs)
        self._composite = isinstance(first.observation_space, spaces.Dict | spaces.Tuple)
        self._observations: Any = create_empty_array(first.observation_space, n=self.num_envs)
        self._parts: list[Any] = [None] * self.num_envs
        self._rewards = np.zeros(self.num_envs, np.float64)
        self._terminated, self._truncated = np.zeros(self.num_envs, bool), np.zeros(self.num_envs, bool)
        self._ended = [False] * self.num_envs

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Reset all environments; `seed` is None or a list with a seed for each environment."""
        seeds = [None] * self.num_envs if seed is None else seed
        parts = self._parts if self._composite else self._observations
        for i, env in enumerate(self.envs):
            parts[i], _ = env.reset(seed=seeds[i], options=options)
        self._ended = [False] * self.num_envs
        return self._batch_observations(), {}

    def step(self, actions: Any) -> tuple[Any, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """Step each environment, or reset it if its episode ended with the last step."""
        parts = self._parts if self._composite else self._observations
        rewards, terminations, truncations, ended = self._rewards, self._terminated, self._truncated, self._ended
        infos: dict[str, Any] = {}
        if isinstance(self.single_action_space, spaces.Dict | spaces.Tuple):
            actions = list(iterate(self.action_space, actions))
        for i, env in enumerate(self.envs):
            if ended[i]:
                parts[i], info = env.reset()
                rewards[i] = 0.0
                terminations[i] = truncations[i] = ended[i] = False
            else:
                parts[i], rewards[i], terminated, truncated, info = env.step(actions[i])
                terminations[i], truncations[i], ended[i] = terminated, truncated, terminated or truncated
            if info:
                add_info(infos, i, info, self.num_envs)
        return self._batch_observations(), rewards, terminations, truncations, infos

    @property
    def ended(self) -> list[bool]:
        """Whether the next step resets each environment."""
        return self._ended

    def _batch_observations(self) -> Any:
        if self._composite:
            self._observations = concatenate(self.single_observation_space, self._parts, self._observations)
        return self._observations

    def render(self) -> tuple[Any, ...] | None:
        """Return a frame of each environment."""
        return tuple(env.render() for env in self.envs)

    def close_extras(self, **kwargs: Any) -> None:
        """Close the environments."""
        for env in self.envs:
            env.close()


def add_info(infos: dict[str, Any], i: int, info: Mapping[str, Any], n_envs: int) -> None:
    """Add the info of environment `i`, arrays and texts, to a vector's infos, in Gymnasium's format."""
    for key, value in info.items():
        if key not in infos:
            is_text = isinstance(value, str)
            infos[key] = np.full(n_envs, None, object) if is_text else np.zeros((n_envs, *value.shape), value.dtype)
            infos[f'_{key}'] = np.zeros(n_envs, bool)
        infos[key][i] = value
        infos[f'_{key}'][i] = True


def make_vector(
    maker: EnvMaker, n_envs: int, vector: str, compiled: bool = True, needs: EnvNeeds = NO_NEEDS
) -> tuple[VectorEnv, bool]:
    """Make a vector environment.

    Args:
        maker: the maker of one environment.
        n_envs: the number of environments.
        vector: 'auto' (for at least `NATIVE_FROM` environments that need no wrapper, functions or Gymnasium's native
            vector; else the loop), 'compiled' (functions), 'native' (Gymnasium's native vector), 'sync' (the loop) or
            'async' (worker processes).
        compiled: whether 'auto' may use functions.
        needs: what the run needs; 'auto' then uses only functions and native vectors that have it.

    Returns:
        the vector, and whether its infos contain the reports of `EpisodeReport`.
    """
    if vector == 'compiled' or (compiled and vector == 'auto' and n_envs >= NATIVE_FROM):
        form = functional_form(maker)
        if not isinstance(form, str) and form.replaces:
            form = needs.problem(form.functional) or form
        if not isinstance(form, str):
            from xagents.envs.functional.vector import FunctionalVectorEnv  # loads TensorFlow

            return FunctionalVectorEnv(form.functional, n_envs, form.limit), False
        if vector == 'compiled':
            raise OptionError('vector', no_form(maker.name, form))
    if vector == 'native' or (vector == 'auto' and n_envs >= NATIVE_FROM and not needs.params):
        if (native := _native_vector(maker, n_envs)) is not None:
            return native, False
        if vector == 'native':
            expected = 'expected auto, sync or async: Gymnasium has no vector for it with these options'
            raise OptionError('vector', f'got native for {maker.name}, {expected}')
    return with_agent_rows(make_base_vector(maker, n_envs, vector))


def make_base_vector(maker: EnvMaker, n_envs: int, vector: str) -> VectorEnv:
    """Make environments in a loop, or in worker processes if `vector` is 'async'."""
    return _worker_vector(maker, n_envs) if vector == 'async' else LoopVectorEnv([maker() for _ in range(n_envs)])


def with_agent_rows(vector: VectorEnv) -> tuple[VectorEnv, bool]:
    """Return a vector with a row for each agent, and whether its infos contain reports (only with a single agent)."""
    several = AGENT_SET in vector.metadata
    return (AgentRows(ParallelVector(vector)) if several else vector), not several


def _native_vector(maker: EnvMaker, n_envs: int) -> VectorEnv | None:
    """Return Gymnasium's native vector of an environment, or None if no native vector supports the settings."""
    spec = maker.spec
    if spec is None or spec.vector_entry_point is None:
        return None
    if spec.additional_wrappers or maker.wrappers or maker.agent_index:
        return None
    if maker.frame_skip > 1 or maker.images != ImageOptions():
        return None
    # ale_py's vector uses a different frame preprocessing and clips rewards.
    if isinstance(spec.entry_point, str) and spec.entry_point.startswith('ale_py'):
        return None
    creator: Any = spec.vector_entry_point
    if isinstance(creator, str):
        try:
            creator = load_env_creator(creator)
        except ImportError:
            return None
    further = {'render_mode': maker.render_mode, 'max_episode_steps': maker.max_episode_steps}
    kwargs = {**maker.kwargs, **{name: value for name, value in further.items() if value is not None}}
    metadata = getattr(creator, 'metadata', {})
    if metadata.get('autoreset_mode') is not AutoresetMode.NEXT_STEP or not set(kwargs) <= set(parameters_of(creator)):
        return None
    if maker.render_mode not in (None, *metadata.get('render_modes', ())):
        return None
    return gymnasium.make_vec(spec, num_envs=n_envs, vectorization_mode='vector_entry_point', **kwargs)


@dataclasses.dataclass(frozen=True)
class WorkerMaker:
    """A function that makes an environment in a worker process, which signals to a group of processes do not reach.

    A terminal sends Ctrl-C to a whole group, and `timeout` sends SIGTERM to it. If a worker stopped, the run would lose
    its last iteration.

    Attributes:
        maker: the maker of one environment.
        parent: the id of the process that started the worker; only this process handles signals.
    """

    maker: EnvMaker
    parent: int

    def __call__(self) -> gymnasium.Env:
        """Make the environment."""
        if os.getpid() != self.parent:
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            if hasattr(os, 'setsid'):  # not on Windows
                os.setsid()
        return self.maker()


class WorkerVectorEnv(AsyncVectorEnv):
    """Gymnasium's worker processes; `close` does not wait for a worker that has ended."""

    def close_extras(self, timeout: float | None = 5, terminate: bool = False) -> None:
        """Stop the workers."""
        try:
            super().close_extras(timeout=timeout, terminate=terminate)
        except (EOFError, OSError):
            super().close_extras(terminate=True)


def _worker_vector(maker: EnvMaker, n_envs: int) -> VectorEnv:
    if getattr(multiprocessing.current_process(), '_inheriting', False):
        sys.exit(1)  # a worker that imports a script without a main guard; its parent raises the error
    probe = maker()
    # Unsupported spaces raise an error before a process starts.
    ObservationEncoder(probe.observation_space)
    probe.close()
    # Never a plain fork: TensorFlow hangs in a process that was forked after TensorFlow had run.
    context = 'forkserver' if 'forkserver' in multiprocessing.get_all_start_methods() else 'spawn'
    try:
        return WorkerVectorEnv([WorkerMaker(maker, os.getpid())] * n_envs, copy=False, context=context)
    except (EOFError, ConnectionError):
        why = 'a worker process, which imports the script that started it, ended at its start'
        remedy = "expected the script's calls below the line: if __name__ == '__main__':"
        raise OptionError('vector', f'async: {why}; {remedy}') from None
