"""A Python process of ours that is spoken to through pipes, and ends when nobody speaks to it any more."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from typing import IO, Any


class ChildProcess:
    """Runs a module in a session of its own, so that a Ctrl-C in the terminal is its parent's business.

    Args:
        words: the module, and its arguments.
        seconds_to_end: how long it may take to end by itself.
        stderr: as `subprocess.Popen` takes it.
        variables: of its environment, besides its parent's.
    """

    def __init__(self, words: list[str], seconds_to_end: float, stderr: int | IO[Any] | None, **variables: str):
        self._seconds_to_end = seconds_to_end
        # what is imported here can be imported there, and nothing else
        importable = os.pathsep.join(path or os.getcwd() for path in sys.path)
        self._process = subprocess.Popen(
            [sys.executable, '-P', '-m', *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            env={**os.environ, 'PYTHONPATH': importable, **variables},
            encoding='utf-8',
            errors='replace',
            start_new_session=True,
        )

    @property
    def pid(self) -> int:
        """The process's number."""
        return self._process.pid

    def dismiss(self) -> None:
        """Let it end by itself: it hears no more."""
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()

    def end(self) -> None:
        """End it, at once if it does not by itself."""
        self.dismiss()
        try:
            self._process.wait(self._seconds_to_end)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
