"""The wire: a gRPC stream for each explorer. A stream is a membership: whatever ends an explorer ends it."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from concurrent import futures
from typing import Any

import grpc

from xagents.explorers.fleet import Event

SERVICE, METHOD = 'xagents', 'explore'
# explorers beside those that are asked for, which wait to take a slot
SPARE = 8


def _as_it_is(data: bytes) -> bytes:
    return data


def _limits(largest: int) -> list[tuple[str, int]]:
    return [('grpc.max_send_message_length', largest), ('grpc.max_receive_message_length', largest)]


class ServerLink:
    """The learner's end of a stream."""

    def __init__(self, context: grpc.ServicerContext):
        self._context = context
        self.pid: Any = None
        self._out: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()

    def send(self, data: bytes) -> None:
        """Send a message; nothing happens where the explorer is gone."""
        self._out.put(data)

    def cut(self) -> None:
        """End the connection, after what was sent."""
        self._out.put(None)

    def stream(self) -> Iterator[bytes]:
        """Give what is sent."""
        yield from iter(self._out.get, None)


class Server:
    """Takes explorers in, and tells of them by events.

    Args:
        address: as gRPC has it, such as `unix:/folder/socket`.
        events: where what happens is put.
        n_explorers: how many there may be, but for a few more.
        largest: bytes of a message.
    """

    def __init__(self, address: str, events: queue.SimpleQueue[Event], n_explorers: int, largest: int):
        self._events = events
        self._threads = futures.ThreadPoolExecutor(n_explorers + SPARE, 'explorers')
        self._server = grpc.server(
            self._threads,
            options=[*_limits(largest), ('grpc.so_reuseport', 0)],
            maximum_concurrent_rpcs=n_explorers + SPARE,
        )
        handler = grpc.stream_stream_rpc_method_handler(self._explore, _as_it_is, _as_it_is)
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, {METHOD: handler}),))
        self._server.add_insecure_port(address)
        self._server.start()

    def _explore(self, requests: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
        link = ServerLink(context)
        context.add_callback(link.cut)
        threading.Thread(target=self._read, args=(link, requests), daemon=True).start()
        yield from link.stream()

    def _read(self, link: ServerLink, requests: Iterator[bytes]) -> None:
        try:
            for data in requests:
                self._events.put(Event(link, data))
        except Exception:  # gRPC raises what it likes when a stream breaks
            pass
        self._events.put(Event(link, None))
        link.cut()

    def close(self) -> None:
        """End all streams."""
        self._server.stop(0.5).wait()
        self._threads.shutdown()


class Connection:
    """The explorer's end of a stream: an iterator of the learner's messages.

    Args:
        address: of the learner.
        largest: bytes of a message.
    """

    def __init__(self, address: str, largest: int):
        self._channel = grpc.insecure_channel(address, _limits(largest))
        self._out: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        explore = self._channel.stream_stream(f'/{SERVICE}/{METHOD}', _as_it_is, _as_it_is)
        self._stream: Any = explore(iter(self._out.get, None), wait_for_ready=True)

    def send(self, data: bytes) -> None:
        """Send a message."""
        self._out.put(data)

    def __iter__(self) -> Iterator[bytes]:
        """Give the learner's messages; ends when it lets go, raises `grpc.RpcError` when it is lost."""
        yield from self._stream

    def close(self) -> None:
        """End the stream."""
        self._out.put(None)
        self._channel.close()
