"""The learner's side of the process that evaluates beside a run. The process's own side is `evaluator_process.py`."""

from __future__ import annotations

import contextlib
import json
import queue
import shutil
import tempfile
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

from xagents.collecting.policy_files import PolicyData, write_policy
from xagents.explorers.local import ONE_THREAD
from xagents.runs.evaluator_process import MAKER, files_of
from xagents.system.child_process import ChildProcess, Said, last_line
from xagents.system.interruption import Interruption

SECONDS_TO_END = 2.0
# between two looks at whether the run is to end
LOOK_SECONDS = 0.5
# so many processes that die in a row, without a result between them, end the run
DEATHS = 2
Order = tuple[dict[str, Any], PolicyData]


class EvaluatorError(RuntimeError):
    """Evaluations cannot be played beside a run; one line."""


class Evaluator:
    """A process that plays evaluations, one after the other; another one takes the place of one that dies.

    What it is asked for is the whole cause of a result: played again, it is the same.

    Args:
        environments: what makes them, see `Envs.to_send`.
        say: takes a line that must be seen.
    """

    def __init__(self, environments: bytes, say: Callable[[str], Any]):
        self._say = say
        self._folder = Path(tempfile.mkdtemp(prefix='xagents-'))
        self._printed: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115
        self._heard: Said = queue.Queue()
        self._orders: deque[Order] = deque()  # without an answer
        self._results: deque[dict[str, float]] = deque()
        self._asked = self._deaths = 0
        (self._folder / MAKER).write_bytes(environments)
        self._process = self._begun()

    def _begun(self) -> ChildProcess:
        words = ['xagents.runs.evaluator_process', str(self._folder)]
        return ChildProcess(words, self._heard, SECONDS_TO_END, self._printed, **ONE_THREAD)

    def ask(self, policy: PolicyData, episodes: int, seed: int) -> None:
        """Ask for an evaluation of a policy: greedy episodes."""
        self._asked += 1
        self._orders.append(({'number': self._asked, 'episodes': episodes, 'seed': seed}, policy))
        self._send(self._orders[-1])

    def _send(self, order: Order) -> None:
        about, policy = order
        write_policy(policy, *files_of(self._folder, about['number']))
        self._process.write(json.dumps(about))

    def take(self, waits: Callable[[], Any] = Interruption.check) -> dict[str, float]:
        """Return the result of the oldest evaluation that was asked for and not taken, waiting where it is late.

        `waits` is called once in a while, and may end the waiting.

        Raises:
            EvaluatorError: where it cannot be played.
            Interrupted: where the run is to end, when nothing else is said.
        """
        while not self._results:
            with contextlib.suppress(queue.Empty):
                self._hear(*self._heard.get(timeout=LOOK_SECONDS))
            waits()
        return self._results.popleft()

    def _hear(self, process: Any, line: str | None) -> None:
        """Take what a process says."""
        if process is not self._process:
            return
        if line is None:
            self._replace()
            return
        try:
            message = json.loads(line)
        except ValueError:  # it died meanwhile
            return
        if 'said' in message:
            self._say(message['said'])
        elif 'error' in message:
            raise EvaluatorError(f'eval_async: an evaluation failed: {message["error"]}')
        else:
            self._results.append(message['result'])
            self._orders.popleft()
            self._deaths = 0

    def _replace(self) -> None:
        """Begin another process in the place of one that is dead, and give it the same orders."""
        how = ': '.join([self._process.how_it_ended, *last_line(self._printed)])
        self._process.end()
        self._deaths += 1
        if self._deaths == DEATHS:
            raise EvaluatorError(f'eval_async: the process of the evaluations died {DEATHS} times in a row ({how})')
        self._say(f'The process of the evaluations died ({how}): another one plays them again')
        self._process = self._begun()
        for order in self._orders:
            self._send(order)

    def close(self) -> None:
        """End the process; what it plays is given up."""
        self._process.end()
        self._printed.close()
        shutil.rmtree(self._folder, ignore_errors=True)
