"""Explorers on this machine: processes of this one, and a socket in a folder that only its user can enter."""

from __future__ import annotations

import contextlib
import os
import queue
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from concurrent import futures
from pathlib import Path
from typing import Any

from xagents.explorers.assignments import Event, ExplorerError, Link
from xagents.explorers.process import EXIT_REFUSED
from xagents.explorers.transport import Server
from xagents.system.child_process import ChildProcess

SECONDS_TO_END = 2.0
# of messages between processes of one user
MAX_LOCAL_MESSAGE_BYTES = 2**31 - 2**21
# a folder whose files lie in memory, if so many bytes are free there
SHARED_MEMORY_FOLDER, MIN_FREE_BYTES = '/dev/shm', 2**30
# so many processes that end in a row before they have joined end the run
MAX_EARLY_EXITS = 3
# one thread each: there are as many explorers as somebody wants to be busy
ONE_THREAD = {'OPENBLAS_NUM_THREADS': '1', 'OMP_NUM_THREADS': '1', 'MKL_NUM_THREADS': '1'}


class ExplorerProcess(ChildProcess):
    """The process of an explorer, whose last words are kept."""

    def __init__(self, address: str, folder: Path, events: queue.SimpleQueue[Event]):
        self.last_output = ''
        arguments = ['xagents.explorers.process', address, str(folder), str(os.getpid())]
        super().__init__(arguments, _OutputListener(self, events), SECONDS_TO_END, subprocess.STDOUT, **ONE_THREAD)

    def exit_reason(self) -> str:
        """Return how it ended, and the last line that it printed."""
        return ': '.join([self.exit_status, *([self.last_output] if self.last_output else [])])

    def kill(self) -> None:
        """Kill it, with all that its environments have started."""
        with contextlib.suppress(OSError):
            os.killpg(self.pid, signal.SIGKILL)


class _OutputListener:
    """Takes what a child process says: its end is an event, and its last line is kept."""

    def __init__(self, process: ExplorerProcess, events: queue.SimpleQueue[Event]):
        self._process, self._events = process, events

    def put(self, entry: tuple[Any, str | None], /) -> None:
        if entry[1] is None:
            self._events.put(Event(self._process, None))
        elif entry[1].strip():
            self._process.last_output = entry[1].strip()[-300:]


class LocalLauncher:
    """As many processes as are asked for, always.

    Args:
        n_explorers: how many.
        folder: where the socket and files of large messages lie.
        events: receives the ends of processes.
    """

    def __init__(self, n_explorers: int, folder: Path, events: queue.SimpleQueue[Event]):
        self.n_explorers, self._folder = n_explorers, folder
        self._make = lambda: ExplorerProcess(socket_address(folder), folder, events)
        self._early_exits = 0
        self._connected_pids: set[Any] = set()
        self.last_exit_reason = ''
        self.processes: list[ExplorerProcess] = []
        try:
            for _ in range(n_explorers):
                self.add()
        except BaseException:
            self.close()
            raise

    def add(self) -> None:
        """Begin one process more, as long as it lasts."""
        self.processes.append(self._make())

    def on_connect(self, link: Link) -> None:
        """Hear that an explorer has come."""
        self._early_exits = 0
        self._connected_pids.add(link.pid)

    def terminate(self, link: Link | None) -> None:
        """Kill an explorer that is silent; without a link those that have not come."""
        for process in self.processes:
            if process.pid not in self._connected_pids if link is None else process.pid == link.pid:
                process.kill()

    def on_exit(self, source: Any) -> None:
        """Begin another process where one has ended, unless there are more than there were."""
        if source not in self.processes:
            return
        self.last_exit_reason = source.exit_reason()
        if source.code == EXIT_REFUSED:
            raise ExplorerError(source.last_output)
        for left in self._folder.glob(f'{source.pid}-*'):  # what it could not send any more
            left.unlink(missing_ok=True)
        self._early_exits += 1
        if self._early_exits >= MAX_EARLY_EXITS * len(self.processes):
            raise ExplorerError(f'explorers end before they have begun ({self.last_exit_reason})')
        source.end()
        self.processes.remove(source)
        if len(self.processes) < self.n_explorers:
            self.add()

    def on_refusal(self, why: str) -> None:
        """Do nothing: the process ends, and says why."""

    def on_shortage(self, links: list[Link], n: int) -> None:
        """Do nothing: there is a process for each slot, or there will be."""

    def close(self) -> None:
        """End all processes."""
        for process in self.processes:
            process.request_exit()
        with futures.ThreadPoolExecutor(max(len(self.processes), 1)) as threads:  # those that hang, at the same time
            list(threads.map(ExplorerProcess.end, self.processes))


def socket_address(folder: Path) -> str:
    """Return the address of the socket in a folder."""
    return f'unix:{folder / "explorers"}'


@contextlib.contextmanager
def local_launcher(
    n_explorers: int, events: queue.SimpleQueue[Event], largest: int = MAX_LOCAL_MESSAGE_BYTES, most: int | None = None
) -> Iterator[LocalLauncher]:
    """Bring explorers on this machine, for as long as the context lasts.

    Args:
        n_explorers: how many.
        events: receives what the workers do.
        largest: bytes of a message.
        most: how many there may come to be; as many as there are when not given.
    """
    with contextlib.ExitStack() as stack:
        folder = Path(
            tempfile.mkdtemp(prefix='xagents-', dir=SHARED_MEMORY_FOLDER if _has_space(SHARED_MEMORY_FOLDER) else None)
        )
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        server = Server(socket_address(folder), events, most or n_explorers, largest, folder=folder)
        stack.callback(server.close)
        launcher = LocalLauncher(n_explorers, folder, events)
        stack.callback(launcher.close)
        yield launcher


def _has_space(folder: str) -> bool:
    """Return whether files may lie in a folder that is in memory, and fit."""
    return os.access(folder, os.W_OK | os.X_OK) and shutil.disk_usage(folder).free > MIN_FREE_BYTES
