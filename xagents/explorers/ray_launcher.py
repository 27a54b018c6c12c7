"""Explorers that Ray places: by free processors, on whatever machines it has. They dial in as all others do.

What Ray lets in is Ray's own affair: it sends pickled code to its machines, and whoever reaches its ports can run some.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import queue
import sys
from collections.abc import Callable, Iterator
from typing import Any

from xagents.explorers.assignments import Event, ExplorerError, Link
from xagents.explorers.cluster_launcher import ClusterEndpoint, ClusterLauncher, listen
from xagents.explorers.keys import ExplorerCredentials
from xagents.explorers.local_launcher import ONE_THREAD
from xagents.explorers.process import RefusedError, explore
from xagents.explorers.transport import Connection
from xagents.options.errors import OptionError, error_line

# how long explorers may take to go
SECONDS_TO_END = 2.0


def check_ray(where: str) -> None:
    """Check that Ray is installed; raises OptionError naming `cluster`."""
    if importlib.util.find_spec('ray') is None:
        raise OptionError('cluster', f"got {where}, which needs an extra: pip install 'xagents[ray]'")


class RayWorker:
    """An explorer in a process of Ray's."""

    def explore(self, address: str, key: ExplorerCredentials) -> str:
        """Explore until the learner lets go; returns why not, on one line, where something went wrong."""
        try:
            explore(Connection(address, key=key))
        except Exception as error:  # Ray would send a traceback
            return error_line(error)
        return ''


class RayLauncher(ClusterLauncher):
    """Those whom Ray brings.

    Args:
        ray: the module.
        n_explorers: how many.
        address: that they dial.
        key: what opens the cluster.
        say: prints a line of the run.
    """

    def __init__(self, ray: Any, n_explorers: int, address: str, key: ExplorerCredentials, say: Callable[[str], None]):
        why = f'Ray has no free processors for them, or they cannot reach the learner at {address}'
        super().__init__(why, say)
        self._ray, self._arguments = ray, (address, key)
        variables = {**ONE_THREAD, 'PYTHONPATH': os.pathsep.join(path or os.getcwd() for path in sys.path)}
        # a worker that dies is restarted if resources are free
        made = ray.remote(num_cpus=1, max_restarts=-1, max_task_retries=-1)(RayWorker)
        workers = made.options(runtime_env={'env_vars': variables})
        self.actors = [workers.remote() for _ in range(n_explorers)]
        self._running = [actor.explore.remote(*self._arguments) for actor in self.actors]

    def on_shortage(self, links: list[Link], n: int) -> None:
        """Let those explore again who have come back."""
        if n:
            done, _ = self._ray.wait(self._running, num_returns=len(self._running), timeout=0)
            for ref in done:
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
        """Let Ray have its processors back, once explorers have heard that they may go."""
        self._ray.wait(self._running, num_returns=len(self._running), timeout=SECONDS_TO_END)
        for actor in self.actors:
            self._ray.kill(actor)


@contextlib.contextmanager
def ray_launcher(
    where: str,
    path: str,
    n_explorers: int,
    events: queue.SimpleQueue[Event],
    largest: int,
    say: Callable[[str], None],
) -> Iterator[RayLauncher]:
    """Let Ray bring explorers, for as long as the context lasts.

    Args:
        where: `ray` for the cluster of this machine, or one that begins here; `ray://HOST:PORT` for another one.
        path: of the key's file.
        n_explorers: how many.
        events: receives what the workers do.
        largest: bytes of a message.
        say: prints a line of the run.

    Raises:
        OptionError: where Ray cannot be reached.
    """
    import ray

    os.environ.setdefault('RAY_USAGE_STATS_ENABLED', '0')  # no call to others that nobody asked for
    quiet: dict[str, Any] = {'log_to_driver': False, 'logging_level': 'ERROR'}
    began = not ray.is_initialized()
    try:
        if began:
            ray.init(None if where == 'ray' else where, **quiet)
    except Exception as error:  # Ray raises what it likes
        raise OptionError('cluster', f'got {where}, where Ray cannot be reached ({error_line(error)})') from error
    with contextlib.ExitStack() as stack:
        if began:
            stack.callback(ray.shutdown)
        endpoint = ClusterEndpoint(ray.util.get_node_ip_address(), 0, path)
        address, key = stack.enter_context(listen(endpoint, n_explorers, events, largest))
        launcher = RayLauncher(ray, n_explorers, address, key.explorer_credentials, say)
        stack.callback(launcher.close)
        yield launcher
