"""Who collects: explorers that come, take slots, fall silent and go. It knows nothing of what they are ordered."""

from __future__ import annotations

import contextlib
import queue
import time
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from xagents.explorers.messages import FORMAT, Message, WireError, pack, pid_of, unpack
from xagents.explorers.slots import Crew, Event, Link, Slot
from xagents.options.errors import one_line
from xagents.system.interruption import Interruption
from xagents.version import __version__

# how long an explorer may take for a step, and for making its environments; and how often that is looked at
PATIENCE, PATIENCE_TO_BEGIN, LOOK_SECONDS = 60.0, 600.0, 1.0


class Work(Protocol):
    """What explorers are for."""

    def send(self, slot: Slot) -> None:
        """Give a slot's order, if it has one, to its explorer, which is ready."""

    def take(self, slot: Slot, message: Message) -> None:
        """Take a fragment; raises WireError where it is none, or was not ordered."""

    def died(self, slot: Slot) -> None:
        """Hear that who did a slot's order is gone; raises ExplorerError where it makes no sense to go on."""

    def failed(self, slot: Slot, why: str) -> None:
        """Hear that a slot's order has failed; raises ExplorerError where it makes no sense to go on."""


class Staff:
    """The explorers of some slots.

    Args:
        specification: what every explorer is told; see `xagents.explorers.work`.
        slots: that they take.
        events: what links and processes tell; their threads put it there.
        crew: brings explorers, and others for those that are gone.
        work: what they are for.

    Attributes:
        lost: explorers that were lost so far.
    """

    def __init__(
        self,
        specification: Mapping[str, Any],
        slots: Sequence[Slot],
        events: queue.SimpleQueue[Event],
        crew: Crew,
        work: Work,
    ):
        self._spec, self._slots, self._events, self._crew, self._work = dict(specification), slots, events, crew, work
        self._spare: list[Link] = []
        self.lost, self._looked = 0, time.perf_counter()

    @property
    def silent(self) -> bool:
        """Whether nobody has anything to tell."""
        return self._events.empty()

    @property
    def last_words(self) -> str:
        """How explorers ended last, where that is known."""
        return self._crew.last_words

    def hear(self) -> None:
        """Handle the next event, and look after explorers once in a while."""
        with contextlib.suppress(queue.Empty):
            self._handle(self._events.get(timeout=LOOK_SECONDS))
        now = time.perf_counter()
        if now - self._looked >= LOOK_SECONDS and self.silent:
            self._looked = now
            self._look_after(now)

    def attend(self) -> None:
        """Begin to listen: for what was said meanwhile nobody was waited for."""
        for slot in self._slots:
            slot.since = time.perf_counter()

    def _handle(self, event: Event) -> None:
        link, data = event
        slot = next((slot for slot in self._slots if slot.link is link), None)
        if data is None:
            self._gone(link, slot)
            return
        try:
            self._listen(link, slot, unpack(data))
        except WireError:
            link.cut()  # it is gone then
        link.taken()

    def _listen(self, link: Link, slot: Slot | None, message: Message) -> None:
        """Do what a message asks for; raises WireError where nobody has asked for it."""
        if message.kind == 'hello' and slot is None and link not in self._spare:
            self._welcome(link, message)
        elif slot is None:
            raise WireError('nothing was asked of it')
        elif message.kind == 'ready' and not slot.ready:
            slot.ready = True
            self._work.send(slot)
        elif message.kind == 'alive':
            slot.since = time.perf_counter()
        elif message.kind == 'fragment':
            self._work.take(slot, message)
        elif message.kind == 'error' and slot.ready:
            self._work.failed(slot, _why(message))
        elif message.kind == 'error':  # it cannot make the environments; others may
            slot.leave()
            self._refuse(link, _why(message))
            self._employ()
        else:
            raise WireError(f'it says {message.kind[:20]!r}')

    def _look_after(self, now: float) -> None:
        """End explorers that have been silent for too long; their ends are told, as those of others."""
        Interruption.check()
        for slot in self._slots:
            patience = PATIENCE if slot.ready else PATIENCE_TO_BEGIN
            if slot.order is not None and now - slot.since > patience:
                slot.since = now
                self._crew.give_up(slot.link)
        links = [slot.link for slot in self._slots if slot.link is not None]
        self._crew.lack(links, len(self._slots) - len(links))

    def _welcome(self, link: Link, message: Message) -> None:
        told = [message.header.get(name) for name in ('format', 'xagents')]
        if told != [FORMAT, __version__]:
            self._refuse(link, f'it is xagents {str(told[1])[:20]}, the learner is {__version__}')
            return
        link.pid = pid_of(message)
        self._crew.joined(link)
        self._spare.append(link)
        self._employ()

    def _refuse(self, link: Link, why: str) -> None:
        """Let an explorer go that cannot collect here."""
        link.send(pack('refused', {'why': f'an explorer was refused: {why}'}))
        link.cut()
        self._crew.refused(why)

    def _employ(self) -> None:
        """Give free slots to explorers that have none."""
        for slot in self._slots:
            if slot.link is None and self._spare:
                self._take_in(slot, self._spare.pop(0))

    def _take_in(self, slot: Slot, link: Link) -> None:
        """Give a slot to an explorer."""
        slot.link, slot.since = link, time.perf_counter()
        self._instruct(slot)

    def relieve(self) -> None:
        """Let those who wait take the slots of explorers that a machine has begun for want of others."""
        for slot in self._slots:
            fresh = [link for link in self._spare if not link.extra]
            if fresh and slot.order is None and slot.link is not None and slot.link.extra:
                slot.link.cut()
                slot.leave()
                self._spare.remove(fresh[0])
                self._take_in(slot, fresh[0])

    def _gone(self, link: Link, slot: Slot | None) -> None:
        self._crew.ended(link)
        if link in self._spare:
            self._spare.remove(link)
        if slot is None:
            return
        slot.leave()
        self.lost += 1
        if slot.order is not None:
            self._work.died(slot)
        self._employ()

    def _instruct(self, slot: Slot) -> None:
        assert slot.link is not None
        slot.link.send(pack('spec', {**self._spec, 'first': slot.range.start, 'n_envs': slot.n_envs}))

    def dismiss(self) -> None:
        """Let every explorer go."""
        for link in [*self._spare, *(slot.link for slot in self._slots if slot.link is not None)]:
            link.send(pack('end', {}))


def _why(message: Message) -> str:
    """Return what an error says, in one line that a terminal may show."""
    line = one_line(message.header.get('why', ''))[:300]
    return ''.join(c if c.isprintable() else ' ' for c in line)
