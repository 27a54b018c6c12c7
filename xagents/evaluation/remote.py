"""The learner's side of the evaluation process. `process.py` contains the code of the process itself."""

from __future__ import annotations

import shutil
import tempfile
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

from xagents.collecting.policy_files import PolicyData, write_policy
from xagents.evaluation.process import ENVIRONMENTS_FILE, policy_paths
from xagents.processes.child_process import ONE_THREAD, ManagedProcess
from xagents.processes.process_pool import ProcessMessage, ProcessPool
from xagents.system.interruption import Interruption

# interval between two checks for an interruption of the run
POLL_SECONDS = 0.5
# number of consecutive crashes without a result that ends the run
MAX_DEATHS = 2
EvaluationRequest = tuple[dict[str, Any], PolicyData]


class EvaluationError(RuntimeError):
    """Evaluations in a separate process are impossible; one line."""


class EvaluationProcess:
    """A process that plays evaluations in order, and that is replaced if it crashes.

    A request fully determines its result, so a repeated request has the same result.

    Args:
        environments: the serialised factory of the environments, see `factory_to_bytes`.
        say: prints a line for the user.
    """

    def __init__(self, environments: bytes, say: Callable[[str], Any]):
        self._say = say
        self._folder = Path(tempfile.mkdtemp(prefix='xagents-'))
        self._requests: deque[EvaluationRequest] = deque()  # without an answer
        self._results: deque[dict[str, float]] = deque()
        self._n_requests = self._deaths = 0
        (self._folder / ENVIRONMENTS_FILE).write_bytes(environments)
        command = ['xagents.evaluation.process', str(self._folder)]
        self._pool = ProcessPool(command, 1, variables=ONE_THREAD)

    def submit(self, policy: PolicyData, episodes: int, seed: int) -> None:
        """Request an evaluation of a policy by greedy episodes."""
        self._n_requests += 1
        self._requests.append(({'number': self._n_requests, 'episodes': episodes, 'seed': seed}, policy))
        self._send(self._requests[-1])

    def _send(self, request: EvaluationRequest) -> None:
        fields, policy = request
        write_policy(policy, *policy_paths(self._folder, fields['number']))
        (process,) = self._pool.processes
        process.send(kind='evaluate', **fields)

    def take_result(self, on_wait: Callable[[], Any] = Interruption.check) -> dict[str, float]:
        """Return the result of the oldest pending evaluation; wait if the result is late.

        `on_wait` is called regularly while waiting, and may raise to stop waiting.

        Raises:
            EvaluationError: if the evaluation fails.
            Interrupted: by the default `on_wait`, if the run is interrupted.
        """
        while not self._results:
            if (received := self._pool.receive(POLL_SECONDS)) is not None:
                self._handle_message(*received)
            on_wait()
        return self._results.popleft()

    def _handle_message(self, process: ManagedProcess, message: ProcessMessage | None) -> None:
        """Handle a message of the process."""
        if message is None:
            self._replace(process)
        elif message['kind'] == 'say':
            self._say(message['line'])
        elif message['kind'] == 'failed':
            raise EvaluationError(f'eval_async: an evaluation failed: {message["reason"]}')
        elif message['kind'] == 'done':
            self._results.append(message['result'])
            self._requests.popleft()
            self._deaths = 0

    def _replace(self, process: ManagedProcess) -> None:
        """Replace a crashed process and send the same requests to the new one."""
        how, self._deaths = self._pool.replace_ended(process), self._deaths + 1
        if self._deaths == MAX_DEATHS:
            problem = f'the process of the evaluations died {MAX_DEATHS} times in a row ({how})'
            raise EvaluationError(f'eval_async: {problem}')
        self._say(f'The process of the evaluations died ({how}): another one plays them again')
        for request in self._requests:
            self._send(request)

    def close(self) -> None:
        """End the process and drop the evaluation that it is playing."""
        self._pool.close()
        shutil.rmtree(self._folder, ignore_errors=True)
