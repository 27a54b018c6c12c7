"""Measures CleanRL: runs the script of a checkout as it stands and reads the speed that it prints.

The script prints, after each update, the mean speed since its start; the difference between two such lines is the time
between them, so that the updates of the warm-up do not count.
"""

from __future__ import annotations

import os
import re
import resource
import subprocess
import sys
from pathlib import Path

from benchmarks.cases import Settings
from benchmarks.workers.measure import Job, peak_mb, report

PACKAGES = ('torch', 'gymnasium', 'gym', 'envpool', 'numpy')


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


def seconds_after_warmup(speeds: list[int], batch_size: int, warmup_updates: int) -> float:
    """Seconds between the last update of the warm-up and the last of all, from the mean speeds after each update."""
    updates = len(speeds)
    return updates * batch_size / speeds[-1] - warmup_updates * batch_size / speeds[warmup_updates - 1]


def main() -> None:
    """Do the job."""
    job = Job.from_command_line()
    settings, batch_size = job.settings, job.settings.batch_size
    if job.task != 'speed' or settings.algorithm != 'ppo':
        raise SystemExit(f'CleanRL: no worker for {job.task} of {settings.algorithm}')
    warmup_updates, updates = -(-job.warmup // batch_size), -(-job.steps // batch_size)
    script = Path(job.checkout) / 'cleanrl' / ('ppo_atari_envpool.py' if settings.atari else 'ppo.py')
    total = (warmup_updates + updates) * batch_size
    command = [sys.executable, str(script), *arguments(settings), '--total-timesteps', str(total)]
    threads = str(settings.threads or os.cpu_count() or 1)
    done = subprocess.run(command, env={**os.environ, 'OMP_NUM_THREADS': threads}, capture_output=True, text=True)
    speeds = [int(speed) for speed in re.findall(r'^SPS: (\d+)', done.stdout, re.MULTILINE)]
    if done.returncode or len(speeds) != warmup_updates + updates:
        raise SystemExit(done.stderr.strip() or f'CleanRL: {len(speeds)} updates of {warmup_updates + updates}')
    seconds = seconds_after_warmup(speeds, batch_size, warmup_updates)
    memory = peak_mb(resource.RUSAGE_CHILDREN)
    report({'steps': updates * batch_size, 'seconds': seconds, 'rss_mb': memory, 'peak_rss_mb': memory}, PACKAGES)


if __name__ == '__main__':
    main()
