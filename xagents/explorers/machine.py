"""A machine of explorers: processes here, and one stream to the learner, which is told by it of each of them."""

from __future__ import annotations

import contextlib
import itertools
import queue
import threading
from typing import Any

import grpc

from xagents.explorers.frames import Frame, Kind
from xagents.explorers.keys import Pass
from xagents.explorers.links import Connection
from xagents.explorers.local import ExplorerProcess, LocalCrew, local_crew
from xagents.explorers.messages import WireError, pid_of, unpack

# explorers that a learner may ask for beside those that were typed
MOST_MORE = 256
# what is not another time
REFUSALS = (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.INVALID_ARGUMENT)


class LostError(Exception):
    """The learner was lost, or does not want this machine, which is final; one line."""

    def __init__(self, why: str, final: bool = False):
        super().__init__(why)
        self.final = final


class Machine:
    """Passes on what a learner and the explorers of this machine have to say to each other.

    Args:
        connection: to the learner.
        crew: brings the explorers.
        events: what explorers and their processes tell.
    """

    def __init__(self, connection: Connection, crew: LocalCrew, events: queue.SimpleQueue[Any]):
        self._connection, self._crew, self._events = connection, crew, events
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
                self._pass_down(data)
            elif isinstance(source, ExplorerProcess):
                self._crew.ended(source)
            else:
                self._pass_up(source, data)

    def _listen(self) -> None:
        """Put the learner's frames among the events, and then None, or that it was lost."""
        why: LostError | None
        try:
            for frame in self._connection:
                self._events.put((self._connection, frame))
            why = None
        except (grpc.RpcError, WireError, ValueError) as error:
            why = lost(error)
        self._events.put((self._connection, why))

    def _pass_down(self, frame: Frame) -> None:
        link = self._links.get(frame.channel)
        if frame.kind is Kind.MORE:
            if len(self._crew.processes) < self._crew.own + MOST_MORE:
                self._crew.add()
        elif link is None:
            return
        elif frame.kind is Kind.MESSAGE:
            link.send(frame.data)
        elif frame.kind is Kind.END:  # it may hang: another one comes in its place
            link.cut()
            self._crew.give_up(link)

    def _pass_up(self, link: Any, data: bytes | None) -> None:
        number = self._numbers.get(link)
        if data is None:
            if number is not None:
                del self._numbers[link], self._links[number]
                self._connection.outgoing.put_frame(number, Kind.END)
            return
        if number is None:
            number = self._numbers[link] = next(self._count)
            self._links[number] = link
            with contextlib.suppress(WireError):
                link.pid = pid_of(unpack(data))
            self._crew.joined(link)
        self._connection.send(bytes(data), number)
        link.taken()


def lost(error: BaseException) -> LostError:
    """Return how a connection was lost."""
    if not isinstance(error, grpc.Call):
        return LostError(str(error))
    code: Any = error.code()
    said = ' '.join(str(error.details()).split())[:200]
    return LostError(f'{code.name.lower().replace("_", " ")}: {said}', final=code in REFUSALS)


def explore_here(address: str, n_explorers: int, key: Pass, seconds: float) -> None:
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
        connection = Connection(address, key=key, own=n_explorers)
        try:
            _await(connection, address, seconds)
            events: queue.SimpleQueue[Any] = queue.SimpleQueue()
            with local_crew(n_explorers, events, most=n_explorers + MOST_MORE) as crew:
                Machine(connection, crew, events).explore()
            return
        except LostError as error:
            if error.final:
                raise
            print(f'The learner was lost ({error}); looking for it again for {seconds:.0f} s', flush=True)
        finally:
            connection.close()


def _await(connection: Connection, address: str, seconds: float) -> None:
    """Return once the learner answers; raises LostError, which is final, where it does not in so many seconds."""
    ready = grpc.channel_ready_future(connection.channel)
    try:
        ready.result(seconds)
    except grpc.FutureTimeoutError:
        ready.cancel()
        if connection.is_another():
            raise LostError(f'who answers at {address} has another key, or none', final=True) from None
        raise LostError(f'nobody answers at {address}, after {seconds:.0f} s', final=True) from None
