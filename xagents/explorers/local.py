"""Explorers on this machine: processes of this one, and a socket in a folder that only its user can enter."""

from __future__ import annotations

import contextlib
import queue
import shutil
import signal
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

from xagents.collecting.explorer import Explorer
from xagents.collecting.streams import Streams
from xagents.explorers.fleet import Event, ExplorerError, Fleet
from xagents.explorers.links import Server
from xagents.system.child_process import ChildProcess, last_line

SECONDS_TO_END = 2.0
# so many processes that end in a row before they have joined end the run
STILLBORN = 3
# one thread each: there are as many explorers as somebody wants to be busy
ONE_THREAD = {'OPENBLAS_NUM_THREADS': '1', 'OMP_NUM_THREADS': '1', 'MKL_NUM_THREADS': '1'}


class ExplorerProcess(ChildProcess):
    """The process of an explorer, whose last words are kept."""

    def __init__(self, address: str, largest: int, events: queue.SimpleQueue[Event]):
        self._printed: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115
        words = ['xagents.explorers.process', address, str(largest)]
        super().__init__(words, _Ends(self, events), SECONDS_TO_END, self._printed, **ONE_THREAD)

    def why_it_died(self) -> str:
        """Return how it ended, and the last line that it printed."""
        return ': '.join([self.how_it_ended, *last_line(self._printed)])

    def end(self) -> None:
        """Tell it to end, and kill it if it does not."""
        super().end()
        self._printed.close()


class _Ends:
    """Takes what a child process says, of which only its end is an event."""

    def __init__(self, process: ExplorerProcess, events: queue.SimpleQueue[Event]):
        self._process, self._events = process, events

    def put(self, said: tuple[Any, str | None], /) -> None:
        if said[1] is None:
            self._events.put(Event(self._process, None))


class LocalCrew:
    """As many processes as are asked for, always.

    Args:
        n_explorers: how many.
        address: that they dial.
        largest: bytes of a message.
        events: where their ends are told.
    """

    def __init__(self, n_explorers: int, address: str, largest: int, events: queue.SimpleQueue[Event]):
        self._make = lambda: ExplorerProcess(address, largest, events)
        self._stillborn = 0
        self._joined: set[Any] = set()
        self.processes: list[ExplorerProcess] = []
        try:
            for _ in range(n_explorers):
                self.processes.append(self._make())
        except BaseException:
            self.close()
            raise

    def joined(self, pid: Any) -> None:
        """Hear that an explorer has come."""
        self._stillborn = 0
        self._joined.add(pid)

    def give_up(self, pid: Any) -> None:
        """Kill an explorer that is silent; without a number those that have not come."""
        for process in self.processes:
            if process.pid == pid or (pid is None and process.pid not in self._joined):
                process.send_signal(signal.SIGKILL)

    def ended(self, source: Any) -> None:
        """Begin another process where one has ended."""
        if source not in self.processes:
            return
        self._stillborn += 1
        if self._stillborn >= STILLBORN * len(self.processes):
            raise ExplorerError(f'explorers end before they have begun ({source.why_it_died()})')
        self.processes[self.processes.index(source)] = self._make()
        source.end()

    def close(self) -> None:
        """End all processes."""
        for process in self.processes:
            process.dismiss()
        for process in self.processes:
            process.end()


@contextlib.contextmanager
def local_fleet(
    specification: Mapping[str, Any], n_envs: int, n_explorers: int, home: Explorer, streams: Streams, largest: int
) -> Iterator[Fleet]:
    """Make explorers on this machine, for as long as the context lasts.

    Args:
        specification: as for `Fleet`, like the next four.
        n_envs: N.
        n_explorers: how many.
        home: the environments of this process.
        streams: for the seeds of environments that are lost.
        largest: bytes of a message.
    """
    events: queue.SimpleQueue[Event] = queue.SimpleQueue()
    with contextlib.ExitStack() as stack:
        folder = Path(tempfile.mkdtemp(prefix='xagents-'))
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        address = f'unix:{folder / "explorers"}'
        server = Server(address, events, n_explorers, largest)
        stack.callback(server.close)
        crew = LocalCrew(n_explorers, address, largest, events)
        stack.callback(crew.close)
        fleet = Fleet(specification, n_envs, n_explorers, home, streams, events, crew)
        stack.callback(fleet.dismiss)
        yield fleet
