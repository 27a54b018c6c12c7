"""A Python child process with a pipe for its input and a handler of its output."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import queue
import signal
import subprocess
import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import IO, Any

# seconds to wait for the last lines of a process that has ended
SECONDS_TO_DRAIN = 2.0
# longest message, and longest line of other output that is kept; longer lines are divided
MAX_MESSAGE_LENGTH = 2**20
MAX_LINE_LENGTH = 2000
# one thread per process: the number of processes sets the number of busy processors
ONE_THREAD = {'OPENBLAS_NUM_THREADS': '1', 'OMP_NUM_THREADS': '1', 'MKL_NUM_THREADS': '1'}
OutputQueue = queue.Queue[tuple[Any, str | None]]
"""Pairs of a process and a line that it printed; None instead of a line means that the process has ended."""
OutputHandler = Callable[[tuple[Any, str | None]], Any]
"""A function that receives the items of an `OutputQueue`, such as its method `put`."""


class ManagedProcess(ABC):
    """A process that receives lines and prints lines, on this or on another machine.

    Attributes:
        pid: the process id.
        job: the present job of the process; None if it has none.
        n_done: the number of finished jobs.
        ready: whether the process has answered since it was started.
        last_output: the last line that it printed in its present job, in addition to its messages.
    """

    pid: int
    job: Any = None
    n_done = 0
    ready = False
    last_output = ''

    @abstractmethod
    def write(self, line: str) -> None:
        """Write a line to the standard input of the process; do nothing if it has ended."""

    @abstractmethod
    def send_signal(self, number: int) -> None:
        """Send a signal to the process; do nothing if it has ended."""

    @abstractmethod
    def request_exit(self) -> None:
        """Close the standard input of the process, which requests its exit."""

    @abstractmethod
    def end(self) -> None:
        """Request the exit of the process, and kill it if it does not exit in time."""

    @property
    @abstractmethod
    def code(self) -> int:
        """The exit code, after waiting for the end; -N if signal N killed the process."""

    @property
    def exit_status(self) -> str:
        """The exit code as text, such as `SIGKILL` or `exit code 1`."""
        try:
            return signal.Signals(-self.code).name
        except ValueError:
            return f'exit code {self.code}'

    @property
    def exit_reason(self) -> str:
        """The exit code as text, and the last line that the process printed."""
        return ': '.join(filter(None, [self.exit_status, self.last_output]))

    def send(self, **message: Any) -> None:
        """Send a message as a JSON object on one line. If the process has ended, its pool reports that."""
        self.write(json.dumps(message))

    def start(self, kind: str, job: Any) -> None:
        """Start a job: send the fields of a dataclass to the handler for `kind` (see `serve`)."""
        self.job, self.last_output = job, ''
        self.send(kind=kind, **dataclasses.asdict(job))


class ChildProcess(ManagedProcess):
    """A Python module in a process with its own session, so that Ctrl-C in the terminal reaches only the parent.

    Args:
        arguments: the module and its arguments.
        output: the receiver of the lines of standard output, and of None after the last line.
        seconds_to_end: the time that `end` waits before it kills the process.
        stderr: standard error, as for `subprocess.Popen`. With a pipe, only its last line is kept.
        variables: additional environment variables.
    """

    def __init__(
        self,
        arguments: Sequence[str],
        output: OutputHandler,
        seconds_to_end: float,
        stderr: int | None = subprocess.PIPE,
        variables: Mapping[str, str] | None = None,
    ):
        self._seconds_to_end, self._keeps_lines = seconds_to_end, stderr == subprocess.STDOUT
        # the child can import the same modules as this process, and no others
        environment = {**os.environ, 'PYTHONPATH': importable_paths(), **(variables or {})}
        pipes: dict[str, Any] = {'stdin': subprocess.PIPE, 'stdout': subprocess.PIPE, 'stderr': stderr}
        text: dict[str, Any] = {'encoding': 'utf-8', 'errors': 'replace'}
        command = [sys.executable, '-P', '-m', *arguments]
        self._process = subprocess.Popen(command, env=environment, start_new_session=True, **pipes, **text)
        self.pid = self._process.pid
        listeners = [threading.Thread(target=self._listen, args=(output,), daemon=True)]
        if self._process.stderr is not None:
            listeners.append(threading.Thread(target=self._keep_last, args=(self._process.stderr,), daemon=True))
        for listener in listeners:
            listener.start()
        threading.Thread(target=self._await_end, args=(output, listeners), daemon=True).start()

    def _listen(self, output: OutputHandler) -> None:
        assert self._process.stdout is not None
        while line := self._process.stdout.readline(MAX_MESSAGE_LENGTH):
            if self._keeps_lines:
                self._keep(line)
            output((self, line.rstrip('\r\n')))

    def _keep_last(self, stream: IO[str]) -> None:
        while line := stream.readline(MAX_LINE_LENGTH):
            self._keep(line)

    def _keep(self, line: str) -> None:
        self.last_output = line.strip()[-MAX_LINE_LENGTH:] or self.last_output

    def _await_end(self, output: OutputHandler, listeners: list[threading.Thread]) -> None:
        self._process.wait()
        # processes that the child started may keep its output open, so the wait for the last lines has a limit
        for listener in listeners:
            listener.join(SECONDS_TO_DRAIN)
        output((self, None))

    @property
    def code(self) -> int:
        """The exit code, after waiting for the end; -N if signal N killed the process."""
        return self._process.wait()

    def write(self, line: str) -> None:
        """Write a line to the standard input of the process; do nothing if it has ended."""
        assert self._process.stdin is not None
        with contextlib.suppress(OSError, ValueError):
            self._process.stdin.write(line + '\n')
            self._process.stdin.flush()

    def send_signal(self, number: int) -> None:
        """Send a signal to the process; do nothing if it has ended."""
        with contextlib.suppress(OSError):
            self._process.send_signal(number)

    def kill_group(self) -> None:
        """Kill the process and all processes that it started."""
        with contextlib.suppress(OSError):
            os.killpg(self.pid, signal.SIGKILL)

    def request_exit(self) -> None:
        """Close the standard input of the process, which requests its exit."""
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()

    def end(self) -> None:
        """Request the exit of the process, and kill it after `seconds_to_end`."""
        self.request_exit()
        try:
            self._process.wait(self._seconds_to_end)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def importable_paths() -> str:
    """Return the value of PYTHONPATH with which a child process can import the modules of this process."""
    return os.pathsep.join(path or os.getcwd() for path in sys.path)
