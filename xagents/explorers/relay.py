"""The workers of one machine: local processes, and one stream that relays their messages to the learner."""

from __future__ import annotations

import contextlib
import itertools
import queue
import threading
from typing import Any

import grpc

from xagents.explorers.frames import Frame, FrameType
from xagents.explorers.keys import ExplorerCredentials
from xagents.explorers.local_launcher import LocalLauncher, local_launcher
from xagents.explorers.messages import WireError, pid_of, unpack
from xagents.explorers.transport import Connection
from xagents.processes.child_process import ManagedProcess

# workers that a learner may request in addition to those of the command
MAX_EXTRA_WORKERS = 256
# status codes after which another attempt cannot succeed
FINAL_STATUS_CODES = (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.INVALID_ARGUMENT)


class LearnerLostError(Exception):
    """The connection to the learner failed or was lost; if `final`, another attempt cannot succeed. One line."""

    def __init__(self, why: str, final: bool = False):
        super().__init__(why)
        self.final = final


class ExplorerRelay:
    """A relay of messages between the learner and the workers of this machine.

    Args:
        connection: the connection to the learner.
        launcher: the launcher of the workers.
        events: the queue for events of the workers and their processes.
    """

    def __init__(self, connection: Connection, launcher: LocalLauncher, events: queue.SimpleQueue[Any]):
        self._connection, self._launcher, self._events = connection, launcher, events
        self._numbers: dict[Any, int] = {}
        self._links: dict[int, Any] = {}
        self._count = itertools.count()

    def explore(self) -> None:
        """Relay messages until the learner ends the work.

        Raises:
            LearnerLostError: If the connection is lost.
            ExplorerError: If processes exit before they connect.
        """
        threading.Thread(target=self._listen, daemon=True).start()
        while True:
            source, data = self._events.get()
            if isinstance(data, Frame):
                self._forward_to_explorer(data)
            elif isinstance(data, LearnerLostError):
                raise data
            elif source is self._connection:  # the learner ended the work
                return
            elif isinstance(source, ManagedProcess):
                self._launcher.on_exit(source)
            else:
                self._forward_to_learner(source, data)

    def _listen(self) -> None:
        """Put the learner's frames into the queue of events, followed by None or by the error that ended the stream."""
        why: LearnerLostError | None = None
        try:
            for frame in self._connection:
                self._events.put((self._connection, frame))
        except (grpc.RpcError, WireError, ValueError) as error:
            why = learner_lost(error)
        self._events.put((self._connection, why))

    def _forward_to_explorer(self, frame: Frame) -> None:
        link = self._links.get(frame.channel)
        if frame.frame_type is FrameType.REQUEST_WORKER:
            if len(self._launcher.processes) < self._launcher.n_explorers + MAX_EXTRA_WORKERS:
                self._launcher.add()
        elif link is None:
            return
        elif frame.frame_type is FrameType.MESSAGE:
            link.send(frame.data)
        elif frame.frame_type is FrameType.END:  # the worker may hang: the launcher replaces it
            link.disconnect()
            self._launcher.terminate(link)

    def _forward_to_learner(self, link: Any, data: bytes | None) -> None:
        number = self._numbers.get(link)
        if data is None:
            if number is not None:
                del self._numbers[link], self._links[number]
                self._connection.outgoing.put_frame(number, FrameType.END)
            return
        if number is None:
            number = self._numbers[link] = next(self._count)
            self._links[number] = link
            with contextlib.suppress(WireError):
                link.pid = pid_of(unpack(data))
            self._launcher.on_connect(link)
        self._connection.send(bytes(data), number)
        link.acknowledge()


def learner_lost(error: BaseException) -> LearnerLostError:
    """Return the error of a lost connection as one line."""
    if not isinstance(error, grpc.Call):
        return LearnerLostError(str(error))
    code: Any = error.code()
    details = ' '.join(str(error.details()).split())[:200]
    return LearnerLostError(f'{code.name.lower().replace("_", " ")}: {details}', final=code in FINAL_STATUS_CODES)


def run_explorers(address: str, n_explorers: int, key: ExplorerCredentials, seconds: float) -> None:
    """Run workers on this machine until the learner ends the work; if the connection is lost, reconnect.

    Args:
        address: the address of the learner.
        n_explorers: the number of workers.
        key: the credentials of the workers.
        seconds: the time for which to try to connect.

    Raises:
        LearnerLostError: If the learner does not answer or has another key.
        ExplorerError: If workers exit before they connect.
    """
    while True:
        connection = Connection(address, key=key, machine_size=n_explorers)
        try:
            _wait_for_learner(connection, address, seconds)
            events: queue.SimpleQueue[Any] = queue.SimpleQueue()
            with local_launcher(n_explorers, events, max_explorers=n_explorers + MAX_EXTRA_WORKERS) as launcher:
                ExplorerRelay(connection, launcher, events).explore()
            return
        except LearnerLostError as error:
            if error.final:
                raise
            print(f'The learner was lost ({error}); trying to reconnect for {seconds:.0f} s', flush=True)
        finally:
            connection.close()


def _wait_for_learner(connection: Connection, address: str, seconds: float) -> None:
    """Wait until the learner answers.

    Raises:
        LearnerLostError: If the learner does not answer within `seconds`, or has another key; final.
    """
    ready = grpc.channel_ready_future(connection.channel)
    try:
        ready.result(seconds)
    except grpc.FutureTimeoutError:
        ready.cancel()
        other_key = f'the process at {address} has another key, or none'
        why = other_key if connection.peer_has_other_key() else f'got no answer from {address} within {seconds:.0f} s'
        raise LearnerLostError(why, final=True) from None
