"""A Python process of ours: we write to it through a pipe, and what it prints arrives in a queue."""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import subprocess
import sys
import threading
from typing import IO, Any, Protocol

# how long its last lines may take to arrive after it has ended
SECONDS_TO_DRAIN = 2.0
OutputQueue = queue.Queue[tuple[Any, str | None]]
"""Lines of some children, each with the child that printed it; None instead of a line says that the child has ended."""


class OutputSink(Protocol):
    """Takes what children say; a queue does."""

    def put(self, output: tuple[Any, str | None], /) -> None:
        """Take a child, and a line of it or None."""


def last_line(printed: IO[bytes], since: int = 0) -> list[str]:
    """Return the last line of a file from a position on; none where there is none."""
    printed.seek(since)
    return printed.read()[-2000:].decode(errors='replace').strip().splitlines()[-1:]


class ChildProcess:
    """Runs a module in a session of its own, so that a Ctrl-C in the terminal reaches its parent alone.

    Args:
        arguments: the module, and its arguments.
        output: where its lines go, and None after the last one.
        seconds_to_end: how long `end` waits before it kills.
        stderr: as `subprocess.Popen` takes it.
        variables: environment variables to add.
    """

    def __init__(
        self,
        arguments: list[str],
        output: OutputSink,
        seconds_to_end: float,
        stderr: int | IO[Any] | None = None,
        **variables: str,
    ):
        self._seconds_to_end = seconds_to_end
        # what is imported here can be imported there, and nothing else
        importable = os.pathsep.join(path or os.getcwd() for path in sys.path)
        environment = {**os.environ, 'PYTHONPATH': importable, **variables}
        pipes: dict[str, Any] = {'stdin': subprocess.PIPE, 'stdout': subprocess.PIPE, 'stderr': stderr}
        text: dict[str, Any] = {'encoding': 'utf-8', 'errors': 'replace'}
        command = [sys.executable, '-P', '-m', *arguments]
        self._process = subprocess.Popen(command, env=environment, start_new_session=True, **pipes, **text)
        listener = threading.Thread(target=self._listen, args=(output,), daemon=True)
        listener.start()
        threading.Thread(target=self._await_end, args=(output, listener), daemon=True).start()

    def _listen(self, output: OutputSink) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            output.put((self, line.rstrip('\r\n')))

    def _await_end(self, output: OutputSink, listener: threading.Thread) -> None:
        self._process.wait()
        # processes that it has started may hold its output open, so the end of the output is not awaited
        listener.join(SECONDS_TO_DRAIN)
        output.put((self, None))

    @property
    def pid(self) -> int:
        """Its number."""
        return self._process.pid

    @property
    def code(self) -> int:
        """The exit code of a process that has ended; below 0 the number of the signal that killed it."""
        return self._process.wait()

    @property
    def exit_status(self) -> str:
        """The same in words, such as `SIGKILL` or `exit code 1`."""
        try:
            return signal.Signals(-self.code).name
        except ValueError:
            return f'exit code {self.code}'

    def write(self, line: str) -> None:
        """Write a line to its standard input; nothing happens where it has ended."""
        assert self._process.stdin is not None
        with contextlib.suppress(OSError, ValueError):
            self._process.stdin.write(line + '\n')
            self._process.stdin.flush()

    def send_signal(self, number: int) -> None:
        """Send it a signal; nothing happens where it has ended."""
        with contextlib.suppress(OSError):
            self._process.send_signal(number)

    def request_exit(self) -> None:
        """Close its standard input, which tells it to end."""
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()

    def end(self) -> None:
        """Tell it to end, and kill it if it does not."""
        self.request_exit()
        try:
            self._process.wait(self._seconds_to_end)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
