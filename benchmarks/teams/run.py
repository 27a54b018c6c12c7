"""Compare PPO with several agents in one environment with Stable-Baselines3 and SuperSuit.

`python -m benchmarks.teams.run`; results are kept run by run, and kept runs are not measured again.
"""

import argparse
import dataclasses
import functools
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks import jobs, tables
from benchmarks.jobs import Job
from benchmarks.processes import THREADS, module, work
from benchmarks.teams.tables import draw, render
from benchmarks.venvs import REPOSITORY
from benchmarks.workers.settings import Settings

AGENTS = 3
SPREAD = {'env': 'mpe2.simple_spread_v3', 'env_kwargs': {'N': AGENTS, 'continuous_actions': False}}
CHEAP = {'env': 'benchmarks.envs.cheap', 'env_kwargs': {}}
# both libraries start with orthogonal weights, normalise advantages in each minibatch, and have separate networks for
# policy and critic
SETTINGS = Settings(env='', n_envs=8, n_steps=125, epochs=10, minibatches=5, lr=3e-4, clip=0.2)
WIDTH = 100_000
WORKERS = {'xagents': 'spread_worker', 'supersuit': 'supersuit_worker'}


@dataclass(frozen=True)
class Row:
    """A library and where it runs environments.

    Args:
        label: in the tables.
        library: name of its worker and of its virtual environment.
        options: of its worker.
    """

    label: str
    library: str
    options: dict[str, Any] = field(default_factory=dict)


ROWS = {
    'xagents': Row('xagents', 'xagents'),
    'async': Row('xagents, `--vector async`', 'xagents', {'vector': 'async'}),
    'explorers': Row('xagents, `--explorers 2`', 'xagents', {'explorers': 2}),
    'sb3': Row('SB3 through SuperSuit', 'supersuit'),
    'sb3-processes': Row('SB3 through SuperSuit, `num_cpus=2`', 'supersuit', {'num_cpus': 2}),
    'sb3-bootstrap': Row('SB3 through SuperSuit, truncations in `infos`', 'supersuit', {'bootstrap': True}),
}
LABELS = {name: row.label for name, row in ROWS.items()}


@dataclass(frozen=True)
class Part:
    """One table: some rows, measured with each seed.

    Args:
        rows: names of ROWS, in turn.
        env: module and arguments of the environment.
        warmup: steps of agents before the clock starts.
        steps: timed steps of agents.
        episodes: number of episodes at the end, greedy and with sampled actions.
    """

    rows: tuple[str, ...]
    env: dict[str, Any]
    warmup: int
    steps: int
    episodes: int = 0


PARTS = {
    'learning': Part(('xagents', 'sb3', 'sb3-bootstrap'), SPREAD, 0, 3_000_000, 100),
    'speed': Part(('xagents', 'async', 'explorers', 'sb3', 'sb3-processes'), SPREAD, 6_000, 60_000),
    'cheap': Part(('xagents', 'sb3'), CHEAP, 6_000, 60_000),
}


def request(part: Part, row: Row, seed: int, quick: bool) -> dict[str, Any]:
    """Return the job of a worker, as JSON gives it back; see `benchmarks.workers.teams.TeamJob`."""
    numbers = (6_000, min(part.episodes, 2), 1_000) if quick else (part.steps, part.episodes, WIDTH)
    job = {'settings': {**dataclasses.asdict(SETTINGS), 'seed': seed}, **part.env, 'agents': AGENTS}
    job |= {'warmup': part.warmup, **dict(zip(('steps', 'episodes', 'width'), numbers, strict=True))}
    job['options'] = row.options
    return json.loads(json.dumps(job))


def parse_key(run: dict[str, Any]) -> str:
    """Return what a result depends on: results of other settings have another key."""
    return jobs.parse_key([run['part'], run['row'], run['job']])


def find_jobs(options: argparse.Namespace) -> Iterator[Job]:
    """Yield all jobs in turn.

    Raises:
        Failed: if SuperSuit is not installed.
    """
    pythons = {'xagents': Path(sys.executable).absolute()}
    if any(ROWS[row].library == 'supersuit' for row in options.rows):
        pythons['supersuit'] = jobs.find_peer('supersuit', options)
    for name in options.only or PARTS:
        for seed in options.seeds:
            for row in (row for row in PARTS[name].rows if row in options.rows):
                job = request(PARTS[name], ROWS[row], seed, options.quick)
                about = {'part': name, 'row': row, 'seed': seed, 'job': job}
                call = functools.partial(measure, about, pythons[ROWS[row].library], options.timeout)
                yield Job(f'{name}, {row}, seed {seed}', call, about)


def measure(run: dict[str, Any], python: Path, timeout: float) -> dict[str, Any]:
    """Measure one library once.

    Raises:
        Failed: if there is no result.
    """
    worker = WORKERS[ROWS[run['row']].library]
    return work(module(f'workers.{worker}', run['job'], python), timeout, dict.fromkeys(THREADS, '1'))


def row_of(job: Job, result: dict[str, Any], machine: dict[str, str]) -> dict[str, Any]:
    """Return what is kept of a result."""
    return {**job.about, 'result': result, 'machine': machine}


def shown(result: dict[str, Any]) -> str:
    """Return a result for the console."""
    scores = ''.join(f', {name} {result[name]:.2f}' for name in ('greedy', 'sampled') if name in result)
    return f'{tables.number(result["steps"] / result["seconds"])} steps/s{scores}'


def is_current(run: dict[str, Any]) -> bool:
    """Return whether a kept result has the settings of this file."""
    return bool(run['job'] == request(PARTS[run['part']], ROWS[run['row']], run['seed'], False))


def write(options: argparse.Namespace, rows: list[dict[str, Any]]) -> str:
    """Draw the learning curves, and return the section of the page."""
    if options.quick:
        return render(rows, LABELS)
    current = [run for run in rows if is_current(run)]
    draw([run for run in current if run['part'] == 'learning'], LABELS, options.picture)
    return render(current, LABELS, tables.sections(options.page.read_text()).get(options.section, ''))


def make_parser() -> argparse.ArgumentParser:
    """Return the command line."""
    page, picture = REPOSITORY / 'docs' / 'teams.md', REPOSITORY / 'img' / 'spread.png'
    parser = jobs.make_parser('teams.run', __doc__, page, 'spread.json')
    jobs.add_names(parser, '--only', PARTS)
    jobs.add_names(parser, '--rows', ROWS, default=list(ROWS))
    parser.add_argument(
        '--seeds', nargs='+', type=jobs.seed, default=[1, 2, 3], metavar='SEED', help='one run for each seed (1 2 3)'
    )
    jobs.add_peer(parser, 'SuperSuit')
    parser.add_argument('--picture', type=Path, default=picture, help='file of the learning curves')
    parser.add_argument('--timeout', type=float, default=7200, help='largest number of seconds of a run')
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure what has no kept result, write the page. Return 1 if a run fails; exit with 2 on wrong input."""
    options = make_parser().parse_args(arguments)
    if options.quick:
        options.seeds = options.seeds[:1]
    find, page = functools.partial(find_jobs, options), functools.partial(write, options)
    return jobs.run_rows(options, find, parse_key, row_of, shown, page)


if __name__ == '__main__':
    sys.exit(main())
