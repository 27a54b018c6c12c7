"""The pool of worker processes, in the parent process. `worker.py` is the code of a worker process."""

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
# the compiled programs of each trial take about 30 MB in a worker
MAX_JOBS_PER_WORKER = 50
# the call stops after this many consecutive workers have died before they were ready
MAX_EARLY_EXITS = 5
WorkerMessage = dict[str, Any]


class TuningError(RuntimeError):
    """A study that cannot continue, or that has no complete trial."""


class WorkerProcess(ChildProcess):
    """A child process that runs jobs one after another. It ends when the parent process ends.

    Args:
        answers: queue of the messages of all workers.
        threads: number of threads of TensorFlow.
        silent: capture the output; its last line is reported if the process dies.
    """

    def __init__(self, answers: OutputQueue, threads: int | None, silent: bool):
        self.job: TrialJob | MemberTask | None = None
        self.n_done = 0
        self.ready = False
        self._printed: IO[bytes] | None = tempfile.TemporaryFile() if silent else None  # noqa: SIM115
        self._printed_before = 0
        super().__init__(['xagents.tuning.worker'], answers.put, SECONDS_TO_END, self._printed)
        self.send({'threads': threads})

    def send(self, message: WorkerMessage) -> None:
        """Send a message. If the process is dead, `ProcessPool.receive` reports it."""
        self.write(json.dumps(message))

    def start(self, kind: str, job: TrialJob | MemberTask) -> None:
        """Start a job: run a trial, check the settings of a trial, or train a member of a population."""
        self.job = job
        self._printed_before = os.fstat(self._printed.fileno()).st_size if self._printed else 0
        self.send({'kind': kind, **dataclasses.asdict(job)})

    def exit_reason(self) -> str:
        """Return how a dead process ended, and the last line that it printed in its current job."""
        last = [] if self._printed is None else last_line(self._printed, self._printed_before)
        return ': '.join([f'its worker died ({self.exit_status})', *last])

    def end(self) -> None:
        """End the process, and delete its captured output."""
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
        """The workers that are ready and have no job."""
        return [worker for worker in self.processes if worker.ready and worker.job is None]

    def receive(self, seconds: float) -> tuple[WorkerProcess, WorkerMessage | None] | None:
        """Wait for the next message of a worker.

        Returns:
            The worker and its message, which is None if the worker has died; or None if there is no message within
            `seconds`.

        Raises:
            TuningError: if a worker cannot start or raises an unexpected error.
        """
        try:
            worker, line = self._answers.get(timeout=seconds)
            message = None if line is None else json.loads(line)
        except (queue.Empty, ValueError):  # the last line of a killed worker may be incomplete
            return None
        if worker not in self.processes:  # this worker was replaced
            return None
        if message is not None and message['kind'] == 'broken':
            raise TuningError(message['reason'])
        if message is not None and message['kind'] == 'ready':
            worker.ready, self.early_exits = True, 0
        return worker, message

    def finish_job(self, worker: WorkerProcess) -> None:
        """Mark the job of a worker as done. Replace the worker after `MAX_JOBS_PER_WORKER` jobs."""
        worker.job = None
        worker.n_done += 1
        if worker.n_done >= MAX_JOBS_PER_WORKER:
            self.replace(worker)

    def replace(self, worker: WorkerProcess) -> None:
        """End a worker, which may be dead, and start a new one in its place."""
        self.early_exits += not worker.ready
        self.processes[self.processes.index(worker)] = WorkerProcess(*self._arguments)
        worker.end()

    def replace_dead(self, worker: WorkerProcess) -> str:
        """Start a new worker in the place of a dead one, and return how the dead one ended.

        Raises:
            TuningError: if too many workers have died before they were ready.
        """
        reason = worker.exit_reason()
        self.replace(worker)
        if self.early_exits >= MAX_EARLY_EXITS:
            raise TuningError(reason)
        return reason

    def end(self) -> None:
        """End all workers."""
        for worker in self.processes:
            worker.request_exit()
        for worker in self.processes:
            worker.end()
