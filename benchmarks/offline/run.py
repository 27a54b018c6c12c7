"""Learning from data sets, beside d3rlpy on the same files: `python -m benchmarks.offline.run`."""

from __future__ import annotations

import argparse
import json
import os
import shlex
import signal
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import tables
from benchmarks.offline.cases import ALGORITHMS, DATASETS, EPISODES, SEEDS, DataSet, settings_of
from benchmarks.speed.run import THREADS, Failed, last_line, launch
from benchmarks.venvs import CACHE, PAGE, REPOSITORY, XAGENTS, NotInstalled, prepare

LIBRARIES = ('d3rlpy', 'xagents')
HEADING = ['data set', 'its mean', 'agent', 'updates', *LIBRARIES]
HEADING += [*(f'{library}, updates/s' for library in LIBRARIES), 'times as fast']
NOTES = """\
A score is the median of the seeds, then their mean ± its standard error; each seed is judged by the same 100 greedy
episodes, played with its last weights by one function for both libraries. Updates/s are a median, with least and
largest; ratios are taken seed by seed.

- Equal: networks 256-256 relu, batch 256, Adam with 3e-4 (ε 1e-8), γ 0.99, τ 0.005; TD3+BC α 2.5, delay 2, noise 0.2
  clipped at 0.5, observations standardised by the data's mean and deviation; IQL expectile 0.7, inverse temperature 3,
  weights up to 100. Raw rewards, no decay of weights, no schedule of the learning rate; one thread.
- Updates/s are of processor time, so that what else runs on the machine counts less, after the first 500 updates;
  drawing of batches is in it, reading of the data is not.
- d3rlpy's BC has the mean squared error of a tanh network (`policy_type="deterministic"`); ours has the likelihood of a
  normal distribution, whose deviation it learns and by whose mean it acts. d3rlpy's IQL has that distribution, with
  a tanh mean and a deviation from e⁻⁵ to e²; its actor's weights come from critics that have just made their step, ours
  from those before it.
- d3rlpy draws batches from Python objects, and leaves out the last step of a truncated episode. Its own `get_minari`
  (2.8.1) puts actions beside observations of other rows, an episode's T + 1 beside T; here it gets them row by row.
- Initial weights are each library's own."""


def key(job: dict[str, Any]) -> str:
    """What a result depends on: results of other settings are not mixed with it."""
    names = ('library', 'dataset', 'steps', 'data_mean', 'updates', 'seed', 'episodes', 'settings')
    return json.dumps({name: job.get(name) for name in names}, sort_keys=True)


def jobs(
    sets: Sequence[DataSet], options: argparse.Namespace, told: dict[str, dict[str, float]]
) -> list[dict[str, Any]]:
    """Everything that is to be measured, in turn."""
    return [
        {
            'library': library,
            'dataset': dataset.name,
            'env': dataset.env,
            'updates': options.updates or dataset.updates[algorithm],
            'seed': seed,
            'episodes': options.episodes,
            'settings': settings_of(algorithm),
            **told.get(dataset.name, {}),
        }
        for dataset in sets
        for algorithm in options.algorithms
        for seed in options.seeds
        for library in options.libraries
    ]


def make(dataset: DataSet, folder: Path) -> None:
    """Run the commands that make a data set.

    Raises:
        Failed: where one fails.
    """
    for command in dataset.commands:
        done = subprocess.run(
            [*XAGENTS, *shlex.split(command)], cwd=folder, env=variables(), capture_output=True, text=True
        )
        if done.returncode:
            raise Failed(f'xagents {command}: {tables.one_line(done.stderr or done.stdout)}')


def variables() -> dict[str, str]:
    """The environment of what is started: one thread each, this checkout."""
    return {**os.environ, 'PYTHONPATH': str(REPOSITORY), **dict.fromkeys(THREADS, '1')}


def about(dataset: DataSet) -> dict[str, float] | None:
    """The steps and the mean return of a data set; None where it is not here."""
    from xagents.datasets.reading import open_dataset
    from xagents.options.errors import OptionError

    try:
        found = open_dataset(dataset.name, 'dataset', False)
    except OptionError:
        return None
    return {'steps': found.steps, 'data_mean': round(found.mean_return, 2)}


def measure(job: dict[str, Any], python: Path, timeout: float) -> dict[str, Any]:
    """Train with one library, play with what came of it.

    Raises:
        Failed: where there is no result.
    """

    def work(worker: str, python: str | Path, job: dict[str, Any]) -> dict[str, Any]:
        command = [str(python), '-m', f'benchmarks.workers.{worker}', json.dumps(job)]
        return last_line(launch(command, timeout, dict.fromkeys(THREADS, '1'))[0])

    if job['library'] == 'xagents':
        return work('offline_worker', sys.executable, job)
    with tempfile.TemporaryDirectory() as folder:
        job = {**job, 'policy': f'{folder}/policy.npz'}
        trained = work('d3rlpy_worker', python, job)
        played = work('offline_worker', sys.executable, job)
    return {**played, **trained, 'versions': {**played['versions'], **trained['versions']}}


def read(path: Path) -> list[dict[str, Any]]:
    """All kept results; none where there is no file."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def mean_of(values: Sequence[float]) -> str:
    """Median of the seeds, their mean and its standard error."""
    text = tables.number(statistics.median(values), 1)
    if len(values) == 1:
        return text
    error = statistics.stdev(values) / len(values) ** 0.5
    return f'{text}; {tables.number(statistics.mean(values), 1)} ± {tables.number(error, 1)}'


def rates(runs: Sequence[dict[str, Any]]) -> list[float]:
    """Updates a second of processor time of each run."""
    return [run['updates_timed'] / run['cpu_seconds'] for run in runs]


def render(results: Sequence[dict[str, Any]]) -> str:
    """The table, notes, commands and where it was measured, as Markdown."""
    rows, behind = [], []
    for dataset in DATASETS:
        for algorithm in ALGORITHMS:
            of_case = [r for r in results if (r['dataset'], r['settings']['algorithm']) == (dataset.name, algorithm)]
            for updates in sorted({run['updates'] for run in of_case}):
                equal = sorted((r for r in of_case if r['updates'] == updates), key=lambda run: run['seed'])
                runs = {library: [r for r in equal if r['library'] == library] for library in LIBRARIES}
                rows.append(row(dataset, algorithm, updates, runs))
    if not rows:
        return 'Nothing has been measured yet.'
    commands = [f'xagents {command}' for dataset in DATASETS for command in dataset.commands]
    for run in results:
        versions = ', '.join(f'{name} {version}' for name, version in run['versions'].items())
        behind.append(f'- {run["library"]}: {run["date"]}, {run["cpu"]}, {run["cores"]} cores; {versions}')
    made = 'Made by `python -m benchmarks.offline.run`. Where the data sets are not there yet, it makes them by'
    return tables.markdown(HEADING, rows, NOTES, '', made, '', '```', *commands, '```', '', *dict.fromkeys(behind))


def row(dataset: DataSet, algorithm: str, updates: int, runs: dict[str, list[dict[str, Any]]]) -> list[str]:
    """One agent on one data set."""
    speeds = {library: rates(done) for library, done in runs.items()}
    both = [ours / theirs for theirs, ours in zip(speeds['d3rlpy'], speeds['xagents'], strict=False)]
    data_mean = next(run['data_mean'] for done in runs.values() for run in done)
    return [
        f'`{dataset.name}`',
        tables.number(data_mean, 1),
        algorithm,
        tables.number(updates),
        *(mean_of([run['mean'] for run in runs[library]]) if runs[library] else '–' for library in LIBRARIES),
        *(tables.spread(speeds[library]) if runs[library] else '–' for library in LIBRARIES),
        tables.spread(both, 2) if both else '–',
    ]


def make_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(prog='python -m benchmarks.offline.run', description=__doc__, allow_abbrev=False)
    names = [dataset.name for dataset in DATASETS]
    about = f'data sets of {", ".join(names)}'
    parser.add_argument('--only', nargs='+', choices=names, default=names, metavar='NAME', help=about)
    parser.add_argument('--algorithms', nargs='+', choices=ALGORITHMS, default=ALGORITHMS, help='train these only')
    parser.add_argument('--libraries', nargs='+', choices=LIBRARIES, default=LIBRARIES, help='measure these only')
    parser.add_argument('--seeds', nargs='+', type=int, default=SEEDS, metavar='SEED', help='one run each (1 2 3)')
    parser.add_argument('--updates', type=int, help="of every run, instead of each case's own")
    parser.add_argument('--python', type=Path, help="d3rlpy's Python, where an environment of it exists")
    parser.add_argument('--cache', type=Path, default=CACHE, help='where the environment is made otherwise')
    parser.add_argument('--quick', action='store_true', help='a smoke run: few updates, one seed, nothing kept')
    parser.add_argument('--docs', action='store_true', help='only write the table of what is kept, measure nothing')
    parser.add_argument(
        '--results', type=Path, default=CACHE / 'offline.jsonl', help='where results are kept, run by run'
    )
    parser.add_argument('--page', type=Path, default=PAGE, help='the Markdown file with the markers')
    parser.add_argument('--timeout', type=float, default=3600, help='seconds that one training may take')
    return parser


def find_python(options: argparse.Namespace) -> Path:
    """Return d3rlpy's Python.

    Raises:
        Failed: where there is none.
    """
    if options.python or 'd3rlpy' not in options.libraries:
        return (options.python or Path(sys.executable)).absolute()
    try:
        return prepare('d3rlpy', options.cache)
    except NotInstalled as error:
        raise Failed(f'd3rlpy: not installed: {error}') from None


def measure_all(options: argparse.Namespace) -> bool:
    """Make what data sets are missing, then measure what is not kept yet; returns whether all of it came."""
    python, complete, told = find_python(options), True, {}
    sets = [dataset for dataset in DATASETS if dataset.name in options.only]
    for dataset in sets:
        if about(dataset) is None:
            print(f'{dataset.name}: making it', file=sys.stderr, flush=True)
            with tempfile.TemporaryDirectory(prefix='benchmark-') as folder:
                make(dataset, Path(folder))
        told[dataset.name] = about(dataset) or {}
    kept = set() if options.quick else {key(result) for result in read(options.results)}
    machine = {name: text for name, text in tables.machine().items() if name in ('date', 'cpu', 'cores')}
    found = []
    for job in jobs(sets, options, told):
        if key(job) in kept:
            continue
        label = f'{job["dataset"]}, {job["settings"]["algorithm"]}, {job["library"]}, seed {job["seed"]}'
        try:
            result = measure(job, python, options.timeout)
        except Failed as error:
            complete = False
            print(f'{label}: {tables.one_line(str(error))}', file=sys.stderr, flush=True)
            continue
        found.append({**result, 'updates_timed': result['updates'], **machine, **job})
        speed = tables.number(rates(found)[-1])
        print(f'{label}: {result["mean"]:.1f}, {speed} updates/s', file=sys.stderr, flush=True)
        if not options.quick:
            options.results.parent.mkdir(parents=True, exist_ok=True)
            with options.results.open('a') as file:
                file.write(json.dumps(found[-1]) + '\n')
    if options.quick:
        print(render(found))
    return complete


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, keep, write; 1 when a run failed, 2 on wrong input. What is kept is not trained again."""
    parser = make_parser()
    options = parser.parse_args(arguments)
    options.episodes = EPISODES
    if options.quick:
        options.updates, options.seeds, options.episodes = 1_000, [1], 5
    if options.updates is not None and (options.updates < 1_000 or options.updates % 500):
        parser.error(f'--updates: got {options.updates}, admits a multiple of 500 at least 1000')
    # so that what is under way is ended when this process is
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        complete = options.docs or measure_all(options)
    except Failed as error:
        print(error, file=sys.stderr)
        return 1
    if not options.quick:
        text = render(read(options.results))
        print(text)
        tables.write_section(options.page, 'offline', text)
    return 0 if complete else 1


if __name__ == '__main__':
    sys.exit(main())
