"""The process that evaluates beside a run: `python -m xagents.runs.evaluator_process FOLDER`. Loads no TensorFlow.

It reads an order a line from standard input, a JSON object, and answers in the same way on what was its standard
output. The folder holds what makes the environments, and the policies of the orders. It ends with its parent, whatever
ends that. The parent's side is `evaluator.py`.
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
from xagents.collecting.streams import Streams
from xagents.collecting.trained import Spaces, read_policy
from xagents.envs.face import Envs, made_of
from xagents.options.errors import told
from xagents.runs.evaluation import ENVIRONMENTS, measured
from xagents.system.answering import Orders, answering

# in the folder: what makes the environments
MAKER = 'environments'


class Player:
    """Plays what is ordered, in environments that are kept for the next order.

    Args:
        folder: of the orders.
        say: takes a line that must be seen.
    """

    def __init__(self, folder: Path, say: Callable[[str], Any]):
        self._folder, self._say = folder, say
        self._envs: dict[int, Envs] = {}

    def play(self, order: dict[str, Any]) -> dict[str, float]:
        """Return the result of an evaluation.

        Raises:
            Exception: whatever an environment raises.
        """
        files = files_of(self._folder, order['number'])
        policy = read_policy(*files)
        for path in files:
            path.unlink()
        envs = self._beside(min(order['episodes'], ENVIRONMENTS))
        if Spaces(envs.encoder.raw_space, envs.action_space) != policy.spaces:
            raise ValueError(f'{envs.id} made afresh has other spaces than those that are learned in')
        collector = Collector(envs, policy.acting, policy.statistics, Streams(0))
        return measured(collector, order['episodes'], order['seed'], say=self._say)

    def _beside(self, n_envs: int) -> Envs:
        if n_envs not in self._envs:
            self._envs[n_envs] = made_of((self._folder / MAKER).read_bytes(), n_envs)
        return self._envs[n_envs]


def files_of(folder: Path, number: int) -> tuple[Path, Path]:
    """Return the two files of an order's policy."""
    return folder / f'{number}.json', folder / f'{number}.npz'


def serve(answers: IO[str], orders: Orders, folder: Path) -> None:
    """Do what is ordered, one after the other; an error is told, and not the end."""

    def tell(**message: Any) -> None:
        print(json.dumps(message), file=answers, flush=True)

    player = Player(folder, lambda line: tell(said=line))
    while True:
        order = orders.get()
        try:
            tell(result=player.play(order))
        except Exception as error:  # whatever somebody's environment raises
            tell(error=told(error))


def main(folder: Path) -> None:
    """Do what the lines on standard input say, until they end."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the learner's to hear
    serve(*answering(functools.partial(shutil.rmtree, folder, ignore_errors=True)), folder)


if __name__ == '__main__':
    main(Path(sys.argv[1]))
