"""Workers on other machines: the learner listens for connections and prints the command for these machines."""

from __future__ import annotations

import contextlib
import shlex
import socket
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from xagents.explorers.assignments import EventQueue, Launcher, Link
from xagents.explorers.keys import ClusterKey, read_key
from xagents.explorers.transport import MAX_STRANGERS, SECONDS_FOR_STRANGERS, Server
from xagents.options.errors import OptionError

# time that shards without a worker wait for another machine, before the connected machines are asked for more workers
SECONDS_FOR_NEW_MACHINES = 10.0
# time between two lines that say how many explorers are missing
SECONDS_BETWEEN_LINES = 60.0
ANY_ADDRESSES = ('0.0.0.0', '[::]')


class ClusterEndpoint(NamedTuple):
    """The address at which a learner listens, and its key.

    Attributes:
        host: the host as the user typed it, an address or a name.
        port: the port; 0 for any free one.
        key_path: the path of the key file.
    """

    host: str
    port: int
    key_path: str


class ClusterLauncher(Launcher):
    """A launcher that waits for workers from other machines, which replace lost workers themselves.

    Args:
        server: the server that accepts the connections.
        line: the command to type on the other machines.
        say: the function that prints a line of the run.
    """

    def __init__(self, server: Server, line: str, say: Callable[[str], None]):
        self._server, self._line, self._say = server, line, say
        self._short_since = self._requested_at = 0.0
        self._refusals: set[str] = set()
        self._said_strangers = False
        self._printed_at = time.perf_counter()

    def terminate(self, link: Link | None) -> None:
        """Disconnect a worker that does not respond; its machine starts another one."""
        if link is not None:
            link.disconnect()

    def on_refusal(self, why: str) -> None:
        """Print the reason for a refusal, each reason once."""
        if why not in self._refusals:
            self._refusals.add(why)
            self._say(f'An explorer was refused: {why}')

    def on_shortage(self, links: list[Any], n: int) -> None:
        """Print how many explorers are missing; if no machine joins, ask the connected machines for more workers."""
        self._report_strangers()
        now = time.perf_counter()
        if not n:
            self._short_since = 0.0
            return
        self._short_since = self._short_since or now
        if now - self._printed_at >= SECONDS_BETWEEN_LINES:
            self._printed_at = now
            missing = f'{n} of {n + len(links)} explorers {"is" if n == 1 else "are"} missing'
            self._say(f'{missing}: {self._line}')
        # workers that were requested earlier need time to start
        since = max(self._short_since, self._requested_at + 5 * SECONDS_FOR_NEW_MACHINES)
        if links and now - since >= SECONDS_FOR_NEW_MACHINES:
            self._requested_at = now
            for i in range(n):
                links[i % len(links)].request_worker()

    def _report_strangers(self) -> None:
        """Print once that many connections have no key."""
        if not self._said_strangers and (n := self._server.n_strangers()) >= MAX_STRANGERS:
            self._said_strangers = True
            closed = f'each is closed after {SECONDS_FOR_STRANGERS:.0f} s, and further ones at once'
            self._say(f'{n} connections to port {self._server.port} have no key of this run: {closed}')


@contextlib.contextmanager
def listen(
    endpoint: ClusterEndpoint, n_explorers: int, events: EventQueue, max_message_bytes: int
) -> Iterator[tuple[Server, str, ClusterKey]]:
    """Listen for workers inside a `with` block.

    Args:
        endpoint: the address at which to listen, and the key.
        n_explorers: the number of workers.
        events: the queue for events of the workers.
        max_message_bytes: the maximum size of a message in bytes.

    Yields:
        The server, the address to which workers connect, and the key.

    Raises:
        OptionError: If this machine cannot listen there.
    """
    key = read_key(endpoint.key_path)
    try:
        server = Server(f'{endpoint.host}:{endpoint.port}', events, n_explorers, max_message_bytes, key)
    except OSError as error:
        raise OptionError('cluster', f'got {endpoint.host}:{endpoint.port}, but {error}') from error
    with contextlib.closing(server):
        host = socket.gethostname() if endpoint.host in ANY_ADDRESSES else endpoint.host
        yield server, f'{host}:{server.port}', key


@contextlib.contextmanager
def cluster_launcher(
    endpoint: ClusterEndpoint, n_explorers: int, events: EventQueue, max_message_bytes: int, say: Callable[[str], None]
) -> Iterator[ClusterLauncher]:
    """Accept workers from other machines inside a `with` block; see `listen` for the arguments. `say` prints a line."""
    with listen(endpoint, n_explorers, events, max_message_bytes) as (server, address, _):
        line = f'xagents explore {address} --explorers {n_explorers} --cluster-key {shlex.quote(endpoint.key_path)}'
        explorers = 'explorer' if n_explorers == 1 else 'explorers'
        say(f'Listening for {n_explorers} {explorers}. Run on each machine, one explorer per core: {line}')
        yield ClusterLauncher(server, line, say)
