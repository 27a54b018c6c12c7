"""Measures CleanRL: runs the script of a checkout as it stands and reads the speed that it prints.

The script prints, after each update (DQN: every 100 steps), the mean speed since its start; the difference between two
such lines is the time between them, so that the updates of the warm-up do not count.
"""

from __future__ import annotations

import os
import re
import resource
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from benchmarks.workers.measure import Job, hold_to_one_core, peak_mb, report
from benchmarks.workers.settings import AnySettings, OffPolicySettings, Settings

PACKAGES = ('torch', 'jax', 'gymnasium', 'gym', 'envpool', 'numpy')
# steps between two lines of the DQN script
PRINTED = 100


@dataclass(frozen=True)
class Plan:
    """What to run, and where to read.

    Args:
        script: in the checkout's `cleanrl` folder.
        flags: its own.
        total: environment steps of the run.
        lines: speeds that it will print.
        first: steps and line (from 0) of the end of the warm-up.
        last: steps of the last line.
    """

    script: str
    flags: list[str]
    total: int
    lines: int
    first: tuple[int, int]
    last: int


def arguments(settings: Settings) -> list[str]:
    """The script's flags; its networks are fixed: 64-64 tanh, separate, or the Nature CNN."""
    values = {
        'env-id': 'Pong-v5' if settings.atari else settings.env,
        'num-envs': settings.n_envs,
        'num-steps': settings.n_steps,
        'update-epochs': settings.epochs,
        'num-minibatches': settings.minibatches,
        'gamma': settings.gamma,
        'gae-lambda': settings.lam,
        'learning-rate': settings.lr,
        'clip-coef': settings.clip,
        'ent-coef': settings.entropy_coef,
        'vf-coef': settings.value_coef,
        'max-grad-norm': settings.grad_norm,
        'seed': settings.seed,
    }
    flags = [text for name, value in values.items() for text in (f'--{name}', str(value))]
    normalise = '--norm-adv' if settings.normalize_advantage else '--no-norm-adv'
    return [*flags, normalise, '--no-anneal-lr', '--no-clip-vloss', '--no-cuda', '--no-track', '--no-capture-video']


def dqn_arguments(settings: OffPolicySettings) -> list[str]:
    """The DQN script's flags; its network is 120-84 relu, its loss squared, its gradients are not clipped."""
    if settings.algorithm != 'dqn' or settings.n_envs != 1 or settings.updates_per_call != 1:
        raise SystemExit(f'CleanRL: no script for {settings.algorithm} with more than one update a training')
    values = {
        'env-id': settings.env,
        'num-envs': settings.n_envs,
        'buffer-size': settings.buffer_size,
        'learning-starts': settings.learning_starts,
        'batch-size': settings.batch_size,
        'train-frequency': settings.train_frequency,
        'target-network-frequency': settings.target_sync_steps,
        'start-e': settings.epsilon,
        'end-e': settings.epsilon,
        'gamma': settings.gamma,
        'learning-rate': settings.lr,
        'seed': settings.seed,
    }
    flags = [text for name, value in values.items() for text in (f'--{name}', str(value))]
    return [*flags, '--no-track', '--no-capture-video']


def plan(settings: AnySettings, warmup: int, steps: int) -> Plan:
    """How to run a script so that a line stands at the end of the warm-up and one at the end."""
    if isinstance(settings, OffPolicySettings):
        flags = dqn_arguments(settings)
        start = settings.learning_starts // PRINTED
        warmup, last = -(-warmup // PRINTED), -(-(warmup + steps) // PRINTED)
        first = (warmup * PRINTED, warmup - start - 1)
        return Plan('dqn_jax.py', flags, last * PRINTED + 1, last - start, first, last * PRINTED)
    if settings.algorithm != 'ppo':
        raise SystemExit(f'CleanRL: no worker for {settings.algorithm}')
    size = settings.batch_size
    updates = -(-warmup // size), -(-steps // size)
    total = sum(updates) * size
    script = 'ppo_atari_envpool.py' if settings.atari else 'ppo.py'
    return Plan(script, arguments(settings), total, sum(updates), (updates[0] * size, updates[0] - 1), total)


def seconds_between(first: int, first_speed: int, last: int, last_speed: int) -> float:
    """Seconds between two steps, from the mean speeds since the start up to each."""
    return last / last_speed - first / first_speed


def main() -> None:
    """Do the job."""
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
