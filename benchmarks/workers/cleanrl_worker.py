"""Measure CleanRL: run the unchanged script of a checkout and read the speed that it prints.

The script prints the mean speed since its start after each update (DQN: every 100 steps). Two such lines give the time
between them, so that the updates of the warm-up do not count.
"""

import os
import re
import resource
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.workers.measure import Job, hold_to_one_core, peak_mb, report
from benchmarks.workers.settings import AnySettings, OffPolicySettings, Settings, translate

PACKAGES = ('torch', 'jax', 'gymnasium', 'gym', 'envpool', 'numpy')
# steps between two lines of the DQN script
PRINTED = 100


@dataclass(frozen=True)
class ScriptPlan:
    """A script and the lines to read.

    Args:
        script: file name in the folder `cleanrl` of the checkout.
        flags: of the script.
        total: environment steps of the run.
        lines: number of printed speeds.
        first: steps and line (from 0) of the end of the warm-up.
        last: steps of the last line.
    """

    script: str
    flags: list[str]
    total: int
    lines: int
    first: tuple[int, int]
    last: int


ON_POLICY = """num-envs=n_envs num-steps=n_steps update-epochs=epochs num-minibatches=minibatches gamma gae-lambda=lam
    learning-rate=lr clip-coef=clip ent-coef=entropy_coef vf-coef=value_coef max-grad-norm=grad_norm seed"""
PQN = """env-id=env num-envs=n_envs num-steps=n_steps update-epochs=epochs num-minibatches=minibatches gamma
    q-lambda=lam learning-rate=lr max-grad-norm=grad_norm start-e=epsilon end-e=epsilon seed"""
DQN = """env-id=env num-envs=n_envs buffer-size=buffer_size learning-starts=learning_starts batch-size=batch_size
    train-frequency=train_frequency target-network-frequency=target_sync_steps start-e=epsilon end-e=epsilon gamma
    learning-rate=lr seed"""


def flags_of(values: dict[str, Any]) -> list[str]:
    """Return values as flags, and flags that switch tracking off."""
    flags = [text for name, value in values.items() for text in (f'--{name}', str(value))]
    return [*flags, '--no-track', '--no-capture-video']


def arguments(settings: Settings) -> list[str]:
    """Return the flags of the script.

    The networks of PPO are fixed: 64-64 tanh, separate, or the Nature CNN. That of PQN is 120-84 relu with layer
    normalisation, and its optimiser is RAdam.
    """
    if settings.algorithm == 'pqn':
        return [*flags_of(translate(settings, PQN)), '--no-anneal-lr', '--no-cuda']
    values = {'env-id': 'Pong-v5' if settings.atari else settings.env, **translate(settings, ON_POLICY)}
    normalise = '--norm-adv' if settings.normalize_advantage else '--no-norm-adv'
    return [*flags_of(values), normalise, '--no-anneal-lr', '--no-clip-vloss', '--no-cuda']


def dqn_arguments(settings: OffPolicySettings) -> list[str]:
    """Return the flags of the DQN script: its network is 120-84 relu, its loss squared, gradients are not clipped."""
    if settings.algorithm != 'dqn' or settings.n_envs != 1 or settings.updates_per_call != 1:
        raise SystemExit(f'CleanRL: no script for {settings.algorithm} with more than one update at a time')
    return flags_of(translate(settings, DQN))


def plan(settings: AnySettings, warmup: int, steps: int) -> ScriptPlan:
    """Return a run that prints a line at the end of the warm-up and one at the end."""
    if isinstance(settings, OffPolicySettings):
        flags = dqn_arguments(settings)
        start = settings.learning_starts // PRINTED
        warmup, last = -(-warmup // PRINTED), -(-(warmup + steps) // PRINTED)
        first = (warmup * PRINTED, warmup - start - 1)
        return ScriptPlan('dqn_jax.py', flags, last * PRINTED + 1, last - start, first, last * PRINTED)
    if settings.algorithm not in ('ppo', 'pqn'):
        raise SystemExit(f'CleanRL: no worker for {settings.algorithm}')
    size = settings.batch_size
    updates = -(-warmup // size), -(-steps // size)
    total = sum(updates) * size
    script = 'ppo_atari_envpool.py' if settings.atari else f'{settings.algorithm}.py'
    return ScriptPlan(script, arguments(settings), total, sum(updates), (updates[0] * size, updates[0] - 1), total)


def seconds_between(first: int, first_speed: int, last: int, last_speed: int) -> float:
    """Return the seconds between two steps, from the mean speeds since the start."""
    return last / last_speed - first / first_speed


def main() -> None:
    """Run the job."""
    job = Job.from_command_line()
    if job.task != 'speed':
        raise SystemExit(f'CleanRL: no worker for {job.task}')
    hold_to_one_core(job.settings)
    todo = plan(job.settings, job.warmup, job.steps)
    script = Path(job.checkout) / 'cleanrl' / todo.script
    command = [sys.executable, str(script), *todo.flags, '--total-timesteps', str(todo.total)]
    threads = str(job.settings.threads or os.cpu_count() or 1)
    variables = {**os.environ, 'OMP_NUM_THREADS': threads, 'PYTHONPATH': job.checkout}
    done = subprocess.run(command, env=variables, capture_output=True, text=True)
    speeds = [int(speed) for speed in re.findall(r'^SPS: (\d+)', done.stdout, re.MULTILINE)]
    if done.returncode or len(speeds) != todo.lines:
        raise SystemExit(done.stderr.strip() or f'CleanRL: {len(speeds)} lines of {todo.lines}')
    first, line = todo.first
    seconds = seconds_between(first, speeds[line], todo.last, speeds[-1])
    memory = peak_mb(resource.RUSAGE_CHILDREN)
    report({'steps': todo.last - first, 'seconds': seconds, 'rss_mb': memory, 'peak_rss_mb': memory}, PACKAGES)


if __name__ == '__main__':
    main()
