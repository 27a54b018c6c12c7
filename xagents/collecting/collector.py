"""The collector: environments, the policy that acts in them, statistics and random generators.

The collector does not depend on algorithms, losses or runs. The same class collects training data (also in the thread
of `--overlap`), evaluates, plays and records videos. Does not load TensorFlow.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Generator, Iterator, Mapping
from typing import Any

import numpy as np

from xagents.collecting.env_stepper import CollectRequest, CollectStats, EnvStepper, FillResult, LocalEnvStepper
from xagents.collecting.finite import NotFiniteError
from xagents.collecting.policies import Policy
from xagents.collecting.random_streams import RandomStreams
from xagents.collecting.rollouts import Rollout, allocate_rollout
from xagents.collecting.statistics import Statistics
from xagents.envs.interface import Envs
from xagents.envs.snapshots.write import Snapshot
from xagents.envs.spaces import ActionDecoder
from xagents.networks.acting import PublishedWeights
from xagents.pipeline.context import EpisodeEnd
from xagents.system.arrays import add_prefix, strip_prefix
from xagents.system.interruption import RunInterrupted

# columns of a rollout that update the statistics of rewards
REWARD_COLUMNS = ('rewards', 'terminated', 'truncated', 'valid')
StepResult = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


class EnvOwner:
    """A base class of objects that own environments, and further environments of the same kind for evaluations."""

    envs: Any
    streams: RandomStreams

    def __init__(self) -> None:
        self._evaluation_envs: dict[tuple[int, str | None], Any] = {}

    def evaluation_envs(self, n_envs: int, render_mode: str | None = None) -> Any:
        """Return separate environments of the same kind, for evaluations and videos; later calls return the same."""
        key = n_envs, render_mode
        if key not in self._evaluation_envs:
            self._evaluation_envs[key] = self.envs.recreate(n_envs, render_mode=render_mode)
        return self._evaluation_envs[key]

    def close(self) -> None:
        """Close the environments, including those for evaluations."""
        self.envs.close()
        self.close_evaluation_envs()

    def close_evaluation_envs(self) -> None:
        """Close the environments for evaluations; the next request creates new ones."""
        for envs in self._evaluation_envs.values():
            envs.close()
        self._evaluation_envs.clear()

    def _env_state(self, snapshot: Snapshot | None) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Return the state of the environments and the random generators: arrays by name, and a dict for JSON."""
        record = {'uncopied': self.envs.snapshot_problem, 'rngs': self.streams.state()}
        if snapshot is None:
            return {}, {'environments': None, **record}
        return add_prefix('environments', snapshot.arrays), {'environments': snapshot.record, **record}

    def _restored(self, arrays: Mapping[str, np.ndarray], record: Mapping[str, Any], environments: bool) -> bool:
        """Restore the saved environments if `environments` is set; return whether they were restored."""
        if record['environments'] is None or not environments:
            return False
        try:
            self.envs.restore(Snapshot(strip_prefix('environments', arrays), record['environments']))
        except ValueError:  # the saved environments are different, or their number is
            return False
        return True


class Collector(EnvOwner):
    """A policy that acts in environments.

    Args:
        envs: the environments.
        policy: the policy.
        statistics: running statistics of observations and rewards; `collect` updates them.
        streams: random generators by purpose; the collector uses `env` and `act`.
        raw_rollouts: whether rollouts contain raw observations and rewards, which the agent normalises at each update.
            If False, `collect` normalises observations with the statistics that the policy acted with.

    Attributes:
        stepper: steps the environments for `collect`, in this process or in explorers.
        ended_episodes: episodes that ended with the last `step`.
        stats: counts of episodes, steps and seconds.
        recorder_state: state of the recorder in a loaded state; None if the state has none.
    """

    def __init__(
        self,
        envs: Envs,
        policy: Policy,
        statistics: Statistics,
        streams: RandomStreams,
        raw_rollouts: bool = False,
    ):
        super().__init__()
        self.envs, self.policy, self.statistics = envs, policy, statistics
        self.streams, self.raw_rollouts = streams, raw_rollouts
        self.stepper: EnvStepper = LocalEnvStepper(envs)
        self.decode = ActionDecoder(envs.action_space)
        self.ended_episodes: list[EpisodeEnd] = []
        self.stats = CollectStats()
        self.recorder_state: tuple[dict[str, np.ndarray], dict[str, Any]] | None = None
        self._restarted = False
        self._rollouts: list[Rollout | None] = [None]

    @property
    def observations(self) -> np.ndarray | None:
        """The current observations [N, *D]; None if the environments are reset before the next step."""
        return self.stepper.observations

    @observations.setter
    def observations(self, observations: np.ndarray | None) -> None:
        self.stepper.observations = observations

    def collect(self, n_steps: int, **schedule: Any) -> Rollout:
        """Take steps in every environment.

        Args:
            n_steps: T, the number of steps in each environment.
            schedule: current values of the run's schedules; the policy uses the values that it supports.

        Returns:
            `observations` [T + 1, N, *D]; the policy's columns, `rewards`, `terminated`, `truncated` and `valid`
            [T, N, …]. A row that is not valid only reset its environment. A raw rollout also has `restarted`, bool
            [N]: whether the environment was reset since the last rollout. A later call overwrites the arrays, by
            default the next one (see `keep_rollouts`).

        Raises:
            NotFiniteError: if an observation or reward is not finite; the next call begins new episodes.
            RunInterrupted: if the run is stopped while it waits for explorers.
        """
        with self._restore_rngs_on_interrupt(), self._reset_if_not_finite():
            rollout, request = self._next_request(n_steps, schedule)
            result = self.stepper.fill(rollout, request, self.stats)
        return self._finish_rollout(rollout, result)

    def iter_collect(self, n_steps: int, **schedule: Any) -> Generator[None, None, Rollout]:
        """Collect as a generator that yields before each step, so that other policies can choose actions first."""
        self._check_local()
        assert isinstance(self.stepper, LocalEnvStepper)
        rollout, request = self._next_request(n_steps, schedule)
        with self._reset_if_not_finite():
            result = yield from self.stepper.iter_fill(rollout, request, self.stats)
        return self._finish_rollout(rollout, result)

    @contextlib.contextmanager
    def _restore_rngs_on_interrupt(self) -> Iterator[None]:
        """If collecting is interrupted, restore the random generators so that a resumed run draws the same noise."""
        rngs = [self.streams(purpose).bit_generator for purpose in ('act', 'env')] if self.is_remote else []
        saved_states = [rng.state for rng in rngs]
        try:
            yield
        except RunInterrupted:
            for rng, state in zip(rngs, saved_states, strict=True):
                rng.state = state
            raise

    @contextlib.contextmanager
    def _reset_if_not_finite(self) -> Iterator[None]:
        """If collected numbers are not finite, reset the environments, whose state may not be finite either."""
        try:
            yield
        except NotFiniteError:
            self.observations = None
            raise

    def _next_request(self, n_steps: int, schedule: Mapping[str, Any]) -> tuple[Rollout, CollectRequest]:
        """Return the arrays of the next rollout, and the request for it with its noise."""
        rollout = self._next_arrays(n_steps)
        rows = math.ceil(n_steps / self.policy.noise_repeat)
        noise = self.policy.draw_exploration(self.streams('act'), (rows, self.envs.n_envs))
        if self.observations is None:
            self.reset()
            self.statistics.reset_returns(np.ones(self.envs.n_envs, bool))
        return rollout, CollectRequest(self.policy, self.statistics, noise, schedule)

    def _finish_rollout(self, rollout: Rollout, result: FillResult) -> Rollout:
        """Update the statistics with a rollout, and return the rollout for learning."""
        statistics = self.statistics
        if result.lost is not None:
            statistics.reset_returns(result.lost)
        self._observe_rewards(rollout, result)
        if self.raw_rollouts:
            restarted = np.full(self.envs.n_envs, self._restarted)
            for others in (result.lost, result.discontinuous):
                restarted |= False if others is None else others
            batch = {**rollout, 'restarted': restarted}
            self._restarted = False
        else:
            prepared = self._prepare_observations(rollout['observations'], result)
            batch = {**rollout, 'observations': prepared, 'rewards': statistics.scale_rewards(rollout['rewards'])}
        statistics.observe(rollout)
        return batch

    def _observe_rewards(self, rollout: Rollout, result: FillResult) -> None:
        """Update the statistics with the rewards, one block after the other."""
        if not result.blocks:
            self.statistics.observe_rewards(rollout)
        for block in result.blocks:
            columns = {name: rollout[name][:, block.columns] for name in REWARD_COLUMNS}
            self.statistics.observe_rewards(columns, block.envs)

    def _prepare_observations(self, observations: np.ndarray, result: FillResult) -> np.ndarray:
        """Return observations [T + 1, N, *D], normalised as for acting."""
        if not result.blocks:
            return self.statistics.prepare(observations)
        prepared = np.empty(observations.shape, self.statistics.dtype)
        for block in result.blocks:
            prepared[:, block.columns] = block.statistics.prepare(observations[:, block.columns])
        return prepared

    def keep_rollouts(self, n: int) -> None:
        """Keep the arrays of the last `n` rollouts; `collect` overwrites only older arrays."""
        self._rollouts = [*[None] * (n - 1), self._rollouts[-1]]

    def _next_arrays(self, n_steps: int) -> Rollout:
        """Return the arrays of the oldest rollout, to be overwritten."""
        oldest = self._rollouts.pop(0)
        if oldest is None or len(oldest['valid']) != n_steps:
            oldest = allocate_rollout(self.envs, n_steps, self.policy.columns)
        self._rollouts.append(oldest)
        return oldest

    # single steps

    @property
    def is_remote(self) -> bool:
        """Whether explorers step the environments."""
        return not isinstance(self.stepper, LocalEnvStepper)

    def _check_local(self) -> None:
        """Raise TypeError if explorers step the environments."""
        if self.is_remote:
            raise TypeError('explorers have the environments: only `collect` can step them during a run with explorers')

    def current_observations(self) -> np.ndarray:
        """Return a copy of the current observations [N, *D]; resets the environments first if they have none."""
        self._check_local()
        if self.observations is None:
            self.reset()
        return np.array(self.observations)

    def restart_from(self, observations: np.ndarray | None) -> None:
        """Continue from other observations, which do not follow the last rollout; None resets before the next step."""
        self.observations, self._restarted = observations, True

    def reset(self, seed: int | None = None) -> None:
        """Reset every environment; the default seed is drawn from the `env` generator."""
        seed = int(self.streams('env').integers(2**31)) if seed is None else seed
        self.stepper.reset(seed)
        self._restarted = True

    def step(self, actions: np.ndarray) -> StepResult:
        """Take one step in every environment with environment actions [N, …], and count it.

        Returns:
            Observations, rewards, terminated, truncated, [N, …] each; the next step may overwrite these arrays.
        """
        self._check_local()
        valid = int(np.count_nonzero(self.envs.valid))
        result = self.envs.step(actions)
        self.observations, self.ended_episodes = result[0], self.envs.pop_episodes()
        self.stats.steps += valid
        self.stats.add(self.ended_episodes, 0.0)
        return result

    def act(self, rng: np.random.Generator | None = None) -> np.ndarray:
        """Return environment actions [N, …] for the current observations: sampled with `rng`, or greedy without it."""
        observations = self.observations
        assert observations is not None
        noise = None if rng is None else self.policy.draw_noise(rng, (len(observations),))
        return self.decode(self.policy(self.statistics.prepare(observations), noise)['actions'])

    # weights and state

    def sync(self, published: PublishedWeights) -> None:
        """Load published weights into the policy, which must have its own network."""
        self.policy.sync(published)

    def parts(self) -> dict[str, Any]:
        """Return the parts that have a state, by their names in checkpoints."""
        return {**self.statistics.parts(), **self.policy.parts()}

    def with_envs(self, envs: Envs, policy: Policy, statistics: Statistics) -> Collector:
        """Return a collector in other environments with the same random generators."""
        return Collector(envs, policy, statistics, self.streams)

    def state(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Return the state of collecting: arrays by name, and a dict for JSON."""
        return self.state_with_snapshot(self.stepper.snapshot())

    def state_with_snapshot(self, snapshot: Snapshot | None) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Return the state with a given snapshot of the environments; None resets the environments on loading."""
        arrays, record = self._env_state(snapshot)
        record['restarted'] = self._restarted
        if snapshot is not None:
            arrays['observations'] = np.array(self.observations)
        for name, part in self.parts().items():
            arrays |= add_prefix(name, {key: np.array(value) for key, value in part.state().items()})
        if self.envs.recorder is not None:
            seen, record['recorder'] = self.envs.recorder.state()
            arrays |= add_prefix('recorder', seen)
        return arrays, record

    def load(self, arrays: Mapping[str, np.ndarray], record: Mapping[str, Any], environments: bool = True) -> bool:
        """Load a state; parts without a saved state do not change.

        Args:
            arrays: arrays from `state`.
            record: dict from `state`.
            environments: whether to restore the environments; False if the state belongs to other environments.

        Returns:
            Whether the environments were restored; if not, the next step begins new episodes.
        """
        for name, part in self.parts().items():
            saved = strip_prefix(name, arrays)
            if saved:
                part.load(saved)
        self.streams.load(record['rngs'])
        self._restarted, self.observations = record['restarted'], None
        if 'recorder' in record:
            self.recorder_state = strip_prefix('recorder', arrays), record['recorder']
        if not self._restored(arrays, record, environments):
            return False
        self.observations = np.array(arrays['observations'])
        return True
