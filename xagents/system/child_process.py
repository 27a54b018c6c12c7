"""A Python child process with a pipe for its input and a queue for its output."""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import IO, Any

# seconds to wait for the last lines of a process that has ended
SECONDS_TO_DRAIN = 2.0
OutputQueue = queue.Queue[tuple[Any, str | None]]
"""Pairs of a child process and a line that it printed; None instead of a line means that the process has ended."""
OutputHandler = Callable[[tuple[Any, str | None]], Any]
"""A function that receives the items of an `OutputQueue`, such as its method `put`."""


def last_line(printed: IO[bytes], since: int = 0) -> list[str]:
    """Return a list with the last line of a file after the position `since`, or an empty list."""
    printed.seek(since)
    return printed.read()[-2000:].decode(errors='replace').strip().splitlines()[-1:]


class ChildProcess:
    """A Python module in a process with its own session, so that Ctrl-C in the terminal reaches only the parent.

    Args:
        arguments: the module and its arguments.
        output: the receiver of the lines of standard output, and of None after the last line.
        seconds_to_end: the time that `end` waits before it kills the process.
        stderr: standard error, as for `subprocess.Popen`.
        variables: additional environment variables.

    Attributes:
        pid: the process id.
    """

    def __init__(
        self,
        arguments: list[str],
        output: OutputHandler,
        seconds_to_end: float,
        stderr: int | IO[Any] | None = None,
        **variables: str,
    ):
        self._seconds_to_end = seconds_to_end
        # the child can import the same modules as this process, and no others
        importable = os.pathsep.join(path or os.getcwd() for path in sys.path)
        environment = {**os.environ, 'PYTHONPATH': importable, **variables}
        pipes: dict[str, Any] = {'stdin': subprocess.PIPE, 'stdout': subprocess.PIPE, 'stderr': stderr}
        text: dict[str, Any] = {'encoding': 'utf-8', 'errors': 'replace'}
        command = [sys.executable, '-P', '-m', *arguments]
        self._process = subprocess.Popen(command, env=environment, start_new_session=True, **pipes, **text)
        self.pid = self._process.pid
        listener = threading.Thread(target=self._listen, args=(output,), daemon=True)
        listener.start()
        threading.Thread(target=self._await_end, args=(output, listener), daemon=True).start()

    def _listen(self, output: OutputHandler) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            output((self, line.rstrip('\r\n')))

    def _await_end(self, output: OutputHandler, listener: threading.Thread) -> None:
        self._process.wait()
        # processes that the child started may keep its output open, so the wait for the last lines has a limit
        listener.join(SECONDS_TO_DRAIN)
        output((self, None))

    @property
    def code(self) -> int:
        """The exit code, after waiting for the end; -N if signal N killed the process."""
        return self._process.wait()

    @property
    def exit_status(self) -> str:
        """The exit code as text, such as `SIGKILL` or `exit code 1`."""
        try:
            return signal.Signals(-self.code).name
        except ValueError:
            return f'exit code {self.code}'

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
