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

from xagents.explorers.assignments import Event
from xagents.explorers.frames import MAX_CHUNK_BYTES, NO_CHANNEL, Frame, FrameDecoder, FrameType, SendQueue, frames_of
from xagents.explorers.keys import ClusterKey, ExplorerCredentials
from xagents.explorers.messages import WireError

SERVICE, METHOD = 'xagents', 'explore'
# additional explorers, which wait for a free slot
SPARE_CONNECTIONS = 64
# explorers that a machine may come with, and have begun for others
MAX_MACHINE_SIZE = 1024
# messages of one explorer that wait: it has never more to say before it is answered
MAX_PENDING_MESSAGES = 2
# bytes from which on a message lies in a file where it can
FILE_THRESHOLD_BYTES = 2**18
TOKEN, MACHINE = 'xagents-token', 'xagents-machine'
# a peer that does not answer is gone after 8 s, and one that was not there is looked for every other second
KEEPALIVE_OPTIONS = [
    ('grpc.keepalive_time_ms', 5000),
    ('grpc.keepalive_timeout_ms', 3000),
    ('grpc.keepalive_permit_without_calls', 1),
    ('grpc.http2.max_pings_without_data', 0),
    ('grpc.http2.min_ping_interval_without_data_ms', 1000),
    ('grpc.http2.max_ping_strikes', 0),
    ('grpc.initial_reconnect_backoff_ms', 500),
    ('grpc.max_reconnect_backoff_ms', 2000),
]


def _identity(data: bytes) -> bytes:
    return data


def _options(largest: int) -> list[tuple[str, int]]:
    most = largest + MAX_CHUNK_BYTES if largest > 0 else -1
    lengths = [('grpc.max_send_message_length', -1), ('grpc.max_receive_message_length', most)]
    return [*lengths, ('grpc.enable_http_proxy', 0), *KEEPALIVE_OPTIONS]


class Channel:
    """The learner's end of one explorer."""

    def __init__(self, stream: WorkerStream, number: int):
        self._stream, self._number = stream, number
        self.pid: Any = None
        self._capacity = threading.BoundedSemaphore(MAX_PENDING_MESSAGES)
        self._ended = False

    def send(self, message: bytes, broadcast: bytes | None = None) -> None:
        """Send a message after the shared `broadcast`; do nothing if the explorer has disconnected."""
        if not self._ended:
            self._stream.outgoing.put(self._number, message, broadcast)

    def disconnect(self) -> None:
        """End the connection, after what was sent."""
        if not self._ended:
            self._stream.outgoing.put_frame(self._number, FrameType.END)
            self.end()
            if not self._stream.machine:
                self._stream.outgoing.end()

    def request_worker(self) -> bool:
        """Ask the machine of the explorer for one more; returns whether it can."""
        if self._stream.machine:
            self._stream.outgoing.put_frame(NO_CHANNEL, FrameType.REQUEST_WORKER)
        return self._stream.machine

    @property
    def has_extra_workers(self) -> bool:
        """Whether its machine has more explorers now than it came with."""
        return self._stream.n_alive > self._stream.machine_size

    def acknowledge(self) -> None:
        """Note that a message was handled, so that another one can be queued."""
        with contextlib.suppress(ValueError):
            self._capacity.release()

    def receive(self, data: bytes) -> None:
        """Pass a message on as soon as the queue has space."""
        while not self._ended:
            if self._capacity.acquire(timeout=1.0):
                with self._stream.lock:
                    if not self._ended:
                        self._stream.events.put(Event(self, data))
                return

    def end(self) -> None:
        """Have the last word, after which there is none."""
        with self._stream.lock:
            if not self._ended:
                self._ended = True
                self._stream.n_alive -= 1
                self._stream.events.put(Event(self, None))


class WorkerStream:
    """The learner's end of a gRPC stream, of one explorer or of a machine.

    Args:
        events: where what happens is put.
        machine_size: with how many explorers a machine comes; 0 for an explorer alone.
        folder: where files of large messages lie; None where none may.
    """

    def __init__(self, events: queue.SimpleQueue[Event], machine_size: int, folder: Path | None):
        self.events, self.machine, self.machine_size, self._folder = (
            events,
            machine_size > 0,
            max(machine_size, 1),
            folder,
        )
        self._most, self.n_alive = machine_size + MAX_MACHINE_SIZE if self.machine else 1, 0
        self.outgoing, self.lock = SendQueue(), threading.Lock()
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
        number, frame_type, data = frame
        channel = self._channels.get(number)
        if channel is None:
            if len(self._channels) >= self._most or frame_type is FrameType.END:
                raise WireError('nobody more is admitted')
            channel = self._channels[number] = Channel(self, number)
            with self.lock:
                self.n_alive += 1
        if frame_type is FrameType.END:
            self._channels.pop(number).end()
        elif frame_type is FrameType.FILE:
            channel.receive(_read_file(self._folder, data))
        elif frame_type is FrameType.MESSAGE:
            channel.receive(data)
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
        self._events, self._key, self._folder, self._most = events, key, folder, n_explorers + SPARE_CONNECTIONS
        self._streams: set[WorkerStream] = set()
        self._threads = futures.ThreadPoolExecutor(self._most, 'explorers')
        self._server = grpc.server(
            self._threads,
            options=[*_options(largest), ('grpc.so_reuseport', 0)],
            maximum_concurrent_rpcs=self._most,
        )
        handler = grpc.stream_stream_rpc_method_handler(self._explore, _identity, _identity)
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, {METHOD: handler}),))
        try:
            if key is None:
                self.port = self._server.add_insecure_port(address)
            else:
                credentials = grpc.ssl_server_credentials([(key.private_key, key.certificate)])
                self.port = self._server.add_secure_port(address, credentials)
        except RuntimeError as error:
            self._threads.shutdown()
            raise OSError(f'nothing can listen at {address}') from error
        self._server.start()

    def _explore(self, requests: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
        metadata = dict(context.invocation_metadata())
        token = '' if self._key is None else self._key.explorer_credentials.token
        if not hmac.compare_digest(str(metadata.get(TOKEN, '')).encode(), token.encode()):
            context.abort(grpc.StatusCode.UNAUTHENTICATED, 'wrong token')
        machine_size = str(metadata.get(MACHINE, '0'))
        if not (machine_size.isdecimal() and len(machine_size) < 9 and int(machine_size) <= MAX_MACHINE_SIZE):
            said = f'it brings {machine_size[:9]} explorers, {MAX_MACHINE_SIZE} are admitted'
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, said)
        stream = WorkerStream(self._events, int(machine_size), self._folder)
        self._streams.add(stream)
        if not context.add_callback(functools.partial(self._on_stream_end, stream)):
            self._on_stream_end(stream)  # it is over already
        threading.Thread(target=stream.read, args=(requests,), daemon=True).start()
        yield from stream.outgoing.stream()

    def _on_stream_end(self, stream: WorkerStream) -> None:
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
        machine_size: how many explorers of a machine are at this end; 0 for an explorer alone.
        folder: where files of large messages lie; None where none may.
    """

    def __init__(
        self,
        address: str,
        largest: int = -1,
        key: ExplorerCredentials | None = None,
        machine_size: int = 0,
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
        metadata = [*([(TOKEN, key.token)] if key else []), *([(MACHINE, str(machine_size))] if machine_size else [])]
        self.outgoing = SendQueue()
        explore = self.channel.stream_stream(f'/{SERVICE}/{METHOD}', _identity, _identity)
        self._stream: Any = explore(self.outgoing.stream(), wait_for_ready=True, metadata=metadata)

    def send(self, message: bytes, channel: int = 0) -> None:
        """Send a message of an explorer."""
        if self._folder is None or len(message) < FILE_THRESHOLD_BYTES:
            self.outgoing.put(channel, message)
            return
        name = f'{os.getpid()}-{next(self._names)}'
        try:
            (self._folder / name).write_bytes(message)
        except OSError:  # no space there
            (self._folder / name).unlink(missing_ok=True)
            self.outgoing.put(channel, message)
        else:
            self.outgoing.put_frame(channel, FrameType.FILE, name.encode())

    def __iter__(self) -> Iterator[Frame]:
        """Give the learner's frames; ends when it lets go, raises `grpc.RpcError` when it is lost."""
        repeats = FrameDecoder()
        for data in self._stream:
            yield from repeats.read(data)

    def peer_has_other_key(self) -> bool:
        """Return whether somebody is there who is not the one of the key."""
        try:
            self.channel.unary_unary(f'/{SERVICE}/{METHOD}', _identity, _identity)(b'', timeout=5)
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
