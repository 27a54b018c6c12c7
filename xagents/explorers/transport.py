"""Transport of messages by gRPC streams. A worker is connected as long as its stream exists.

On one machine, streams use a Unix socket in a folder that only the user can access. Large messages are files in this
folder. Between machines, streams use TLS with a pinned certificate and begin with a token.
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
import psutil

from xagents.explorers.assignments import Event
from xagents.explorers.frames import MAX_CHUNK_BYTES, NO_CHANNEL, Frame, FrameDecoder, FrameType, SendQueue, frames_of
from xagents.explorers.keys import ClusterKey, ExplorerCredentials
from xagents.explorers.messages import WireError

SERVICE, METHOD = 'xagents', 'explore'
# additional workers that may connect and wait in reserve
SPARE_CONNECTIONS = 64
# maximum number of workers that a machine connects with, and maximum number that it adds later
MAX_MACHINE_SIZE = 1024
# connections without a key: how many are accepted in addition to those of workers, and for how long
MAX_STRANGERS, SECONDS_FOR_STRANGERS = 64, 5.0
# maximum number of queued messages per worker: a worker never sends more before it gets an answer
MAX_PENDING_MESSAGES = 2
# messages of at least this size are written to files if there is a shared folder
FILE_THRESHOLD_BYTES = 2**18
TOKEN, MACHINE = 'xagents-token', 'xagents-machine'
# a peer that does not answer is disconnected after 8 s; connection attempts are at most 2 s apart
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


def _options(max_message_bytes: int = -1) -> list[tuple[str, int]]:
    max_receive_bytes = max_message_bytes + MAX_CHUNK_BYTES if max_message_bytes > 0 else -1
    lengths = [('grpc.max_send_message_length', -1), ('grpc.max_receive_message_length', max_receive_bytes)]
    return [*lengths, ('grpc.enable_http_proxy', 0), *KEEPALIVE_OPTIONS]


def _stranger_options(max_connections: int) -> list[tuple[str, int]]:
    """Return the options of a server that anyone can reach: it closes connections without a stream after seconds.

    Connections use at most half of the files that the process can open, so that the run can open its own.
    """
    milliseconds = int(1000 * SECONDS_FOR_STRANGERS)
    return [
        ('grpc.max_allowed_incoming_connections', min(max_connections, os.sysconf('SC_OPEN_MAX') // 2)),
        ('grpc.server_handshake_timeout_ms', milliseconds),
        ('grpc.max_connection_idle_ms', milliseconds),
    ]


class Channel:
    """The learner's side of the connection to one worker."""

    def __init__(self, stream: WorkerStream, number: int):
        self._stream, self._number = stream, number
        self.pid: Any = None
        self._capacity = threading.BoundedSemaphore(MAX_PENDING_MESSAGES)
        self._ended = False

    def send(self, message: bytes, broadcast: bytes | None = None) -> None:
        """Send a message after the shared `broadcast`; do nothing if the worker has disconnected."""
        if not self._ended:
            self._stream.outgoing.put(self._number, message, broadcast)

    def disconnect(self) -> None:
        """End the connection after the queued messages."""
        if not self._ended:
            self._stream.outgoing.put_frame(self._number, FrameType.END)
            self.end()
            if not self._stream.machine:
                self._stream.outgoing.end()

    def request_worker(self) -> bool:
        """Ask the machine of the worker for one more worker; return whether the machine supports that."""
        if self._stream.machine:
            self._stream.outgoing.put_frame(NO_CHANNEL, FrameType.REQUEST_WORKER)
        return self._stream.machine

    @property
    def has_extra_workers(self) -> bool:
        """Whether the machine of the worker runs more workers now than it connected with."""
        return self._stream.n_alive > self._stream.machine_size

    def acknowledge(self) -> None:
        """Mark a message as handled, so that the next one can be queued."""
        with contextlib.suppress(ValueError):
            self._capacity.release()

    def receive(self, data: bytes) -> None:
        """Queue a message as an event, as soon as fewer than MAX_PENDING_MESSAGES are queued."""
        while not self._ended:
            if self._capacity.acquire(timeout=1.0):
                with self._stream.lock:
                    if not self._ended:
                        self._stream.events.put(Event(self, data))
                return

    def end(self) -> None:
        """Put the final event of the worker into the queue, once."""
        with self._stream.lock:
            if not self._ended:
                self._ended = True
                self._stream.n_alive -= 1
                self._stream.events.put(Event(self, None))


class WorkerStream:
    """The learner's side of a gRPC stream, for one worker or for a machine.

    Args:
        events: the queue for events of the workers.
        machine_size: the number of workers that the machine connects with; 0 for a stream of a single worker.
        folder: the folder for files of large messages; None if files are not accepted.
    """

    def __init__(self, events: queue.SimpleQueue[Event], machine_size: int, folder: Path | None):
        self.events, self._folder, self.n_alive = events, folder, 0
        self.machine, self.machine_size = machine_size > 0, max(machine_size, 1)
        self._max_channels = machine_size + MAX_MACHINE_SIZE if self.machine else 1
        self.outgoing, self.lock = SendQueue(), threading.Lock()
        self._channels: dict[int, Channel] = {}

    def read(self, requests: Iterator[bytes]) -> None:
        """Handle the frames of the stream until it ends."""
        try:
            for data in requests:
                for frame in frames_of(data):
                    self._take(frame)
        except Exception:  # gRPC can raise any exception when a stream breaks, and peers can send any data
            pass
        for channel in self._channels.values():
            channel.end()
        self.outgoing.end()

    def _take(self, frame: Frame) -> None:
        number, frame_type, data = frame
        channel = self._channels.get(number)
        if channel is None:
            if len(self._channels) >= self._max_channels or frame_type is FrameType.END:
                raise WireError('the stream has too many channels, or ends one that does not exist')
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
            raise WireError('a frame has a type that only the learner sends')


class Server:
    """A gRPC server that accepts workers and reports their messages as events.

    Args:
        address: the address in the form of gRPC, such as `unix:/folder/socket`.
        events: the queue for events of the workers.
        n_explorers: the number of workers; SPARE_CONNECTIONS more can connect.
        max_message_bytes: the maximum size of a message in bytes.
        key: the key of the cluster; None for a Unix socket.
        folder: the folder for files of large messages; None if files are not accepted.

    Raises:
        OSError: If the server cannot listen at the address.
    """

    def __init__(
        self,
        address: str,
        events: queue.SimpleQueue[Event],
        n_explorers: int,
        max_message_bytes: int,
        key: ClusterKey | None = None,
        folder: Path | None = None,
    ):
        self._events, self._key, self._folder = events, key, folder
        self._streams: set[WorkerStream] = set()
        n_streams = n_explorers + SPARE_CONNECTIONS
        self._threads = futures.ThreadPoolExecutor(n_streams, 'explorers')
        options = [*_options(max_message_bytes), ('grpc.so_reuseport', 0)]
        if key is not None:
            options += _stranger_options(n_streams + MAX_STRANGERS)
        self._server = grpc.server(self._threads, options=options, maximum_concurrent_rpcs=n_streams)
        handler = grpc.stream_stream_rpc_method_handler(self._explore)
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, {METHOD: handler}),))
        try:
            if key is None:
                self.port = self._server.add_insecure_port(address)
            else:
                credentials = grpc.ssl_server_credentials([(key.private_key, key.certificate)])
                self.port = self._server.add_secure_port(address, credentials)
        except RuntimeError as error:
            self._threads.shutdown()
            raise OSError(f'cannot listen at {address}') from error
        self._server.start()

    def _explore(self, requests: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
        metadata = dict(context.invocation_metadata())
        token = '' if self._key is None else self._key.explorer_credentials.token
        if not hmac.compare_digest(str(metadata.get(TOKEN, '')).encode(), token.encode()):
            context.abort(grpc.StatusCode.UNAUTHENTICATED, 'wrong token')
        machine_size = str(metadata.get(MACHINE, '0'))
        if not (machine_size.isdecimal() and len(machine_size) < 9 and int(machine_size) <= MAX_MACHINE_SIZE):
            problem = f'got {machine_size[:9]} explorers, expected at most {MAX_MACHINE_SIZE} per machine'
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, problem)
        stream = WorkerStream(self._events, int(machine_size), self._folder)
        self._streams.add(stream)
        if not context.add_callback(functools.partial(self._on_stream_end, stream)):
            self._on_stream_end(stream)  # the stream has already ended
        threading.Thread(target=stream.read, args=(requests,), daemon=True).start()
        yield from stream.outgoing.stream()

    def n_strangers(self) -> int:
        """Return the number of TCP connections that have no stream of workers, or not yet."""
        ports = [connection.laddr[1] for connection in psutil.Process().net_connections('tcp') if connection.raddr]
        return max(ports.count(self.port) - len(self._streams), 0)

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
    """The worker's side of a stream; iterating over it yields the learner's frames.

    Args:
        address: the address of the learner.
        key: the credentials of the workers; None for a Unix socket.
        machine_size: the number of workers of this machine; 0 for a stream of a single worker.
        folder: the folder for files of large messages; None to send all messages over the stream.
    """

    def __init__(
        self, address: str, key: ExplorerCredentials | None = None, machine_size: int = 0, folder: Path | None = None
    ):
        self._folder, self._names = folder, itertools.count()
        options: list[Any] = _options()
        if key is None:
            self.channel = grpc.insecure_channel(address, options)
        else:
            # the certificate is pinned: it is valid for any address of the learner
            options += [('grpc.ssl_target_name_override', 'xagents'), ('grpc.default_authority', 'xagents')]
            self.channel = grpc.secure_channel(address, grpc.ssl_channel_credentials(key.certificate), options)
        metadata = [*([(TOKEN, key.token)] if key else []), *([(MACHINE, str(machine_size))] if machine_size else [])]
        self.outgoing = SendQueue()
        explore = self.channel.stream_stream(f'/{SERVICE}/{METHOD}')
        self._stream: Any = explore(self.outgoing.stream(), wait_for_ready=True, metadata=metadata)

    def send(self, message: bytes, channel: int = 0) -> None:
        """Send a message of a worker, large ones as a file if there is a shared folder."""
        if self._folder is None or len(message) < FILE_THRESHOLD_BYTES:
            self.outgoing.put(channel, message)
            return
        name = f'{os.getpid()}-{next(self._names)}'
        try:
            (self._folder / name).write_bytes(message)
        except OSError:  # no space left in the folder
            (self._folder / name).unlink(missing_ok=True)
            self.outgoing.put(channel, message)
        else:
            self.outgoing.put_frame(channel, FrameType.FILE, name.encode())

    def __iter__(self) -> Iterator[Frame]:
        """Yield the learner's frames until the learner ends the stream.

        Raises:
            grpc.RpcError: If the connection is lost.
        """
        repeats = FrameDecoder()
        for data in self._stream:
            yield from repeats.read(data)

    def peer_has_other_key(self) -> bool:
        """Return whether a process answers at the address, but does not have the key."""
        try:
            self.channel.unary_unary(f'/{SERVICE}/{METHOD}')(b'', timeout=5)
        except grpc.RpcError as error:
            return 'handshake' in str(error).lower()
        return True

    def close(self) -> None:
        """End the stream."""
        self.outgoing.end()
        self.channel.close()


def _read_file(folder: Path | None, name: bytes) -> Any:
    """Return the bytes of a file that a worker has written, memory-mapped, and remove the name of the file.

    Raises:
        WireError: If there is no such file.
    """
    text = name.decode('ascii', 'replace')
    if folder is None or not text.replace('-', '').isalnum():
        raise WireError('the name of a file is invalid')
    path = folder / text
    try:
        with path.open('rb') as file:
            path.unlink()
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except (OSError, ValueError) as error:
        raise WireError('a file of a message does not exist') from error
