"""The learner's side of collecting with workers. It sends assignments to shards and receives fragments.

A shard is a fixed range of environments. If a worker is lost, its shard keeps the assignment. Another worker restores
the state of the environments at the start of the assignment and repeats it. The collected data therefore depend neither
on the assignment of workers to shards nor on lost workers.

With M shards, a rollout consumes the M oldest fragments. It blocks only on fragments that would exceed `max_lag` in the
next rollout. With a lag of 0, these are the M fragments of this rollout, and the order of arrival has no effect.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from xagents.collecting.env_stepper import CollectRequest, CollectStats, FillResult, LocalEnvStepper
from xagents.collecting.finite import check_rollout
from xagents.collecting.random_streams import RandomStreams
from xagents.collecting.rollouts import Rollout
from xagents.envs.snapshots.write import Snapshot
from xagents.explorers.assembler import RolloutAssembler
from xagents.explorers.assignments import (
    Assignment,
    Broadcast,
    EnvShard,
    EventQueue,
    ExplorerError,
    Launcher,
    ReceivedFragment,
)
from xagents.explorers.fragments import (
    ENV_STATE,
    NOISE_STATE,
    ArraySpecs,
    pack_env_state,
    parse_fragment,
    unpack_env_state,
)
from xagents.explorers.membership import Membership
from xagents.explorers.messages import Message, WireError, pack
from xagents.options.errors import one_line
from xagents.system.interruption import RunInterrupted

# failures of one assignment, and workers lost during one assignment, that end the run
MAX_FAILURES, MAX_DEATHS = 3, 8


class WorkerPool:
    """An `EnvStepper` that steps the environments in workers; see `xagents.collecting.env_stepper`.

    Args:
        specification: the first message to every worker; see `xagents.explorers.rollout_worker`.
        n_envs: N, the number of columns of a rollout: environments times agents per environment.
        n_explorers: M, the number of shards; at most one per environment, with a lag a divisor of their number.
        local_stepper: equal environments in this process, which are not stepped while workers collect.
        streams: the random streams for the noise of further assignments and the seeds of lost environments.
        events: the queue into which the threads of links and processes put their events.
        launcher: the launcher, which starts workers and replaces lost ones.
        max_lag: K, the maximum age of a fragment in rollouts when the learner uses it.

    Attributes:
        observations: [N, *D], the observations after the last rollout; None if the environments will be reset.
        n_lost_envs: the number of environments that were reset because their worker was lost.
        snapshot_problem: the reason why environments cannot be copied; empty if they can.
    """

    def __init__(
        self,
        specification: Mapping[str, Any],
        n_envs: int,
        n_explorers: int,
        local_stepper: LocalEnvStepper,
        streams: RandomStreams,
        events: EventQueue,
        launcher: Launcher,
        max_lag: int = 0,
    ):
        agents_per_env = specification.get('together', 1)
        ends = [n_envs // agents_per_env * i // n_explorers for i in range(n_explorers + 1)]
        self.shards = [EnvShard(i, a, b - a, agents_per_env) for i, (a, b) in enumerate(itertools.pairwise(ends))]
        self.observations: list[np.ndarray] | None = None
        self.n_lost_envs, self.snapshot_problem = 0, ''
        self._n_envs, self._max_lag = n_envs, max_lag
        self._assembler = RolloutAssembler(self.shards, max_lag > 0)
        self._membership = Membership(specification, self.shards, events, launcher, self)
        # maximum number of assignments in progress and pending fragments together
        self._max_in_flight = n_explorers * max(1, min(max_lag, 2))
        self._local_stepper, self._streams, self._events, self._launcher = local_stepper, streams, events, launcher
        self._pending_fragments: list[ReceivedFragment] = []
        self._n_rollouts = self._n_assignments = 0
        self._array_specs: ArraySpecs = {}
        self._adopt_local_state()

    # methods of EnvStepper

    def reset(self, seed: int) -> None:
        """Reset every environment with the next assignment; wait for present assignments and drop their fragments."""
        while any(shard.assignment is not None for shard in self.shards):
            self._membership.process_event()
        self._pending_fragments.clear()
        for shard in self.shards:
            shard.state_before = shard.state_after = ({'seed': seed}, {})
            shard.in_sync = False
        self.observations = [np.zeros(0)]  # the next fragments contain the observations

    def fill(
        self, rollouts: Sequence[Rollout], requests: Sequence[CollectRequest], stats: CollectStats
    ) -> list[FillResult]:
        """Write M fragments into the rollout of a single policy, unnormalised, and update the statistics.

        Raises:
            ExplorerError: If an assignment has failed too often, or too many workers were lost.
            NotFiniteError: If observations or rewards are not finite; the environments are then reset.
            RunInterrupted: If the run should end while it waits for fragments, or explorers are missing at the
                deadline; the state is then unchanged.
        """
        (rollout,), (request,) = rollouts, requests
        start, previous_observations = time.perf_counter(), self.observations
        self._n_rollouts += 1
        self._array_specs = {name: (array.dtype, array.shape) for name, array in rollout.items()}
        broadcast = Broadcast(request, len(rollout['valid']))
        self._membership.reset_timeouts()
        self._membership.replace_extra_workers()
        self._assign(request, broadcast)
        while not (self._events.empty() and self._has_rollout()):
            self._membership.process_event()
            if self._events.empty() and time.perf_counter() > stats.deadline and not all(s.ready for s in self.shards):
                raise RunInterrupted('time')
            if self._max_lag:
                self._assign(request, broadcast)
        n = len(self.shards)
        batch, self._pending_fragments = self._pending_fragments[:n], self._pending_fragments[n:]
        self.observations = None  # after an error the environments are reset
        filled = self._assembler.assemble(batch, rollout, request.policy, stats, time.perf_counter() - start)
        self._report(batch, filled, stats)
        check_rollout(rollout)
        self._store_env_states(batch, previous_observations)
        if self._max_lag:  # workers collect while the learner uses this rollout
            self._assign(request, broadcast)
        return [filled]

    def snapshot(self) -> Snapshot | None:
        """Return a snapshot of the environments; None if they will be reset or cannot be copied."""
        return self._local_stepper.snapshot() if self.restore_local_envs() else None

    @property
    def n_lost(self) -> int:
        """The number of workers that were lost so far."""
        return self._membership.n_lost

    def release_workers(self) -> None:
        """Send each worker the message to end."""
        self._membership.release_workers()

    # state of the environments

    def _adopt_local_state(self) -> None:
        """Set the state of all shards to the state of the environments of this process."""
        local_stepper, observations = self._local_stepper, self._local_stepper.observations
        copies = None if observations is None else local_stepper.envs.snapshot_each()
        if observations is not None and copies is not None:
            x = np.array(observations[0])
            self.observations = [x]
            for shard in self.shards:
                shard.state_before = shard.state_after = pack_env_state(copies[shard.range], x[shard.range])

    def restore_local_envs(self) -> bool:
        """Set the environments of this process to the state of all shards; return whether that succeeded."""
        local_stepper = self._local_stepper
        local_stepper.observations = None
        states = [s.state_after for s in self.shards if s.state_after is not None and ENV_STATE in s.state_after[0]]
        if self.observations is None or len(states) < len(self.shards):
            local_stepper.envs.snapshot_problem = self.snapshot_problem
            return False
        try:
            local_stepper.envs.restore_each([copy for state in states for copy in unpack_env_state(state)[0]])
        except ValueError as error:  # the bytes of a snapshot come from a worker and may be invalid
            local_stepper.envs.snapshot_problem = one_line(error)
            return False
        local_stepper.observations = [np.array(own) for own in self.observations]
        return True

    def _store_env_states(self, batch: list[ReceivedFragment], previous: list[np.ndarray] | None) -> None:
        """Store the states and observations at the end of the fragments of a batch."""
        after = batch[0].fragment.columns['observations'][-1]
        shape = (self._n_envs, *after.shape[1:])
        fits = previous is not None and previous[0].shape == shape
        observations = np.array(previous[0]) if previous is not None and fits else np.zeros(shape, after.dtype)
        for shard, _, fragment, *_ in batch:
            observations[shard.range], shard.state_after = fragment.columns['observations'][-1], fragment.env_state
        self.observations = [observations]

    # assignments

    def _assign(self, request: CollectRequest, broadcast: Broadcast) -> None:
        """Send an assignment to each shard that has none, up to the maximum number in flight."""
        in_flight = sum(shard.assignment is not None for shard in self.shards)
        statistics = request.statistics
        if self._max_lag and statistics.observations:
            statistics = statistics.copy()
        for shard in self.shards:
            if shard.assignment is not None or in_flight + len(self._pending_fragments) >= self._max_in_flight:
                continue
            self._n_assignments, in_flight = self._n_assignments + 1, in_flight + 1
            arrays = self._assignment_arrays(shard, request)
            shard.assignment = Assignment(self._n_assignments, self._n_rollouts, broadcast, arrays, statistics)
            shard.failures = shard.deaths = 0
            shard.last_seen, shard.envs_reset = time.perf_counter(), False
            self.send(shard)

    def _noise(self, shard: EnvShard, request: CollectRequest) -> np.ndarray | None:
        """Return the columns of a shard in the rollout's noise, or new noise if the shard has used these."""
        noise = request.noise
        if noise is not None and shard.noise_rollout == self._n_rollouts:
            noise = request.policy.draw_exploration(self._streams('act'), (len(noise), self._n_envs))
        shard.noise_rollout = self._n_rollouts
        return None if noise is None else noise[:, shard.range]

    def _assignment_arrays(self, shard: EnvShard, request: CollectRequest) -> dict[str, np.ndarray]:
        """Return the arrays of an assignment that are specific to a shard: noise and the state of the noise."""
        noise = self._noise(shard, request)
        arrays = {} if noise is None else {'noise': noise}
        if request.policy.exploration is not None:
            waiting = [received.fragment.noise_state for received in self._pending_fragments if received.shard is shard]
            x = request.policy.exploration.state()['x']
            noise_state = waiting[-1] if waiting else x[shard.range] if len(x) else x
            assert noise_state is not None
            arrays[NOISE_STATE] = noise_state
        return arrays

    def send(self, shard: EnvShard) -> None:
        """Send the assignment of a shard to its worker, with the weights and the state that the worker lacks."""
        if shard.assignment is None or shard.link is None or not shard.ready:
            return
        header: dict[str, Any] = {'number': shard.assignment.number}
        arrays = shard.assignment.arrays
        if not shard.in_sync:
            if shard.state_before is None:  # the state is unknown: reset the environments
                self.n_lost_envs += shard.n_envs
                shard.envs_reset, shard.state_before = True, ({'seed': int(self._streams('env').integers(2**31))}, {})
            state_header, state_arrays = shard.state_before
            header, arrays = {**header, **state_header}, {**arrays, **state_arrays}
        broadcast = shard.assignment.broadcast
        shard.link.send(pack('order', header, arrays), broadcast.message(shard.version))
        shard.version, shard.in_sync = broadcast.version, True

    # results of assignments

    def on_failure(self, shard: EnvShard, why: str) -> None:
        """Send a failed assignment a second time.

        Raises:
            ExplorerError: If the assignment has failed MAX_FAILURES times.
        """
        shard.failures += 1
        if shard.failures >= MAX_FAILURES:
            raise ExplorerError(f'explorers failed {MAX_FAILURES} times at the same task: {why}')
        shard.in_sync = False
        self.send(shard)

    def on_worker_lost(self, shard: EnvShard) -> None:
        """Keep the assignment of a lost worker for the next worker.

        Raises:
            ExplorerError: If MAX_DEATHS workers were lost during the assignment.
        """
        shard.deaths += 1
        if shard.deaths >= MAX_DEATHS:
            words = f' ({self._launcher.last_exit_reason})' if self._launcher.last_exit_reason else ''
            raise ExplorerError(f'{MAX_DEATHS} explorers ended during the same task{words}')

    def on_fragment(self, shard: EnvShard, message: Message) -> None:
        """Check a fragment and store it until a rollout consumes it.

        Raises:
            WireError: If the message is not a valid fragment, or answers no present assignment.
        """
        assignment = shard.assignment
        if assignment is None or not shard.ready or message.header.get('number') != assignment.number:
            raise WireError('a fragment answers no present assignment')
        has_noise_state = NOISE_STATE in assignment.arrays
        fragment = parse_fragment(message, self._array_specs, shard.columns, shard.n_envs, has_noise_state)
        received = ReceivedFragment(shard, assignment, fragment, shard.n_fragments, shard.envs_reset)
        self._pending_fragments.append(received)
        self._pending_fragments.sort(key=lambda r: (r.assignment.rollout_index, r.shard.index, r.assignment.number))
        shard.assignment, shard.in_sync, shard.state_before = None, True, fragment.env_state
        shard.n_fragments += 1
        self.snapshot_problem = fragment.snapshot_problem

    # rollouts

    def _has_rollout(self) -> bool:
        """Return whether M fragments are available and no present assignment would be too old for the next rollout."""
        current = (shard.assignment for shard in self.shards if shard.assignment is not None)
        late = any(assignment.rollout_index <= self._n_rollouts - self._max_lag for assignment in current)
        return len(self._pending_fragments) >= len(self.shards) and not late

    def _report(self, batch: list[ReceivedFragment], filled: FillResult, stats: CollectStats) -> None:
        """Add the lag and the numbers of workers to the metrics, and a message about reset environments."""
        if self._max_lag:
            lags = [self._n_rollouts - received.assignment.rollout_index for received in batch]
            stats.metrics |= {'explorers/lag': sum(lags) / len(lags), 'explorers/most_lag': float(max(lags))}
        if filled.lost is not None:
            why = f' ({self.snapshot_problem})' if self.snapshot_problem else ''
            lost = np.count_nonzero(filled.lost) // self.shards[0].agents_per_env
            began = f'{lost} environments began new episodes: they cannot be copied{why}'
            stats.messages.append(f'An explorer was lost, and {began}')
        alive = sum(shard.link is not None for shard in self.shards)
        counts = {'alive': alive, 'lost': self.n_lost, 'lost_environments': self.n_lost_envs}
        stats.metrics |= {f'explorers/{name}': float(number) for name, number in counts.items()}
