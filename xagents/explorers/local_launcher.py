"""Workers on this machine: child processes, connected by a socket in a folder that only the user can access."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from concurrent import futures
from pathlib import Path
from typing import Any

from xagents.explorers.assignments import Event, EventQueue, ExplorerError, Launcher, Link
from xagents.explorers.process import EXIT_REFUSED
from xagents.explorers.transport import Server
from xagents.system.child_process import ChildProcess
from xagents.system.locks import locked_folder, remove_abandoned_folders

SECONDS_TO_END = 2.0
# maximum size of a message between processes of one user
MAX_LOCAL_MESSAGE_BYTES = 2**31 - 2**21
# a folder whose files are in memory, and the free bytes that it needs
SHARED_MEMORY_FOLDER, MIN_FREE_BYTES = '/dev/shm', 2**30
FOLDER_PREFIX = 'xagents-explorers-'
# the run ends if this many processes per worker in a row exit before they connect
MAX_EARLY_EXITS = 3
# one thread per worker: the number of workers sets the number of busy processors
ONE_THREAD = {'OPENBLAS_NUM_THREADS': '1', 'OMP_NUM_THREADS': '1', 'MKL_NUM_THREADS': '1'}


class ExplorerProcess(ChildProcess):
    """The process of a worker; `last_output` is the last line that it printed."""

    def __init__(self, address: str, folder: Path, events: EventQueue):
        self.last_output = ''
        arguments = ['xagents.explorers.process', address, str(folder), str(os.getpid())]
        self._events = events
        super().__init__(arguments, self._on_output, SECONDS_TO_END, subprocess.STDOUT, **ONE_THREAD)

    def _on_output(self, line: tuple[Any, str | None]) -> None:
        """Store the last line of the output, and turn the end of the process into an event."""
        if line[1] is None:
            self._events.put(Event(self, None))
        elif line[1].strip():
            self.last_output = line[1].strip()[-300:]

    def exit_reason(self) -> str:
        """Return the exit status and the last line that the process printed."""
        return ': '.join(filter(None, [self.exit_status, self.last_output]))

    def kill(self) -> None:
        """Kill the process and all processes that its environments started."""
        with contextlib.suppress(OSError):
            os.killpg(self.pid, signal.SIGKILL)


class LocalLauncher(Launcher):
    """A launcher that keeps a number of worker processes running; a process that is refused prints the reason.

    Args:
        n_explorers: the number of processes.
        folder: the folder for the socket and for files of large messages.
        events: the queue for the ends of processes.
    """

    def __init__(self, n_explorers: int, folder: Path, events: EventQueue):
        self.n_explorers, self._folder = n_explorers, folder
        self._make = lambda: ExplorerProcess(socket_address(folder), folder, events)
        self._early_exits = 0
        self._connected_pids: set[Any] = set()
        self.processes: list[ExplorerProcess] = []
        try:
            for _ in range(n_explorers):
                self.add()
        except BaseException:
            self.close()
            raise

    def add(self) -> None:
        """Start one more process; it is not replaced if it raises the number above `n_explorers`."""
        self.processes.append(self._make())

    def on_connect(self, link: Link) -> None:
        """Record the process id of a worker that has connected."""
        self._early_exits = 0
        self._connected_pids.add(link.pid)

    def terminate(self, link: Link | None) -> None:
        """Kill a worker that does not respond; if `link` is None, kill all workers that have not connected."""
        for process in self.processes:
            if process.pid not in self._connected_pids if link is None else process.pid == link.pid:
                process.kill()

    def on_exit(self, source: Any) -> None:
        """Replace a process that has ended, if fewer than `n_explorers` are left.

        Raises:
            ExplorerError: If the process was refused, or too many processes in a row ended before they connected.
        """
        if source not in self.processes:
            return
        self.last_exit_reason = source.exit_reason()
        if source.code == EXIT_REFUSED:
            raise ExplorerError(source.last_output)
        for left in self._folder.glob(f'{source.pid}-*'):  # messages that were not read
            left.unlink(missing_ok=True)
        self._early_exits += 1
        if self._early_exits >= MAX_EARLY_EXITS * len(self.processes):
            raise ExplorerError(f'explorers exit before they connect ({self.last_exit_reason})')
        source.end()
        self.processes.remove(source)
        if len(self.processes) < self.n_explorers:
            self.add()

    def close(self) -> None:
        """End all processes."""
        for process in self.processes:
            process.request_exit()
        # processes that hang are waited for in parallel
        with futures.ThreadPoolExecutor(max(len(self.processes), 1)) as threads:
            list(threads.map(ExplorerProcess.end, self.processes))


def socket_address(folder: Path) -> str:
    """Return the address of the Unix socket in a folder."""
    return f'unix:{folder / "explorers"}'


@contextlib.contextmanager
def local_launcher(
    n_explorers: int, events: EventQueue, max_message_bytes: int = MAX_LOCAL_MESSAGE_BYTES, max_explorers: int = 0
) -> Iterator[LocalLauncher]:
    """Run workers on this machine inside a `with` block.

    Args:
        n_explorers: the number of workers.
        events: the queue for events of the workers.
        max_message_bytes: the maximum size of a message in bytes.
        max_explorers: the maximum number of workers; `n_explorers` if 0.

    Yields:
        The launcher.
    """
    with contextlib.ExitStack() as stack:
        for place in (SHARED_MEMORY_FOLDER, tempfile.gettempdir()):
            remove_abandoned_folders(FOLDER_PREFIX, place)
        parent = SHARED_MEMORY_FOLDER if _has_space(SHARED_MEMORY_FOLDER) else None
        folder = stack.enter_context(locked_folder(FOLDER_PREFIX, parent))
        server = Server(socket_address(folder), events, max_explorers or n_explorers, max_message_bytes, folder=folder)
        stack.callback(server.close)
        launcher = LocalLauncher(n_explorers, folder, events)
        stack.callback(launcher.close)
        yield launcher


def _has_space(folder: str) -> bool:
    """Return whether a folder in memory is writable and has enough free bytes."""
    return os.access(folder, os.W_OK | os.X_OK) and shutil.disk_usage(folder).free > MIN_FREE_BYTES
