"""Several environments side by side: Gymnasium's native vectors, a plain loop, worker processes.

All of them are `gymnasium.vector.VectorEnv`s in NEXT_STEP mode: the observation after an episode's last step is its
true last one, the next step only resets (its action is ignored, its reward 0).
"""

from __future__ import annotations

import dataclasses
import multiprocessing
import os
import signal
from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec, load_env_creator
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space, concatenate, create_empty_array, iterate

from xagents.envs.maker import EnvMaker, parameters_of
from xagents.envs.multi_agent import AGENT_SET, AgentRows, ParallelVector
from xagents.envs.spaces import ObservationEncoder
from xagents.envs.wrappers import REPORT
from xagents.options.errors import OptionError

# From so many environments on, Gymnasium's native vectors are faster than the loop: a native step costs the same
# whatever its number, a step of the loop so much an environment.
NATIVE_FROM = 6


class LoopVectorEnv(VectorEnv):
    """Environments with the same spaces in one process, one after the other.

    The arrays it returns are its own and change with the next step. Environments are those of `EnvMaker` or
    `with_report`: their infos hold a report where an episode ended, and nothing else.
    """

    def __init__(self, envs: Sequence[gymnasium.Env]) -> None:
        self.envs = list(envs)
        self.num_envs = len(self.envs)
        first = self.envs[0]
        self.metadata = {**first.metadata, 'autoreset_mode': AutoresetMode.NEXT_STEP}
        self.render_mode = first.render_mode
        self.single_observation_space = first.observation_space
        self.single_action_space = first.action_space
        self.observation_space = batch_space(first.observation_space, self.num_envs)
        self.action_space = batch_space(first.action_space, self.num_envs)
        self._composite = isinstance(first.observation_space, spaces.Dict | spaces.Tuple)
        self._observations: Any = create_empty_array(first.observation_space, n=self.num_envs)
        self._parts: list[Any] = [None] * self.num_envs
        self._rewards = np.zeros(self.num_envs, np.float64)
        self._terminated = np.zeros(self.num_envs, bool)
        self._truncated = np.zeros(self.num_envs, bool)
        self._ended = [False] * self.num_envs

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Resets all environments, by a seed for each where a list is given."""
        seeds = [None] * self.num_envs if seed is None else seed
        parts = self._parts if self._composite else self._observations
        for i, env in enumerate(self.envs):
            parts[i], _ = env.reset(seed=seeds[i], options=options)
        self._ended = [False] * self.num_envs
        return self._batch_observations(), {}

    def step(self, actions: Any) -> tuple[Any, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """Steps each environment, or resets it where its episode ended with the last step."""
        parts = self._parts if self._composite else self._observations
        rewards, terminations, truncations, ended = self._rewards, self._terminated, self._truncated, self._ended
        infos: dict[str, Any] = {}
        if type(self.single_action_space) is spaces.Tuple:
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
                add_report(infos, i, info[REPORT], self.num_envs)
        return self._batch_observations(), rewards, terminations, truncations, infos

    @property
    def ended(self) -> list[bool]:
        """Which environments the next step resets."""
        return self._ended

    def _batch_observations(self) -> Any:
        if self._composite:
            self._observations = concatenate(self.single_observation_space, self._parts, self._observations)
        return self._observations

    def render(self) -> tuple[Any, ...] | None:
        """Returns a frame of each environment."""
        return tuple(env.render() for env in self.envs)

    def close_extras(self, **kwargs: Any) -> None:
        """Closes the environments."""
        for env in self.envs:
            env.close()


def add_report(infos: dict[str, Any], i: int, episode: np.ndarray, n_envs: int) -> None:
    """Adds an episode's report (float64 [3]) of environment `i` to a vector's infos, as Gymnasium batches infos."""
    if REPORT not in infos:
        infos[REPORT], infos[f'_{REPORT}'] = np.zeros((n_envs, 3)), np.zeros(n_envs, bool)
    infos[REPORT][i] = episode
    infos[f'_{REPORT}'][i] = True


def make_vector(maker: EnvMaker, n_envs: int, vector: str) -> tuple[VectorEnv, bool]:
    """Makes environments side by side.

    'auto' is Gymnasium's native vector, from `NATIVE_FROM` environments on and where nothing asks for a wrapper; else,
    as 'sync', the loop. 'async' is worker processes.

    Returns:
        the vector, and whether its infos hold the reports of `EpisodeReport`.
    """
    if vector == 'auto' and n_envs >= NATIVE_FROM and (native := _native_vector(maker, n_envs)) is not None:
        return native, False
    return with_agent_rows(make_base_vector(maker, n_envs, vector))


def make_base_vector(maker: EnvMaker, n_envs: int, vector: str) -> VectorEnv:
    """Makes environments in a loop, or in worker processes where `vector` is 'async'."""
    return _worker_vector(maker, n_envs) if vector == 'async' else LoopVectorEnv([maker() for _ in range(n_envs)])


def with_agent_rows(vector: VectorEnv) -> tuple[VectorEnv, bool]:
    """Returns a vector with a row for each agent, and whether its infos hold reports: not those of several agents."""
    several = AGENT_SET in vector.metadata
    return (AgentRows(ParallelVector(vector)) if several else vector), not several


def _native_vector(maker: EnvMaker, n_envs: int) -> VectorEnv | None:
    """Returns Gymnasium's own vector of an environment, None where there is none that does what is asked for."""
    spec = maker.spec
    if (
        spec is None
        or spec.vector_entry_point is None
        or spec.additional_wrappers
        or maker.wrappers
        or maker.agent_index
    ):
        return None
    # ale_py's vector preprocesses frames in a way of its own and clips rewards.
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
    """Makes an environment in a worker process, which then leaves Ctrl-C to the process `parent` that started it.

    A terminal sends Ctrl-C to every process; a worker that died of it would take the run's last iteration with it.
    """

    maker: EnvMaker
    parent: int

    def __call__(self) -> gymnasium.Env:
        """Makes the environment."""
        if os.getpid() != self.parent:
            signal.signal(signal.SIGINT, signal.SIG_IGN)
        return self.maker()


class WorkerVectorEnv(AsyncVectorEnv):
    """Gymnasium's worker processes, closed without waiting for one that is gone."""

    def close_extras(self, timeout: float | None = 5, terminate: bool = False) -> None:
        """Ends the workers."""
        try:
            super().close_extras(timeout=timeout, terminate=terminate)
        except (EOFError, OSError):
            super().close_extras(terminate=True)


def _worker_vector(maker: EnvMaker, n_envs: int) -> VectorEnv:
    probe = maker()
    # Spaces that are refused are refused before a process is started.
    ObservationEncoder(probe.observation_space)
    probe.close()
    # Never a plain fork: TensorFlow hangs in a process forked after it was used.
    methods = multiprocessing.get_all_start_methods()
    context = 'forkserver' if 'forkserver' in methods else 'spawn'
    try:
        return WorkerVectorEnv([WorkerMaker(maker, os.getpid())] * n_envs, copy=False, context=context)
    except (EOFError, ConnectionError) as error:
        remedy = "a script must create its environments under if __name__ == '__main__'"
        raise OptionError('vector', f'async: a worker process ended as it started; {remedy}') from error


def maker_for_vector(vector: VectorEnv) -> EnvMaker | None:
    """Finds what makes one environment like those of a ready-made vector; None where nothing tells."""
    # What wraps a vector from outside is in no spec: without it observations or rewards would be others.
    if isinstance(vector, gymnasium.vector.VectorWrapper):
        return None
    spec = vector.spec
    if isinstance(spec, EnvSpec) and spec.entry_point is not None:
        kwargs = {k: v for k, v in spec.kwargs.items() if k not in ('num_envs', 'vectorization_mode', 'vector_kwargs')}
        limit, wrappers = kwargs.pop('max_episode_steps', None), tuple(kwargs.pop('wrappers', None) or ())
        source = dataclasses.replace(spec, kwargs=kwargs)
        return EnvMaker(name=spec.id, source=source, max_episode_steps=limit, wrappers=wrappers)
    functions = getattr(vector, 'env_fns', None)
    return EnvMaker(name=type(vector).__name__, source=functions[0]) if functions else None
