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
from xagents.collecting.rollouts import Rollout, RowState
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
    FragmentSpec,
    last_row_state,
    pack_env_state,
    parse_fragment,
    unpack_env_state,
)
from xagents.explorers.membership import Membership
from xagents.explorers.messages import Message, WireError, pack
from xagents.options.errors import one_line
from xagents.system.arrays import add_prefix, strip_prefix
from xagents.system.interruption import RunInterrupted

# failures of one assignment, and workers lost during one assignment, that end the run
MAX_FAILURES, MAX_DEATHS = 3, 8


class WorkerPool:
    """An `EnvStepper` that steps the environments in workers; see `xagents.collecting.env_stepper`.

    Args:
        specification: the first message to every worker; see `xagents.explorers.rollout_worker`.
        n_envs: the number of environments.
        n_explorers: M, the number of shards; at most one per environment, with a lag a divisor of their number.
        local_stepper: equal environments in this process, which are not stepped while workers collect.
        streams: the random streams of each policy, for the noise of further assignments. Those of the first one also
            give the seeds of lost environments.
        events: the queue into which the threads of links and processes put their events.
        launcher: the launcher, which starts workers and replaces lost ones.
        max_lag: K, the maximum age of a fragment in rollouts when the learner uses it.

    Attributes:
        row_states: the observations and the memory of each policy after the last rollout; None if the environments will
            be reset.
        n_lost_envs: the number of environments that were reset because their worker was lost.
        snapshot_problem: the reason why environments cannot be copied; empty if they can.
    """

    def __init__(
        self,
        specification: Mapping[str, Any],
        n_envs: int,
        n_explorers: int,
        local_stepper: LocalEnvStepper,
        streams: Mapping[str, RandomStreams],
        events: EventQueue,
        launcher: Launcher,
        max_lag: int = 0,
    ):
        agents = {name: policy['agents_per_env'] for name, policy in specification['policies'].items()}
        ends = [n_envs * i // n_explorers for i in range(n_explorers + 1)]
        self.shards = [EnvShard(i, a, b - a, agents) for i, (a, b) in enumerate(itertools.pairwise(ends))]
        self.row_states: list[RowState] | None = None
        self.n_lost_envs, self.snapshot_problem = 0, ''
        self._agents, self._n_envs, self._max_lag = agents, n_envs, max_lag
        self._assembler = RolloutAssembler(self.shards, max_lag > 0)
        self._membership = Membership(specification, self.shards, events, launcher, self)
        # maximum number of assignments in progress and pending fragments together
        self._max_in_flight = n_explorers * max(1, min(max_lag, 2))
        self._local_stepper, self._streams, self._events, self._launcher = local_stepper, streams, events, launcher
        self._pending_fragments: list[ReceivedFragment] = []
        self._n_rollouts = self._n_assignments = 0
        self._array_specs: dict[str, Any] = {}
        self._noisy: list[str] = []
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
        self.row_states = [{} for _ in self._agents]  # the next fragments contain them

    def fill(
        self, rollouts: Sequence[Rollout], requests: Sequence[CollectRequest], stats: CollectStats
    ) -> list[FillResult]:
        """Write M fragments into the rollout of each policy, unnormalised, and update the statistics.

        Raises:
            ExplorerError: If an assignment has failed too often, or too many workers were lost.
            NotFiniteError: If observations or rewards are not finite; the environments are then reset.
            RunInterrupted: If the run should end while it waits for fragments, or explorers are missing at the
                deadline; the state is then unchanged.
        """
        start, previous_states = time.perf_counter(), self.row_states
        by_policy, asked = (dict(zip(self._agents, items, strict=True)) for items in (rollouts, requests))
        self._n_rollouts += 1
        self._array_specs, self._noisy = {}, [n for n, r in asked.items() if r.policy.exploration is not None]
        for name, rollout in by_policy.items():
            self._array_specs |= add_prefix(name, {column: (x.dtype, x.shape) for column, x in rollout.items()})
        broadcast = Broadcast(asked, len(rollouts[0]['valid']))
        self._membership.reset_timeouts()
        self._membership.replace_extra_workers()
        self._assign(asked, broadcast)
        while not (self._events.empty() and self._has_rollout()):
            self._membership.process_event()
            if self._events.empty() and time.perf_counter() > stats.deadline and not all(s.ready for s in self.shards):
                raise RunInterrupted('time')
            if self._max_lag:
                self._assign(asked, broadcast)
        n = len(self.shards)
        batch, self._pending_fragments = self._pending_fragments[:n], self._pending_fragments[n:]
        self.row_states = None  # after an error the environments are reset
        policies = {name: request.policy for name, request in asked.items()}
        filled = self._assembler.assemble(batch, by_policy, policies, stats, time.perf_counter() - start)
        self._report(batch, stats)
        for rollout in rollouts:
            check_rollout(rollout)
        self._store_env_states(batch, previous_states)
        if self._max_lag:  # workers collect while the learner uses this rollout
            self._assign(asked, broadcast)
        return [filled[name] for name in by_policy]

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
        local_stepper, states = self._local_stepper, self._local_stepper.row_states
        copies = None if states is None else local_stepper.envs.snapshot_each()
        if states is not None and copies is not None:
            self.row_states = [_copy(own) for own in states]
            for shard in self.shards:
                columns = zip(shard.columns.items(), self.row_states, strict=True)
                seen = {name: {key: x[part] for key, x in own.items()} for (name, part), own in columns}
                shard.state_before = shard.state_after = pack_env_state(copies[shard.envs], seen)

    def restore_local_envs(self) -> bool:
        """Set the environments of this process to the state of all shards; return whether that succeeded."""
        local_stepper = self._local_stepper
        local_stepper.row_states = None
        states = [s.state_after for s in self.shards if s.state_after is not None and ENV_STATE in s.state_after[0]]
        if self.row_states is None or len(states) < len(self.shards):
            local_stepper.envs.snapshot_problem = self.snapshot_problem
            return False
        try:
            copies = [unpack_env_state(state, self._agents)[0] for state in states]
            local_stepper.envs.restore_each([*itertools.chain(*copies)])
        except ValueError as error:  # the bytes of a snapshot come from a worker and may be invalid
            local_stepper.envs.snapshot_problem = one_line(error)
            return False
        local_stepper.row_states = [_copy(own) for own in self.row_states]
        return True

    def _store_env_states(self, batch: list[ReceivedFragment], previous: list[RowState] | None) -> None:
        """Store the states of environments and rows at the end of the fragments of a batch."""
        states = []
        for i, (name, per_env) in enumerate(self._agents.items()):
            after = [last_row_state(strip_prefix(name, received.fragment.columns)) for received in batch]
            own = {} if previous is None else _copy(previous[i])
            for key, x in after[0].items():
                shape = (self._n_envs * per_env, *x.shape[1:])
                if key not in own or own[key].shape != shape:
                    own[key] = np.zeros(shape, x.dtype)
                for received, last in zip(batch, after, strict=True):
                    own[key][received.shard.columns[name]] = last[key]
            states.append(own)
        for shard, _, fragment, *_ in batch:
            shard.state_after = fragment.env_state
        self.row_states = states

    # assignments

    def _assign(self, requests: Mapping[str, CollectRequest], broadcast: Broadcast) -> None:
        """Send an assignment to each shard that has none, up to the maximum number in flight."""
        in_flight = sum(shard.assignment is not None for shard in self.shards)
        statistics = {name: request.statistics for name, request in requests.items()}
        if self._max_lag:
            statistics = {name: own.copy() if own.observations else own for name, own in statistics.items()}
        for shard in self.shards:
            if shard.assignment is not None or in_flight + len(self._pending_fragments) >= self._max_in_flight:
                continue
            self._n_assignments, in_flight = self._n_assignments + 1, in_flight + 1
            arrays = self._assignment_arrays(shard, requests)
            shard.assignment = Assignment(self._n_assignments, self._n_rollouts, broadcast, arrays, statistics)
            shard.failures = shard.deaths = 0
            shard.last_seen, shard.envs_reset = time.perf_counter(), False
            self.send(shard)

    def _noise(self, shard: EnvShard, name: str, request: CollectRequest) -> np.ndarray | None:
        """Return the columns of a shard in the noise of a policy, or new noise if the shard has used these."""
        noise = request.noise
        if noise is not None and shard.noise_rollout == self._n_rollouts:
            n_rows = self._n_envs * self._agents[name]
            noise = request.policy.draw_exploration(self._streams[name]('act'), (len(noise), n_rows))
        return None if noise is None else noise[:, shard.columns[name]]

    def _assignment_arrays(self, shard: EnvShard, requests: Mapping[str, CollectRequest]) -> dict[str, np.ndarray]:
        """Return the arrays of an assignment that are specific to a shard: noise and the state of the noise."""
        arrays: dict[str, np.ndarray] = {}
        pending = [received.fragment for received in self._pending_fragments if received.shard is shard]
        for name, request in requests.items():
            noise = self._noise(shard, name, request)
            own = {} if noise is None else {'noise': noise}
            if request.policy.exploration is not None:
                x = request.policy.exploration.state()['x']
                x = x[shard.columns[name]] if len(x) else x
                own[NOISE_STATE] = pending[-1].noise_states[name] if pending else x
            arrays |= add_prefix(name, own)
        shard.noise_rollout = self._n_rollouts
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
                shard.envs_reset, shard.state_before = True, ({'seed': self._draw_seed()}, {})
            state_header, state_arrays = shard.state_before
            header, arrays = {**header, **state_header}, {**arrays, **state_arrays}
        broadcast = shard.assignment.broadcast
        shard.link.send(pack('order', header, arrays), broadcast.message(shard.versions))
        shard.versions, shard.in_sync = broadcast.versions, True

    def _draw_seed(self) -> int:
        return int(next(iter(self._streams.values()))('env').integers(2**31))

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
        spec = FragmentSpec(self._array_specs, shard.columns, shard.rows, shard.n_envs, self._noisy)
        fragment = parse_fragment(message, spec)
        received = ReceivedFragment(shard, assignment, fragment, shard.n_fragments, shard.envs_reset)
        self._pending_fragments.append(received)
        self._pending_fragments.sort(key=lambda r: (r.assignment.rollout_index, r.shard.index, r.assignment.number))
        shard.assignment, shard.in_sync, shard.state_before = None, True, fragment.env_state
        shard.n_fragments += 1
        self.snapshot_problem = fragment.snapshot_problem
        if fragment.seen_infos:
            self._local_stepper.envs.add_seen_infos(fragment.seen_infos)

    # rollouts

    def _has_rollout(self) -> bool:
        """Return whether M fragments are available and no present assignment would be too old for the next rollout."""
        current = (shard.assignment for shard in self.shards if shard.assignment is not None)
        late = any(assignment.rollout_index <= self._n_rollouts - self._max_lag for assignment in current)
        return len(self._pending_fragments) >= len(self.shards) and not late

    def _report(self, batch: list[ReceivedFragment], stats: CollectStats) -> None:
        """Add the lag and the numbers of workers to the metrics, and a message about reset environments."""
        if self._max_lag:
            lags = [self._n_rollouts - received.assignment.rollout_index for received in batch]
            stats.metrics |= {'explorers/lag': sum(lags) / len(lags), 'explorers/most_lag': float(max(lags))}
        if lost := sum(shard.n_envs for shard in {received.shard for received in batch if received.envs_reset}):
            why = f' ({self.snapshot_problem})' if self.snapshot_problem else ''
            began = f'{lost} environments began new episodes: they cannot be copied{why}'
            stats.messages.append(f'An explorer was lost, and {began}')
        alive = sum(shard.link is not None for shard in self.shards)
        counts = {'alive': alive, 'lost': self.n_lost, 'lost_environments': self.n_lost_envs}
        stats.metrics |= {f'explorers/{name}': float(number) for name, number in counts.items()}


def _copy(row_state: RowState) -> RowState:
    return {name: np.array(x) for name, x in row_state.items()}
