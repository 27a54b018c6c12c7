"""Workers on this machine: child processes, connected by a socket in a folder that only the user can access."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from xagents.explorers.assignments import Event, EventQueue, ExplorerError, Launcher, Link
from xagents.explorers.process import EXIT_REFUSED
from xagents.explorers.transport import Server
from xagents.processes.child_process import ONE_THREAD
from xagents.processes.launch import Launch, launch_here
from xagents.processes.process_pool import ProcessPool, ProcessPoolError
from xagents.system.locks import locked_folder, remove_abandoned_folders

# maximum size of a message between processes of one user
MAX_LOCAL_MESSAGE_BYTES = 2**31 - 2**21
# a folder whose files are in memory, and the free bytes that it needs
SHARED_MEMORY_FOLDER, MIN_FREE_BYTES = '/dev/shm', 2**30
FOLDER_PREFIX = 'xagents-explorers-'
# the run ends if this many processes per worker in a row exit before they connect
MAX_EARLY_EXITS = 3


class LocalLauncher(Launcher):
    """A launcher that keeps a number of worker processes running; a process that is refused prints the reason.

    Args:
        n_explorers: the number of processes.
        folder: the folder for the socket and for files of large messages.
        events: the queue for the ends of processes.
    """

    def __init__(self, n_explorers: int, folder: Path, events: EventQueue):
        self.n_explorers, self._folder = n_explorers, folder
        self._connected_pids: set[Any] = set()
        self._pool = explorer_pool([socket_address(folder), str(folder), str(os.getpid())], n_explorers, events)

    @property
    def processes(self) -> list[Any]:
        """The running processes."""
        return self._pool.processes

    def add(self) -> None:
        """Start one more process; it is not replaced if it raises the number above `n_explorers`."""
        self._pool.start()

    def on_connect(self, link: Link) -> None:
        """Record that a worker has connected."""
        self._connected_pids.add(link.pid)
        for process in self.processes:
            if process.pid == link.pid:
                self._pool.mark_ready(process)

    def terminate(self, link: Link | None) -> None:
        """Kill a worker that does not respond; if `link` is None, kill all workers that have not connected."""
        for process in self.processes:
            if process.pid not in self._connected_pids if link is None else process.pid == link.pid:
                process.kill_group()

    def on_exit(self, source: Any) -> None:
        """Replace a process that has ended, if fewer than `n_explorers` are left.

        Raises:
            ExplorerError: If the process was refused, or too many processes in a row ended before they connected.
        """
        if source not in self.processes:
            return
        for left in self._folder.glob(f'{source.pid}-*'):  # messages that were not read
            left.unlink(missing_ok=True)
        self.last_exit_reason = remove_ended(self._pool, source)
        if len(self.processes) < self.n_explorers:
            self.add()

    def close(self) -> None:
        """End all processes."""
        self._pool.close()


def explorer_pool(
    arguments: list[str], n_explorers: int, events: EventQueue, launch: Launch = launch_here
) -> ProcessPool:
    """Start worker processes.

    Args:
        arguments: the arguments of `xagents.explorers.process`.
        n_explorers: the number of processes.
        events: the queue for the ends of processes.
        launch: starts a process.
    """

    def on_output(output: tuple[Any, str | None]) -> None:
        if output[1] is None:
            events.put(Event(output[0], None))

    how: dict[str, Any] = {'output': on_output, 'stderr': subprocess.STDOUT, 'variables': ONE_THREAD}
    how |= {'launch': launch, 'max_early_exits': MAX_EARLY_EXITS * n_explorers}
    return ProcessPool(['xagents.explorers.process', *arguments], n_explorers, **how)


def remove_ended(pool: ProcessPool, process: Any) -> str:
    """Remove a process that has ended, and return how it ended.

    Raises:
        ExplorerError: If the process was refused, or too many processes in a row ended before they connected.
    """
    if process.code == EXIT_REFUSED:
        raise ExplorerError(process.last_output)
    try:
        return pool.remove_ended(process)
    except ProcessPoolError as error:
        raise ExplorerError(f'explorers exit before they connect ({process.exit_reason})') from error


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
