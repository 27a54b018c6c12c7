"""Frames: several explorers share one stream, and a broadcast is sent over it once.

A frame is the number of a channel (4 bytes), what it is (1 byte), the length of its data (4 bytes), little-endian, and
the data. A channel is an explorer; a process that explores alone is channel 0 of its stream.
"""

from __future__ import annotations

import enum
import queue
import struct
from collections.abc import Iterator
from typing import NamedTuple

from xagents.explorers.messages import WireError

_FRAME_HEADER = struct.Struct('<IBI')
# what waits is joined up to here
MAX_CHUNK_BYTES = 2**20
NO_CHANNEL = 2**32 - 1


class FrameType(enum.IntEnum):
    """What a frame is."""

    MESSAGE = 0  # for a channel
    SHARED = 1  # for a channel, and to be kept
    REPEAT = 2  # what was kept, for another channel
    END = 3  # of a channel
    REQUEST_WORKER = 4  # one more explorer is asked for
    FILE = 5  # a message that lies in a file of the folder that both know, by the name of it


class Frame(NamedTuple):
    """One frame."""

    channel: int
    frame_type: FrameType
    data: bytes = b''

    def packed(self) -> bytes:
        """Return it as bytes."""
        return _FRAME_HEADER.pack(self.channel, self.frame_type, len(self.data)) + self.data


def frames_of(data: bytes) -> Iterator[Frame]:
    """Yield the frames that bytes hold.

    Raises:
        WireError: where they hold something else.
    """
    at = 0
    while at < len(data):
        try:
            channel, frame_type, length = _FRAME_HEADER.unpack_from(data, at)
            found = FrameType(frame_type)
        except (struct.error, ValueError) as error:
            raise WireError('it is no frame') from error
        at += _FRAME_HEADER.size
        if length > len(data) - at:
            raise WireError(f'a frame of {length} bytes is longer than what came')
        yield Frame(channel, found, data[at : at + length])
        at += length


class FrameDecoder:
    """Takes frames as they come, and gives what is repeated as it was."""

    def __init__(self) -> None:
        self._last_broadcast: bytes | None = None

    def read(self, data: bytes) -> Iterator[Frame]:
        """Yield frames, of the kinds MESSAGE, END, MORE and FILE.

        Raises:
            WireError: for bytes that hold something else, and a repetition of nothing.
        """
        for frame in frames_of(data):
            if frame.frame_type is FrameType.SHARED:
                self._last_broadcast = frame.data
                yield Frame(frame.channel, FrameType.MESSAGE, frame.data)
            elif frame.frame_type is FrameType.REPEAT:
                if self._last_broadcast is None:
                    raise WireError('nothing was there to repeat')
                yield Frame(frame.channel, FrameType.MESSAGE, self._last_broadcast)
            else:
                yield frame


class SendQueue:
    """Frames that wait for the stream."""

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._last_sent_broadcast: bytes | None = None

    def put(self, channel: int, message: bytes, broadcast: bytes | None = None) -> None:
        """Send a message to a channel, after a share; of one that was the last to be sent only that it is the same."""
        first = b''
        if broadcast is not None and broadcast is self._last_sent_broadcast:
            first = Frame(channel, FrameType.REPEAT).packed()
        elif broadcast is not None:
            first, self._last_sent_broadcast = Frame(channel, FrameType.SHARED, broadcast).packed(), broadcast
        self._queue.put(first + Frame(channel, FrameType.MESSAGE, message).packed())

    def put_frame(self, channel: int, frame_type: FrameType, data: bytes = b'') -> None:
        """Send another frame."""
        self._queue.put(Frame(channel, frame_type, data).packed())

    def end(self) -> None:
        """End the stream after what was sent."""
        self._queue.put(None)

    def stream(self) -> Iterator[bytes]:
        """Yield what is sent, that which waits at once."""
        while (data := self._queue.get()) is not None:
            parts, size, ends = [data], len(data), False
            while size < MAX_CHUNK_BYTES and not self._queue.empty() and not ends:
                more = self._queue.get()
                ends = more is None
                parts, size = [*parts, more or b''], size + len(more or b'')
            yield b''.join(parts)
            if ends:
                return
