"""Runs of `xagents train`, some of which are stopped early."""

import random
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.processes import Failed, Process, running
from benchmarks.venvs import XAGENTS

# together they use everything with a state: normalisers, noise, priorities, schedules, replay buffers, early stopping
PENDULUM: dict[str, Any] = {
    **{'env': 'Pendulum-v1', 'n_envs': 2, 'max_episode_steps': 100, 'buffer_initial_size': 500},
    **{'train_frequency': 8, 'net': [64, 64]},
}
SETTINGS: dict[str, dict[str, Any]] = {
    'a2c': {'env': 'CartPole-v1', 'n_envs': 16, 'normalize_reward': True, 'optimizer': 'rmsprop'},
    'acer': {'env': 'CartPole-v1', 'n_envs': 8, 'n_steps': 20, 'buffer_initial_size': 800, 'normalize_obs': True},
    'ddpg': {**PENDULUM, 'noise': 'ornstein-uhlenbeck', 'normalize_obs': True},
    'dqn': {
        **{'env': 'CartPole-v1', 'n_envs': 4, 'buffer_initial_size': 1_000, 'buffer_max_size': 5_000},
        **{'prioritized': True, 'train_frequency': 16, 'n_step': 3},
    },
    'ppo': {
        **{'env': 'CartPole-v1', 'n_envs': 16, 'n_steps': 64, 'normalize_obs': True, 'normalize_reward': True},
        **{'lr_schedule': 'linear', 'divergence_monitoring_steps': 1_000, 'early_stop_patience': 1_000_000},
    },
    'td3': PENDULUM,
    'trpo': {'env': 'MountainCarContinuous-v0', 'n_envs': 8, 'n_steps': 64, 'max_episode_steps': 100},
}


def train(agent_id: str, folder: Path, *words: Any, **options: Any) -> list[str]:
    """Return the command that starts a run in a folder with the agent's settings and frequent status lines."""
    from xagents.options.declaration import to_flags

    given = {**SETTINGS[agent_id], 'log_format': 'json', 'log_frequency': 1, **options}
    return [*XAGENTS, 'train', agent_id, *to_flags(given), '--run-dir', str(folder), *map(str, words)]


def resume(folder: Path, *words: Any) -> list[str]:
    """Return the command that resumes a run."""
    return [*XAGENTS, 'train', '--resume', str(folder), *map(str, words)]


def stopped_at(command: Sequence[str], folder: Path, steps: int, number: int, generator: random.Random) -> Process:
    """Run a command and send it a signal at a random time after so many steps. The command may end before.

    Raises:
        Failed: if the command ends otherwise.
    """
    with running(command, folder) as run:
        if run.wait_until(lambda: run.steps >= steps):
            time.sleep(generator.uniform(0, 0.5))  # status lines are half a second apart
        run.signal(number)
        code = run.wait()
        if code not in (0, -number, 128 + number):
            raise Failed(run.problem)
    return run
