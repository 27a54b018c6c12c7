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

from xagents.collecting.explorer import Explorer, Filled, Order, Tally
from xagents.collecting.finite import check_rollout
from xagents.collecting.rollouts import Rollout
from xagents.collecting.streams import Streams
from xagents.envs.snapshots.write import Snapshot
from xagents.explorers.fragments import DRIFT, STATISTICS, Columns, fragment_of, stand_of, told_stand
from xagents.explorers.joining import Joiner
from xagents.explorers.messages import Message, WireError, pack
from xagents.explorers.slots import Arrived, Crew, Event, ExplorerError, Given, Share, Slot
from xagents.explorers.staff import Staff
from xagents.options.errors import one_line
from xagents.system.arrays import prefixed

# so often may the same order fail, and so many may end with it
MOST_FAILURES, MOST_DEATHS = 3, 8


class Fleet:
    """Explores by explorers elsewhere; see `xagents.collecting.explorer.Explores`.

    Args:
        specification: what every explorer is told; see `xagents.explorers.work`.
        n_envs: N, of all slots; with several agents in an environment it counts these.
        n_explorers: how many slots there are: at most one an environment, and with a lag a divisor of their number.
        home: the environments of this process, of the same kind, which stand still meanwhile.
        streams: for the noise of further orders, and the seeds of environments that are lost.
        events: what links and processes tell; their threads put it there.
        crew: brings explorers, and others for those that are gone.
        max_lag: K, of how many rollouts before its own a fragment's order may be.

    Attributes:
        observations: as the last rollout ended; None where the environments begin anew.
        lost_environments: environments that began new episodes because of that.
    """

    def __init__(
        self,
        specification: Mapping[str, Any],
        n_envs: int,
        n_explorers: int,
        home: Explorer,
        streams: Streams,
        events: queue.SimpleQueue[Event],
        crew: Crew,
        max_lag: int = 0,
    ):
        together = specification.get('together', 1)
        ends = [n_envs // together * i // n_explorers for i in range(n_explorers + 1)]
        self.slots = [Slot(i, a, b - a, together) for i, (a, b) in enumerate(itertools.pairwise(ends))]
        self.observations: np.ndarray | None = None
        self.lost_environments, self.uncopied = 0, ''
        self._n_envs, self._max_lag = n_envs, max_lag
        self._joiner = Joiner(self.slots, max_lag > 0)
        self._staff = Staff(specification, self.slots, events, crew, self)
        # orders under way and fragments that wait, together
        self._credit = n_explorers * max(1, min(max_lag, 2))
        self._home, self._streams = home, streams
        self._waiting: list[Arrived] = []
        self._fills = self._orders = 0
        self._wanted: Columns = {}
        self._take_over()

    # what a collector asks for

    def reset(self, seed: int) -> None:
        """Begin a new episode in every environment; what is under way is waited for, and forgotten."""
        while any(slot.order is not None for slot in self.slots):
            self._staff.hear()
        self._waiting.clear()
        for slot in self.slots:
            slot.stand = slot.kept = ({'seed': seed}, {})
            slot.there = False
        self.observations = np.zeros(0)  # they are seen with the next order

    def fill(self, rollout: Rollout, order: Order, tally: Tally) -> Filled:
        """Write what orders make into a rollout, raw, and count it.

        Raises:
            ExplorerError: where an order has failed as often as it may.
            NotFiniteError: where observations or rewards are not finite; the environments begin anew then.
            Interrupted: where fragments are waited for, and the run is to end; everything is as before then.
        """
        start, stood = time.perf_counter(), self.observations
        self._fills += 1
        self._wanted = {name: (array.dtype, array.shape) for name, array in rollout.items()}
        share = self._share(order, len(rollout['valid']))
        self._staff.attend()
        self._staff.relieve()
        self._give(order, share)
        while not (self._staff.silent and self._complete()):
            self._staff.hear()
            if self._max_lag:
                self._give(order, share)
        batch, self._waiting = self._waiting[: len(self.slots)], self._waiting[len(self.slots) :]
        self.observations = None  # after an error they begin anew
        filled = self._joiner.join(batch, rollout, order, tally, self._fills, time.perf_counter() - start)
        self._tell(filled, tally)
        check_rollout(rollout)
        self._stand_after(batch, stood)
        if self._max_lag:  # explorers go on while this rollout is learned from
            self._give(order, share)
        return filled

    def snapshot(self) -> Snapshot | None:
        """Return a copy of the environments as they stand; None where they begin anew, or cannot be copied."""
        return self._home.snapshot() if self.hand_back() else None

    @property
    def lost(self) -> int:
        """Explorers that were lost so far."""
        return self._staff.lost

    def dismiss(self) -> None:
        """Let every explorer go."""
        self._staff.dismiss()

    # where the environments stand

    def _take_over(self) -> None:
        """Let the slots stand where the environments of this process do."""
        home = self._home
        copies = None if home.observations is None else home.envs.snapshots()
        if copies is None:
            return
        self.observations = np.array(home.observations)
        for slot in self.slots:
            slot.stand = slot.kept = told_stand(copies[slot.range], self.observations[slot.range])

    def hand_back(self) -> bool:
        """Let the environments of this process stand where the slots do; return whether they do now."""
        home = self._home
        home.observations = None
        stands = [slot.kept for slot in self.slots if slot.kept is not None and 'stand' in slot.kept[0]]
        if self.observations is None or len(stands) < len(self.slots):
            home.envs.uncopied = self.uncopied
            return False
        try:
            home.envs.restore_each([copy for stand in stands for copy in stand_of(stand)[0]])
        except ValueError as error:  # an explorer may send what it likes
            home.envs.uncopied = one_line(error)
            return False
        home.observations = np.array(self.observations)
        return True

    def _stand_after(self, batch: list[Arrived], stood: np.ndarray | None) -> None:
        """Let the environments stand where the fragments of a batch ended."""
        after = batch[0].fragment.columns['observations'][-1]
        shape = (self._n_envs, *after.shape[1:])
        observations = np.zeros(shape, after.dtype) if stood is None or stood.shape != shape else np.array(stood)
        for slot, _, fragment, *_ in batch:
            observations[slot.range], slot.kept = fragment.columns['observations'][-1], fragment.stand
        self.observations = observations

    # orders

    def _share(self, order: Order, n_steps: int) -> Share:
        """Return the part of an order that is the same for all slots."""
        published = order.policy.published
        header = {'n_steps': n_steps, 'schedule': dict(order.schedule)}
        header |= {'version': published.version, 'warming_up': order.policy.warming_up}
        arrays = {'weights': np.array(published.weights)}
        if order.statistics.observations:
            arrays |= prefixed(STATISTICS, order.statistics.observations.state())
        return Share(header, arrays)

    def _give(self, order: Order, share: Share) -> None:
        """Give an order to each slot that has none, as far as the credit goes."""
        under_way = sum(slot.order is not None for slot in self.slots)
        statistics = order.statistics.copy() if self._max_lag and order.statistics.observations else order.statistics
        for slot in self.slots:
            if slot.order is not None or under_way + len(self._waiting) >= self._credit:
                continue
            self._orders, under_way = self._orders + 1, under_way + 1
            arrays = self._own(slot, order, self._noise(slot, order))
            slot.order, slot.failures = Given(self._orders, self._fills, share, arrays, statistics), 0
            slot.deaths = 0
            slot.since, slot.anew = time.perf_counter(), False
            self.send(slot)

    def _noise(self, slot: Slot, order: Order) -> np.ndarray | None:
        """Return a slot's noise: of the rollout's, or other one where the slot has used that."""
        noise = order.noise
        if noise is not None and slot.drawn == self._fills:
            noise = order.policy.draw_exploration(self._streams('act'), (len(noise), self._n_envs))
        slot.drawn = self._fills
        return None if noise is None else noise[:, slot.range]

    def _own(self, slot: Slot, order: Order, noise: np.ndarray | None) -> dict[str, np.ndarray]:
        """Return the part of an order that is a slot's."""
        arrays = {} if noise is None else {'noise': noise}
        if order.policy.exploration is not None:
            waiting = [arrived.fragment.drift for arrived in self._waiting if arrived.slot is slot]
            x = order.policy.exploration.state()['x']
            drift = waiting[-1] if waiting else x[slot.range] if len(x) else x
            assert drift is not None
            arrays[DRIFT] = drift
        return arrays

    def send(self, slot: Slot) -> None:
        """Give a slot's order to its explorer, with what it lacks."""
        if slot.order is None or slot.link is None or not slot.ready:
            return
        header: dict[str, Any] = {'number': slot.order.number}
        arrays = slot.order.arrays
        if not slot.there:
            if slot.stand is None:  # nobody knows where they stood
                self.lost_environments += slot.n_envs
                slot.anew, slot.stand = True, ({'seed': int(self._streams('env').integers(2**31))}, {})
            told, held = slot.stand
            header, arrays = {**header, **told}, {**arrays, **held}
        share = slot.order.share
        slot.link.send(pack('order', header, arrays), share.message(slot.version))
        slot.version, slot.there = share.version, True

    # what becomes of them

    def failed(self, slot: Slot, why: str) -> None:
        """Give an order once more that has failed; raises ExplorerError where it has failed too often."""
        slot.failures += 1
        if slot.failures >= MOST_FAILURES:
            raise ExplorerError(f'explorers have failed {MOST_FAILURES} times at the same order: {why}')
        slot.there = False
        self.send(slot)

    def died(self, slot: Slot) -> None:
        """Keep an order whose explorer is gone; raises ExplorerError where too many are."""
        slot.deaths += 1
        if slot.deaths >= MOST_DEATHS:
            words = f' ({self._staff.last_words})' if self._staff.last_words else ''
            raise ExplorerError(f'{MOST_DEATHS} explorers have ended at the same order{words}')

    def take(self, slot: Slot, message: Message) -> None:
        """Take a fragment, after it was checked."""
        order = slot.order
        if order is None or not slot.ready or message.header.get('number') != order.number:
            raise WireError('it brings what was not ordered')
        fragment = fragment_of(message, self._wanted, slot.columns, slot.n_envs, DRIFT in order.arrays)
        self._waiting.append(Arrived(slot, order, fragment, slot.brought, slot.anew))
        self._waiting.sort(key=lambda arrived: (arrived.order.fill, arrived.slot.index, arrived.order.number))
        slot.order, slot.there, slot.stand = None, True, fragment.stand
        slot.brought += 1
        self.uncopied = fragment.uncopied

    # fragments

    def _complete(self) -> bool:
        """Return whether there are fragments for a rollout, and none under way that would be too old for the next."""
        late = (slot.order is not None and slot.order.fill <= self._fills - self._max_lag for slot in self.slots)
        return len(self._waiting) >= len(self.slots) and not any(late)

    def _tell(self, filled: Filled, tally: Tally) -> None:
        """Tell of those who are there, and of what was lost."""
        if filled.lost is not None:
            why = f' ({self.uncopied})' if self.uncopied else ''
            lost = np.count_nonzero(filled.lost) // self.slots[0].together
            began = f'{lost} environments began new episodes: they cannot be copied{why}'
            tally.messages.append(f'An explorer was lost, and {began}')
        alive = sum(slot.link is not None for slot in self.slots)
        told = {'alive': alive, 'lost': self.lost, 'lost_environments': self.lost_environments}
        tally.metrics |= {f'explorers/{name}': float(number) for name, number in told.items()}
