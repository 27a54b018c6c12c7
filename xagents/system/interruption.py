"""Ctrl-C and SIGTERM: the first one lets the iteration finish, a second one quits at once."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import ClassVar


class RunInterrupted(Exception):
    """What was going on is given up, because the run is to end."""


@contextlib.contextmanager
def handle_signals(handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Let a function handle Ctrl-C and SIGTERM. Only the main thread can: in another one this does nothing."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    previous = {number: signal.signal(number, handler) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, before in previous.items():
            signal.signal(number, before)


def exit_by_signal(number: int) -> None:
    """End a command in the way of the signal `number`: by KeyboardInterrupt, or exit code 143 after a SIGTERM."""
    if number == signal.SIGTERM:
        raise SystemExit(128 + signal.SIGTERM)
    raise KeyboardInterrupt('the last line is said')


class Interruption:
    """What was asked for by a signal; the handlers stand only inside `guard`."""

    _active: ClassVar[Interruption | None] = None

    def __init__(self) -> None:
        self.signal: int | None = None
        self.second_signal = False

    @classmethod
    @contextlib.contextmanager
    def guard(cls) -> Iterator[Interruption]:
        """Hold signals back; within another guard, share that one's. Other threads than the main one get none."""
        if cls._active is not None or threading.current_thread() is not threading.main_thread():
            yield cls._active or cls()
            return
        interruption = cls._active = cls()
        try:
            with handle_signals(interruption._handle):
                yield interruption
        finally:
            cls._active = None

    @classmethod
    def requested(cls) -> bool:
        """Return whether the run should end after this iteration."""
        return cls._active is not None and cls._active.signal is not None

    @classmethod
    def check(cls) -> None:
        """Raise `RunInterrupted` where the run should end."""
        if cls.requested():
            raise RunInterrupted

    @classmethod
    def quit_requested(cls) -> bool:
        """Return whether a second signal came: nothing more is to be saved."""
        return cls._active is not None and cls._active.second_signal

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.signal is not None:
            self.second_signal = True
            raise KeyboardInterrupt
        self.signal = number

    def exit(self) -> None:
        """End the command as `exit_by_signal` does, if a signal came."""
        if self.signal is not None:
            exit_by_signal(self.signal)
