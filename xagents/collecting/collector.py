"""The collector: environments, a policy that acts in them, and all that belongs to acting. Loads no TensorFlow.

It knows no algorithm, no loss and no run. The same class collects for learning, in the thread of `--overlap` as well,
evaluates, plays and records videos; what differs is where it stands and whose weights it acts by.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from xagents.collecting.env_stepper import (
    CollectRequest,
    CollectStats,
    EnvStepper,
    FillResult,
    LocalEnvStepper,
    StepGenerator,
)
from xagents.collecting.policies import Policy
from xagents.collecting.random_streams import RandomStreams
from xagents.collecting.rollouts import Rollout, allocate_rollout
from xagents.collecting.statistics import Statistics
from xagents.envs.interface import Envs, EpisodeEnd
from xagents.envs.snapshots.write import Snapshot
from xagents.envs.spaces import ActionDecoder
from xagents.networks.acting import PublishedWeights
from xagents.system.arrays import add_prefix, strip_prefix
from xagents.system.interruption import RunInterrupted

# of a rollout, what statistics of rewards want to know
REWARD_COLUMNS = ('rewards', 'terminated', 'truncated', 'valid')
StepResult = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


class EnvOwner:
    """An owner of environments, and of further ones of the same kind that are kept until they are closed."""

    envs: Any

    def __init__(self) -> None:
        self._evaluation_envs: dict[tuple[int, str | None], Any] = {}

    def evaluation_envs(self, n_envs: int, render_mode: str | None = None) -> Any:
        """Return other environments of the same kind, to evaluate or record in; they are kept for the next time."""
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

    def _restored(self, arrays: Mapping[str, np.ndarray], record: Mapping[str, Any], environments: bool) -> bool:
        """Let the environments stand where they were saved, if that is wanted; return whether they do."""
        if record['environments'] is None or not environments:
            return False
        try:
            self.envs.restore(Snapshot(strip_prefix('environments', arrays), record['environments']))
        except ValueError:  # other environments than those that were saved, or more of them
            return False
        return True


class Collector(EnvOwner):
    """Lets a policy act in environments.

    Args:
        envs: to act in.
        policy: chooses the actions.
        statistics: of observations and rewards; `collect` lets them learn.
        streams: random generators by purpose; those of `env` and `act` are asked for.
        raw_rollouts: whether rollouts are given as the environments gave them, to be normalised when they are learned
            from; else
            observations are normalised by the statistics that acting saw.

    Attributes:
        stepper: who steps the environments for `collect`: this process, or others.
        ended_episodes: the episodes that ended with the last `step`.
        stats: counts episodes, steps and seconds.
        recorder_state: the state of the recorder in a loaded state; None if it had no recorder.
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
        self.envs, self.policy, self.statistics, self.streams, self.raw_rollouts = (
            envs,
            policy,
            statistics,
            streams,
            raw_rollouts,
        )
        self.stepper: EnvStepper = LocalEnvStepper(envs)
        self.decode = ActionDecoder(envs.action_space)
        self.ended_episodes: list[EpisodeEnd] = []
        self.stats = CollectStats()
        self.recorder_state: tuple[dict[str, np.ndarray], dict[str, Any]] | None = None
        self._restarted = False
        self._rollouts: list[Rollout | None] = [None]

    @property
    def observations(self) -> np.ndarray | None:
        """What the environments show now, [N, *D]; None where they begin anew with the next step."""
        return self.stepper.observations

    @observations.setter
    def observations(self, observations: np.ndarray | None) -> None:
        self.stepper.observations = observations

    def collect(self, n_steps: int, **schedule: Any) -> Rollout:
        """Take steps in every environment.

        Args:
            n_steps: T, in each environment.
            schedule: the values that a run's schedules have now; the policy takes those that it knows.

        Returns:
            `observations` [T + 1, N, *D]; the policy's columns, `rewards`, `terminated`, `truncated` and `valid`
            [T, N, …]. A row that is not valid only reset its environment. A raw one also has `restarted` [N]: which
            environments were reset since the last rollout. The arrays are overwritten by the next call, or the one
            after it (see `keep_rollouts`).

        Raises:
            NotFiniteError: where observations or rewards are not finite.
            Interrupted: where explorers are waited for in vain, and the run is to end.
        """
        with self._restore_rngs_on_interrupt():
            rollout, request = self._next_request(n_steps, schedule)
            result = self.stepper.fill(rollout, request, self.stats)
        return self._finish_rollout(rollout, result)

    def iter_collect(self, n_steps: int, **schedule: Any) -> StepGenerator[Rollout]:
        """Do as `collect`, and stop before each step until those who share the environments have said theirs, too."""
        self._check_local()
        assert isinstance(self.stepper, LocalEnvStepper)
        rollout, request = self._next_request(n_steps, schedule)
        result = yield from self.stepper.iter_fill(rollout, request, self.stats)
        return self._finish_rollout(rollout, result)

    @contextlib.contextmanager
    def _restore_rngs_on_interrupt(self) -> Iterator[None]:
        """Where nothing was collected, let what was drawn be drawn again when the run goes on."""
        rngs = [self.streams(purpose).bit_generator for purpose in ('act', 'env')] if self.is_remote else []
        saved_states = [rng.state for rng in rngs]
        try:
            yield
        except RunInterrupted:
            for rng, state in zip(rngs, saved_states, strict=True):
                rng.state = state
            raise

    def _next_request(self, n_steps: int, schedule: Mapping[str, Any]) -> tuple[Rollout, CollectRequest]:
        """Return the arrays of the next rollout, and what makes it, with its noise drawn."""
        rollout = self._next_arrays(n_steps)
        rows = math.ceil(n_steps / self.policy.noise_repeat)
        noise = self.policy.draw_exploration(self.streams('act'), (rows, self.envs.n_envs))
        if self.observations is None:
            self.reset()
        return rollout, CollectRequest(self.policy, self.statistics, noise, schedule)

    def _finish_rollout(self, rollout: Rollout, result: FillResult) -> Rollout:
        """Return a rollout as it is learned from; the statistics learn from it."""
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
        """Let the statistics learn from rewards, each block's after the others'."""
        if not result.blocks:
            self.statistics.observe_rewards(rollout)
        for block in result.blocks:
            columns = {name: rollout[name][:, block.columns] for name in REWARD_COLUMNS}
            self.statistics.observe_rewards(columns, block.envs)

    def _prepare_observations(self, observations: np.ndarray, result: FillResult) -> np.ndarray:
        """Return observations [T + 1, N, *D] as acting saw them."""
        if not result.blocks:
            return self.statistics.prepare(observations)
        prepared = np.empty(observations.shape, self.statistics.dtype)
        for block in result.blocks:
            prepared[:, block.columns] = block.statistics.prepare(observations[:, block.columns])
        return prepared

    def keep_rollouts(self, n: int) -> None:
        """Let the arrays of the last `n` rollouts stay as they are."""
        self._rollouts = [*[None] * (n - 1), self._rollouts[-1]]

    def _next_arrays(self, n_steps: int) -> Rollout:
        """Return the arrays whose rollout is the oldest."""
        oldest = self._rollouts.pop(0)
        if oldest is None or len(oldest['valid']) != n_steps:
            oldest = allocate_rollout(self.envs, n_steps, self.policy.columns)
        self._rollouts.append(oldest)
        return oldest

    # steps by themselves

    @property
    def is_remote(self) -> bool:
        """Whether explorers have the environments."""
        return not isinstance(self.stepper, LocalEnvStepper)

    def _check_local(self) -> None:
        """Refuse steps by themselves while explorers have the environments."""
        if self.is_remote:
            raise TypeError(
                'explorers have the environments: only collect steps them while a run with explorers goes on'
            )

    def current_observations(self) -> np.ndarray:
        """Return a copy of the observations [N, *D] that the environments stand at, which are reset where need be."""
        self._check_local()
        if self.observations is None:
            self.reset()
        return np.array(self.observations)

    def restart_from(self, observations: np.ndarray | None) -> None:
        """Go on elsewhere, in environments that show this now: what was collected last does not lead there."""
        self.observations, self._restarted = observations, True

    def reset(self, seed: int | None = None) -> None:
        """Begin a new episode in every environment; the seed is drawn when not given."""
        seed = int(self.streams('env').integers(2**31)) if seed is None else seed
        self.stepper.reset(seed)
        self._restarted = True

    def step(self, actions: np.ndarray) -> StepResult:
        """Take one step in every environment by environment actions [N, …], and count it.

        Returns:
            Observations, rewards, terminated, truncated, [N, …] each; the arrays may be those of the next step.
        """
        self._check_local()
        valid = int(np.count_nonzero(self.envs.valid))
        result = self.envs.step(actions)
        self.observations, self.ended_episodes = result[0], self.envs.pop_episodes()
        self.stats.steps += valid
        self.stats.add(self.ended_episodes, 0.0)
        return result

    def act(self, rng: np.random.Generator | None = None) -> np.ndarray:
        """Return environment actions [N, …] where the environments stand: drawn by `rng`, greedy without."""
        observations = self.observations
        assert observations is not None
        noise = None if rng is None else self.policy.draw_noise(rng, (len(observations),))
        return self.decode(self.policy(self.statistics.prepare(observations), noise)['actions'])

    # weights and state

    def sync(self, published: PublishedWeights) -> None:
        """Act by what was published from now on; the policy's network must be its own."""
        self.policy.sync(published)

    def parts(self) -> dict[str, Any]:
        """Return what has a state, by the names that it has in checkpoints."""
        return {**self.statistics.parts(), **self.policy.parts()}

    def with_envs(self, envs: Envs, policy: Policy, statistics: Statistics) -> Collector:
        """Return a collector in other environments, which draws from the same streams."""
        return Collector(envs, policy, statistics, self.streams)

    def state(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Return where collecting stands, as arrays by name and a record for JSON."""
        return self.state_with_snapshot(self.stepper.snapshot())

    def state_with_snapshot(self, snapshot: Snapshot | None) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Return where collecting stands in environments of which this is a copy; None where they begin anew."""
        arrays = {
            k: np.array(v) for name, part in self.parts().items() for k, v in add_prefix(name, part.state()).items()
        }
        record: dict[str, Any] = {
            'restarted': self._restarted,
            'environments': None,
            'uncopied': self.envs.snapshot_problem,
        }
        record['rngs'] = self.streams.state()
        if snapshot is not None:
            record['environments'] = snapshot.record
            arrays |= add_prefix('environments', snapshot.arrays)
            arrays['observations'] = np.array(self.observations)
        if self.envs.recorder is not None:
            seen, record['witness'] = self.envs.recorder.state()
            arrays |= add_prefix('witness', seen)
        return arrays, record

    def load(self, arrays: Mapping[str, np.ndarray], record: Mapping[str, Any], environments: bool = True) -> bool:
        """Go on where `state` was taken; parts that it does not have stay as they are.

        Args:
            arrays: of `state`.
            record: of `state`.
            environments: whether the environments are those of then, and shall stand where they stood.

        Returns:
            Whether the environments stand where they stood; new episodes begin otherwise.
        """
        for name, part in self.parts().items():
            saved = strip_prefix(name, arrays)
            if saved:
                part.load(saved)
        self.streams.load(record['rngs'])
        self._restarted, self.observations = record['restarted'], None
        if 'witness' in record:
            self.recorder_state = strip_prefix('witness', arrays), record['witness']
        if not self._restored(arrays, record, environments):
            return False
        self.observations = np.array(arrays['observations'])
        return True
