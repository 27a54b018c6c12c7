"""PPO with several agents in one environment, beside Stable-Baselines3 through SuperSuit.

`python -m benchmarks.teams.run`; what is measured is kept run by run, and is not measured again.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import signal
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks import tables
from benchmarks.speed.run import THREADS, Failed, last_line, launch
from benchmarks.teams import tables as spread_tables
from benchmarks.venvs import CACHE, REPOSITORY, NotInstalled, prepare
from benchmarks.workers.settings import Settings

AGENTS = 3
SPREAD = {'env': 'mpe2.simple_spread_v3', 'env_kwargs': {'N': AGENTS, 'continuous_actions': False}}
CHEAP = {'env': 'benchmarks.envs.cheap', 'env_kwargs': {}}
# both libraries begin with orthogonal weights, normalise advantages in each minibatch and have networks of their own
# for policy and critic
SETTINGS = Settings(env='', n_envs=8, n_steps=125, epochs=10, minibatches=5, lr=3e-4, clip=0.2)
WIDTH = 100_000
WORKERS = {'xagents': 'spread_worker', 'supersuit': 'supersuit_worker'}


@dataclass(frozen=True)
class Row:
    """A library, and how it places environments.

    Args:
        label: in the tables.
        library: whose worker and environment measure it.
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
    'sb3-bootstrap': Row('SB3 through SuperSuit, told of truncations', 'supersuit', {'bootstrap': True}),
}
LABELS = {name: row.label for name, row in ROWS.items()}


@dataclass(frozen=True)
class Part:
    """What is measured of some rows, with each seed.

    Args:
        rows: names of ROWS, in turn.
        env: and its arguments.
        warmup: steps of agents before the clock.
        steps: that are timed.
        episodes: that are played at the end, greedily and by sampled actions.
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


def job_of(part: Part, row: Row, seed: int, quick: bool) -> dict[str, Any]:
    """What a worker is asked for; see `benchmarks.workers.teams.TeamJob`."""
    return {
        'settings': {**dataclasses.asdict(SETTINGS), 'seed': seed},
        **part.env,
        'agents': AGENTS,
        'warmup': part.warmup,
        'steps': 6_000 if quick else part.steps,
        'episodes': min(part.episodes, 2) if quick else part.episodes,
        'width': 1_000 if quick else WIDTH,
        'options': row.options,
    }


def key(run: dict[str, Any]) -> str:
    """What a result depends on: results of other settings are not mixed with it."""
    return json.dumps([run['part'], run['row'], run['job']], sort_keys=True)


def runs(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Everything that is to be measured, in turn."""
    for name in options.only:
        for seed in options.seeds:
            for row in PARTS[name].rows:
                if row in options.rows:
                    job = job_of(PARTS[name], ROWS[row], seed, options.quick)
                    # as JSON gives it back
                    yield json.loads(json.dumps({'part': name, 'row': row, 'seed': seed, 'job': job}))


def read(path: Path) -> list[dict[str, Any]]:
    """All kept results; none where there is no file."""
    return json.loads(path.read_text()) if path.exists() else []


def keep(path: Path, run: dict[str, Any]) -> None:
    """Put a result in the place of an older one of the same settings."""
    others = [kept for kept in read(path) if key(kept) != key(run)]
    tables.write_atomically(path, json.dumps([*others, run], indent=1))


def measure(run: dict[str, Any], python: Path, timeout: float) -> dict[str, Any]:
    """Measure one library once.

    Raises:
        Failed: where there is no result.
    """
    worker = WORKERS[ROWS[run['row']].library]
    command = [str(python), '-m', f'benchmarks.workers.{worker}', json.dumps(run['job'])]
    return last_line(launch(command, timeout, dict.fromkeys(THREADS, '1'))[0])


def find_pythons(options: argparse.Namespace) -> dict[str, Path]:
    """Return the Python of each library.

    Raises:
        Failed: where SuperSuit's does not install.
    """
    found = {'xagents': Path(sys.executable).absolute()}
    if any(ROWS[row].library == 'supersuit' for row in options.rows):
        try:
            found['supersuit'] = (options.python or prepare('supersuit', options.cache)).absolute()
        except NotInstalled as error:
            raise Failed(f'SuperSuit: not installed: {error}') from None
    return found


def measure_all(options: argparse.Namespace) -> bool:
    """Measure what is not kept yet, and keep it; returns whether all of it came."""
    pythons, complete, found = find_pythons(options), True, []
    kept = set() if options.quick else {key(run) for run in read(options.results)}
    for run in runs(options):
        if key(run) in kept:
            continue
        label = f'{run["part"]}, {run["row"]}, seed {run["seed"]}'
        machine = tables.machine()
        try:
            result = measure(run, pythons[ROWS[run['row']].library], options.timeout)
        except Failed as error:
            complete = False
            print(f'{label}: {tables.one_line(str(error))}', file=sys.stderr, flush=True)
            continue
        found.append({**run, 'result': result, 'machine': machine})
        scores = ''.join(f', {name} {result[name]:.2f}' for name in ('greedy', 'sampled') if name in result)
        rate = tables.number(result['steps'] / result['seconds'])
        print(f'{label}: {rate} steps/s{scores}', file=sys.stderr, flush=True)
        if not options.quick:
            keep(options.results, found[-1])
    if options.quick:
        print(spread_tables.render(found, LABELS))
    return complete


def is_present(run: dict[str, Any]) -> bool:
    """Return whether a kept result is of the settings that this file has now."""
    job = job_of(PARTS[run['part']], ROWS[run['row']], run['seed'], False)
    return bool(run['job'] == json.loads(json.dumps(job)))


def write(options: argparse.Namespace) -> None:
    """Put the tables of all kept results between their markers, and draw the curves."""
    kept = [run for run in read(options.results) if is_present(run)]
    text = spread_tables.render(kept, LABELS)
    print(text)
    tables.write_section(options.page, 'spread', text)
    spread_tables.draw([run for run in kept if run['part'] == 'learning'], LABELS, options.picture)


def make_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(prog='python -m benchmarks.teams.run', description=__doc__, allow_abbrev=False)
    for flag, known in (('--only', PARTS), ('--rows', ROWS)):
        about = f'of {", ".join(known)}; all when not given'
        parser.add_argument(flag, nargs='+', choices=known, default=list(known), metavar='NAME', help=about)
    parser.add_argument('--seeds', nargs='+', type=int, default=[1, 2, 3], metavar='SEED', help='one run each (1 2 3)')
    parser.add_argument('--quick', action='store_true', help='a smoke run: few steps, one seed, nothing kept')
    parser.add_argument('--docs', action='store_true', help='only write what is kept, measure nothing')
    parser.add_argument('--python', type=Path, help="SuperSuit's Python, where an environment of it exists")
    parser.add_argument('--cache', type=Path, default=CACHE, help='where the environment is made otherwise')
    parser.add_argument(
        '--results', type=Path, default=CACHE / 'spread.json', help='where results are kept, run by run'
    )
    page, picture = REPOSITORY / 'docs' / 'teams.md', REPOSITORY / 'img' / 'spread.png'
    parser.add_argument('--page', type=Path, default=page, help='the Markdown file with the markers')
    parser.add_argument('--picture', type=Path, default=picture, help='where the learning curves are drawn')
    parser.add_argument('--timeout', type=float, default=7200, help='seconds that one run may take')
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, keep, write; 1 when a run failed, 2 on wrong input. What is kept is not measured again."""
    options = make_parser().parse_args(arguments)
    if options.quick:
        options.seeds = options.seeds[:1]
    # so that what is under way is ended when this process is
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        complete = options.docs or measure_all(options)
    except Failed as error:
        print(error, file=sys.stderr)
        return 1
    if not options.quick:
        write(options)
    return 0 if complete else 1


if __name__ == '__main__':
    sys.exit(main())
