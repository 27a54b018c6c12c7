"""Membership of workers: they connect, are attached to shards, time out and disconnect.

The module does not depend on the content of assignments.
"""

from __future__ import annotations

import contextlib
import queue
import time
from collections.abc import Mapping
from typing import Any, Protocol

from xagents.explorers.assignments import EnvShard, Event, EventQueue, Launcher, Link
from xagents.explorers.messages import FORMAT, Message, WireError, pack, pid_of, unpack
from xagents.options.errors import format_value, one_line
from xagents.system.interruption import Interruption
from xagents.version import __version__

# seconds that a worker may need for a step, seconds to create its environments, and seconds between two checks
STEP_TIMEOUT, STARTUP_TIMEOUT, CHECK_SECONDS = 60.0, 600.0, 1.0


class Handler(Protocol):
    """The sender of assignments and receiver of fragments."""

    def send(self, shard: EnvShard) -> None:
        """Send the assignment of a shard, if it has one, to its worker, which is ready."""

    def on_fragment(self, shard: EnvShard, message: Message) -> None:
        """Handle a fragment.

        Raises:
            WireError: If the message is not a valid fragment, or answers no present assignment.
        """

    def on_worker_lost(self, shard: EnvShard) -> None:
        """Handle the loss of the worker of a shard that has an assignment.

        Raises:
            ExplorerError: If too many workers were lost during this assignment.
        """

    def on_failure(self, shard: EnvShard, why: str) -> None:
        """Handle an error that the worker of a shard reported for its assignment.

        Raises:
            ExplorerError: If this assignment has failed too often.
        """


class Membership:
    """The connected workers, attached to shards or in reserve.

    Args:
        spec: the first message to every worker; see `xagents.explorers.rollout_worker`.
        shards: the shards to attach workers to.
        events: the queue into which the threads of links and processes put their events.
        launcher: the launcher, which starts workers and replaces lost ones.
        handler: the handler of fragments and failures.

    Attributes:
        n_lost: the number of workers that were lost so far.
    """

    def __init__(
        self, spec: Mapping[str, Any], shards: list[EnvShard], events: EventQueue, launcher: Launcher, handler: Handler
    ):
        self._spec, self._shards, self._handler = dict(spec), shards, handler
        self._events, self._launcher = events, launcher
        self._spare: list[Link] = []
        self.n_lost, self._checked_at = 0, time.perf_counter()

    def process_event(self) -> None:
        """Handle the next event, and check timeouts every CHECK_SECONDS if no other event is queued."""
        with contextlib.suppress(queue.Empty):
            self._handle(self._events.get(timeout=CHECK_SECONDS))
        now = time.perf_counter()
        if now - self._checked_at >= CHECK_SECONDS and self._events.empty():
            self._checked_at = now
            self._check_timeouts(now)

    def reset_timeouts(self) -> None:
        """Restart the timeouts of all shards, because events were not handled in the meantime."""
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
            link.disconnect()  # the link then reports its end as an event
        link.acknowledge()

    def _handle_message(self, link: Link, shard: EnvShard | None, message: Message) -> None:
        """Handle a message of a worker.

        Raises:
            WireError: If the message is not expected from this worker.
        """
        if message.message_type == 'hello' and shard is None and link not in self._spare:
            self._admit(link, message)
        elif shard is None:
            raise WireError('a worker without a shard sent a message')
        elif message.message_type == 'ready' and not shard.ready:
            shard.ready = True
            self._handler.send(shard)
        elif message.message_type == 'alive':
            shard.last_seen = time.perf_counter()
        elif message.message_type == 'fragment':
            self._handler.on_fragment(shard, message)
        elif message.message_type == 'error' and shard.ready:
            self._handler.on_failure(shard, _error_text(message))
        elif message.message_type == 'error':  # this worker cannot create the environments; other workers may
            shard.clear_worker()
            self._refuse(link, _error_text(message))
            self._fill_free_shards()
        else:
            raise WireError(f'a worker sent an unexpected message {message.message_type[:20]!r}')

    def _check_timeouts(self, now: float) -> None:
        """Terminate workers that did not respond in time, and report shards without a worker to the launcher."""
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
            self._refuse(link, f'it has xagents {format_value(str(versions[1])[:20])}, the learner has {__version__}')
            return
        link.pid = pid_of(message)
        self._launcher.on_connect(link)
        self._spare.append(link)
        self._fill_free_shards()

    def _refuse(self, link: Link, why: str) -> None:
        """Refuse a worker that cannot collect for this learner, and disconnect it."""
        link.send(pack('refused', {'why': f'an explorer was refused: {why}'}))
        link.disconnect()
        self._launcher.on_refusal(why)

    def _fill_free_shards(self) -> None:
        """Attach workers in reserve to shards without a worker."""
        for shard in self._shards:
            if shard.link is None and self._spare:
                self._attach(shard, self._spare.pop(0))

    def _attach(self, shard: EnvShard, link: Link) -> None:
        """Attach a worker to a shard and send it the specification."""
        shard.link, shard.last_seen = link, time.perf_counter()
        link.send(pack('spec', {**self._spec, 'first': shard.envs.start, 'n_envs': shard.n_envs}))

    def replace_extra_workers(self) -> None:
        """Replace extra workers, which a machine started because workers were missing, by workers in reserve."""
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
        if shard is not None:
            shard.clear_worker()
            self.n_lost += 1
            if shard.assignment is not None:
                self._handler.on_worker_lost(shard)
            self._fill_free_shards()

    def release_workers(self) -> None:
        """Send each worker the message to end."""
        for link in [*self._spare, *(shard.link for shard in self._shards if shard.link is not None)]:
            link.send(pack('end', {}))


def _error_text(message: Message) -> str:
    """Return the text of an error as one printable line of at most 300 characters."""
    return ''.join(c if c.isprintable() else ' ' for c in one_line(message.header.get('why', ''))[:300])
