"""The worker processes of `xagents tune` as their parent sees them."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import json
import os
import queue
import signal
import tempfile
import threading
from typing import IO, Any

from xagents.system.child_process import ChildProcess
from xagents.tuning.worker import Job

SECONDS_TO_END = 2.0
# what TensorFlow compiled for a trial stays in its memory, some 30 MB
JOBS_OF_A_WORKER = 50
Message = dict[str, Any]


class WorkerProcess(ChildProcess):
    """One process that runs trials; it ends with its parent.

    Args:
        number: of the worker.
        answers: where its answers go, with the worker; None stands for its end.
        threads: TensorFlow's threads in it.
        silent: keep what it prints, to be asked for if it dies.
    """

    def __init__(self, number: int, answers: queue.Queue, threads: int | None, silent: bool):
        self.number = number
        self.job: Job | None = None
        self.done = 0
        self._heard = 0
        self.ready = False
        self._said: IO[bytes] | None = tempfile.TemporaryFile() if silent else None  # noqa: SIM115
        super().__init__(['xagents.tuning.worker'], SECONDS_TO_END, self._said)
        self.send({'threads': threads})
        threading.Thread(target=self._listen, args=(answers,), daemon=True).start()

    def _listen(self, answers: queue.Queue) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            with contextlib.suppress(ValueError):  # of a line that death cut off
                answers.put((self, json.loads(line)))
        answers.put((self, None))

    def send(self, message: Message) -> None:
        """Tell it something; whether it still lives shows in its answers."""
        assert self._process.stdin is not None
        with contextlib.suppress(OSError, ValueError):  # it is dead, or was ended
            self._process.stdin.write(json.dumps(message) + '\n')
            self._process.stdin.flush()

    def start(self, kind: str, job: Job) -> None:
        """Give it a job, to run it as a trial or to check its settings."""
        self.job = job
        self._heard = os.fstat(self._said.fileno()).st_size if self._said else 0
        self.send({'kind': kind, **dataclasses.asdict(job)})

    def why_it_died(self) -> str:
        """Return how a dead process ended, and the last thing that it printed in its present job."""
        code = self._process.wait()
        cause = f'exit code {code}'
        if code < 0:
            with contextlib.suppress(ValueError):
                cause = signal.Signals(-code).name
        lines = []
        if self._said is not None:
            self._said.seek(self._heard)
            lines = self._said.read()[-2000:].decode(errors='replace').strip().splitlines()
        return f'its worker died ({cause})' + (f': {lines[-1]}' if lines else '')

    def end(self) -> None:
        """End the process, and forget what it printed."""
        super().end()
        if self._said is not None:
            self._said.close()


class Workers:
    """Some worker processes; one that dies is replaced.

    Args:
        count: how many.
        threads: TensorFlow's threads in each.
        silent: keep what they print.
    """

    def __init__(self, count: int, threads: int | None, silent: bool):
        self._answers: queue.Queue[tuple[WorkerProcess, Message | None]] = queue.Queue()
        self._numbers = itertools.count()
        self._arguments = (self._answers, threads, silent)
        self.stillborn = 0
        self.all = [self._new() for _ in range(count)]

    def _new(self) -> WorkerProcess:
        return WorkerProcess(next(self._numbers), *self._arguments)

    @property
    def idle(self) -> list[WorkerProcess]:
        """Those that wait for a job."""
        return [worker for worker in self.all if worker.ready and worker.job is None]

    def receive(self, seconds: float) -> tuple[WorkerProcess, Message | None] | None:
        """Return the next answer, None in its place where a worker died; nothing where none came for so long."""
        try:
            worker, message = self._answers.get(timeout=seconds)
        except queue.Empty:
            return None
        if worker not in self.all:  # it was replaced
            return None
        if message is not None and message['kind'] == 'ready':
            worker.ready, self.stillborn = True, 0
        return worker, message

    def relieve(self, worker: WorkerProcess) -> None:
        """Take the job off a worker that has done it; one that has done many makes room for a fresh one."""
        worker.job = None
        worker.done += 1
        if worker.done >= JOBS_OF_A_WORKER:
            self.replace(worker)

    def replace(self, dead: WorkerProcess) -> None:
        """Start another one in the place of one that is dead, or is to end."""
        self.stillborn += not dead.ready
        self.all[self.all.index(dead)] = self._new()
        dead.end()

    def end(self) -> None:
        """End all of them."""
        for worker in self.all:
            worker.dismiss()
        for worker in self.all:
            worker.end()
