"""The process that evaluates while a run trains: `python -m xagents.evaluation.process FOLDER`. Loads no TensorFlow.

It answers the requests of the learner; see `xagents.processes.serving`. The folder contains the factory of the
environments and the policies of the requests. `remote.py` is the side of the learner.
"""

from __future__ import annotations

import functools
import shutil
import signal
import sys
from pathlib import Path
from typing import Any

from xagents.collecting.collector import Collector
from xagents.collecting.random_streams import RandomStreams
from xagents.collecting.trained_policy import EnvSpaces, read_policy
from xagents.envs.env_factory import envs_from_bytes
from xagents.envs.interface import Envs
from xagents.evaluation.playing import DEFAULT_N_ENVS, evaluate_collector
from xagents.processes.serving import Parent, serve

# file of the folder: the factory of the environments
ENVIRONMENTS_FILE = 'environments'


class PolicyEvaluator:
    """An evaluator that plays requested episodes and reuses its environments for later requests.

    Args:
        folder: the folder of the requests.
    """

    def __init__(self, folder: Path):
        self._folder = folder
        self._envs: dict[int, Envs] = {}

    def __call__(self, parent: Parent, number: int, episodes: int, seed: int) -> dict[str, Any]:
        """Return the answer with the result of an evaluation.

        Raises:
            Exception: any exception of an environment.
        """
        files = policy_paths(self._folder, number)
        policy = read_policy(*files)
        for path in files:
            path.unlink()
        n_envs = min(episodes, DEFAULT_N_ENVS)
        if n_envs not in self._envs:
            self._envs[n_envs] = envs_from_bytes((self._folder / ENVIRONMENTS_FILE).read_bytes(), n_envs)
        envs = self._envs[n_envs]
        if EnvSpaces.of(envs) != policy.spaces:
            raise ValueError(f'{envs.id} in the evaluation process has other spaces than the training environment')
        collector = Collector.of_policy(envs, policy.acting_policy, policy.statistics, RandomStreams(0))

        def say(line: str) -> None:
            parent.send(kind='say', line=line)

        return {'kind': 'done', 'result': evaluate_collector(collector, episodes, seed, say=say)}


def policy_paths(folder: Path, number: int) -> tuple[Path, Path]:
    """Return the two policy files of a request."""
    return folder / f'{number}.json', folder / f'{number}.npz'


def main(folder: Path) -> None:
    """Answer the requests of the learner."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the learner handles Ctrl-C
    parent = Parent(at_end=functools.partial(shutil.rmtree, folder, ignore_errors=True))
    serve(parent, {'evaluate': PolicyEvaluator(folder)})


if __name__ == '__main__':
    main(Path(sys.argv[1]))
