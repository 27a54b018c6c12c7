"""Compare populations with independent runs, and kill them: `python -m benchmarks.tuning.populations`."""

import argparse
import dataclasses
import random
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import jobs, tables
from benchmarks.jobs import Log, Part
from benchmarks.processes import Failed, running
from benchmarks.venvs import REPOSITORY, XAGENTS
from xagents.options.declaration import to_flags
from xagents.reports.population_files import read_population

PACKAGES = ('xagents', 'tensorflow', 'keras', 'gymnasium', 'numpy')
EPISODES = 100
MEMBERS, STEPS, ROUNDS, EXPLOIT = 8, 200_000, 8, 0.2
LUNAR: dict[str, Any] = {
    **{'agent_id': 'ppo', 'env': 'LunarLander-v3', 'n_envs': 8, 'n_steps': 256, 'gamma': 0.999, 'lam': 0.98},
    **{'minibatch_size': 64, 'ppo_epochs': 4, 'entropy_coef': 0.01, 'lr': [1e-5, 1e-1]},
}
# a round has at least the steps of one iteration
QUICK_STEPS = ROUNDS * LUNAR['n_envs'] * LUNAR['n_steps']
SMALL = {
    **{'n_envs': 4, 'n_steps': 16, 'net': [8], 'lr': [1e-5, 1e-1], 'seed': 3, 'population': 4},
    **{'exploit_steps': 400, 'trial_steps': 1600, 'exploit': 0.25, 'n_jobs': 2},
}


def evaluate(folder: str, seed: int) -> float:
    """Return the mean of greedy episodes with the last weights of a run."""
    from xagents.factory.players import load_player

    player = load_player(Path(folder), 'last', {'seed': seed})
    assert player is not None
    mean = player.evaluate(episodes=EPISODES)['mean']
    player.close()
    return mean


def measure_lunar(folder: Path, options: argparse.Namespace, log: Log) -> dict[str, Any]:
    """Train populations, and as many members without copying, which keep their first settings."""
    seeds, steps = (options.seeds[:1], QUICK_STEPS) if options.quick else (options.seeds, STEPS)
    found: dict[str, Any] = {'steps': steps, 'repeats': []}
    for seed in dict.fromkeys(seeds):
        row: dict[str, Any] = {'seed': seed}
        for name, share in (('population', EXPLOIT), ('runs', 0.0)):
            row[name] = train(folder / f'{name}-{seed}', seed, share, steps, options.jobs)
            log(f'seed {seed}, {name}: {row[name]}')
        found['repeats'].append(row)
    return found


def train(out: Path, seed: int, share: float, steps: int, jobs: int) -> dict[str, Any]:
    """Train a population; return the mean of its best member, the seconds of training, and the last learning rates."""
    from xagents.tuning.evolve import evolve

    start = time.perf_counter()
    best = evolve(**LUNAR, **rounds(share, steps), seed=seed, n_jobs=jobs, quiet=True, out=str(out))
    seconds = time.perf_counter() - start
    rates = sorted(member.settings['lr'] for member in read_population(out).rounds[-1])
    return {'mean': evaluate(best, seed), 'seconds': seconds, 'rates': rates}


def rounds(share: float, steps: int) -> dict[str, Any]:
    """Return the options of a population with so many steps of each member."""
    return {'population': MEMBERS, 'exploit': share, 'exploit_steps': steps // ROUNDS, 'trial_steps': steps}


def render_lunar(found: dict[str, Any]) -> str:
    """Return the table of the best member of each population and the best of as many runs."""
    rows, n_better = [], 0
    for row in found['repeats']:
        means, seconds = ([row[name][key] for name in ('population', 'runs')] for key in ('mean', 'seconds'))
        better = means[0] > means[1]
        n_better += better
        answer = 'yes' if better else 'no'
        rows.append([row['seed'], *(f'{m:.1f}' for m in means), answer, *(f'{s:.0f}' for s in seconds)])
    heading = ['seed', 'best of the population', 'best of the runs', 'above', 'seconds', 'seconds of the runs']
    steps = tables.number(found.get('steps', STEPS))
    below = (
        f'The best of the population is above the best of the runs for {n_better} of {len(rows)} seeds. Means of '
        f'{EPISODES} greedy episodes of the best member or run, which was selected by other greedy episodes '
        f'(`--final-episodes`). {MEMBERS} members or runs with {steps} steps each, in {ROUNDS} rounds, '
        'and learning rates from 1e-5 to 1e-1. The runs are a population without copying: the same seeds, and the same '
        'settings at the start.'
    )
    return tables.markdown(heading, rows, below)


def measure_kills(folder: Path, options: argparse.Namespace, log: Log) -> dict[str, Any]:
    """Kill a command at random times and repeat it until it ends; compare with an undisturbed population."""
    kills, wanted, rng = 0, 2 if options.quick else 20, random.Random(1)
    killed_after(command(folder / 'whole'), folder, None)
    expected, attempt = table_of(folder / 'whole'), 0
    while kills < wanted:
        attempt += 1
        out = folder / f'killed-{attempt}'
        while killed_after(command(out), folder, rng.uniform(3, 12) if kills < wanted else None):
            kills += 1
            log(f'{kills} kills')
        if table_of(out) != expected:
            raise Failed(f'{out}: another table')
    return {'kills': kills, 'populations': attempt}


def command(out: Path) -> list[str]:
    """Return the command that trains a small population."""
    return [*XAGENTS, 'tune', 'ppo', '--env', 'CartPole-v1', *to_flags({**SMALL, 'out': str(out)})]


def killed_after(command: list[str], folder: Path, seconds: float | None) -> bool:
    """Run a command; return whether it was killed after some seconds."""
    with running(command, folder) as process:
        try:
            process.popen.wait(seconds)
        except subprocess.TimeoutExpired:
            return True
        process.check()
    return False


def table_of(folder: Path) -> list[list[Any]]:
    """Return the members of a population in each round, without their times."""
    over = read_population(folder).rounds
    return [[dataclasses.replace(member, seconds=0.0) for member in members] for members in over]


def render_kills(found: dict[str, Any]) -> str:
    """Return the table of kills."""
    rows = [['a population of 4, 4 rounds, 2 jobs', f'{found["kills"]}', f'{found["populations"]}', 'all']]
    return tables.markdown(['', 'kills', 'populations that ended', 'with equal tables'], rows)


PARTS = {
    'lunar': Part('PPO on LunarLander', measure_lunar, render_lunar, ('seeds',)),
    'kills': Part('Kills', measure_kills, render_kills),
}


def make_parser() -> argparse.ArgumentParser:
    """Return the command line."""
    page = REPOSITORY / 'docs' / 'populations.md'
    parser = jobs.make_parts_parser('tuning.populations', __doc__, PARTS, page, 'populations')
    parser.add_argument('--seeds', type=jobs.seed, nargs='+', default=[1, 2, 3, 4, 5], help='one for each population')
    parser.add_argument('--jobs', type=jobs.positive, default=2, help='number of members that train in parallel')
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure the parts that the command line names."""
    return jobs.run_parts(make_parser(), arguments, PARTS, PACKAGES)


if __name__ == '__main__':
    sys.exit(main())
