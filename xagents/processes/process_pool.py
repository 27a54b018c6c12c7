"""A pool of child processes that run the same module, in the parent process. `serving.py` is the side of a child."""

from __future__ import annotations

import json
import queue
import subprocess
from collections.abc import Mapping, Sequence
from concurrent import futures
from typing import Any

from xagents.processes.child_process import ManagedProcess, OutputHandler, OutputQueue
from xagents.processes.launch import Launch, launch_here

# seconds that a process has to exit
SECONDS_TO_END = 2.0
# number of consecutive processes that exit without an answer, after which another one is not started
MAX_EARLY_EXITS = 5
ProcessMessage = dict[str, Any]


class ProcessPoolError(RuntimeError):
    """Processes that cannot do any job; one line."""


class ProcessPool:
    """A pool of processes.

    Args:
        command: module of the processes and its first arguments.
        n: number of processes to start.
        launch: starts a process; `open_launch` returns one for Ray.
        output: receiver of the lines of all processes; by default a queue, which `receive` reads.
        seconds_to_end: time that a process has to exit before it is killed.
        stderr: standard error of the processes; see `ChildProcess`.
        variables: additional environment variables of the processes.
        max_early_exits: number of consecutive processes that may exit before they are ready.
        max_jobs: number of jobs after which a process is replaced, because it keeps memory of each; None for any.
        error: the class of errors.

    Attributes:
        processes: the processes, of which some may have ended.
    """

    def __init__(
        self,
        command: Sequence[str],
        n: int = 0,
        *,
        launch: Launch = launch_here,
        output: OutputHandler | None = None,
        seconds_to_end: float = SECONDS_TO_END,
        stderr: int | None = subprocess.PIPE,
        variables: Mapping[str, str] | None = None,
        max_early_exits: int = MAX_EARLY_EXITS,
        max_jobs: int | None = None,
        error: type[Exception] = ProcessPoolError,
    ):
        self._command, self._launch = list(command), launch
        self._max_early_exits, self._max_jobs, self._error = max_early_exits, max_jobs, error
        self._output: OutputQueue = queue.Queue()
        self._how = (output or self._output.put, seconds_to_end, stderr, variables)
        self._early_exits = 0
        self.processes: list[Any] = []
        try:
            for _ in range(n):
                self.start()
        except BaseException:
            self.close()
            raise

    def start(self, *arguments: str) -> ManagedProcess:
        """Start one more process, with further arguments."""
        self.processes.append(self._launch([*self._command, *arguments], *self._how))
        return self.processes[-1]

    def start_job(self, job: Any, *arguments: str) -> ManagedProcess:
        """Start one more process, whose arguments describe its only job."""
        process = self.start(*arguments)
        process.job = job
        self.mark_ready(process)
        return process

    @property
    def idle(self) -> list[ManagedProcess]:
        """The processes that are ready and have no job."""
        return [process for process in self.processes if process.ready and process.job is None]

    def receive_line(self, seconds: float) -> tuple[ManagedProcess, str | None] | None:
        """Wait for the next line of a process.

        Returns:
            The process and its line, which is None if the process has ended; or None if there is no line within
            `seconds`.
        """
        try:
            process, line = self._output.get(timeout=seconds)
        except queue.Empty:
            return None
        return (process, line) if process in self.processes else None  # else it was replaced

    def receive(self, seconds: float) -> tuple[ManagedProcess, ProcessMessage | None] | None:
        """Wait for the next message of a process.

        Returns:
            The process and its message, which is None if the process has ended; or None if there is no message within
            `seconds`.

        Raises:
            ProcessPoolError: or `error`, if no process can do any job.
        """
        received = self.receive_line(seconds)
        if received is None:
            return None
        process, line = received
        if line is None:
            return process, None
        try:
            message = json.loads(line)
        except ValueError:  # the last line of a killed process may be incomplete
            return None
        if message['kind'] == 'broken':
            raise self._error(message['reason'])
        if message['kind'] == 'ready':
            self.mark_ready(process)
        return process, message

    def mark_ready(self, process: ManagedProcess) -> None:
        """Record that a process works."""
        process.ready, self._early_exits = True, 0

    def replace(self, process: ManagedProcess) -> ManagedProcess:
        """End a process, which may have ended already, and start a new one in its place."""
        i = self.processes.index(process)
        new = self.start()
        self.processes[i] = self.processes.pop()
        process.end()
        return new

    def finish_job(self, process: ManagedProcess) -> None:
        """Mark the job of a process as done, and replace the process after `max_jobs` jobs."""
        process.job, process.n_done = None, process.n_done + 1
        if self._max_jobs is not None and process.n_done >= self._max_jobs:
            self.replace(process)

    def remove_ended(self, process: ManagedProcess) -> str:
        """Remove a process that has ended, and return how it ended.

        Raises:
            ProcessPoolError: or `error`, if too many processes have ended before they were ready.
        """
        reason = process.exit_reason
        process.end()
        self.processes.remove(process)
        self._early_exits += not process.ready
        if self._early_exits >= self._max_early_exits:
            raise self._error(f'worker processes exit before they are ready ({reason})')
        return reason

    def replace_ended(self, process: ManagedProcess) -> str:
        """Start a new process in the place of one that has ended, and return how that ended; see `remove_ended`."""
        reason = self.remove_ended(process)
        self.start()
        return reason

    def close(self) -> None:
        """End all processes."""
        for process in self.processes:
            process.request_exit()
        # processes that do not exit are waited for in parallel
        with futures.ThreadPoolExecutor(max(len(self.processes), 1)) as threads:
            list(threads.map(lambda process: process.end(), self.processes))
