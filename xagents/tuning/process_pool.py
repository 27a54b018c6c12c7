"""The parent's side of the workers: their processes, and what they answer. The worker's side is `worker.py`."""

from __future__ import annotations

import dataclasses
import json
import os
import queue
import tempfile
from typing import IO, Any

from xagents.system.child_process import ChildProcess, OutputQueue, last_line
from xagents.tuning.member import MemberTask
from xagents.tuning.worker import TrialJob

SECONDS_TO_END = 2.0
# a worker keeps some 30 MB of what TensorFlow compiled for each trial
MAX_JOBS_PER_WORKER = 50
# so many workers that die in a row before they are ready end the call
MAX_EARLY_EXITS = 5
WorkerMessage = dict[str, Any]


class TuningError(RuntimeError):
    """A study that cannot go on, or has nothing to show."""


class WorkerProcess(ChildProcess):
    """A process that runs one trial after another; it ends when this one does.

    With `silent`, the output is captured, and its last line is reported if the process dies. `threads` are
    TensorFlow's.
    """

    def __init__(self, answers: OutputQueue, threads: int | None, silent: bool):
        self.job: TrialJob | MemberTask | None = None
        self.n_done = 0
        self.ready = False
        self._printed: IO[bytes] | None = tempfile.TemporaryFile() if silent else None  # noqa: SIM115
        self._printed_before = 0
        super().__init__(['xagents.tuning.worker'], answers, SECONDS_TO_END, self._printed)
        self.send({'threads': threads})

    def send(self, message: WorkerMessage) -> None:
        """Send a message; if it is dead, its answers show it."""
        self.write(json.dumps(message))

    def start(self, kind: str, job: TrialJob | MemberTask) -> None:
        """Give it a job: to run a trial, to check its settings, or to train a member of a population."""
        self.job = job
        self._printed_before = os.fstat(self._printed.fileno()).st_size if self._printed else 0
        self.send({'kind': kind, **dataclasses.asdict(job)})

    def exit_reason(self) -> str:
        """Return how a dead process ended, and the last line that it printed in its present job."""
        last = [] if self._printed is None else last_line(self._printed, self._printed_before)
        return ': '.join([f'its worker died ({self.exit_status})', *last])

    def end(self) -> None:
        """End the process, and forget what it printed."""
        super().end()
        if self._printed is not None:
            self._printed.close()


class ProcessPool:
    """A pool of worker processes."""

    def __init__(self, count: int, threads: int | None, silent: bool):
        self._answers: OutputQueue = queue.Queue()
        self._arguments = (self._answers, threads, silent)
        self.early_exits = 0
        self.processes = [WorkerProcess(*self._arguments) for _ in range(count)]

    @property
    def idle(self) -> list[WorkerProcess]:
        """Those that wait for a job."""
        return [worker for worker in self.processes if worker.ready and worker.job is None]

    def receive(self, seconds: float) -> tuple[WorkerProcess, WorkerMessage | None] | None:
        """Wait for the next answer of a worker: None if it has died. Without any for so long, return None alone.

        TuningError where a worker cannot work.
        """
        try:
            worker, line = self._answers.get(timeout=seconds)
            message = None if line is None else json.loads(line)
        except (queue.Empty, ValueError):  # a line may be cut off by death
            return None
        if worker not in self.processes:  # it was replaced
            return None
        if message is not None and message['kind'] == 'broken':
            raise TuningError(message['reason'])
        if message is not None and message['kind'] == 'ready':
            worker.ready, self.early_exits = True, 0
        return worker, message

    def finish_job(self, worker: WorkerProcess) -> None:
        """Take a job that is done off a worker; one that has done many is replaced."""
        worker.job = None
        worker.n_done += 1
        if worker.n_done >= MAX_JOBS_PER_WORKER:
            self.replace(worker)

    def replace(self, worker: WorkerProcess) -> None:
        """Start another worker in the place of one that is dead, or is to end."""
        self.early_exits += not worker.ready
        self.processes[self.processes.index(worker)] = WorkerProcess(*self._arguments)
        worker.end()

    def end(self) -> None:
        """End all of them."""
        for worker in self.processes:
            worker.request_exit()
        for worker in self.processes:
            worker.end()
