"""Who collects: explorers that come, take slots, fall silent and go. It knows nothing of what they are ordered."""

from __future__ import annotations

import contextlib
import queue
import time
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from xagents.explorers.assignments import EnvShard, Event, Launcher, Link
from xagents.explorers.messages import FORMAT, Message, WireError, pack, pid_of, unpack
from xagents.options.errors import one_line
from xagents.system.interruption import Interruption
from xagents.version import __version__

# how long an explorer may take for a step, and for making its environments; and how often that is looked at
STEP_TIMEOUT, STARTUP_TIMEOUT, CHECK_SECONDS = 60.0, 600.0, 1.0


class AssignmentHandler(Protocol):
    """What explorers are for."""

    def send(self, shard: EnvShard) -> None:
        """Give a slot's order, if it has one, to its explorer, which is ready."""

    def on_fragment(self, shard: EnvShard, message: Message) -> None:
        """Take a fragment; raises WireError where it is none, or was not ordered."""

    def on_worker_lost(self, shard: EnvShard) -> None:
        """Hear that who did a slot's order is gone; raises ExplorerError where it makes no sense to go on."""

    def on_failure(self, shard: EnvShard, why: str) -> None:
        """Hear that a slot's order has failed; raises ExplorerError where it makes no sense to go on."""


class Membership:
    """The explorers of some slots.

    Args:
        specification: the message that every explorer receives first; see `xagents.explorers.rollout_worker`.
        shards: that they take.
        events: what links and processes tell; their threads put it there.
        launcher: brings explorers, and others for those that are gone.
        handler: what they are for.

    Attributes:
        n_lost: explorers that were lost so far.
    """

    def __init__(
        self,
        specification: Mapping[str, Any],
        shards: Sequence[EnvShard],
        events: queue.SimpleQueue[Event],
        launcher: Launcher,
        handler: AssignmentHandler,
    ):
        self._spec, self._shards, self._events, self._launcher, self._handler = (
            dict(specification),
            shards,
            events,
            launcher,
            handler,
        )
        self._spare: list[Link] = []
        self.n_lost, self._checked_at = 0, time.perf_counter()

    @property
    def no_pending_events(self) -> bool:
        """Whether nobody has anything to tell."""
        return self._events.empty()

    @property
    def last_exit_reason(self) -> str:
        """How explorers ended last, where that is known."""
        return self._launcher.last_exit_reason

    def process_event(self) -> None:
        """Handle the next event, and look after explorers once in a while."""
        with contextlib.suppress(queue.Empty):
            self._handle(self._events.get(timeout=CHECK_SECONDS))
        now = time.perf_counter()
        if now - self._checked_at >= CHECK_SECONDS and self.no_pending_events:
            self._checked_at = now
            self._check_timeouts(now)

    def reset_timeouts(self) -> None:
        """Begin to listen: for what was said meanwhile nobody was waited for."""
        for shard in self._shards:
            shard.last_seen = time.perf_counter()

    def _handle(self, event: Event) -> None:
        link, data = event
        shard = next((shard for shard in self._shards if shard.link is link), None)
        if data is None:
            self._on_disconnect(link, shard)
            return
        try:
            self._handle_message(link, shard, unpack(data))
        except WireError:
            link.disconnect()  # it is gone then
        link.acknowledge()

    def _handle_message(self, link: Link, shard: EnvShard | None, message: Message) -> None:
        """Do what a message asks for; raises WireError where nobody has asked for it."""
        if message.message_type == 'hello' and shard is None and link not in self._spare:
            self._admit(link, message)
        elif shard is None:
            raise WireError('nothing was asked of it')
        elif message.message_type == 'ready' and not shard.ready:
            shard.ready = True
            self._handler.send(shard)
        elif message.message_type == 'alive':
            shard.last_seen = time.perf_counter()
        elif message.message_type == 'fragment':
            self._handler.on_fragment(shard, message)
        elif message.message_type == 'error' and shard.ready:
            self._handler.on_failure(shard, _error_text(message))
        elif message.message_type == 'error':  # it cannot make the environments; others may
            shard.clear_worker()
            self._refuse(link, _error_text(message))
            self._fill_free_shards()
        else:
            raise WireError(f'it says {message.message_type[:20]!r}')

    def _check_timeouts(self, now: float) -> None:
        """End explorers that have been silent for too long, and report their ends like those of others."""
        Interruption.check()
        for shard in self._shards:
            patience = STEP_TIMEOUT if shard.ready else STARTUP_TIMEOUT
            if shard.assignment is not None and now - shard.last_seen > patience:
                shard.last_seen = now
                self._launcher.terminate(shard.link)
        links = [shard.link for shard in self._shards if shard.link is not None]
        self._launcher.on_shortage(links, len(self._shards) - len(links))

    def _admit(self, link: Link, message: Message) -> None:
        versions = [message.header.get(name) for name in ('format', 'xagents')]
        if versions != [FORMAT, __version__]:
            self._refuse(link, f'it is xagents {str(versions[1])[:20]}, the learner is {__version__}')
            return
        link.pid = pid_of(message)
        self._launcher.on_connect(link)
        self._spare.append(link)
        self._fill_free_shards()

    def _refuse(self, link: Link, why: str) -> None:
        """Let an explorer go that cannot collect here."""
        link.send(pack('refused', {'why': f'an explorer was refused: {why}'}))
        link.disconnect()
        self._launcher.on_refusal(why)

    def _fill_free_shards(self) -> None:
        """Give free slots to explorers that have none."""
        for shard in self._shards:
            if shard.link is None and self._spare:
                self._attach(shard, self._spare.pop(0))

    def _attach(self, shard: EnvShard, link: Link) -> None:
        """Give a slot to an explorer."""
        shard.link, shard.last_seen = link, time.perf_counter()
        self._send_spec(shard)

    def replace_extra_workers(self) -> None:
        """Let those who wait take the slots of explorers that a machine has begun for want of others."""
        for shard in self._shards:
            fresh = [link for link in self._spare if not link.has_extra_workers]
            if fresh and shard.assignment is None and shard.link is not None and shard.link.has_extra_workers:
                shard.link.disconnect()
                shard.clear_worker()
                self._spare.remove(fresh[0])
                self._attach(shard, fresh[0])

    def _on_disconnect(self, link: Link, shard: EnvShard | None) -> None:
        self._launcher.on_exit(link)
        if link in self._spare:
            self._spare.remove(link)
        if shard is None:
            return
        shard.clear_worker()
        self.n_lost += 1
        if shard.assignment is not None:
            self._handler.on_worker_lost(shard)
        self._fill_free_shards()

    def _send_spec(self, shard: EnvShard) -> None:
        assert shard.link is not None
        shard.link.send(pack('spec', {**self._spec, 'first': shard.range.start, 'n_envs': shard.n_envs}))

    def release_workers(self) -> None:
        """Let every explorer go."""
        for link in [*self._spare, *(shard.link for shard in self._shards if shard.link is not None)]:
            link.send(pack('end', {}))


def _error_text(message: Message) -> str:
    """Return what an error says, in one line that a terminal may show."""
    line = one_line(message.header.get('why', ''))[:300]
    return ''.join(c if c.isprintable() else ' ' for c in line)
