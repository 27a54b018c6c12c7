"""The wire: gRPC streams. A stream is a membership: whatever ends an explorer, or its machine, ends it.

On one machine they go through a Unix socket in a folder that only its user can enter; messages of many bytes lie in
files there. Between machines they go over TLS with a pinned certificate, and open with a token.
"""

from __future__ import annotations

import contextlib
import functools
import hmac
import itertools
import mmap
import os
import queue
import threading
from collections.abc import Iterator
from concurrent import futures
from pathlib import Path
from typing import Any

import grpc

from xagents.explorers.frames import MOST_JOINED, NOBODY, Frame, Kind, Outgoing, Repeats, frames_of
from xagents.explorers.keys import ClusterKey, Pass
from xagents.explorers.messages import WireError
from xagents.explorers.slots import Event

SERVICE, METHOD = 'xagents', 'explore'
# explorers beside those that are asked for, which wait to take a slot
SPARE = 64
# explorers that a machine may come with, and have begun for others
MOST_OF_A_MACHINE = 1024
# messages of one explorer that wait: it has never more to say before it is answered
MOST_WAITING = 2
# bytes from which on a message lies in a file where it can
LARGE = 2**18
TOKEN, MACHINE = 'xagents-token', 'xagents-machine'
# a peer that does not answer is gone after 8 s, and one that was not there is looked for every other second
ALIVE = [
    ('grpc.keepalive_time_ms', 5000),
    ('grpc.keepalive_timeout_ms', 3000),
    ('grpc.keepalive_permit_without_calls', 1),
    ('grpc.http2.max_pings_without_data', 0),
    ('grpc.http2.min_ping_interval_without_data_ms', 1000),
    ('grpc.http2.max_ping_strikes', 0),
    ('grpc.initial_reconnect_backoff_ms', 500),
    ('grpc.max_reconnect_backoff_ms', 2000),
]


def _as_it_is(data: bytes) -> bytes:
    return data


def _options(largest: int) -> list[tuple[str, int]]:
    most = largest + MOST_JOINED if largest > 0 else -1
    lengths = [('grpc.max_send_message_length', -1), ('grpc.max_receive_message_length', most)]
    return [*lengths, ('grpc.enable_http_proxy', 0), *ALIVE]


class Channel:
    """The learner's end of one explorer."""

    def __init__(self, stream: Stream, number: int):
        self._stream, self._number = stream, number
        self.pid: Any = None
        self._room = threading.BoundedSemaphore(MOST_WAITING)
        self._ended = False

    def send(self, message: bytes, share: bytes | None = None) -> None:
        """Send a message, after the `share` that others may get, too; nothing happens where the explorer is gone."""
        if not self._ended:
            self._stream.outgoing.put(self._number, message, share)

    def cut(self) -> None:
        """End the connection, after what was sent."""
        if not self._ended:
            self._stream.outgoing.put_frame(self._number, Kind.END)
            self.end()
            if not self._stream.machine:
                self._stream.outgoing.end()

    def ask_for_another(self) -> bool:
        """Ask the machine of the explorer for one more; returns whether it can."""
        if self._stream.machine:
            self._stream.outgoing.put_frame(NOBODY, Kind.MORE)
        return self._stream.machine

    @property
    def extra(self) -> bool:
        """Whether its machine has more explorers now than it came with."""
        return self._stream.living > self._stream.own

    def taken(self) -> None:
        """Hear that a message was dealt with: there is room for another one."""
        with contextlib.suppress(ValueError):
            self._room.release()

    def hear(self, data: bytes) -> None:
        """Tell of a message, once there is room."""
        while not self._ended:
            if self._room.acquire(timeout=1.0):
                with self._stream.lock:
                    if not self._ended:
                        self._stream.events.put(Event(self, data))
                return

    def end(self) -> None:
        """Have the last word, after which there is none."""
        with self._stream.lock:
            if not self._ended:
                self._ended = True
                self._stream.living -= 1
                self._stream.events.put(Event(self, None))


class Stream:
    """The learner's end of a gRPC stream, of one explorer or of a machine.

    Args:
        events: where what happens is put.
        own: with how many explorers a machine comes; 0 for an explorer alone.
        folder: where files of large messages lie; None where none may.
    """

    def __init__(self, events: queue.SimpleQueue[Event], own: int, folder: Path | None):
        self.events, self.machine, self.own, self._folder = events, own > 0, max(own, 1), folder
        self._most, self.living = own + MOST_OF_A_MACHINE if self.machine else 1, 0
        self.outgoing, self.lock = Outgoing(), threading.Lock()
        self._channels: dict[int, Channel] = {}

    def read(self, requests: Iterator[bytes]) -> None:
        """Take what comes, until it ends."""
        try:
            for data in requests:
                for frame in frames_of(data):
                    self._take(frame)
        except Exception:  # gRPC raises what it likes when a stream breaks; others send what they like
            pass
        for channel in self._channels.values():
            channel.end()
        self.outgoing.end()

    def _take(self, frame: Frame) -> None:
        number, kind, data = frame
        channel = self._channels.get(number)
        if channel is None:
            if len(self._channels) >= self._most or kind is Kind.END:
                raise WireError('nobody more is admitted')
            channel = self._channels[number] = Channel(self, number)
            with self.lock:
                self.living += 1
        if kind is Kind.END:
            self._channels.pop(number).end()
        elif kind is Kind.FILE:
            channel.hear(_read_file(self._folder, data))
        elif kind is Kind.MESSAGE:
            channel.hear(data)
        else:
            raise WireError('it asks for what it is to give')


class Server:
    """Takes explorers in, and tells of them by events.

    Args:
        address: as gRPC has it, such as `unix:/folder/socket`.
        events: where what happens is put.
        n_explorers: how many there may be, but for some more.
        largest: bytes of a message.
        key: of the cluster; None for a Unix socket.
        folder: where files of large messages lie; None where none may.

    Raises:
        OSError: where it cannot listen there.
    """

    def __init__(
        self,
        address: str,
        events: queue.SimpleQueue[Event],
        n_explorers: int,
        largest: int,
        key: ClusterKey | None = None,
        folder: Path | None = None,
    ):
        self._events, self._key, self._folder, self._most = events, key, folder, n_explorers + SPARE
        self._streams: set[Stream] = set()
        self._threads = futures.ThreadPoolExecutor(self._most, 'explorers')
        self._server = grpc.server(
            self._threads,
            options=[*_options(largest), ('grpc.so_reuseport', 0)],
            maximum_concurrent_rpcs=self._most,
        )
        handler = grpc.stream_stream_rpc_method_handler(self._explore, _as_it_is, _as_it_is)
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, {METHOD: handler}),))
        try:
            if key is None:
                self.port = self._server.add_insecure_port(address)
            else:
                credentials = grpc.ssl_server_credentials([(key.private, key.certificate)])
                self.port = self._server.add_secure_port(address, credentials)
        except RuntimeError as error:
            self._threads.shutdown()
            raise OSError(f'nothing can listen at {address}') from error
        self._server.start()

    def _explore(self, requests: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
        told = dict(context.invocation_metadata())
        token = '' if self._key is None else self._key.explorers_pass.token
        if not hmac.compare_digest(str(told.get(TOKEN, '')).encode(), token.encode()):
            context.abort(grpc.StatusCode.UNAUTHENTICATED, 'wrong token')
        own = str(told.get(MACHINE, '0'))
        if not (own.isdecimal() and len(own) < 9 and int(own) <= MOST_OF_A_MACHINE):
            said = f'it brings {own[:9]} explorers, {MOST_OF_A_MACHINE} are admitted'
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, said)
        stream = Stream(self._events, int(own), self._folder)
        self._streams.add(stream)
        if not context.add_callback(functools.partial(self._ended, stream)):
            self._ended(stream)  # it is over already
        threading.Thread(target=stream.read, args=(requests,), daemon=True).start()
        yield from stream.outgoing.stream()

    def _ended(self, stream: Stream) -> None:
        stream.outgoing.end()
        self._streams.discard(stream)

    def close(self) -> None:
        """End all streams."""
        stopped = self._server.stop(1.0)
        for stream in [*self._streams]:
            stream.outgoing.end()
        stopped.wait()
        self._threads.shutdown()


class Connection:
    """The other end of a stream: an iterator of the learner's frames.

    Args:
        address: of the learner.
        largest: bytes of a message; any where it is not known.
        key: what opens the cluster; None for a Unix socket.
        own: how many explorers of a machine are at this end; 0 for an explorer alone.
        folder: where files of large messages lie; None where none may.
    """

    def __init__(
        self,
        address: str,
        largest: int = -1,
        key: Pass | None = None,
        own: int = 0,
        folder: Path | None = None,
    ):
        self._folder, self._names = folder, itertools.count()
        options: list[Any] = _options(largest)
        if key is None:
            self.channel = grpc.insecure_channel(address, options)
        else:
            # pinned: it is this certificate, wherever it stands
            options += [('grpc.ssl_target_name_override', 'xagents'), ('grpc.default_authority', 'xagents')]
            self.channel = grpc.secure_channel(address, grpc.ssl_channel_credentials(key.certificate), options)
        told = [*([(TOKEN, key.token)] if key else []), *([(MACHINE, str(own))] if own else [])]
        self.outgoing = Outgoing()
        explore = self.channel.stream_stream(f'/{SERVICE}/{METHOD}', _as_it_is, _as_it_is)
        self._stream: Any = explore(self.outgoing.stream(), wait_for_ready=True, metadata=told)

    def send(self, message: bytes, channel: int = 0) -> None:
        """Send a message of an explorer."""
        if self._folder is None or len(message) < LARGE:
            self.outgoing.put(channel, message)
            return
        name = f'{os.getpid()}-{next(self._names)}'
        try:
            (self._folder / name).write_bytes(message)
        except OSError:  # no room there
            (self._folder / name).unlink(missing_ok=True)
            self.outgoing.put(channel, message)
        else:
            self.outgoing.put_frame(channel, Kind.FILE, name.encode())

    def __iter__(self) -> Iterator[Frame]:
        """Give the learner's frames; ends when it lets go, raises `grpc.RpcError` when it is lost."""
        repeats = Repeats()
        for data in self._stream:
            yield from repeats.read(data)

    def is_another(self) -> bool:
        """Return whether somebody is there who is not the one of the key."""
        try:
            self.channel.unary_unary(f'/{SERVICE}/{METHOD}', _as_it_is, _as_it_is)(b'', timeout=5)
        except grpc.RpcError as error:
            return 'handshake' in str(error).lower()
        return True

    def close(self) -> None:
        """End the stream."""
        self.outgoing.end()
        self.channel.close()


def _read_file(folder: Path | None, name: bytes) -> Any:
    """Return the bytes of a file that a child has written, which goes when nobody looks at them any more.

    Raises:
        WireError: where there is no such file.
    """
    text = name.decode('ascii', 'replace')
    if folder is None or not text.replace('-', '').isalnum():
        raise WireError('no file can lie there')
    path = folder / text
    try:
        with path.open('rb') as file:
            path.unlink()
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except (OSError, ValueError) as error:
        raise WireError('there is no such file') from error
