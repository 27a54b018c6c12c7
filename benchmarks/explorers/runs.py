"""Agents, their speed and their explorers, for all parts of the benchmark of explorers."""

import contextlib
import hashlib
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import psutil

import xagents
from benchmarks.venvs import XAGENTS
from xagents.explorers.keys import make_key

SLOW, STRAGGLER = 'benchmarks.envs.slow:Slow-v0', 'benchmarks.envs.slow:Straggler-v0'
PPO = {'n_envs': 16, 'n_steps': 128, 'vector': 'sync', 'quiet': True, 'net': [64, 64], 'activation': 'tanh'}
EXPLORER = 'xagents.explorers.process'


@contextlib.contextmanager
def make_agent(env: str, seed: int, **options: Any) -> Iterator[Any]:
    """Make PPO, and close it at the end."""
    with contextlib.closing(xagents.make('ppo', env, seed=seed, **{**PPO, **options})) as agent:
        yield agent


def measure_rate(agent: Any, rollouts: int, skipped: int, **options: Any) -> dict[str, Any]:
    """Return environment steps per second, and the age of the oldest fragment in rollouts.

    Args:
        agent: with rollouts of `n_envs` times `n_steps`.
        rollouts: number of rollouts.
        skipped: number of first rollouts that are not timed, for start-up and compiling.
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
    """Return a digest of the weights and counters."""
    weights = [w.tobytes() for model in agent.output_models for w in model.get_weights()]
    return hashlib.sha256(b''.join(weights) + f'{agent.steps} {agent.games}'.encode()).hexdigest()[:12]


@contextlib.contextmanager
def explorer_machine(folder: Path, n_explorers: int) -> Iterator[dict[str, Any]]:
    """Run `xagents explore` on this machine; yield the options of the run that it connects to."""
    with socket.socket() as free:
        free.bind(('127.0.0.1', 0))
        address = f'127.0.0.1:{free.getsockname()[1]}'
    key = str(folder / 'key.pem')
    make_key(key)
    words = [*XAGENTS, 'explore', address, '--explorers', str(n_explorers), '--cluster-key', key]
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL)
    try:
        yield {'cluster': address, 'cluster_key': key}
        process.wait(30)
    finally:
        process.kill()
        process.wait()


def explorers(root: int | None = None, recursive: bool = False) -> Iterator[psutil.Process]:
    """Yield the explorers that a process has started; without `root`, those of this process."""
    with contextlib.suppress(psutil.Error):
        for process in psutil.Process(root).children(recursive):
            with contextlib.suppress(psutil.Error):
                if EXPLORER in process.cmdline() and process.status() != psutil.STATUS_ZOMBIE:
                    yield process


def variables_of(process: psutil.Process) -> Mapping[str, str]:
    """Return the environment variables of a process; empty if it has ended or is another user's."""
    with contextlib.suppress(psutil.Error):
        return process.environ()
    return {}
