"""One interface to single and vector environments, in this process, in worker processes or in C++."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, cast

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv

from xagents.envs.games import SEATS, Opponents, SeatEnv
from xagents.envs.goals import GoalFunctions
from xagents.envs.multi_agent import AGENT_SET, TEAM_REWARD, AgentRows, AgentSet
from xagents.envs.observations.action_masks import (
    NoLegalActionError,
    has_no_legal_action,
    is_binary,
    mask_ends,
    mask_problem,
)
from xagents.envs.observations.composite import VECTOR, vector_of
from xagents.envs.snapshots.copyable import Copyable
from xagents.envs.spaces import DEFAULT_ENCODING, Encoding, ObservationEncoder
from xagents.envs.step_recorder import StepRecorder
from xagents.envs.values.infos import InfoReader, InfoSums
from xagents.envs.values.parameters import check_params, find_params, set_params
from xagents.envs.vectors import LoopVectorEnv, WorkerVectorEnv
from xagents.envs.wrappers import REPORT, SUCCESS, is_success_value
from xagents.options.errors import OptionError, one_line
from xagents.pipeline.context import EpisodeEnd

StepResult = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]
"""Observations, rewards, terminated and truncated, [N, …] each."""
# prefix of the columns of rollouts and of the metrics that are numbers of infos
INFO = 'info/'
NEXT_STEP_HINT = 'pass autoreset_mode=AutoresetMode.NEXT_STEP to the vector, or in vector_kwargs to make_vec'
RECREATE_HINT = 'pass create_envs a function that makes the environment, or pass environments to evaluate on'


@dataclasses.dataclass(frozen=True, slots=True)
class EnvView:
    """The spaces of one environment, observations encoded with shape D, and its Gymnasium spec or None."""

    observation_space: spaces.Box
    action_space: spaces.Space
    spec: EnvSpec | None


class Envs(Copyable):
    """A vector of N environments in Gymnasium's NEXT_STEP mode; with M agents in each environment, N counts agents.

    The step after an episode's last step only resets: its action is ignored and its reward is 0. The observation after
    the last step is therefore the episode's true last observation.

    The rows of the agents of one environment are adjacent, and these agents start episodes together. An agent that
    finished early stays ended and not valid until then.

    Attributes:
        functional_vector: the `FunctionalVectorEnv` of environments that are functions; None for others.
        n_envs: N.
        agents: the names of the M agents of each environment; empty for environments with a single, unnamed agent.
        agents_per_env: M, the number of rows of one environment.
        id: the environment's name.
        encoder: the encoder of raw observations; `reset` and `step` return its result.
        observation_space: the encoded observation space of one environment, of shape D.
        is_image: whether encoded observations are images [H, W, C].
        action_space: the action space of one environment, unchanged.
        n_mask: the number of elements of an observation, its last ones, that are the action mask; 0 without a mask.
        can_snapshot_each: whether each environment can be copied individually.
        can_render: whether `render` returns frames.
        frames_per_second: the natural frame rate of a video; 30 if the environment does not define one.
        spec: Gymnasium's spec of one environment, or None.
        frame_stack: the number of frames in an image, newest last, if images are known to be stacks; otherwise 1.
        atari: whether the environments have the Atari preprocessing.
        valid: bool [N], updated in place: False if the next step only resets.
        snapshot_problem: the reason why the last `snapshot` failed, in a few words; '' if it succeeded.
        recorder: the recorder of every reset and step, or None.
        env_indices: the index of each of the N rows in `EpisodeEnd.env`; with several policies, the index among the
            rows of all policies.
        infos: the numbers of infos that `select_infos` selects.

    Args:
        vector: the environments, in NEXT_STEP mode.
        id: the environment's name.
        has_reports: whether infos contain the reports of `EpisodeReport`; otherwise this class sums rewards itself.
        factory: makes new environments of the same kind; see `xagents.envs.env_factory.EnvFactory`.
        not_recreated_because: the reason why there is no factory, for messages.
        spec: Gymnasium's spec of one environment.
        frame_stack: the number of frames in an image.
        atari: whether the environments have the Atari preprocessing.
        encoding: options of the encoder.

    Raises:
        ValueError: if the observation space has no fixed size, or the vector resets in another mode.
    """

    def __init__(
        self,
        vector: VectorEnv,
        *,
        id: str,
        has_reports: bool = False,
        factory: Callable[..., Envs] | None = None,
        not_recreated_because: str = '',
        spec: EnvSpec | None = None,
        frame_stack: int = 1,
        atari: bool = False,
        encoding: Encoding = DEFAULT_ENCODING,
    ) -> None:
        mode = vector.metadata.get('autoreset_mode')
        if mode not in (AutoresetMode.NEXT_STEP, AutoresetMode.NEXT_STEP.value):
            got = mode.name if isinstance(mode, AutoresetMode) else mode
            problem = f'got a vector environment with the autoreset mode {got}, expected NEXT_STEP'
            raise ValueError(f'envs: {problem}: {NEXT_STEP_HINT}')
        self.n_envs = vector.num_envs
        agent_set: AgentSet | None = vector.metadata.get(AGENT_SET)
        self.agents = agent_set.names if agent_set else ()
        self.agents_per_env = max(len(self.agents), 1)
        self.id, self.spec, self.atari = id, spec, atari
        self.encoder = ObservationEncoder(vector.single_observation_space, encoding)
        self.observation_space = self.encoder.space
        self.n_mask = agent_set.agent_groups[0].n_mask if agent_set else self.encoder.n_mask
        if self.n_mask and (problem := mask_problem(vector.single_action_space, self.n_mask)):
            raise OptionError('env', f'{id} {problem}')
        self.is_image = len(self.observation_space.shape) == 3
        self.frame_stack = frame_stack if self.is_image or self.encoder.images else 1
        self.action_space = vector.single_action_space
        self.valid = np.ones(self.n_envs, bool)
        self.recorder: StepRecorder | None = None
        self._vector, self._has_reports, self._closed = vector, has_reports, False
        ready_made = f'{id} was passed ready-made and cannot be created again; {RECREATE_HINT}'
        self.factory, self.not_recreated_because = factory, not_recreated_because or ready_made
        self.can_snapshot_each = isinstance(self._base_vector, LoopVectorEnv)
        self.can_render = vector.render_mode is not None
        self.frames_per_second = float(vector.metadata.get('render_fps') or 30)
        self._seeds: np.random.SeedSequence | None = None
        self._encode = None if self.encoder.identity else self.encoder
        self._n_steps, self._returns_raw = 0, False
        self._mask_ends = mask_ends(self.action_space)
        if self.agents and isinstance(self.action_space, spaces.Dict | spaces.Tuple):
            got = f'{id} has several agents with actions of {one_line(self.action_space)}'
            raise OptionError('env', f'{got}, expected Discrete, MultiDiscrete, MultiBinary or Box ones')
        self._rewards, self._ended = np.zeros(self.n_envs, np.float32), np.zeros(self.n_envs, bool)
        self._newly_ended = np.zeros(self.n_envs, bool) if self.agents else self._ended
        self.env_indices: Sequence[int] = vector.row_indices if isinstance(vector, AgentRows) else range(self.n_envs)
        self._no_teams = np.full(self.n_envs, np.nan)
        self._totals, self._lengths = np.zeros(self.n_envs, np.float64), np.zeros(self.n_envs, np.int64)
        self._episodes: list[EpisodeEnd] = []
        self.infos = InfoSums(id, self.n_envs)
        self._checked_params: tuple[str, ...] = ()
        self._rollout_episodes: list[tuple[int, EpisodeEnd]] = []
        # environments that are functions, or None
        self.functional_vector: Any = vector if hasattr(vector, 'functional') else None

    @property
    def _base_vector(self) -> Any:
        vector = self._vector
        return vector.parallel_vector.envs if isinstance(vector, AgentRows) else vector

    @property
    def metadata(self) -> Mapping[str, Any]:
        """The metadata of the environments."""
        return self._vector.metadata

    @property
    def first_env(self) -> gymnasium.Env | None:
        """The first environment, or None if the environments do not run in a loop in this process."""
        return self._base_vector.envs[0] if self.can_snapshot_each else None

    @property
    def is_game(self) -> bool:
        """Whether the environments are games of several seats, of which others are played by opponents."""
        return bool(self._vector.metadata.get(SEATS))

    def set_opponents(self, opponents: Opponents) -> None:
        """Set the players of the other seats in all games."""
        for seat_env in self.seat_envs:
            seat_env.opponents = opponents

    @property
    def seat_envs(self) -> list[SeatEnv]:
        """The games, which run in this process.

        Raises:
            OptionError: if they run in other processes.
        """
        if not isinstance(self._base_vector, LoopVectorEnv):
            raise OptionError(
                'vector', f'got a vector of processes for {self.id}, a game, expected sync or --explorers'
            )
        return [cast(SeatEnv, env.unwrapped) for env in self._base_vector.envs]

    @property
    def draws_pictures(self) -> bool:
        """Whether environments of this kind can return frames if they are made for it."""
        return 'rgb_array' in (self._vector.metadata.get('render_modes') or ())

    @property
    def can_recreate(self) -> bool:
        """Whether `recreate` can make new environments of the same kind."""
        return self.factory is not None

    def reset(self, seed: int | None = None, first: int = 0) -> np.ndarray:
        """Reset all environments and discard unfinished episodes.

        Args:
            seed: the seed from which each environment's own seed is derived, independently of N. A vector that accepts
                a single seed gets a single one. None continues the sequence of seeds of the last seed given.
            first: the index of the first of these environments among all of a larger set, if they are part of one.

        Returns:
            observations [N, *D]; the next step may overwrite the array.
        """
        if seed is not None or self._seeds is None:
            self._seeds = np.random.SeedSequence(seed)
        children = self._seeds.spawn(1)[0].spawn(first + self.n_whole_envs)[first:]
        # 31 bits: some environments store a seed in a C int.
        seeds = [int(child.generate_state(1)[0] >> 1) for child in children]
        own: Any = seeds if _takes_seeds(self._base_vector) else seeds[0]
        observations, _ = self._vector.reset(seed=own)
        self.valid[:] = True
        self._totals[:] = self._lengths[:] = 0
        self.infos.reset()
        if self.recorder is not None:
            self.recorder.reset(observations)
        self._n_steps = 0
        return self._encode_legal(observations)

    @property
    def groups(self) -> dict[str, Envs]:
        """The rows of each policy, by the name of the policy: all rows, of a policy without a name."""
        return {'': self}

    @property
    def policy_mapping(self) -> dict[str, tuple[str, ...]]:
        """The agents of each policy."""
        return {'': self.agents}

    def step_groups(self, actions: Sequence[np.ndarray]) -> list[StepResult]:
        """Take one step with the actions of each group; see `step`."""
        return [self.step(actions[0])]

    def set_actions(self, actions: np.ndarray) -> None:
        """Set the actions of the next step, if several policies share the environments; `step` then executes it."""
        assert isinstance(self._vector, AgentRows)
        self._vector.set_actions(actions)

    def step(self, actions: np.ndarray) -> StepResult:
        """Take one step with the environment actions [N, …] of `ActionDecoder`.

        Returns:
            observations [N, *D], rewards float32 [N], terminated bool [N] and truncated bool [N]; the next step may
            overwrite these arrays.
        """
        observations, raw, terminated, truncated, info = self._vector.step(actions)
        if self.recorder is not None:
            self.recorder.step(actions, observations, raw, terminated, truncated, self.valid)
        # Rows that only reset get a reward of 0, whatever reward the vector returns.
        rewards = np.multiply(raw, self.valid, out=self._rewards, casting='same_kind')
        if not self._has_reports:
            np.add(self._totals, raw, out=self._totals, where=self.valid)
            self._lengths += self.valid
        if self.infos.names:
            self.infos.observe(info, self.valid)
        ended = np.logical_or(terminated, truncated, out=self._ended)
        if self.agents:
            np.logical_and(ended, self.valid, out=self._newly_ended)  # without the agents that ended in an earlier step
        np.logical_not(ended, out=self.valid)
        if self._has_reports:
            if REPORT in info:
                self._take_reports(info)
        elif np.count_nonzero(ended):  # ten times as fast as any()
            teams = info.get(TEAM_REWARD, self._no_teams)
            for i in np.flatnonzero(self._newly_ended).tolist():
                success = _success(info, i) if info else None
                team = None if np.isnan(teams[i]) else float(teams[i])
                total, length = float(self._totals[i]), int(self._lengths[i])
                sums = self.infos.end_episode(i)
                self._episodes.append(EpisodeEnd(total, length, self.env_indices[i], success, team, info=sums))
                self._totals[i] = self._lengths[i] = 0
        self._n_steps += 1
        return self._encode_legal(observations), rewards, terminated, truncated

    def observe_rollout(self, rollout: Mapping[str, np.ndarray], decode: Callable[[np.ndarray], Any]) -> None:
        """Count the episodes of a rollout that a compiled program collected, and check its action masks.

        Args:
            rollout: encoded `observations` [T + 1, N, *D]; `actions`, raw `rewards`, `terminated`, `truncated`, `valid`
                and the numbers of infos [T, N, …].
            decode: from actions of the policy to environment actions, for the recorder.

        Raises:
            NoLegalActionError: if an observation within an episode has no legal action.
        """
        rewards, valid = rollout['rewards'], rollout['valid']
        ends = rollout['terminated'], rollout['truncated']
        ended = ends[0] | ends[1]
        if self.n_mask:
            for t, observations in enumerate(rollout['observations']):
                self.valid[:] = valid[t] if t < len(valid) else ~ended[-1]
                self._check_legal(observations)
                self._n_steps += t < len(valid)
        if self.recorder is not None:
            for t, actions in enumerate(rollout['actions']):
                after = rollout['observations'][t + 1]
                self.recorder.step(decode(actions), after, rewards[t], ends[0][t], ends[1][t], valid[t])
        self.valid[:] = ~ended[-1]
        sums: dict[tuple[int, int], Any] = {}
        for t, ends_here in enumerate(ended if self.infos.names else ()):
            for name in self.infos.names:
                self.infos.add(name, rollout[info_column(name)][t].astype(np.float64))
            sums |= {(t, i): self.infos.end_episode(i) for i in np.flatnonzero(ends_here).tolist()}
        if not ended.any():
            self._totals += rewards.sum(0, np.float64)
            self._lengths += np.count_nonzero(valid, 0)
            return
        totals = np.cumsum(rewards, 0, np.float64) + self._totals
        lengths = np.cumsum(valid, 0) + self._lengths
        before = np.zeros(self.n_envs, np.float64), np.zeros(self.n_envs, np.int64)
        for t, i in zip(*(x.tolist() for x in np.nonzero(ended)), strict=True):
            total, length = float(totals[t, i] - before[0][i]), int(lengths[t, i] - before[1][i])
            before[0][i], before[1][i] = totals[t, i], lengths[t, i]
            self._rollout_episodes.append((t, EpisodeEnd(total, length, i, None, info=sums.get((t, i)))))
        self._totals[:], self._lengths[:] = totals[-1] - before[0], lengths[-1] - before[1]

    def pop_rollout_episodes(self) -> list[tuple[int, EpisodeEnd]]:
        """Return the episodes of the last rollout of `observe_rollout`, each with the row of its end."""
        episodes, self._rollout_episodes = self._rollout_episodes, []
        return episodes

    def _encode_legal(self, observations: Any) -> np.ndarray:
        """Return encoded observations [N, *D] in which each running episode has a legal action.

        Raises:
            NoLegalActionError: if there is none.
            ValueError: if a mask has other values than 0 and 1.
        """
        if self._returns_raw:
            return observations
        encoded = observations if self._encode is None else self._encode(observations)
        if self.n_mask:
            self._check_legal(encoded)
        return encoded

    def _check_legal(self, encoded: np.ndarray) -> None:
        """Check the action masks of encoded observations; see `_encode_legal`."""
        masks = vector_of(encoded, self.encoder.n_floats)[:, -self.n_mask :]
        if not is_binary(masks):
            got = f'{self.id} has an action mask with other values than 0 and 1'
            raise ValueError(f'{got} after step {self._n_steps}')
        illegal = self.valid & has_no_legal_action(masks, self._mask_ends)
        if illegal.any():
            raise NoLegalActionError(self.id, int(np.flatnonzero(illegal)[0]), self._n_steps)

    def set_params(self, **params: Any) -> None:
        """Change parameters of the environments from the next step on.

        Parameters of functions are arguments of their programs: nothing is compiled again. A parameter of another
        environment is set by its method `set_NAME` if that exists, otherwise as its attribute NAME.

        Raises:
            TypeError: for a parameter of functions that does not exist.
            ValueError: for a value of such a parameter that is no number.
            OptionError: for another environment without the parameter, or one that does not accept the value.
        """
        vector = self._base_vector
        if self.functional_vector is not None:
            self.functional_vector.set_params(**params)
            return
        if tuple(params) != self._checked_params:
            self.check_params({name: () for name in params})
        if isinstance(vector, WorkerVectorEnv):
            problems = [*vector.call('set_env_params', params)]
        else:
            problems = [set_params(env, params) for env in self._param_owners]
        if any(problems):
            raise OptionError('curriculum', next(filter(None, problems)))

    def check_params(self, params: Mapping[str, Sequence[float]]) -> None:
        """Check that the environments have parameters that `set_params` can change.

        Args:
            params: the values of all levels, by name.

        Raises:
            OptionError: for a missing parameter, with the nearest name; for an attribute that is no number, and for
                fractions of an int.
        """
        names, vector = tuple(params), self._base_vector
        if not names:
            return
        if isinstance(vector, WorkerVectorEnv):
            check_params(self.id, *vector.call('find_env_params', params)[0])
        elif isinstance(vector, AsyncVectorEnv):
            got = f'got ready-made worker processes of {self.id}, whose parameters cannot be checked'
            raise OptionError('curriculum', f"{got}; expected make or create_envs with vector='async'")
        else:
            check_params(self.id, *find_params(self._param_owners[0], params))
        self._checked_params = names

    @property
    def _param_owners(self) -> Sequence[Any]:
        """The objects of this process that have the parameters: environments of a loop, or a vector."""
        vector = self._base_vector
        is_loop = isinstance(vector, LoopVectorEnv) or isinstance(vector.unwrapped, SyncVectorEnv)
        return vector.envs if isinstance(vector, LoopVectorEnv) else vector.unwrapped.envs if is_loop else [vector]

    def select_infos(self, names: Iterable[str]) -> None:
        """Select numbers of infos, of which `infos` then contains each step; no names stop this.

        Raises:
            OptionError: if the environments are functions without infos.
        """
        names = tuple(names)
        if names == self.infos.names:
            return
        if self.functional_vector is not None:
            if names and not self.functional_vector.functional.has_info:
                got = f'got {" ".join(names)}, but {self.id} is compiled and has no infos'
                raise OptionError('log_info', f'{got}, expected --vector sync, or log_info among the options of make')
            self.functional_vector.select_infos(names)
            self.add_seen_infos(self.functional_vector.all_infos)
        self.infos.select(names)
        set_info_reader(self._base_vector, names)

    @property
    def seen_infos(self) -> frozenset[str]:
        """The names of all numbers in infos so far, if some are selected."""
        return self.infos.seen

    def add_seen_infos(self, names: Iterable[str]) -> None:
        """Add names of numbers in infos of environments that explorers step."""
        self.infos.seen |= frozenset(names)

    def return_raw_observations(self) -> None:
        """From now on, return observations as the environments do, without encoding."""
        self._returns_raw = True

    @property
    def image_shape(self) -> tuple[int, ...]:
        """Height, width and channels of the smallest image of an observation; empty without images."""
        shapes = [image.shape for image in self.encoder.images]
        if self.is_image:
            shapes = [self.observation_space.shape]
        return min(shapes, key=lambda shape: min(shape[:2]), default=())

    def input_parts(self, acts: bool = False) -> dict[str, tuple[int, ...]]:
        """Return the shapes of the parts of an observation that a network receives, by name; empty for a single part.

        Args:
            acts: whether the network is an actor, which does not receive the parts for critics.
        """
        encoder = self.encoder
        if not encoder.images:
            return {}
        size = encoder.n_floats - self.n_mask - acts * encoder.n_critic_only
        seen = {image.name: image.shape for image in encoder.images if not (acts and image.critic_only)}
        return {VECTOR: (size,), **seen} if size else seen

    @property
    def actor_shape(self) -> tuple[int, ...]:
        """The shape of the part of an encoded observation that actors receive: without the parts for critics."""
        n = 0 if self.encoder.images else self.encoder.n_critic_only
        return (self.network_shape[0] - n,) if n else self.network_shape

    @property
    def network_shape(self) -> tuple[int, ...]:
        """The shape of the part of an encoded observation that critics receive: without an action mask.

        Networks for images with other parts receive all bytes, of which their first layers select the parts.
        """
        shape = self.observation_space.shape
        return (shape[0] - self.n_mask,) if self.n_mask and not self.encoder.images else shape

    def _take_reports(self, info: dict[str, Any]) -> None:
        for i in np.flatnonzero(info[f'_{REPORT}']).tolist():
            reward, length, success, opponent = info[REPORT][i].tolist()
            known = None if np.isnan(success) else bool(success)
            opponent = None if np.isnan(opponent) else int(opponent)
            sums = self.infos.end_episode(i)
            self._episodes.append(EpisodeEnd(reward, int(length), i, known, opponent=opponent, info=sums))

    def pop_episodes(self) -> list[EpisodeEnd]:
        """Return the episodes that ended since the last call, oldest first."""
        episodes, self._episodes = self._episodes, []
        return episodes

    def load_counters(self, state: Mapping[str, Any]) -> None:
        """Restore the counters of a state."""
        if self.functional_vector is not None:
            self.functional_vector.set_state(state['vector'])
        self._seeds = state['seeds']
        self._episodes = [EpisodeEnd(*episode) for episode in state['episodes']]
        self.infos.load(state.get('infos', {}))
        for name in ('valid', 'totals', 'lengths'):
            np.copyto(self.state()[name], state[name])

    def counters_of(self, i: int) -> dict[str, Any]:
        """Return the counters of the agents of environment `i`."""
        counters = {'valid': self.valid, 'total': self._totals, 'length': self._lengths}
        own = self._rows_of(i)
        infos = {name: sums[own].tolist() for name, sums in self.infos.sums.items()}
        return {**{name: counter[own].tolist() for name, counter in counters.items()}, 'infos': infos}

    def load_counters_of(self, i: int, state: Mapping[str, Any]) -> None:
        """Restore the counters of the agents of environment `i`, and forget ended episodes."""
        own, self._episodes = self._rows_of(i), []
        self.valid[own], self._totals[own], self._lengths[own] = state['valid'], state['total'], state['length']
        for name, sums in state.get('infos', {}).items():
            if name in self.infos.sums:
                self.infos.sums[name][own] = sums

    def _rows_of(self, i: int) -> slice:
        """Return the rows of environment `i`."""
        return slice(i * self.agents_per_env, (i + 1) * self.agents_per_env)

    def state(self) -> dict[str, Any]:
        """Return the state that changes: the vector and the counters."""
        episodes = [dataclasses.astuple(episode) for episode in self._episodes]
        own: dict[str, Any] = {'valid': self.valid, 'totals': self._totals, 'lengths': self._lengths}
        own['infos'] = self.infos.sums
        vector = self._vector if self.functional_vector is None else self.functional_vector.get_state()
        return {'vector': vector, 'seeds': self._seeds, 'episodes': episodes, **own}

    def compatibility_key(self) -> list[Any]:
        """Return the properties that must be equal in environments that exchange snapshots."""
        return [self.id, self.n_envs, str(self.observation_space), str(self.action_space)]

    def recreate(
        self, n_envs: int, *, render_mode: str | None = None, training: bool = False, in_process: bool = False
    ) -> Envs:
        """Make new environments of the same kind.

        Args:
            n_envs: the number of environments.
            render_mode: Gymnasium's render mode.
            training: whether Atari games keep their training settings; otherwise rewards stay raw and only the end of
                a game ends an episode.
            in_process: whether the environments run in this process instead of worker processes.

        Raises:
            ValueError: if it is unknown how to make the environments, such as ready-made ones.
        """
        if self.factory is None:
            raise OptionError('env', self.not_recreated_because)
        envs = self.factory(n_envs=n_envs, render_mode=render_mode, training=training, in_process=in_process)
        envs.id = self.id  # a vector's function has another name
        if envs.observation_space != self.observation_space or envs.action_space != self.action_space:
            envs.close()
            problem = f'{self.id} created a second time has other spaces than the environments passed'
            raise ValueError(f'env: {problem}; {RECREATE_HINT}')
        return envs

    @functools.cached_property
    def goals(self) -> GoalFunctions:
        """The goal functions of an additional environment, made in this process.

        Raises:
            OptionError: if the environment has no goals or cannot be recreated.
        """
        return GoalFunctions(self.id, self.encoder, self._make_goal_env)

    def _make_goal_env(self) -> gymnasium.Env:
        if self.factory is None:
            problem = f'{self.id} was passed ready-made, expected an environment that can be recreated'
            raise OptionError('her', f'{problem}: {RECREATE_HINT}')
        envs = self.recreate(1, training=True, in_process=True)
        if not envs.can_snapshot_each:
            envs.close()
            expected = 'expected one, because HER calls its goal functions'
            raise OptionError('her', f'{self.id} is not a Gymnasium environment; {expected}')
        return envs._base_vector.envs[0]

    def render(self) -> list[Any]:
        """Return a frame of each environment, or an empty list if no frames exist (no render mode, or a window)."""
        frames = self._vector.render() if self.can_render else None
        return [frame for frame in frames or () if frame is not None]

    def close(self) -> None:
        """Close the environments; a second call does nothing."""
        if not self._closed:
            self._closed = True
            self._vector.close()
            if 'goals' in self.__dict__:
                self.goals.env.close()

    def __len__(self) -> int:
        return self.n_envs

    def __getitem__(self, i: int) -> EnvView:
        if not -self.n_envs <= i < self.n_envs:
            raise IndexError(f'got the index {i}, expected one of {self.n_envs} environments')
        return EnvView(self.observation_space, self.action_space, self.spec)

    def __repr__(self) -> str:
        return f'<Envs {self.id} x {self.n_envs}>'


def info_column(name: str) -> str:
    """Return the name of the column of a rollout, and of the metric, of a number of infos."""
    return f'{INFO}{name}'


def set_info_reader(vector: Any, names: Sequence[str]) -> None:
    """Let the environments of a vector pass on named numbers of their infos.

    Vectors of Gymnasium and others return all infos.
    """
    reader = InfoReader(names) if names else None
    if isinstance(vector, LoopVectorEnv):
        for env in vector.envs:
            env.set_wrapper_attr('info_reader', InfoReader(names) if names else None)
    elif isinstance(vector, WorkerVectorEnv):
        vector.set_attr('info_reader', [reader] * vector.num_envs)
    elif hasattr(vector, 'passes_infos'):
        vector.passes_infos = bool(names)


def _takes_seeds(vector: VectorEnv) -> bool:
    """Return whether a vector accepts a list of seeds, one for each environment."""
    from_us = isinstance(vector, LoopVectorEnv) or type(vector).__name__ == 'EnvPoolVectorEnv'
    return from_us or isinstance(vector.unwrapped, AsyncVectorEnv | SyncVectorEnv)


def _success(info: dict[str, Any], i: int) -> bool | None:
    """Return the success of environment `i` from a vector's infos, or None if it is not reported."""
    for name in SUCCESS:
        if name in info and (f'_{name}' not in info or info[f'_{name}'][i]) and is_success_value(info[name][i]):
            return bool(info[name][i])
    return None
