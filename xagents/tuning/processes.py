"""The parent's side of the workers: their processes, and what they answer. The worker's side is `worker.py`."""

from __future__ import annotations

import dataclasses
import json
import os
import queue
import tempfile
from typing import IO, Any

from xagents.system.child_process import ChildProcess, Said, last_line
from xagents.tuning.member import Task
from xagents.tuning.worker import Job

SECONDS_TO_END = 2.0
# a worker keeps some 30 MB of what TensorFlow compiled for each trial
JOBS_OF_A_WORKER = 50
# so many workers that die in a row before they are ready end the call
STILLBORN = 5
Message = dict[str, Any]


class TuningError(RuntimeError):
    """A study that cannot go on, or has nothing to show."""


class WorkerProcess(ChildProcess):
    """A process that runs one trial after another; it ends when this one does.

    If it is silent, what it prints is kept, and the last line told if it dies. `threads` are TensorFlow's.
    """

    def __init__(self, answers: Said, threads: int | None, silent: bool):
        self.job: Job | Task | None = None
        self.done = 0
        self.ready = False
        self._printed: IO[bytes] | None = tempfile.TemporaryFile() if silent else None  # noqa: SIM115
        self._printed_before = 0
        super().__init__(['xagents.tuning.worker'], answers, SECONDS_TO_END, self._printed)
        self.send({'threads': threads})

    def send(self, message: Message) -> None:
        """Send a message; if it is dead, its answers show it."""
        self.write(json.dumps(message))

    def start(self, kind: str, job: Job | Task) -> None:
        """Give it a job: to run a trial, to check its settings, or to train a member of a population."""
        self.job = job
        self._printed_before = os.fstat(self._printed.fileno()).st_size if self._printed else 0
        self.send({'kind': kind, **dataclasses.asdict(job)})

    def why_it_died(self) -> str:
        """Return how a dead process ended, and the last line that it printed in its present job."""
        last = [] if self._printed is None else last_line(self._printed, self._printed_before)
        return ': '.join([f'its worker died ({self.how_it_ended})', *last])

    def end(self) -> None:
        """End the process, and forget what it printed."""
        super().end()
        if self._printed is not None:
            self._printed.close()


class Workers:
    """A pool of worker processes."""

    def __init__(self, count: int, threads: int | None, silent: bool):
        self._answers: Said = queue.Queue()
        self._arguments = (self._answers, threads, silent)
        self.stillborn = 0
        self.all = [WorkerProcess(*self._arguments) for _ in range(count)]

    @property
    def idle(self) -> list[WorkerProcess]:
        """Those that wait for a job."""
        return [worker for worker in self.all if worker.ready and worker.job is None]

    def receive(self, seconds: float) -> tuple[WorkerProcess, Message | None] | None:
        """Wait for the next answer of a worker: None if it has died. Without any for so long, return None alone.

        TuningError where a worker cannot work.
        """
        try:
            worker, line = self._answers.get(timeout=seconds)
            message = None if line is None else json.loads(line)
        except (queue.Empty, ValueError):  # a line may be cut off by death
            return None
        if worker not in self.all:  # it was replaced
            return None
        if message is not None and message['kind'] == 'broken':
            raise TuningError(message['reason'])
        if message is not None and message['kind'] == 'ready':
            worker.ready, self.stillborn = True, 0
        return worker, message

    def relieve(self, worker: WorkerProcess) -> None:
        """Take a job that is done off a worker; one that has done many is replaced."""
        worker.job = None
        worker.done += 1
        if worker.done >= JOBS_OF_A_WORKER:
            self.replace(worker)

    def replace(self, worker: WorkerProcess) -> None:
        """Start another worker in the place of one that is dead, or is to end."""
        self.stillborn += not worker.ready
        self.all[self.all.index(worker)] = WorkerProcess(*self._arguments)
        worker.end()

    def end(self) -> None:
        """End all of them."""
        for worker in self.all:
            worker.dismiss()
        for worker in self.all:
            worker.end()
