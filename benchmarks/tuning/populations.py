"""What a population gives, and that kills change nothing: `python -m benchmarks.tuning.populations`."""

from __future__ import annotations

import argparse
import dataclasses
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import jobs as parts
from benchmarks import tables
from benchmarks.jobs import Log, Part
from benchmarks.speed.run import Failed
from benchmarks.venvs import REPOSITORY
from xagents.options.declaration import flags_of
from xagents.runs.populations import read_population

PACKAGES = ('xagents', 'tensorflow', 'keras', 'gymnasium', 'numpy')
EPISODES = 100
MEMBERS, STEPS = 8, 200_000
LUNAR = {
    **{'agent_id': 'ppo', 'env': 'LunarLander-v3', 'n_envs': 8, 'n_steps': 256, 'gamma': 0.999, 'lam': 0.98},
    **{'minibatch_size': 64, 'ppo_epochs': 4, 'entropy_coef': 0.01, 'lr': [1e-5, 1e-1]},
}
SMALL = {
    **{'n_envs': 4, 'n_steps': 16, 'net': [8], 'lr': [1e-5, 1e-1], 'seed': 3, 'population': 4},
    **{'exploit_steps': 400, 'trial_steps': 1600, 'exploit': 0.25, 'n_jobs': 2},
}


def greedy(folder: str, seed: int) -> float:
    """Return the mean of greedy episodes with the last weights of a run."""
    from xagents.factory.players import loaded

    player = loaded(Path(folder), 'last', {'seed': seed})
    assert player is not None
    mean = player.evaluate(episodes=EPISODES)['mean']
    player.close()
    return mean


def measure_lunar(folder: Path, options: argparse.Namespace, log: Log) -> dict[str, Any]:
    """Let populations evolve, and as many members train by themselves: nobody copies, settings are the first ones."""
    from xagents.tuning.evolve import evolve

    found: dict[str, Any] = {'repeats': []}
    steps = 4000 if options.quick else STEPS
    for seed in range(1, 1 + (1 if options.quick else options.repeats)):
        row: dict[str, Any] = {'seed': seed}
        for name, share in (('population', 0.2), ('alone', 0.0)):
            start = time.perf_counter()
            best = evolve(
                **LUNAR,
                population=MEMBERS,
                exploit=share,
                exploit_steps=steps // 8,
                trial_steps=steps,
                seed=seed,
                n_jobs=options.jobs,
                quiet=True,
                out=str(folder / f'{name}-{seed}'),
            )
            seconds = time.perf_counter() - start
            last = read_population(folder / f'{name}-{seed}').over[-1]
            rates = sorted(member.settings['lr'] for member in last)
            row[name] = {'mean': greedy(best, seed), 'seconds': seconds, 'rates': rates}
            log(f'seed {seed}, {name}: {row[name]}')
        found['repeats'].append(row)
    return found


def render_lunar(found: dict[str, Any]) -> str:
    """Return the best member of each population beside the best of as many runs."""
    rows = [
        [
            f'{row["seed"]}',
            *(f'{row[name]["mean"]:.1f}' for name in ('population', 'alone')),
            'yes' if row['population']['mean'] > row['alone']['mean'] else 'no',
            *(f'{row[name]["seconds"]:.0f}' for name in ('population', 'alone')),
        ]
        for row in found['repeats']
    ]
    heading = ['seed', 'best of the population', 'best of the runs', 'above', 'seconds', 'seconds of the runs']
    below = (
        f'Greedy means of {EPISODES} episodes, of the last weights of the member, or run, whose training ended best; '
        f'{MEMBERS} of {tables.number(STEPS)} steps each, learning rates from 1e-5 to 1e-1; the runs are those of a '
        'population in which nobody copies: the same seeds, and the same settings at the beginning.'
    )
    return tables.markdown(heading, rows, below)


def measure_kills(folder: Path, options: argparse.Namespace, log: Log) -> dict[str, Any]:
    """Kill a call, and the same again, at random instants, until one ends; compare with a population left alone."""
    kills, wanted, rng = 0, 2 if options.quick else 20, random.Random(1)
    _call([*_command(), *flags_of({'out': str(folder / 'whole')})], None)
    expected, attempt = _table(folder / 'whole'), 0
    while kills < wanted:
        attempt += 1
        killed = folder / f'killed-{attempt}'
        while _call([*_command(), *flags_of({'out': str(killed)})], rng.uniform(3, 12) if kills < wanted else None):
            kills += 1
            log(f'{kills} kills')
        if _table(killed) != expected:
            raise Failed(f'{killed}: another table')
    return {'kills': kills, 'populations': attempt}


def _command() -> list[str]:
    return [sys.executable, '-m', 'xagents', 'tune', 'ppo', '--env', 'CartPole-v1', *flags_of(SMALL)]


def _call(command: list[str], seconds: float | None) -> bool:
    """Run a command; returns whether it was killed after some seconds."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True)
    try:
        _, errors = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        return True
    if process.returncode:
        raise Failed(errors.decode().strip().splitlines()[-1])
    return False


def _table(folder: Path) -> list[list[Any]]:
    over = read_population(folder).over
    return [[dataclasses.replace(member, seconds=0.0) for member in members] for members in over]


def render_kills(found: dict[str, Any]) -> str:
    """Return how often it was killed."""
    rows = [['a population of 4, 4 rounds, 2 jobs', f'{found["kills"]}', f'{found["populations"]}', 'all']]
    return tables.markdown(['', 'kills', 'populations that ended', 'with equal tables'], rows)


PARTS = {
    'lunar': Part('PPO on LunarLander', measure_lunar, render_lunar, ('repeats',)),
    'kills': Part('Kills', measure_kills, render_kills),
}


def make_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = parts.make_parser('populations', __doc__, PARTS)
    parser.set_defaults(page=REPOSITORY / 'docs' / 'populations.md')
    parser.add_argument('--repeats', type=int, default=5, help='seeds of the populations')
    parser.add_argument('--jobs', type=int, default=2, help='members that train at a time')
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure what the command line names."""
    parser = make_parser()
    return parts.run(PARTS, parser, parser.parse_args(arguments), PACKAGES)


if __name__ == '__main__':
    sys.exit(main())
