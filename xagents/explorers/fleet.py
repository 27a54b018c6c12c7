"""The learner's side: slots, orders and fragments. It knows no wire; links bring explorers, and take them away.

A slot is a fixed range of environments. Slots are the work, explorers are the workers, and come and go: a slot whose
explorer is gone keeps its order, and whoever takes it does the same order again, from where the slot's environments
stood when it was given. So what is collected does not depend on who collects, or on what happens to them.
"""

from __future__ import annotations

import itertools
import queue
import time
from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

import numpy as np

from xagents.collecting.explorer import Explorer, Order, Tally
from xagents.collecting.finite import check_rollout
from xagents.collecting.rollouts import Rollout
from xagents.collecting.streams import Streams
from xagents.envs.snapshots.write import Snapshot
from xagents.explorers.fragments import DRIFT, STATISTICS, Columns, Fragment, Told, fragment_of, stand_of, told_stand
from xagents.explorers.messages import FORMAT, Message, WireError, pack, unpack
from xagents.options.errors import one_line
from xagents.pipeline.context import EndedEpisode
from xagents.system.arrays import prefixed
from xagents.version import __version__

# so often may the same order fail
MOST_FAILURES = 3
# how long an explorer may say nothing, or 20 times as long as the longest fragment; and how often that is looked at
PATIENCE, LOOK_SECONDS = 60.0, 1.0


class ExplorerError(RuntimeError):
    """Explorers cannot do what is asked of them; one line."""


class Link(Protocol):
    """The connection to one explorer, whose process has the number `pid` where it is."""

    pid: Any

    def send(self, data: bytes) -> None:
        """Send a message; nothing happens where the explorer is gone."""

    def cut(self) -> None:
        """End the connection."""


class Event(NamedTuple):
    """What a link, or the process of an explorer, has to tell: a message, or None as its last word."""

    source: Any
    data: bytes | None


class Crew(Protocol):
    """Who brings explorers."""

    def joined(self, pid: Any) -> None:
        """Hear that an explorer has come."""

    def ended(self, source: Any) -> None:
        """Hear that something has had its last word; raises ExplorerError where it makes no sense to go on."""

    def give_up(self, pid: Any) -> None:
        """End an explorer that is silent; without a number those that have not come."""


class Slot:
    """A range of environments.

    Attributes:
        first: index of its first environment.
        n_envs: how many it has.
        link: to who collects for it; None while nobody does.
        ready: whether its explorer has made the environments.
        version: of the weights that its explorer has.
        there: whether its explorer's environments stand where the slot's do.
        stand: where they stood when the present order was given, as a header and arrays; None where that is not known.
        order: header and arrays of the present order; None where nothing is under way.
        failures: how often the present order has failed.
        since: when its order was given.
    """

    def __init__(self, first: int, n_envs: int):
        self.first, self.n_envs = first, n_envs
        self.link: Any = None
        self.ready = self.there = False
        self.version = -1
        self.stand: Told | None = None
        self.order: Told | None = None
        self.failures = 0
        self.since = 0.0

    @property
    def range(self) -> slice:
        """Its environments among all."""
        return slice(self.first, self.first + self.n_envs)


class Fleet:
    """Explores by explorers elsewhere; see `xagents.collecting.explorer.Explores`.

    Args:
        specification: what every explorer is told; see `xagents.explorers.work`.
        n_envs: N, of all slots.
        n_explorers: how many slots there are, at most N.
        home: the environments of this process, of the same kind, which stand still meanwhile.
        streams: for the seeds of environments that are lost.
        events: what links and processes tell; their threads put it there.
        crew: brings explorers, and others for those that are gone.

    Attributes:
        observations: as the last rollout ended; None where the environments begin anew.
        lost: explorers that were lost so far.
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
    ):
        ends = [n_envs * i // n_explorers for i in range(n_explorers + 1)]
        self.slots = [Slot(a, b - a) for a, b in itertools.pairwise(ends)]
        self.observations: np.ndarray | None = None
        self.lost = self.lost_environments = 0
        self.uncopied = ''
        self._spec, self._home, self._streams, self._events, self._crew = (
            dict(specification),
            home,
            streams,
            events,
            crew,
        )
        self._spare: list[Any] = []
        self._number = 0
        self._longest = 0.0
        self._broken_off = np.zeros(n_envs, bool)
        self._fragments: dict[int, Fragment] = {}
        self._wanted: Columns = {}
        self._take_over()

    # what a collector asks for

    def reset(self, seed: int) -> None:
        """Begin a new episode in every environment."""
        for slot in self.slots:
            slot.stand, slot.there = ({'seed': seed}, {}), False
        self.observations = np.zeros(0)  # they are seen with the next order

    def fill(self, rollout: Rollout, order: Order, tally: Tally) -> np.ndarray | None:
        """Write what an order makes into a rollout, raw, and count it.

        Returns:
            bool [N], which environments were lost and began anew before it; None where none was.

        Raises:
            ExplorerError: where an order has failed as often as it may.
            NotFiniteError: where observations or rewards are not finite; the environments begin anew then.
        """
        start = time.perf_counter()
        self._number += 1
        self.observations = None  # after an error they begin anew
        self._wanted = {name: (array.dtype, array.shape) for name, array in rollout.items()}
        header, shared = self._whole(order, len(rollout['valid']))
        for slot in self.slots:
            slot.order, slot.failures = (header, {**shared, **self._own(slot, order)}), 0
            slot.since = time.perf_counter()
            self._send(slot)
        while any(slot.order is not None for slot in self.slots):
            try:
                self._handle(self._events.get(timeout=LOOK_SECONDS))
            except queue.Empty:
                self._look_after()
        self._join(rollout, order, tally, time.perf_counter() - start)
        lost, self._broken_off = self._broken_off, np.zeros_like(self._broken_off)
        check_rollout(rollout)
        self.observations = rollout['observations'][-1]
        return lost if lost.any() else None

    def snapshot(self) -> Snapshot | None:
        """Return a copy of the environments as they stand; None where they begin anew, or cannot be copied."""
        return self._home.snapshot() if self.hand_back() else None

    # where the environments stand

    def _take_over(self) -> None:
        """Let the slots stand where the environments of this process do."""
        home = self._home
        copies = None if home.observations is None else home.envs.snapshots()
        if copies is None:
            return
        self.observations = np.array(home.observations)
        for slot in self.slots:
            slot.stand = told_stand(copies[slot.range], self.observations[slot.range])

    def hand_back(self) -> bool:
        """Let the environments of this process stand where the slots do; return whether they do now."""
        home = self._home
        home.observations = None
        stands = [slot.stand for slot in self.slots if slot.stand is not None and 'stand' in slot.stand[0]]
        if self.observations is None or len(stands) < len(self.slots):
            home.envs.uncopied = self.uncopied
            return False
        home.envs.restore_each([copy for stand in stands for copy in stand_of(stand)[0]])
        home.observations = np.array(self.observations)
        return True

    # orders

    def _whole(self, order: Order, n_steps: int) -> Told:
        """Return the part of an order that is the same for all slots."""
        published = order.policy.published
        header = {'number': self._number, 'n_steps': n_steps, 'schedule': dict(order.schedule)}
        header |= {'version': published.version, 'warming_up': order.policy.warming_up}
        arrays = {'weights': np.array(published.weights)}
        if order.statistics.observations:
            arrays |= prefixed(STATISTICS, order.statistics.observations.state())
        return header, arrays

    def _own(self, slot: Slot, order: Order) -> dict[str, np.ndarray]:
        """Return the part of an order that is a slot's."""
        arrays = {} if order.noise is None else {'noise': order.noise[:, slot.range]}
        if order.policy.exploration is not None:
            x = order.policy.exploration.state()['x']
            arrays[DRIFT] = x[slot.range] if len(x) else x
        return arrays

    def _send(self, slot: Slot) -> None:
        """Give a slot's order to its explorer, with what it lacks."""
        if slot.order is None or not slot.ready:
            return
        header, arrays = slot.order
        if slot.version == header['version']:
            arrays = {name: array for name, array in arrays.items() if name != 'weights'}
        if not slot.there:
            if slot.stand is None:  # nobody knows where they stood
                self.lost_environments += slot.n_envs
                self._broken_off[slot.range] = True
                slot.stand = {'seed': int(self._streams('env').integers(2**31))}, {}
            told, held = slot.stand
            header, arrays = {**header, **told}, {**arrays, **held}
        slot.version, slot.there = header['version'], True
        slot.link.send(pack('order', header, arrays))

    # what links tell

    def _handle(self, event: Event) -> None:
        link, data = event
        slot = next((slot for slot in self.slots if slot.link is link), None)
        if data is None:
            self._gone(link, slot)
            return
        try:
            message = unpack(data)
            if message.kind == 'hello' and slot is None and link not in self._spare:
                self._welcome(link, message)
            elif slot is None:
                raise WireError('nothing was asked of it')
            elif message.kind == 'ready' and not slot.ready:
                slot.ready = True
                self._send(slot)
            elif message.kind == 'fragment':
                self._take(slot, message)
            elif message.kind == 'error':
                self._failed(slot, one_line(message.header.get('why', ''))[:300])
                if not slot.ready:
                    self._instruct(slot)
            else:
                raise WireError(f'it says {message.kind[:20]!r}')
        except WireError:
            link.cut()  # it is gone then

    def _look_after(self) -> None:
        """End explorers that have been silent for too long; their ends are told, as those of others."""
        patience = max(PATIENCE, 20 * self._longest)
        for slot in self.slots:
            if slot.order is not None and time.perf_counter() - slot.since > patience:
                slot.since = time.perf_counter()
                self._crew.give_up(None if slot.link is None else slot.link.pid)

    def _welcome(self, link: Any, message: Message) -> None:
        told = [message.header.get(name) for name in ('format', 'xagents')]
        if told != [FORMAT, __version__]:
            link.send(pack('refused', {'why': f'it is xagents {told[1]}, this run is of {__version__}'}))
            link.cut()
            return
        link.pid = message.header.get('pid')
        self._crew.joined(link.pid)
        self._spare.append(link)
        self._employ()

    def _employ(self) -> None:
        """Give free slots to explorers that have none."""
        for slot in self.slots:
            if slot.link is None and self._spare:
                slot.link, slot.ready, slot.there, slot.version = self._spare.pop(0), False, False, -1
                self._instruct(slot)

    def _gone(self, link: Any, slot: Slot | None) -> None:
        self._crew.ended(link)
        if link in self._spare:
            self._spare.remove(link)
        if slot is None:
            return
        slot.link, slot.ready, slot.there = None, False, False
        self.lost += 1
        if slot.order is not None:
            self._failed(slot, 'the explorer ended')
        self._employ()

    def _failed(self, slot: Slot, why: str) -> None:
        slot.failures += 1
        if slot.failures >= MOST_FAILURES:
            raise ExplorerError(f'explorers have failed {MOST_FAILURES} times at the same order: {why}')
        slot.there = False
        self._send(slot)

    def _instruct(self, slot: Slot) -> None:
        slot.link.send(pack('spec', {**self._spec, 'first': slot.first, 'n_envs': slot.n_envs}))

    def _take(self, slot: Slot, message: Message) -> None:
        """Take a fragment, after it was checked."""
        if slot.order is None or not slot.ready or message.header.get('number') != self._number:
            raise WireError('it brings what was not ordered')
        fragment = fragment_of(message, self._wanted, slot.first, slot.n_envs, DRIFT in slot.order[1])
        self._longest = max(self._longest, fragment.seconds['busy'])
        slot.order, slot.there, slot.stand = None, True, fragment.stand
        self.uncopied = fragment.uncopied
        self._fragments[slot.first] = fragment

    def _join(self, rollout: Rollout, order: Order, tally: Tally, seconds: float) -> None:
        """Put all fragments into the rollout, by slot, and count what they tell."""
        fragments, self._fragments = [self._fragments[slot.first] for slot in self.slots], {}
        for slot, fragment in zip(self.slots, fragments, strict=True):
            for name, column in fragment.columns.items():
                rollout[name][:, slot.range] = column
        if order.policy.exploration is not None:
            order.policy.exploration.load({'x': np.concatenate([fragment.drift for fragment in fragments])})
        steps = tally.steps + np.cumsum(np.count_nonzero(rollout['valid'], 1))
        for e in sorted((e for fragment in fragments for e in fragment.episodes), key=lambda e: (e.row, e.env)):
            tally.episodes.append(EndedEpisode(e.reward, e.length, e.success, int(steps[e.row]), e.seconds))
        tally.steps = int(steps[-1])
        for name in ('env', 'act'):
            tally.seconds[name] += sum(fragment.seconds[name] for fragment in fragments) / len(fragments)
        busy = sum(fragment.seconds['busy'] for fragment in fragments) / len(fragments)
        tally.seconds['wait'] = tally.seconds.get('wait', 0.0) + seconds
        alive = sum(slot.link is not None for slot in self.slots)
        tally.metrics = {
            'explorers/alive': float(alive),
            'explorers/busy': busy / seconds,
            'explorers/lost': float(self.lost),
            'explorers/lost_environments': float(self.lost_environments),
        }

    def dismiss(self) -> None:
        """Let every explorer go."""
        for link in [*self._spare, *(slot.link for slot in self.slots if slot.link is not None)]:
            link.send(pack('end', {}))
