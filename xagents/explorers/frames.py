"""Frames: several workers share one stream, and a broadcast is sent over it once.

A frame consists of the number of a channel (4 bytes), the type (1 byte), the length of the data (4 bytes), all
little-endian, and the data. Each channel belongs to one worker. A stream of a single worker uses channel 0.
"""

from __future__ import annotations

import enum
import queue
import struct
from collections.abc import Iterator
from typing import NamedTuple

from xagents.explorers.messages import WireError

_FRAME_HEADER = struct.Struct('<IBI')
# queued frames are joined until a chunk has this size
MAX_CHUNK_BYTES = 2**20
NO_CHANNEL = 2**32 - 1


class FrameType(enum.IntEnum):
    """The type of a frame."""

    MESSAGE = 0  # a message for a channel
    SHARED = 1  # a broadcast for a channel, which the receiver stores
    REPEAT = 2  # the stored broadcast, for another channel
    END = 3  # the end of a channel
    REQUEST_WORKER = 4  # a request for one more worker
    FILE = 5  # a message in a file of the shared folder; the data is the name of the file


class Frame(NamedTuple):
    """A frame of a stream."""

    channel: int
    frame_type: FrameType
    data: bytes = b''

    def packed(self) -> bytes:
        """Return the frame as bytes."""
        return _FRAME_HEADER.pack(self.channel, self.frame_type, len(self.data)) + self.data


def frames_of(data: bytes) -> Iterator[Frame]:
    """Yield the frames in `data`.

    Raises:
        WireError: If `data` is not a sequence of frames.
    """
    at = 0
    while at < len(data):
        try:
            channel, frame_type, length = _FRAME_HEADER.unpack_from(data, at)
            found = FrameType(frame_type)
        except (struct.error, ValueError) as error:
            raise WireError('the header of a frame is invalid') from error
        at += _FRAME_HEADER.size
        if length > len(data) - at:
            raise WireError(f'a frame of {length} bytes is longer than the received data')
        yield Frame(channel, found, data[at : at + length])
        at += length


class FrameDecoder:
    """A decoder of frames that replaces repetitions by the stored broadcast."""

    def __init__(self) -> None:
        self._last_broadcast: bytes | None = None

    def read(self, data: bytes) -> Iterator[Frame]:
        """Yield frames of the types MESSAGE, END, REQUEST_WORKER and FILE.

        Raises:
            WireError: If `data` is not a sequence of frames, or repeats a broadcast before the first one.
        """
        for frame in frames_of(data):
            if frame.frame_type is FrameType.SHARED:
                self._last_broadcast = frame.data
                yield Frame(frame.channel, FrameType.MESSAGE, frame.data)
            elif frame.frame_type is FrameType.REPEAT:
                if self._last_broadcast is None:
                    raise WireError('a frame repeats a broadcast that was not sent')
                yield Frame(frame.channel, FrameType.MESSAGE, self._last_broadcast)
            else:
                yield frame


class SendQueue:
    """A queue of frames to send over a stream."""

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._last_sent_broadcast: bytes | None = None

    def put(self, channel: int, message: bytes, broadcast: bytes | None = None) -> None:
        """Send a message to a channel, after a broadcast.

        If the broadcast is the same object as the last one, only a REPEAT frame is sent for it.
        """
        first = b''
        if broadcast is not None and broadcast is self._last_sent_broadcast:
            first = Frame(channel, FrameType.REPEAT).packed()
        elif broadcast is not None:
            first, self._last_sent_broadcast = Frame(channel, FrameType.SHARED, broadcast).packed(), broadcast
        self._queue.put(first + Frame(channel, FrameType.MESSAGE, message).packed())

    def put_frame(self, channel: int, frame_type: FrameType, data: bytes = b'') -> None:
        """Send a frame of another type."""
        self._queue.put(Frame(channel, frame_type, data).packed())

    def end(self) -> None:
        """End the stream after the queued frames."""
        self._queue.put(None)

    def stream(self) -> Iterator[bytes]:
        """Yield the queued bytes until `end`, and join frames up to MAX_CHUNK_BYTES."""
        while (data := self._queue.get()) is not None:
            parts, size, ends = [data], len(data), False
            while size < MAX_CHUNK_BYTES and not self._queue.empty() and not ends:
                more = self._queue.get()
                ends = more is None
                parts, size = [*parts, more or b''], size + len(more or b'')
            yield b''.join(parts)
            if ends:
                return
