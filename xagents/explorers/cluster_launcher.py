"""Explorers on other machines: the learner listens for them, and says what is to be typed there."""

from __future__ import annotations

import contextlib
import queue
import shlex
import socket
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from xagents.explorers.assignments import Event, Link
from xagents.explorers.keys import ClusterKey, read_key
from xagents.explorers.transport import Server
from xagents.options.errors import OptionError

# how long slots without an explorer wait for another machine, before those that are there are asked for one more
SECONDS_FOR_NEW_MACHINES = 10.0
# how often it is said that explorers are waited for
SECONDS_BETWEEN_LINES = 60.0
ANY_ADDRESSES = ('0.0.0.0', '[::]')


class ClusterEndpoint(NamedTuple):
    """Where a learner listens.

    Attributes:
        host: as it was typed; an address, or a name.
        port: 0 for any that is free.
        key_path: path of the key's file.
    """

    host: str
    port: int
    key_path: str


class ClusterLauncher:
    """Those who come from elsewhere.

    Args:
        line: what is to be typed there.
        say: prints a line of the run.
    """

    def __init__(self, line: str, say: Callable[[str], None]):
        self._line, self._say = line, say
        self.last_exit_reason = ''
        self._short_since = self._requested_at = 0.0
        self._refusals: set[str] = set()
        self._printed_at = time.perf_counter()

    def on_connect(self, link: Link) -> None:
        """Hear that an explorer has come."""

    def on_exit(self, source: Any) -> None:
        """Hear that one has gone."""

    def terminate(self, link: Link | None) -> None:
        """Let one go that is silent; its machine begins another one."""
        if link is not None:
            link.disconnect()

    def on_refusal(self, why: str) -> None:
        """Say why an explorer was let go, once."""
        if why not in self._refusals:
            self._refusals.add(why)
            self._say(f'An explorer was refused: {why}')

    def on_shortage(self, links: list[Any], n: int) -> None:
        """Say what is waited for; ask the machines that are there for more, where nobody else comes."""
        now = time.perf_counter()
        if not n:
            self._short_since = 0.0
            return
        self._short_since = self._short_since or now
        if now - self._printed_at >= SECONDS_BETWEEN_LINES:
            self._printed_at = now
            self._say(f'{n} of {n + len(links)} explorers are missing: {self._line}')
        # those that were asked for may take a while to begin
        if (
            links
            and now - max(self._short_since, self._requested_at + 5 * SECONDS_FOR_NEW_MACHINES)
            >= SECONDS_FOR_NEW_MACHINES
        ):
            self._requested_at = now
            for i in range(n):
                links[i % len(links)].request_worker()


@contextlib.contextmanager
def listen(
    endpoint: ClusterEndpoint, n_explorers: int, events: queue.SimpleQueue[Event], largest: int
) -> Iterator[tuple[str, ClusterKey]]:
    """Listen for explorers, for as long as the context lasts; yields the address that they dial, and the key.

    Raises:
        OptionError: where nothing can listen there.
    """
    key = read_key(endpoint.key_path)
    try:
        server = Server(f'{endpoint.host}:{endpoint.port}', events, n_explorers, largest, key)
    except OSError as error:
        raise OptionError('cluster', f'got {endpoint.host}:{endpoint.port}, and {error}') from error
    with contextlib.closing(server):
        host = socket.gethostname() if endpoint.host in ANY_ADDRESSES else endpoint.host
        yield f'{host}:{server.port}', key


@contextlib.contextmanager
def cluster_launcher(
    endpoint: ClusterEndpoint,
    n_explorers: int,
    events: queue.SimpleQueue[Event],
    largest: int,
    say: Callable[[str], None],
) -> Iterator[ClusterLauncher]:
    """Let explorers from elsewhere come, for as long as the context lasts; arguments as for `listen`."""
    with listen(endpoint, n_explorers, events, largest) as (address, _):
        line = f'xagents explore {address} --explorers {n_explorers} --cluster-key {shlex.quote(endpoint.key_path)}'
        say(f'Listening for {n_explorers} explorers. On each machine, with as many as it has cores: {line}')
        yield ClusterLauncher(line, say)
