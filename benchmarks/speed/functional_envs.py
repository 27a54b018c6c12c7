"""Compare the functions of environments with Gymnasium's vectors and with gymnax: random actions, one core.

`python -m benchmarks.speed.functional_envs`; results are kept run by run, and kept runs are not measured again.
"""

import argparse
import functools
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks import jobs, tables
from benchmarks.jobs import Job
from benchmarks.processes import THREADS, module, work
from benchmarks.workers.functional_worker import EnvJob

ENVS = ('CartPole-v1', 'Acrobot-v1', 'Pendulum-v1', 'MountainCar-v0', 'MountainCarContinuous-v0')
COPIES = (16, 256)
WORKERS = {'gymnasium': 'functional_worker', 'gymnax': 'gymnax_worker', 'xagents': 'functional_worker'}
OTHERS = ('gymnasium', 'gymnax')
N_STEPS, SECONDS = 128, 3.0
NOTE = (
    'Steps/s with random actions on one core, after compiling. xagents and gymnax draw the actions in the compiled '
    f'program of {N_STEPS} steps, which returns observations, actions, rewards and ends. Gymnasium steps its '
    '`CartPoleVectorEnv`, and a `SyncVectorEnv` for the others, with actions from NumPy. Steps that only reset do not '
    'count. Required are 4 times the speed of Gymnasium, and at least that of gymnax.'
)


def find_jobs(options: argparse.Namespace) -> Iterator[Job]:
    """Yield all jobs in turn.

    Raises:
        Failed: if gymnax is not installed.
    """
    pythons = dict.fromkeys(WORKERS, Path(sys.executable).absolute())
    if 'gymnax' in options.libraries:
        pythons['gymnax'] = jobs.find_peer('gymnax', options)
    for env in options.only or ENVS:
        for n_envs in COPIES:
            for repeat in range(options.repeats):
                for library in options.libraries:
                    job = EnvJob(env, n_envs, N_STEPS, 0.2 if options.quick else SECONDS, library)
                    about = {'repeat': repeat, 'job': job._asdict()}
                    call = functools.partial(measure, job, pythons[library], options.timeout)
                    yield Job(f'{env} x {n_envs}, {library}, {repeat + 1}', call, about)


def measure(job: EnvJob, python: Path, timeout: float) -> dict[str, Any]:
    """Measure one library once.

    Raises:
        Failed: if there is no result.
    """
    worker = module(f'workers.{WORKERS[job.library]}', job._asdict(), python)
    return work(worker, timeout, dict.fromkeys(THREADS, '1'))


def parse_key(run: dict[str, Any]) -> str:
    """Return what a result depends on."""
    return jobs.parse_key([run['repeat'], run['job']])


def row_of(job: Job, result: dict[str, Any], machine: dict[str, str]) -> dict[str, Any]:
    """Return what is kept of a result."""
    return {**job.about, 'result': result, 'machine': machine}


def shown(result: dict[str, Any]) -> str:
    """Return a result for the console."""
    return f'{tables.number(result["steps"] / result["seconds"])} steps/s'


def render(rows: list[dict[str, Any]]) -> str:
    """Return the table: a row for each environment and number of copies."""
    rates: dict[tuple[str, int], dict[str, dict[int, float]]] = {}
    for row in rows:
        job, result = EnvJob(**row['job']), row['result']
        found = rates.setdefault((job.env, job.n_envs), {name: {} for name in WORKERS})
        found[job.library][row['repeat']] = result['steps'] / result['seconds']
    heading = ['', 'copies', *WORKERS, *(f'xagents, times {name}' for name in OTHERS)]
    cells = []
    for (env, n_envs), found in rates.items():
        medians = [tables.spread([*found[name].values()]) if found[name] else '' for name in WORKERS]
        ours = found['xagents']
        pairs = [[ours[k] / rate for k, rate in found[name].items() if k in ours] for name in OTHERS]
        cells.append([env, n_envs, *medians, *(tables.spread(ratios, 2) if ratios else '' for ratios in pairs)])
    used = {row['job']['library']: row for row in rows}
    lines = [
        f'- {name}: {tables.where(row["machine"])}; {tables.versions(row["result"]["versions"])}'
        for name, row in used.items()
    ]
    return tables.markdown(heading, cells, NOTE, '', *lines, '', 'Made by `make bench-functional-envs`.')


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure what has no kept result, write the page. Return 1 if a run fails; exit with 2 on wrong input."""
    parser = jobs.make_parser('speed.functional_envs', __doc__, results='functional-envs.json')
    jobs.add_names(parser, '--only', ENVS, metavar='ENV')
    jobs.add_names(parser, '--libraries', WORKERS, default=list(WORKERS))
    parser.add_argument('--repeats', type=jobs.positive, default=3, help='number of measurements of each library')
    jobs.add_peer(parser, 'gymnax')
    parser.add_argument('--timeout', type=float, default=600, help='largest number of seconds of a measurement')
    options = parser.parse_args(arguments)
    options.repeats = 1 if options.quick else options.repeats
    return jobs.run_rows(options, functools.partial(find_jobs, options), parse_key, row_of, shown, render)


if __name__ == '__main__':
    sys.exit(main())
