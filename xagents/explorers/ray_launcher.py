"""Worker processes that Ray starts on free processors of its machines. They connect to the learner as all others do.

For the security of Ray, see `xagents.processes.launch`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from xagents.explorers.assignments import EventQueue, Link
from xagents.explorers.cluster_launcher import ClusterEndpoint, ClusterLauncher, listen
from xagents.explorers.keys import ExplorerCredentials, write_credentials
from xagents.explorers.local_launcher import explorer_pool, remove_ended
from xagents.explorers.transport import Server
from xagents.processes.launch import Launch, address_in_cluster, open_launch


class RayLauncher(ClusterLauncher):
    """A launcher that starts workers with Ray, and others in the place of those that end.

    Args:
        launch: starts a process with Ray.
        n_explorers: the number of workers.
        events: the queue for the ends of processes.
        server: the server that accepts the connections.
        address: the address to which the workers connect.
        key: the credentials of the workers.
        say: the function that prints a line of the run.
    """

    def __init__(
        self,
        launch: Launch,
        n_explorers: int,
        events: EventQueue,
        server: Server,
        address: str,
        key: ExplorerCredentials,
        say: Callable[[str], None],
    ):
        why = f'Ray has no free processors for them, or they cannot connect to the learner at {address}'
        super().__init__(server, why, say)
        self._pool = explorer_pool([address], n_explorers, events, launch)
        self._credentials = write_credentials(key)
        for process in self._pool.processes:
            process.write(self._credentials)

    def on_connect(self, link: Link) -> None:
        """Record that workers can connect."""
        for process in self._pool.processes:
            self._pool.mark_ready(process)

    def on_shortage(self, links: list[Link], n: int) -> None:
        """Print how many explorers are missing."""
        super().on_shortage([], n)

    def on_exit(self, source: Any) -> None:
        """Replace a process that has ended; see `LocalLauncher`."""
        if source in self._pool.processes:
            self.last_exit_reason = remove_ended(self._pool, source)
            self._pool.start().write(self._credentials)

    def close(self) -> None:
        """End all processes, and return their processors to Ray."""
        self._pool.close()


@contextlib.contextmanager
def ray_launcher(
    where: str, path: str, n_explorers: int, events: EventQueue, max_message_bytes: int, say: Callable[[str], None]
) -> Iterator[RayLauncher]:
    """Run workers with Ray inside a `with` block.

    Args:
        where: `ray` for the cluster of this machine, which is started if it does not exist; `ray://HOST:PORT` for a
            remote one.
        path: the path of the key file.
        n_explorers: the number of workers.
        events: the queue for events of the workers.
        max_message_bytes: the maximum size of a message in bytes.
        say: the function that prints a line of the run.

    Yields:
        The launcher.

    Raises:
        OptionError: If the connection to Ray fails; the error names `cluster`.
    """
    with open_launch(where, folder='') as launch:
        endpoint = ClusterEndpoint(address_in_cluster(), 0, path)
        with listen(endpoint, n_explorers, events, max_message_bytes) as (server, address, key):
            launcher = RayLauncher(launch, n_explorers, events, server, address, key.explorer_credentials, say)
            with contextlib.closing(launcher):
                yield launcher
