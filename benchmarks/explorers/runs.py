"""What the parts of the benchmark of explorers share: agents, how fast they are, and what they come to."""

from __future__ import annotations

import contextlib
import hashlib
import time
from collections.abc import Iterator, Mapping
from typing import Any

import psutil

import xagents

SLOW, STRAGGLER = 'benchmarks.envs.slow:Slow-v0', 'benchmarks.envs.slow:Straggler-v0'
PPO = {'n_envs': 16, 'n_steps': 128, 'vector': 'sync', 'quiet': True, 'net': [64, 64], 'activation': 'tanh'}
EXPLORER = 'xagents.explorers.process'


@contextlib.contextmanager
def agent_of(env: str, seed: int, **options: Any) -> Iterator[Any]:
    """Make PPO, and close it."""
    agent = xagents.make('ppo', env, seed=seed, **{**PPO, **options})
    try:
        yield agent
    finally:
        agent.close()


def pace(agent: Any, rollouts: int, skipped: int, **options: Any) -> dict[str, Any]:
    """Return environment steps a second, and of the oldest fragment its lag.

    Args:
        agent: with `n_envs` times `n_steps` to a rollout.
        rollouts: how many.
        skipped: so many of them are not timed: start-up and compiling.
        options: of `train_iter`.
    """
    marks, lags = [], [0.0]
    steps = rollouts * agent.envs.n_envs * agent.n_steps
    for log in agent.train_iter(max_steps=steps, **options):
        marks.append((time.perf_counter(), agent.steps))
        lags.append(log.get('explorers/most_lag', 0.0))
    (begun, before), (ended, after) = marks[skipped - 1], marks[-1]
    return {'rate': (after - before) / (ended - begun), 'most_lag': int(max(lags))}


def digest(agent: Any) -> str:
    """What a run has come to."""
    weights = [w.tobytes() for model in agent.output_models for w in model.get_weights()]
    return hashlib.sha256(b''.join(weights) + f'{agent.steps} {agent.games}'.encode()).hexdigest()[:12]


def explorers(root: int | None = None, recursive: bool = False) -> Iterator[psutil.Process]:
    """Yield the processes of explorers that a process has started: this one, where no number is given."""
    with contextlib.suppress(psutil.Error):
        for process in psutil.Process(root).children(recursive):
            with contextlib.suppress(psutil.Error):
                if EXPLORER in process.cmdline() and process.status() != psutil.STATUS_ZOMBIE:
                    yield process


def variables_of(process: psutil.Process) -> Mapping[str, str]:
    """Return the environment variables of a process; none where it is gone, or another user's."""
    with contextlib.suppress(psutil.Error):
        return process.environ()
    return {}
