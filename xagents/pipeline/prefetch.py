"""A stream that runs in a thread, one item ahead of its consumer."""

from __future__ import annotations

import threading
from collections.abc import Iterator

from xagents.pipeline.context import Context


class Prefetcher:
    """A stream that runs in a thread, one item ahead of its consumer; the thread starts at once."""

    def __init__(self, stream: Iterator[Context]):
        self._stream = stream
        self._permits, self._ready = threading.Semaphore(1), threading.Event()
        self._closing = False
        self._item: Context | None = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name='collector', daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while self._permits.acquire() and not self._closing:
            try:
                self._item = next(self._stream, None)
            except BaseException as error:  # `take` raises it in the thread of the consumer
                self._error = error
            self._ready.set()
            if self._item is None:
                return

    def peek(self) -> Context | None:
        """Wait for the item in flight and return it without removing it; None at the end of the stream."""
        self._ready.wait()
        return self._item

    def take(self) -> Context | None:
        """Return the next item, or None at the end of the stream; the thread is idle until `start_next`.

        Raises:
            BaseException: the error that the stream raised.
        """
        item = self.peek()
        if self._error is not None:
            raise self._error
        self._item = None
        return item

    def start_next(self) -> None:
        """Let the thread produce one more item."""
        self._ready.clear()
        self._permits.release()

    def close(self) -> None:
        """Wait for the item in flight, and end the thread.

        A Ctrl-C during the wait also waits, because objects that the thread still uses cannot be closed.
        """
        try:
            self.peek()
        finally:
            self._closing = True
            self._permits.release()
            self._thread.join()
