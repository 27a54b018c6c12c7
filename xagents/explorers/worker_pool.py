"""The learner's side: orders go to slots, fragments come back. It knows no wire; links bring explorers.

A slot is a fixed range of environments. Slots are the work, explorers are the workers, and come and go: a slot whose
explorer is gone keeps its order, and whoever takes it does the same order again, from where the slot's environments
stood when it was given. So what is collected does not depend on who collects, or on what happens to them.

Of M slots, a rollout takes the M oldest fragments, and waits for those that would be older than `max_lag` rollouts with
the next one. With a lag of 0 these are the M of this rollout, and nothing depends on who comes first.
"""

from __future__ import annotations

import itertools
import queue
import time
from collections.abc import Mapping
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
    Event,
    ExplorerError,
    Launcher,
    ReceivedFragment,
)
from xagents.explorers.fragments import (
    NOISE_STATE,
    STATISTICS,
    ArraySpecs,
    pack_env_state,
    parse_fragment,
    unpack_env_state,
)
from xagents.explorers.membership import Membership
from xagents.explorers.messages import Message, WireError, pack
from xagents.options.errors import one_line
from xagents.system.arrays import add_prefix

# so often may the same order fail, and so many may end with it
MAX_FAILURES, MAX_DEATHS = 3, 8


class WorkerPool:
    """Explores by explorers elsewhere; see `xagents.collecting.env_stepper.EnvStepper`.

    Args:
        specification: the message that every explorer receives first; see `xagents.explorers.rollout_worker`.
        n_envs: N, of all slots; with several agents in an environment it counts these.
        n_explorers: how many slots there are: at most one an environment, and with a lag a divisor of their number.
        local_stepper: the environments of this process, of the same kind, which stand still meanwhile.
        streams: for the noise of further orders, and the seeds of environments that are lost.
        events: what links and processes tell; their threads put it there.
        launcher: brings explorers, and others for those that are gone.
        max_lag: K, of how many rollouts before its own a fragment's order may be.

    Attributes:
        observations: as the last rollout ended; None where the environments begin anew.
        n_lost_envs: environments that began new episodes because of that.
    """

    def __init__(
        self,
        specification: Mapping[str, Any],
        n_envs: int,
        n_explorers: int,
        local_stepper: LocalEnvStepper,
        streams: RandomStreams,
        events: queue.SimpleQueue[Event],
        launcher: Launcher,
        max_lag: int = 0,
    ):
        agents_per_env = specification.get('together', 1)
        ends = [n_envs // agents_per_env * i // n_explorers for i in range(n_explorers + 1)]
        self.shards = [EnvShard(i, a, b - a, agents_per_env) for i, (a, b) in enumerate(itertools.pairwise(ends))]
        self.observations: np.ndarray | None = None
        self.n_lost_envs, self.snapshot_problem = 0, ''
        self._n_envs, self._max_lag = n_envs, max_lag
        self._assembler = RolloutAssembler(self.shards, max_lag > 0)
        self._membership = Membership(specification, self.shards, events, launcher, self)
        # orders under way and fragments that wait, together
        self._max_in_flight = n_explorers * max(1, min(max_lag, 2))
        self._local_stepper, self._streams = local_stepper, streams
        self._pending_fragments: list[ReceivedFragment] = []
        self._n_rollouts = self._n_assignments = 0
        self._array_specs: ArraySpecs = {}
        self._adopt_local_state()

    # what a collector asks for

    def reset(self, seed: int) -> None:
        """Begin a new episode in every environment; what is under way is waited for, and forgotten."""
        while any(shard.assignment is not None for shard in self.shards):
            self._membership.process_event()
        self._pending_fragments.clear()
        for shard in self.shards:
            shard.state_before = shard.state_after = ({'seed': seed}, {})
            shard.in_sync = False
        self.observations = np.zeros(0)  # they are seen with the next order

    def fill(self, rollout: Rollout, request: CollectRequest, stats: CollectStats) -> FillResult:
        """Write what orders make into a rollout, raw, and count it.

        Raises:
            ExplorerError: where an order has failed as often as it may.
            NotFiniteError: where observations or rewards are not finite; the environments begin anew then.
            Interrupted: where fragments are waited for, and the run is to end; everything is as before then.
        """
        start, previous_observations = time.perf_counter(), self.observations
        self._n_rollouts += 1
        self._array_specs = {name: (array.dtype, array.shape) for name, array in rollout.items()}
        broadcast = self._broadcast(request, len(rollout['valid']))
        self._membership.reset_timeouts()
        self._membership.replace_extra_workers()
        self._assign(request, broadcast)
        while not (self._membership.no_pending_events and self._has_rollout()):
            self._membership.process_event()
            if self._max_lag:
                self._assign(request, broadcast)
        batch, self._pending_fragments = (
            self._pending_fragments[: len(self.shards)],
            self._pending_fragments[len(self.shards) :],
        )
        self.observations = None  # after an error they begin anew
        filled = self._assembler.assemble(batch, rollout, request, stats, self._n_rollouts, time.perf_counter() - start)
        self._report(filled, stats)
        check_rollout(rollout)
        self._store_env_states(batch, previous_observations)
        if self._max_lag:  # explorers go on while this rollout is learned from
            self._assign(request, broadcast)
        return filled

    def snapshot(self) -> Snapshot | None:
        """Return a copy of the environments as they stand; None where they begin anew, or cannot be copied."""
        return self._local_stepper.snapshot() if self.restore_local_envs() else None

    @property
    def n_lost(self) -> int:
        """Explorers that were lost so far."""
        return self._membership.n_lost

    def release_workers(self) -> None:
        """Let every explorer go."""
        self._membership.release_workers()

    # where the environments stand

    def _adopt_local_state(self) -> None:
        """Let the slots stand where the environments of this process do."""
        local_stepper = self._local_stepper
        copies = None if local_stepper.observations is None else local_stepper.envs.snapshot_each()
        if copies is None:
            return
        self.observations = np.array(local_stepper.observations)
        for shard in self.shards:
            shard.state_before = shard.state_after = pack_env_state(copies[shard.range], self.observations[shard.range])

    def restore_local_envs(self) -> bool:
        """Let the environments of this process stand where the slots do; return whether they do now."""
        local_stepper = self._local_stepper
        local_stepper.observations = None
        states = [
            shard.state_after
            for shard in self.shards
            if shard.state_after is not None and 'stand' in shard.state_after[0]
        ]
        if self.observations is None or len(states) < len(self.shards):
            local_stepper.envs.snapshot_problem = self.snapshot_problem
            return False
        try:
            local_stepper.envs.restore_each([copy for state in states for copy in unpack_env_state(state)[0]])
        except ValueError as error:  # an explorer may send what it likes
            local_stepper.envs.snapshot_problem = one_line(error)
            return False
        local_stepper.observations = np.array(self.observations)
        return True

    def _store_env_states(self, batch: list[ReceivedFragment], previous_observations: np.ndarray | None) -> None:
        """Let the environments stand where the fragments of a batch ended."""
        after = batch[0].fragment.columns['observations'][-1]
        shape = (self._n_envs, *after.shape[1:])
        observations = (
            np.zeros(shape, after.dtype)
            if previous_observations is None or previous_observations.shape != shape
            else np.array(previous_observations)
        )
        for shard, _, fragment, *_ in batch:
            observations[shard.range], shard.state_after = fragment.columns['observations'][-1], fragment.env_state
        self.observations = observations

    # orders

    def _broadcast(self, request: CollectRequest, n_steps: int) -> Broadcast:
        """Return the part of an order that is the same for all slots."""
        published_weights = request.policy.published_weights
        header = {'n_steps': n_steps, 'schedule': dict(request.schedule)}
        header |= {'version': published_weights.version, 'warming_up': request.policy.warming_up}
        arrays = {'weights': np.array(published_weights.weights)}
        if request.statistics.observations:
            arrays |= add_prefix(STATISTICS, request.statistics.observations.state())
        return Broadcast(header, arrays)

    def _assign(self, request: CollectRequest, broadcast: Broadcast) -> None:
        """Give an order to each slot that has none, as far as the credit goes."""
        in_flight = sum(shard.assignment is not None for shard in self.shards)
        statistics = (
            request.statistics.copy() if self._max_lag and request.statistics.observations else request.statistics
        )
        for shard in self.shards:
            if shard.assignment is not None or in_flight + len(self._pending_fragments) >= self._max_in_flight:
                continue
            self._n_assignments, in_flight = self._n_assignments + 1, in_flight + 1
            arrays = self._assignment_arrays(shard, request, self._noise(shard, request))
            shard.assignment, shard.failures = (
                Assignment(self._n_assignments, self._n_rollouts, broadcast, arrays, statistics),
                0,
            )
            shard.deaths = 0
            shard.last_seen, shard.envs_reset = time.perf_counter(), False
            self.send(shard)

    def _noise(self, shard: EnvShard, request: CollectRequest) -> np.ndarray | None:
        """Return a slot's noise: of the rollout's, or other one where the slot has used that."""
        noise = request.noise
        if noise is not None and shard.noise_rollout == self._n_rollouts:
            noise = request.policy.draw_exploration(self._streams('act'), (len(noise), self._n_envs))
        shard.noise_rollout = self._n_rollouts
        return None if noise is None else noise[:, shard.range]

    def _assignment_arrays(
        self, shard: EnvShard, request: CollectRequest, noise: np.ndarray | None
    ) -> dict[str, np.ndarray]:
        """Return the part of an order that is a slot's."""
        arrays = {} if noise is None else {'noise': noise}
        if request.policy.exploration is not None:
            waiting = [received.fragment.noise_state for received in self._pending_fragments if received.shard is shard]
            x = request.policy.exploration.state()['x']
            noise_state = waiting[-1] if waiting else x[shard.range] if len(x) else x
            assert noise_state is not None
            arrays[NOISE_STATE] = noise_state
        return arrays

    def send(self, shard: EnvShard) -> None:
        """Give a slot's order to its explorer, with what it lacks."""
        if shard.assignment is None or shard.link is None or not shard.ready:
            return
        header: dict[str, Any] = {'number': shard.assignment.number}
        arrays = shard.assignment.arrays
        if not shard.in_sync:
            if shard.state_before is None:  # nobody knows where they stood
                self.n_lost_envs += shard.n_envs
                shard.envs_reset, shard.state_before = True, ({'seed': int(self._streams('env').integers(2**31))}, {})
            state_header, state_arrays = shard.state_before
            header, arrays = {**header, **state_header}, {**arrays, **state_arrays}
        broadcast = shard.assignment.broadcast
        shard.link.send(pack('order', header, arrays), broadcast.message(shard.version))
        shard.version, shard.in_sync = broadcast.version, True

    # what becomes of them

    def on_failure(self, shard: EnvShard, why: str) -> None:
        """Give an order once more that has failed; raises ExplorerError where it has failed too often."""
        shard.failures += 1
        if shard.failures >= MAX_FAILURES:
            raise ExplorerError(f'explorers have failed {MAX_FAILURES} times at the same order: {why}')
        shard.in_sync = False
        self.send(shard)

    def on_worker_lost(self, shard: EnvShard) -> None:
        """Keep an order whose explorer is gone; raises ExplorerError where too many are."""
        shard.deaths += 1
        if shard.deaths >= MAX_DEATHS:
            words = f' ({self._membership.last_exit_reason})' if self._membership.last_exit_reason else ''
            raise ExplorerError(f'{MAX_DEATHS} explorers have ended at the same order{words}')

    def on_fragment(self, shard: EnvShard, message: Message) -> None:
        """Take a fragment, after it was checked."""
        assignment = shard.assignment
        if assignment is None or not shard.ready or message.header.get('number') != assignment.number:
            raise WireError('it brings what was not ordered')
        fragment = parse_fragment(
            message, self._array_specs, shard.columns, shard.n_envs, NOISE_STATE in assignment.arrays
        )
        self._pending_fragments.append(
            ReceivedFragment(shard, assignment, fragment, shard.n_fragments, shard.envs_reset)
        )
        self._pending_fragments.sort(
            key=lambda received: (received.assignment.rollout_index, received.shard.index, received.assignment.number)
        )
        shard.assignment, shard.in_sync, shard.state_before = None, True, fragment.env_state
        shard.n_fragments += 1
        self.snapshot_problem = fragment.snapshot_problem

    # fragments

    def _has_rollout(self) -> bool:
        """Return whether there are fragments for a rollout, and none under way that would be too old for the next."""
        late = (
            shard.assignment is not None and shard.assignment.rollout_index <= self._n_rollouts - self._max_lag
            for shard in self.shards
        )
        return len(self._pending_fragments) >= len(self.shards) and not any(late)

    def _report(self, filled: FillResult, stats: CollectStats) -> None:
        """Tell of those who are there, and of what was lost."""
        if filled.lost is not None:
            why = f' ({self.snapshot_problem})' if self.snapshot_problem else ''
            lost = np.count_nonzero(filled.lost) // self.shards[0].agents_per_env
            began = f'{lost} environments began new episodes: they cannot be copied{why}'
            stats.messages.append(f'An explorer was lost, and {began}')
        alive = sum(shard.link is not None for shard in self.shards)
        counts = {'alive': alive, 'lost': self.n_lost, 'lost_environments': self.n_lost_envs}
        stats.metrics |= {f'explorers/{name}': float(number) for name, number in counts.items()}
