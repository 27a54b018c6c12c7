"""One face over every kind of environment, single or side by side, in process, in worker processes or in C++."""

from __future__ import annotations

import dataclasses
import functools
import pickle
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Self

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv
from gymnasium.vector.utils import CloudpickleWrapper

from xagents.envs.goals import GoalFunctions
from xagents.envs.multi_agent import AGENT_SET, TEAM_REWARD, AgentRows, AgentSet
from xagents.envs.snapshots.read import MissingStateError, restore_snapshot
from xagents.envs.snapshots.write import Snapshot, SnapshotError, take_snapshot
from xagents.envs.spaces import ObservationEncoder
from xagents.envs.step_recorder import StepRecorder
from xagents.envs.vectors import LoopVectorEnv
from xagents.envs.wrappers import REPORT, SUCCESS, is_success_value
from xagents.options.errors import OptionError, one_line

# Makes the same environments afresh: (n_envs, render_mode, training, here) -> Envs.
EnvFactory = Callable[[int, str | None, bool, bool], 'Envs']
RECREATE_HINT = 'give create_envs a function that makes one, or hand over environments to evaluate on'


@dataclasses.dataclass(slots=True)
class EpisodeEnd:
    """An episode that ended.

    Attributes:
        reward: the sum of the environment's raw rewards, whatever wrappers or clipping do to them.
        length: the number of steps the agent took.
        env: the index of the environment.
        success: what the environment reported as `is_success` or `success`, None where it reports nothing.
        team: what all agents of the environment got together since it began; with the last of them to end, else None.
    """

    reward: float
    length: int
    env: int
    success: bool | None
    team: float | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class EnvView:
    """What one of the environments shows, encoded and of shape D, and takes; `spec` is Gymnasium's, if it has one."""

    observation_space: spaces.Box
    action_space: spaces.Space
    spec: EnvSpec | None


class Copyable:
    """Environments whose state can be copied and restored; `snapshot_problem` names what the last copy lacks."""

    snapshot_problem = ''

    def _take(self, states: Iterable[Any]) -> list[Snapshot] | None:
        """Return copies of states; None where one can not be copied."""
        try:
            copies = [take_snapshot(state) for state in states]
        except SnapshotError as reason:
            self.snapshot_problem = str(reason)
            return None
        self.snapshot_problem = ''
        return copies

    def _assign(self, states: Callable[[], list[Any]], copies: Sequence[Snapshot]) -> list[Any]:
        """Put copies into the states of this, and return what was copied."""
        try:
            return list(map(restore_snapshot, states(), copies))
        except MissingStateError:
            # Some environments make parts of theirs only when they are reset.
            self.reset(0)
            return list(map(restore_snapshot, states(), copies))

    def reset(self, seed: int | None = None) -> Any:
        """Reset all environments."""
        raise NotImplementedError

    def close(self) -> None:
        """Close the environments."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


class Envs(Copyable):
    """N environments side by side, in Gymnasium's NEXT_STEP mode; with M agents in each, N counts agents.

    The observation after an episode's last step is its true last one. The step after it only resets: its action is
    ignored, its reward is 0, and `valid` says so beforehand.

    The agents of one environment stand side by side and begin anew together: one that is gone stays ended, and not
    valid, until then.

    Attributes:
        n_envs: N.
        agents: names of the M agents of each environment; empty where it has but one, without a name.
        id: the environment's name.
        encoder: turns raw observations into what `reset` and `step` return.
        observation_space: the encoded space of one environment, of shape D.
        action_space: the action space of one environment, as the environment has it.
        spec: Gymnasium's spec of one environment, None where there is none.
        frame_stack: how many frames an image shows, newest last, where it is known to be a stack; otherwise 1.
        atari: whether they get the Atari preprocessing.
        valid: bool [N], updated in place: False where the next step only resets.
        snapshot_problem: what the last `snapshot` could not copy, in a few words; '' if it copied all.
        recorder: receives every reset and step; None if nothing is recorded.
        env_indices: of the N, by which episodes tell of them; among those of all policies, where several play in them.

    Args:
        vector: the environments, in NEXT_STEP mode.
        has_reports: whether infos hold the reports of `EpisodeReport`; otherwise rewards are added up here.
        factory: makes the same environments afresh.

    Raises:
        ValueError: if the observation space has no fixed size, or the vector resets in another mode.
    """

    def __init__(
        self,
        vector: VectorEnv,
        *,
        id: str,
        has_reports: bool = False,
        factory: EnvFactory | None = None,
        spec: EnvSpec | None = None,
        frame_stack: int = 1,
        atari: bool = False,
    ) -> None:
        mode = vector.metadata.get('autoreset_mode')
        if mode not in (AutoresetMode.NEXT_STEP, AutoresetMode.NEXT_STEP.value):
            got = mode.name if isinstance(mode, AutoresetMode) else mode
            raise ValueError(f'envs: the vector environment has the autoreset mode {got}, expected NEXT_STEP')
        self.n_envs = vector.num_envs
        agent_set: AgentSet | None = vector.metadata.get(AGENT_SET)
        self.agents = agent_set.names if agent_set else ()
        self.id, self.spec, self.frame_stack, self.atari = id, spec, frame_stack, atari
        self.encoder = ObservationEncoder(vector.single_observation_space)
        self.observation_space = self.encoder.space
        self.action_space = vector.single_action_space
        self.valid = np.ones(self.n_envs, bool)
        self.recorder: StepRecorder | None = None
        self._vector, self._factory, self._has_reports, self._closed = vector, factory, has_reports, False
        self._seeds: np.random.SeedSequence | None = None
        self._encode = None if self.encoder.identity else self.encoder
        self._rewards = np.zeros(self.n_envs, np.float32)
        self._ended = np.zeros(self.n_envs, bool)
        self._newly_ended = np.zeros(self.n_envs, bool) if self.agents else self._ended
        self.env_indices: Sequence[int] = vector.row_indices if isinstance(vector, AgentRows) else range(self.n_envs)
        self._totals = np.zeros(self.n_envs, np.float64)
        self._lengths = np.zeros(self.n_envs, np.int64)
        self._episodes: list[EpisodeEnd] = []

    @property
    def is_image(self) -> bool:
        """Whether encoded observations are images [H, W, C]."""
        return len(self.observation_space.shape) == 3

    @property
    def can_recreate(self) -> bool:
        """Whether `recreate` can make the same environments afresh."""
        return self._factory is not None

    @property
    def agents_per_env(self) -> int:
        """How many of N are of one environment: M, its agents."""
        return max(len(self.agents), 1)

    @property
    def can_snapshot_each(self) -> bool:
        """Whether each environment stands by itself, so that others may go on with some of them."""
        return isinstance(self._base_vector, LoopVectorEnv)

    @property
    def _base_vector(self) -> Any:
        """The vector of whole environments."""
        return self._vector.parallel_vector.envs if isinstance(self._vector, AgentRows) else self._vector

    @property
    def can_render(self) -> bool:
        """Whether `render` returns frames."""
        return self._vector.render_mode is not None

    @property
    def frames_per_second(self) -> float:
        """How fast a video of it looks natural; 30 where the environment does not say."""
        return float(self._vector.metadata.get('render_fps') or 30)

    def reset(self, seed: int | None = None, first: int = 0) -> np.ndarray:
        """Resets all environments, whatever they were doing; unfinished episodes count for nothing.

        Args:
            seed: each environment gets a seed of its own derived from it, the same for any N; a vector that takes one
                seed gets one. None goes on with the seeds derived from the last one given.
            first: index of the first of these environments, where they are some of many.

        Returns:
            observations [N, *D]; the array may be reused by the next step.
        """
        if seed is not None or self._seeds is None:
            self._seeds = np.random.SeedSequence(seed)
        (sequence,) = self._seeds.spawn(1)
        first, last = first // self.agents_per_env, (first + self.n_envs) // self.agents_per_env
        # 31 bits: some environments keep a seed in a C int.
        seeds = [int(child.generate_state(1)[0] >> 1) for child in sequence.spawn(last)[first:]]
        own: Any = seeds if _takes_seeds(self._base_vector) else seeds[0]
        observations, _ = self._vector.reset(seed=own)
        self.valid[:] = True
        self._totals[:] = 0
        self._lengths[:] = 0
        if self.recorder is not None:
            self.recorder.reset(observations)
        return observations if self._encode is None else self._encode(observations)

    def current_observations(self) -> np.ndarray:
        """Returns what agents see now, [N, *D], where other policies share the environments."""
        assert isinstance(self._vector, AgentRows)
        return np.array(self._vector.current_observations())

    def set_actions(self, actions: np.ndarray) -> None:
        """Says what the next step is to be, where other policies share the environments, and wait for it."""
        if isinstance(self._vector, AgentRows):
            self._vector.set_actions(actions)

    def step(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Takes one step by environment actions [N, …], as `ActionDecoder` makes them.

        Returns:
            observations [N, *D], rewards float32 [N], terminated bool [N], truncated bool [N], which the next step may
            overwrite.
        """
        observations, raw, terminated, truncated, info = self._vector.step(actions)
        if self.recorder is not None:
            self.recorder.step(actions, observations, raw, terminated, truncated, self.valid)
        # Rows that only reset get a reward of 0, whatever the vector says.
        rewards = np.multiply(raw, self.valid, out=self._rewards, casting='same_kind')
        if not self._has_reports:
            np.add(self._totals, raw, out=self._totals, where=self.valid)
            self._lengths += self.valid
        ended = np.logical_or(terminated, truncated, out=self._ended)
        if self.agents:
            np.logical_and(ended, self.valid, out=self._newly_ended)  # not those that were gone before
        np.logical_not(ended, out=self.valid)
        if self._has_reports:
            if REPORT in info:
                self._take_reports(info)
        elif np.count_nonzero(ended):  # ten times as fast as any()
            for i in np.flatnonzero(self._newly_ended).tolist():
                success = _success(info, i) if info else None
                team = (
                    float(info[TEAM_REWARD][i]) if TEAM_REWARD in info and not np.isnan(info[TEAM_REWARD][i]) else None
                )
                total, length = float(self._totals[i]), int(self._lengths[i])
                self._episodes.append(EpisodeEnd(total, length, self.env_indices[i], success, team))
                self._totals[i] = self._lengths[i] = 0
        if self._encode is not None:
            observations = self._encode(observations)
        return observations, rewards, terminated, truncated

    def _take_reports(self, info: dict[str, Any]) -> None:
        for i in np.flatnonzero(info[f'_{REPORT}']).tolist():
            reward, length, success = info[REPORT][i].tolist()
            self._episodes.append(EpisodeEnd(reward, int(length), i, None if np.isnan(success) else bool(success)))

    def pop_episodes(self) -> list[EpisodeEnd]:
        """Returns the episodes that ended since the last call, oldest first."""
        episodes, self._episodes = self._episodes, []
        return episodes

    def snapshot(self) -> Snapshot | None:
        """Copies the state of the environments exactly, random numbers and unfinished episodes included.

        Returns None where something can not be copied; `snapshot_problem` then says what.
        """
        copies = self._take([self.state()])
        if copies is None:
            return None
        copies[0].record['kind'] = self.compatibility_key()
        return copies[0]

    def restore(self, snapshot: Snapshot) -> None:
        """Goes on from a snapshot of environments of the same kind: all that follows is what followed there.

        Arguments of the environments are part of their state: a time limit is again what it was.

        Raises:
            ValueError: in one line, if it is that of other environments, or damaged. The environments may have been
                reset then: reset them before going on.
        """
        kind = snapshot.record.get('kind')
        if kind != self.compatibility_key():
            raise ValueError(f'snapshot: it is that of {_describe(kind)}, not of {_describe(self.compatibility_key())}')
        self.load_counters(*self._assign(lambda: [self.state()], [snapshot]))

    def load_counters(self, state: Mapping[str, Any]) -> None:
        """Goes on with the counters of a state that was given to the environments."""
        self._seeds = state['seeds']
        self._episodes = [EpisodeEnd(*episode) for episode in state['episodes']]
        for name in ('valid', 'totals', 'lengths'):
            np.copyto(self.state()[name], state[name])

    def snapshot_each(self) -> list[Snapshot] | None:
        """Copies each environment by itself, so that others may go on with any of them.

        Returns None where one can not be copied, or where they are not a plain loop; `snapshot_problem` then says what.
        """
        if not self.can_snapshot_each:
            self.snapshot_problem = 'the environments cannot be copied one by one'
            return None
        return self._take(map(self._state_of, range(self.n_envs // self.agents_per_env)))

    def restore_each(self, copies: Sequence[Snapshot]) -> None:
        """Goes on from copies of single environments of the same kind, one for each of these.

        Raises:
            ValueError: in one line, as `restore`.
        """
        states = self._assign(lambda: list(map(self._state_of, range(len(copies)))), copies)
        self._episodes = []
        for i, state in enumerate(states):
            own = self._rows_of(i)
            self.valid[own], self._totals[own], self._lengths[own] = state['valid'], state['total'], state['length']
            self._base_vector.ended[i] = state['ended']

    def _state_of(self, i: int) -> dict[str, Any]:
        """Returns the state of one environment of a loop; that of its agents as lists."""
        rows, inner = self._rows_of(i), self._base_vector
        own = {'valid': self.valid[rows].tolist(), 'total': self._totals[rows].tolist()}
        length = self._lengths[rows].tolist()
        return {'env': inner.envs[i], 'ended': bool(inner.ended[i]), **own, 'length': length}

    def _rows_of(self, i: int) -> slice:
        """Returns which of N are of the environment i."""
        return slice(i * self.agents_per_env, (i + 1) * self.agents_per_env)

    def state(self) -> dict[str, Any]:
        """Returns what changes: the vector, and what is counted here."""
        episodes = [dataclasses.astuple(episode) for episode in self._episodes]
        own = {'valid': self.valid, 'totals': self._totals, 'lengths': self._lengths}
        return {'vector': self._vector, 'seeds': self._seeds, 'episodes': episodes, **own}

    def compatibility_key(self) -> list[Any]:
        """Returns what environments must have in common that go on from each other's snapshots."""
        return [self.id, self.n_envs, str(self.observation_space), str(self.action_space)]

    def recreate(
        self, n_envs: int, *, render_mode: str | None = None, training: bool = False, in_process: bool = False
    ) -> Envs:
        """Makes so many of the same environment afresh; unless for `training`, with rewards raw and Atari games whole.

        With `in_process` in this process, where others are in worker processes.

        Raises:
            ValueError: if the environments were handed over and nothing tells how to make them.
        """
        if self._factory is None:
            raise ValueError(f'env: {self.id} was handed over ready-made and cannot be made afresh; {RECREATE_HINT}')
        envs = self._factory(n_envs, render_mode, training, in_process)
        if envs.observation_space != self.observation_space or envs.action_space != self.action_space:
            envs.close()
            raise ValueError(f'env: {self.id} made afresh has other spaces than what was handed over; {RECREATE_HINT}')
        return envs

    def factory_to_bytes(self) -> bytes:
        """Returns what makes the same environments in another process; see `envs_from_bytes`.

        Raises:
            ValueError: in one line, if nothing tells how to make them, or that cannot be sent.
        """
        if self._factory is None:
            raise ValueError(f'{self.id} was handed over ready-made and cannot be made afresh; {RECREATE_HINT}')
        factory: Any = self._factory
        try:
            return pickle.dumps(CloudpickleWrapper(factory))
        except Exception as error:  # whatever a function of somebody's holds on to
            raise ValueError(
                f'{self.id} cannot be sent to another process ({one_line(error)}); {RECREATE_HINT}'
            ) from error

    @functools.cached_property
    def goals(self) -> GoalFunctions:
        """Its goal functions, of one more environment, in this process.

        Raises:
            OptionError: where it has none, or cannot be made again.
        """
        return GoalFunctions(self.id, self.encoder, self._make_goal_env)

    def _make_goal_env(self) -> gymnasium.Env:
        if self._factory is None:
            raise OptionError(
                'her', f'{self.id} was handed over ready-made, expected what can be made again: {RECREATE_HINT}'
            )
        envs = self.recreate(1, training=True, in_process=True)
        if not envs.can_snapshot_each:
            envs.close()
            raise OptionError(
                'her', f'{self.id} is no environment of Gymnasium, expected those, whose goals can be asked'
            )
        return envs._base_vector.envs[0]

    def render(self) -> list[Any]:
        """Returns a frame of each environment, or an empty list where none is made (no render mode, or a window)."""
        if not self.can_render:
            return []
        return [frame for frame in self._vector.render() or () if frame is not None]

    def close(self) -> None:
        """Closes the environments; a second call does nothing."""
        if not self._closed:
            self._closed = True
            self._vector.close()
            if 'goals' in self.__dict__:
                self.goals.env.close()

    def __len__(self) -> int:
        return self.n_envs

    def __getitem__(self, i: int) -> EnvView:
        if not -self.n_envs <= i < self.n_envs:
            raise IndexError(f'there are {self.n_envs} environments, not one with the index {i}')
        return EnvView(self.observation_space, self.action_space, self.spec)

    def __repr__(self) -> str:
        return f'<Envs {self.id} x {self.n_envs}>'


def envs_from_bytes(sent: bytes, n_envs: int) -> Envs:
    """Create `n_envs` environments from the bytes of `Envs.factory_to_bytes`, as `Envs.recreate` does."""
    return pickle.loads(sent).fn(n_envs, None, False, False)


def _describe(kind: Any) -> str:
    """Returns what a snapshot says of its environments, on one line."""
    if not (isinstance(kind, list) and len(kind) == 4):
        return 'something else'
    name, n_envs, observation, action = (' '.join(str(part).split()) for part in kind)
    return f'{n_envs} x {name} with observations {observation} and actions {action}'


def _takes_seeds(vector: VectorEnv) -> bool:
    """Whether a vector takes a list with a seed for each environment."""
    from_us = isinstance(vector, LoopVectorEnv) or type(vector).__name__ == 'EnvPoolVectorEnv'
    return from_us or isinstance(vector.unwrapped, AsyncVectorEnv | SyncVectorEnv)


def _success(info: dict[str, Any], i: int) -> bool | None:
    """Returns what a vector's infos say about the success of environment `i`, None where they say nothing."""
    for name in SUCCESS:
        if name in info and (f'_{name}' not in info or info[f'_{name}'][i]) and is_success_value(info[name][i]):
            return bool(info[name][i])
    return None
