"""Workers that Ray starts on free processors of its machines. They connect to the learner as all others do.

For the security of Ray, see `xagents.processes.launch`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from xagents.explorers.assignments import EventQueue, ExplorerError, Link
from xagents.explorers.cluster_launcher import ClusterEndpoint, ClusterLauncher, listen
from xagents.explorers.keys import ExplorerCredentials
from xagents.explorers.process import RefusedError, explore
from xagents.explorers.transport import Connection, Server
from xagents.options.errors import error_line
from xagents.processes.child_process import ONE_THREAD, importable_paths
from xagents.processes.launch import ray_cluster

# seconds that workers have to end
SECONDS_TO_END = 2.0


class RayWorker:
    """A worker in a process that Ray started."""

    def explore(self, address: str, key: ExplorerCredentials) -> str:
        """Collect until the learner ends the work; return an error as one line, or an empty string."""
        try:
            explore(Connection(address, key=key))
        except Exception as error:  # Ray would send a traceback instead of one line
            return error_line(error)
        return ''


class RayLauncher(ClusterLauncher):
    """A launcher that starts workers with Ray.

    Args:
        ray: the module `ray`.
        n_explorers: the number of workers.
        server: the server that accepts the connections.
        address: the address to which the workers connect.
        key: the credentials of the workers.
        say: the function that prints a line of the run.
    """

    def __init__(
        self,
        ray: Any,
        n_explorers: int,
        server: Server,
        address: str,
        key: ExplorerCredentials,
        say: Callable[[str], None],
    ):
        why = f'Ray has no free processors for them, or they cannot connect to the learner at {address}'
        super().__init__(server, why, say)
        self._ray, self._arguments = ray, (address, key)
        variables = {**ONE_THREAD, 'PYTHONPATH': importable_paths()}
        # a worker that dies is restarted if resources are free
        made = ray.remote(num_cpus=1, max_restarts=-1, max_task_retries=-1)(RayWorker)
        workers = made.options(runtime_env={'env_vars': variables})
        self.actors = [workers.remote() for _ in range(n_explorers)]
        self._running = [actor.explore.remote(*self._arguments) for actor in self.actors]

    def on_shortage(self, links: list[Link], n: int) -> None:
        """Restart the collection in actors that Ray has restarted."""
        if n:
            for ref in self._ray.wait(self._running, num_returns=len(self._running), timeout=0)[0]:
                self._restart(ref)
        super().on_shortage([], n)

    def _restart(self, ref: Any) -> None:
        i = self._running.index(ref)
        try:
            self.last_exit_reason = self._ray.get(ref) or self.last_exit_reason
        except self._ray.exceptions.RayError as error:
            self.last_exit_reason = error_line(error)
        if self.last_exit_reason.startswith(RefusedError.__name__):
            raise ExplorerError(self.last_exit_reason.partition(': ')[2])
        self._running[i] = self.actors[i].explore.remote(*self._arguments)

    def close(self) -> None:
        """Wait for the workers to end, and return their processors to Ray."""
        self._ray.wait(self._running, num_returns=len(self._running), timeout=SECONDS_TO_END)
        for actor in self.actors:
            self._ray.kill(actor)


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
    with ray_cluster(where) as ray:
        endpoint = ClusterEndpoint(ray.util.get_node_ip_address(), 0, path)
        with listen(endpoint, n_explorers, events, max_message_bytes) as (server, address, key):
            launcher = RayLauncher(ray, n_explorers, server, address, key.explorer_credentials, say)
            with contextlib.closing(launcher):
                yield launcher
