"""Ctrl-C and SIGTERM: the first one lets the iteration finish, a second one quits at once."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from typing import Any, ClassVar


class Interrupted(Exception):
    """What was going on is given up, because the run is to end."""


class Interruption:
    """What was asked for by a signal; the handlers stand only inside `guard`."""

    _present: ClassVar[Interruption | None] = None

    def __init__(self) -> None:
        self.signal: int | None = None
        self.twice = False

    @classmethod
    @contextlib.contextmanager
    def guard(cls) -> Iterator[Interruption]:
        """Hold signals back; within another guard, share that one's. Other threads than the main one get none."""
        if cls._present is not None or threading.current_thread() is not threading.main_thread():
            yield cls._present or cls()
            return
        interruption = cls._present = cls()
        previous = {number: signal.signal(number, interruption._handle) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield interruption
        finally:
            cls._present = None
            for number, handler in previous.items():
                signal.signal(number, handler)

    @classmethod
    def requested(cls) -> bool:
        """Return whether the run should end after this iteration."""
        return cls._present is not None and cls._present.signal is not None

    @classmethod
    def check(cls) -> None:
        """Give up what takes long.

        Raises:
            Interrupted: where the run should end.
        """
        if cls.requested():
            raise Interrupted

    @classmethod
    def abandoned(cls) -> bool:
        """Return whether a second signal came: nothing more is to be saved."""
        return cls._present is not None and cls._present.twice

    def _handle(self, number: int, frame: Any) -> None:
        if self.signal is not None:
            self.twice = True
            raise KeyboardInterrupt
        self.signal = number

    def exit(self) -> None:
        """End the process's work in the way of the signal that came, if one did.

        Raises:
            KeyboardInterrupt: after a Ctrl-C.
            SystemExit: with code 143, after a SIGTERM.
        """
        if self.signal == signal.SIGTERM:
            raise SystemExit(128 + signal.SIGTERM)
        if self.signal is not None:
            raise KeyboardInterrupt('the run has said so')
