"""Ctrl-C and SIGTERM: after the first signal the iteration finishes, a second signal stops the run immediately."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import ClassVar


class RunInterrupted(Exception):
    """The present work is cancelled because the run should end.

    Args:
        reason: why the run should end, a value of `Context.stop`.
    """

    def __init__(self, reason: str = 'interrupted'):
        super().__init__(reason)
        self.reason = reason


@contextlib.contextmanager
def handle_signals(handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Handle Ctrl-C and SIGTERM by a function inside a `with` block; outside the main thread, do nothing."""
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
    """End a command as the signal `number` does: exit code 143 after SIGTERM, KeyboardInterrupt after Ctrl-C."""
    if number == signal.SIGTERM:
        raise SystemExit(128 + signal.SIGTERM)
    raise KeyboardInterrupt('the last line was printed')


class Interruption:
    """The signals that a run has received; their handlers are installed only inside `guard`.

    Attributes:
        signal: the number of the first signal; None if there was none.
        second_signal: whether a second signal arrived.
    """

    _active: ClassVar[Interruption | None] = None

    def __init__(self) -> None:
        self.signal: int | None = None
        self.second_signal = False

    @classmethod
    @contextlib.contextmanager
    def guard(cls) -> Iterator[Interruption]:
        """Record signals inside a `with` block instead of ending the process.

        Inside another guard, yield the `Interruption` of the outer one. Outside the main thread, record nothing.
        """
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
        """Raise `RunInterrupted` if the run should end."""
        if cls.requested():
            raise RunInterrupted

    @classmethod
    def quit_requested(cls) -> bool:
        """Return whether a second signal arrived, after which the run saves nothing."""
        return cls._active is not None and cls._active.second_signal

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.signal is not None:
            self.second_signal = True
            raise KeyboardInterrupt
        self.signal = number

    def exit(self) -> None:
        """Call `exit_by_signal` if a signal arrived."""
        if self.signal is not None:
            exit_by_signal(self.signal)
