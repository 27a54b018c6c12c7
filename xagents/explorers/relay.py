"""The explorers of one machine: local processes, and one stream that relays their messages to the learner."""

from __future__ import annotations

import contextlib
import itertools
import queue
import threading
from typing import Any

import grpc

from xagents.explorers.frames import Frame, FrameType
from xagents.explorers.keys import ExplorerCredentials
from xagents.explorers.local_launcher import ExplorerProcess, LocalLauncher, local_launcher
from xagents.explorers.messages import WireError, pid_of, unpack
from xagents.explorers.transport import Connection

# explorers that a learner may request in addition to those of the command
MAX_EXTRA_WORKERS = 256
# what is not another time
FINAL_STATUS_CODES = (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.INVALID_ARGUMENT)


class LearnerLostError(Exception):
    """The learner was lost, or does not want this machine, which is final; one line."""

    def __init__(self, why: str, final: bool = False):
        super().__init__(why)
        self.final = final


class ExplorerRelay:
    """Passes on what a learner and the explorers of this machine have to say to each other.

    Args:
        connection: to the learner.
        launcher: brings the explorers.
        events: what explorers and their processes tell.
    """

    def __init__(self, connection: Connection, launcher: LocalLauncher, events: queue.SimpleQueue[Any]):
        self._connection, self._launcher, self._events = connection, launcher, events
        self._numbers: dict[Any, int] = {}
        self._links: dict[int, Any] = {}
        self._count = itertools.count()

    def explore(self) -> None:
        """Go on until the learner lets go.

        Raises:
            LostError: where it is lost.
            ExplorerError: where processes end before they have begun.
        """
        threading.Thread(target=self._listen, daemon=True).start()
        while True:
            source, data = self._events.get()
            if source is self._connection:
                if not isinstance(data, Frame):
                    if data is not None:
                        raise data
                    return
                self._forward_to_explorer(data)
            elif isinstance(source, ExplorerProcess):
                self._launcher.on_exit(source)
            else:
                self._forward_to_learner(source, data)

    def _listen(self) -> None:
        """Put the learner's frames among the events, and then None, or that it was lost."""
        why: LearnerLostError | None
        try:
            for frame in self._connection:
                self._events.put((self._connection, frame))
            why = None
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
        elif frame.frame_type is FrameType.END:  # it may hang: another one comes in its place
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
    """Return how a connection was lost."""
    if not isinstance(error, grpc.Call):
        return LearnerLostError(str(error))
    code: Any = error.code()
    said = ' '.join(str(error.details()).split())[:200]
    return LearnerLostError(f'{code.name.lower().replace("_", " ")}: {said}', final=code in FINAL_STATUS_CODES)


def run_explorers(address: str, n_explorers: int, key: ExplorerCredentials, seconds: float) -> None:
    """Let explorers of this machine explore for a learner until it lets go; a lost one is looked for again.

    Args:
        address: of the learner.
        n_explorers: how many.
        key: what opens the cluster.
        seconds: for which the learner is looked for.

    Raises:
        LostError: where nobody answers there, or with another key.
        ExplorerError: where explorers end before they have begun.
    """
    while True:
        connection = Connection(address, key=key, machine_size=n_explorers)
        try:
            _wait_for_learner(connection, address, seconds)
            events: queue.SimpleQueue[Any] = queue.SimpleQueue()
            with local_launcher(n_explorers, events, most=n_explorers + MAX_EXTRA_WORKERS) as launcher:
                ExplorerRelay(connection, launcher, events).explore()
            return
        except LearnerLostError as error:
            if error.final:
                raise
            print(f'The learner was lost ({error}); looking for it again for {seconds:.0f} s', flush=True)
        finally:
            connection.close()


def _wait_for_learner(connection: Connection, address: str, seconds: float) -> None:
    """Return once the learner answers; raises LostError, which is final, where it does not in so many seconds."""
    ready = grpc.channel_ready_future(connection.channel)
    try:
        ready.result(seconds)
    except grpc.FutureTimeoutError:
        ready.cancel()
        if connection.peer_has_other_key():
            raise LearnerLostError(f'who answers at {address} has another key, or none', final=True) from None
        raise LearnerLostError(f'nobody answers at {address}, after {seconds:.0f} s', final=True) from None
