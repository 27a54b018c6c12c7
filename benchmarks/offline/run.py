"""Compare learning from data sets with d3rlpy on the same files: `python -m benchmarks.offline.run`."""

import argparse
import functools
import shlex
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks import jobs, tables
from benchmarks.jobs import Job
from benchmarks.offline.cases import ALGORITHMS, DATASETS, EPISODES, SEEDS, DataSet, settings_of
from benchmarks.processes import THREADS, Failed, environment, module, work
from benchmarks.venvs import XAGENTS

ONE_THREAD = dict.fromkeys(THREADS, '1')
LIBRARIES = ('d3rlpy', 'xagents')
HEADING = ['data set', 'its mean', 'agent', 'updates', *LIBRARIES]
HEADING += [*(f'{library}, updates/s' for library in LIBRARIES), 'times as fast']
NOTES = """\
A score is the median of the seeds, then their mean ± its standard error. Each seed is evaluated with its last weights
in the same 100 greedy episodes, by one function for both libraries. Updates/s are a median, with least and largest;
ratios are taken seed by seed.

- Equal: networks 256-256 relu, batch 256, Adam with 3e-4 (ε 1e-8), γ 0.99, τ 0.005; TD3+BC α 2.5, delay 2, noise 0.2
  clipped at 0.5, observations standardised by the data's mean and deviation; IQL expectile 0.7, inverse temperature 3,
  weights up to 100. Raw rewards, no weight decay, no schedule of the learning rate; one thread.
- Updates/s are per second of processor time, which other processes on the machine affect less, after the first 500
  updates. They include sampling batches and exclude reading the data.
- d3rlpy's BC minimises the mean squared error of a tanh network (`policy_type="deterministic"`); ours maximises the
  likelihood of a normal distribution, learns its deviation and acts with its mean. d3rlpy's IQL has such a
  distribution, with a tanh mean and a deviation from e⁻⁵ to e²; its actor's weights come from critics after their
  update, ours from critics before it.
- d3rlpy samples batches from Python objects and leaves out the last step of a truncated episode. Its own `get_minari`
  (2.8.1) pairs the T + 1 observations of an episode with its T actions, so that later rows do not match; here d3rlpy
  gets matching rows.
- Initial weights are those of each library."""


def parse_key(row: dict[str, Any]) -> str:
    """Return what a result depends on: results of other settings have another key."""
    names = ('library', 'dataset', 'steps', 'data_mean', 'updates', 'seed', 'episodes', 'settings')
    return jobs.parse_key({name: row.get(name) for name in names})


def make(dataset: DataSet, folder: Path) -> None:
    """Run the commands that make a data set.

    Raises:
        Failed: if a command fails.
    """
    for words in dataset.commands:
        command = [*XAGENTS, *shlex.split(words)]
        done = subprocess.run(command, cwd=folder, env=environment(ONE_THREAD), capture_output=True, text=True)
        if done.returncode:
            raise Failed(f'xagents {words}: {tables.one_line(done.stderr or done.stdout)}')


def describe(dataset: DataSet) -> dict[str, float] | None:
    """Return the number of steps and the mean return of a data set; None if it does not exist."""
    from xagents.datasets.reading import open_dataset
    from xagents.options.errors import OptionError

    try:
        found = open_dataset(dataset.name, 'dataset', False)
    except OptionError:
        return None
    return {'steps': found.steps, 'data_mean': round(found.mean_return, 2)}


def measure(about: dict[str, Any], python: Path, timeout: float) -> dict[str, Any]:
    """Train with one library, and evaluate the policy.

    Raises:
        Failed: if there is no result.
    """
    if about['library'] == 'xagents':
        return work(module('workers.offline_worker', about), timeout, ONE_THREAD)
    with tempfile.TemporaryDirectory() as folder:
        job = {**about, 'policy': f'{folder}/policy.npz'}
        trained = work(module('workers.d3rlpy_worker', job, python), timeout, ONE_THREAD)
        played = work(module('workers.offline_worker', job), timeout, ONE_THREAD)
    return {**played, **trained, 'versions': {**played['versions'], **trained['versions']}}


def rates(runs: Sequence[dict[str, Any]]) -> list[float]:
    """Return the updates per second of processor time of each run."""
    return [run['updates_timed'] / run['cpu_seconds'] for run in runs]


def render(results: Sequence[dict[str, Any]]) -> str:
    """Return the table, notes, commands and machines."""
    rows = []
    for dataset in DATASETS:
        for algorithm in ALGORITHMS:
            of_case = [r for r in results if (r['dataset'], r['settings']['algorithm']) == (dataset.name, algorithm)]
            for updates in sorted({run['updates'] for run in of_case}):
                equal = sorted((r for r in of_case if r['updates'] == updates), key=lambda run: run['seed'])
                runs = {library: [r for r in equal if r['library'] == library] for library in LIBRARIES}
                rows.append(row(dataset, algorithm, updates, runs))
    if not rows:
        return jobs.EMPTY
    commands = [f'xagents {command}' for dataset in DATASETS for command in dataset.commands]
    about = [
        f'- {run["library"]}: {run["date"]}, {run["cpu"]}, {run["cores"]} cores; {tables.versions(run["versions"])}'
        for run in results
    ]
    made = 'Made by `python -m benchmarks.offline.run`. It first makes missing data sets with'
    return tables.markdown(HEADING, rows, NOTES, '', made, '', '```', *commands, '```', '', *dict.fromkeys(about))


def row(dataset: DataSet, algorithm: str, updates: int, runs: dict[str, list[dict[str, Any]]]) -> list[str]:
    """Return the cells of one agent on one data set."""
    speeds = {library: rates(done) for library, done in runs.items()}
    data_mean = next(run['data_mean'] for done in runs.values() for run in done)
    cells = [f'`{dataset.name}`', tables.number(data_mean, 1), algorithm, tables.number(updates)]
    cells += [score([run['mean'] for run in runs[library]]) if runs[library] else '–' for library in LIBRARIES]
    ratios = tables.ratios(speeds['xagents'], speeds['d3rlpy'])
    cells += [tables.spread(speeds[library]) if runs[library] else '–' for library in LIBRARIES]
    return [*cells, tables.spread(ratios, 2) if ratios else '–']


def score(means: Sequence[float]) -> str:
    """Return the median of the seeds, their mean and its standard error."""
    text = tables.number(statistics.median(means), 1)
    if len(means) == 1:
        return text
    error = statistics.stdev(means) / len(means) ** 0.5
    return f'{text}; {tables.number(statistics.mean(means), 1)} ± {tables.number(error, 1)}'


def make_parser() -> argparse.ArgumentParser:
    """Return the command line."""
    parser = jobs.make_parser('offline.run', __doc__, results='offline.jsonl')
    jobs.add_names(parser, '--only', [dataset.name for dataset in DATASETS])
    jobs.add_names(parser, '--algorithms', ALGORITHMS, default=ALGORITHMS)
    jobs.add_names(parser, '--libraries', LIBRARIES, default=LIBRARIES)
    parser.add_argument(
        '--seeds', nargs='+', type=int, default=SEEDS, metavar='SEED', help='one run for each seed (1 2 3)'
    )
    parser.add_argument('--updates', type=int, help='number of updates of every run, instead of that of its case')
    jobs.add_peer(parser, 'd3rlpy')
    parser.add_argument('--timeout', type=float, default=3600, help='largest number of seconds of a training')
    return parser


def find_jobs(options: argparse.Namespace) -> Iterator[Job]:
    """Make missing data sets, and yield all jobs in turn.

    Raises:
        Failed: if d3rlpy is not installed, or a data set cannot be made.
    """
    python = jobs.find_peer('d3rlpy', options) if 'd3rlpy' in options.libraries else Path(sys.executable)
    sets = [dataset for dataset in DATASETS if dataset.name in (options.only or [dataset.name])]
    facts: dict[str, dict[str, float]] = {}
    for dataset in sets:
        if describe(dataset) is None:
            jobs.log(dataset.name, 'making it')
            with tempfile.TemporaryDirectory(prefix='benchmark-') as folder:
                make(dataset, Path(folder))
        facts[dataset.name] = describe(dataset) or {}
    for dataset in sets:
        for algorithm in options.algorithms:
            for seed in options.seeds:
                for library in options.libraries:
                    about = {'library': library, 'dataset': dataset.name, 'env': dataset.env, 'seed': seed}
                    about |= {'updates': options.updates or dataset.updates[algorithm], 'episodes': options.episodes}
                    about |= {'settings': settings_of(algorithm), **facts[dataset.name]}
                    call = functools.partial(measure, about, python, options.timeout)
                    yield Job(f'{dataset.name}, {algorithm}, {library}, seed {seed}', call, about)


def row_of(job: Job, result: dict[str, Any], machine: dict[str, str]) -> dict[str, Any]:
    """Return what is kept of a result."""
    return {**result, 'updates_timed': result['updates'], **tables.short(machine), **job.about}


def shown(result: dict[str, Any]) -> str:
    """Return a result for the console."""
    return f'{result["mean"]:.1f}, {tables.number(result["updates"] / result["cpu_seconds"])} updates/s'


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure what has no kept result, write the page. Return 1 if a run fails; exit with 2 on wrong input."""
    parser = make_parser()
    options = parser.parse_args(arguments)
    options.episodes = EPISODES
    if options.quick:
        options.updates, options.seeds, options.episodes = 1_000, [1], 5
    if options.updates is not None and (options.updates < 1_000 or options.updates % 500):
        parser.error(f'--updates: got {options.updates}, expected a multiple of 500, at least 1000')
    return jobs.run_rows(options, functools.partial(find_jobs, options), parse_key, row_of, shown, render)


if __name__ == '__main__':
    sys.exit(main())
