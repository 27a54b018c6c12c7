"""The process that evaluates while a run trains: `python -m xagents.evaluation.process FOLDER`. Loads no TensorFlow.

It reads requests from standard input and writes results to its original standard output, one JSON object a line. The
folder contains the factory of the environments and the policies of the requests. The process ends when its parent
ends, for any reason. The parent's side is `remote.py`.
"""

from __future__ import annotations

import functools
import json
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

from xagents.collecting.collector import Collector
from xagents.collecting.random_streams import RandomStreams
from xagents.collecting.trained_policy import EnvSpaces, read_policy
from xagents.envs.env_factory import envs_from_bytes
from xagents.envs.interface import Envs
from xagents.evaluation.playing import DEFAULT_N_ENVS, evaluate_collector
from xagents.options.errors import error_line
from xagents.system.answering import Orders, answering

# file of the folder: the factory of the environments
ENVIRONMENTS_FILE = 'environments'


class PolicyEvaluator:
    """An evaluator that plays requested episodes and reuses its environments for later requests.

    Args:
        folder: the folder of the requests.
        say: prints a line for the user.
    """

    def __init__(self, folder: Path, say: Callable[[str], Any]):
        self._folder, self._say = folder, say
        self._envs: dict[int, Envs] = {}

    def play(self, request: dict[str, Any]) -> dict[str, float]:
        """Return the result of an evaluation.

        Raises:
            Exception: any exception of an environment.
        """
        files = policy_paths(self._folder, request['number'])
        policy = read_policy(*files)
        for path in files:
            path.unlink()
        n_envs = min(request['episodes'], DEFAULT_N_ENVS)
        if n_envs not in self._envs:
            self._envs[n_envs] = envs_from_bytes((self._folder / ENVIRONMENTS_FILE).read_bytes(), n_envs)
        envs = self._envs[n_envs]
        if EnvSpaces(envs.encoder.raw_space, envs.action_space) != policy.spaces:
            raise ValueError(f'{envs.id} in the evaluation process has other spaces than the training environment')
        collector = Collector(envs, policy.acting_policy, policy.statistics, RandomStreams(0))
        return evaluate_collector(collector, request['episodes'], request['seed'], say=self._say)


def policy_paths(folder: Path, number: int) -> tuple[Path, Path]:
    """Return the two policy files of a request."""
    return folder / f'{number}.json', folder / f'{number}.npz'


def serve(answers: IO[str], requests: Orders, folder: Path) -> None:
    """Process requests one after the other; an error is sent back and does not end the process."""

    def send(**message: Any) -> None:
        print(json.dumps(message), file=answers, flush=True)

    evaluator = PolicyEvaluator(folder, lambda line: send(said=line))
    while True:
        request = requests.get()
        try:
            send(result=evaluator.play(request))
        except Exception as error:  # environments may raise anything
            send(error=error_line(error))


def main(folder: Path) -> None:
    """Process the requests on standard input until it is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the learner handles Ctrl-C
    serve(*answering(functools.partial(shutil.rmtree, folder, ignore_errors=True)), folder)


if __name__ == '__main__':
    main(Path(sys.argv[1]))
