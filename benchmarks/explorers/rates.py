"""Measure the speed of runs with explorers: by their number, with overlap, a slow explorer, Pong, and Ray.

`python -m benchmarks.explorers.rates JOBS` is the worker that measures jobs in one process.
"""

import argparse
import contextlib
import dataclasses
import json
import statistics
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import xagents
from benchmarks import tables
from benchmarks.explorers.namespaces import WITHOUT_NETWORK, check_namespaces
from benchmarks.explorers.runs import PPO, SLOW, STRAGGLER, explorers, make_agent, measure_rate
from benchmarks.jobs import Log
from benchmarks.processes import module, work
from benchmarks.speed.cases import PONG
from benchmarks.workers import xagents_worker

NUMBERS = (1, 2, 4, 8)
# rollouts of each measurement, and how many of them are not timed
ROLLOUTS, SKIPPED = 6, 2
LAGS = (0, 1, 2, 3, 4)
# the slow explorer takes a third of a second for its part of a rollout
LATE_ROLLOUTS, LATE_SKIPPED = 48, 8
LEAST_OF_SYNC = 3
OVERLAP: dict[str, Any] = {'overlap': True}
PONG_ROWS = {'none': {}, '`--overlap`': OVERLAP, '2, `--overlap`': {**OVERLAP, 'explorers': 2}}
PONG_ROLLOUTS, PONG_SKIPPED = 8, 2


def measure_rates(env: str, folder: Path, options: argparse.Namespace, log: Log) -> dict[str, Any]:
    """Measure 1, 2, 4 and 8 explorers, with and without overlap, and none, in turn."""
    rows = [(None, False), *((n, False) for n in NUMBERS), *((n, True) for n in NUMBERS)]
    rates: dict[str, list[float]] = {}
    for repeat in range(repeats_of(options)):
        for number, overlap in rows[:2] if options.quick else rows:
            name = f'{number or "none"}{", overlap" if overlap else ""}'
            with make_agent(env, options.seed + repeat) as agent:
                found = measure_rate(agent, ROLLOUTS, SKIPPED, explorers=number, overlap=overlap)
            rates.setdefault(name, []).append(found['rate'])
            log(f'{name}: {rates[name][-1]:.0f} steps/s')
    return {'rates': rates}


def repeats_of(options: argparse.Namespace) -> int:
    """Return the number of measurements of each row."""
    return 1 if options.quick else options.repeats


def render_rates(result: dict[str, Any]) -> str:
    """Return the table of speeds, with the share of N times the speed of one explorer."""
    rows = []
    for name, rates in result['rates'].items():
        times = tables.ratios(rates, result['rates']['1, overlap' if 'overlap' in name else '1'])
        n = name.split(',')[0]
        share = tables.spread([t / int(n) for t in times], 2) if n.isdecimal() else ''
        rows.append([name, tables.spread(rates), tables.spread(times, 2), share])
    return tables.markdown(['explorers', 'steps/s', 'times one explorer', 'of N'], rows)


# ------------------------------------------------------------------------------------------------------- one is slow


def measure_straggler(folder: Path, options: argparse.Namespace, log: Log) -> dict[str, Any]:
    """Measure 8 explorers, of which one takes five times as long, with several values of `--max-lag`, in turn."""
    rows: dict[str, Any] = {str(lag): {'rates': [], 'lags': []} for lag in ((0, 4) if options.quick else LAGS)}
    rollouts, skipped = (10, 4) if options.quick else (LATE_ROLLOUTS, LATE_SKIPPED)
    for repeat in range(repeats_of(options)):
        for lag, row in rows.items():
            lock = folder / f'{repeat}-{lag}'
            lock.touch()
            late = {'n_steps': 32, 'env_kwargs': {'lock': str(lock)}}
            with make_agent(STRAGGLER, options.seed + repeat, **late) as agent:
                found = measure_rate(agent, rollouts, skipped, explorers=8, max_lag=int(lag) or None)
            row['rates'].append(found['rate'])
            row['lags'].append(found['most_lag'])
            log(f'max_lag {lag}: {found["rate"]:.0f} steps/s, most lag {found["most_lag"]}')
    return {'rows': rows}


def render_straggler(result: dict[str, Any]) -> str:
    """Return the table of speeds and largest lags."""
    rows = []
    for lag, row in result['rows'].items():
        times = tables.ratios(row['rates'], result['rows']['0']['rates'])
        required = str(LEAST_OF_SYNC) if lag == '4' else ''
        name = f'`--max-lag {lag}`' if int(lag) else 'sync'
        rows.append([name, tables.spread(row['rates']), tables.spread(times, 2), required, max(row['lags'])])
    return tables.markdown(['', 'steps/s', 'times sync', 'at least', 'oldest fragment, rollouts'], rows)


# -------------------------------------------------------------------------------------------------------------- Pong


def measure_pong(folder: Path, options: argparse.Namespace, log: Log) -> dict[str, Any]:
    """Measure Pong from its frames. Each run is a process with the default number of threads."""
    rows: dict[str, list[float]] = {name: [] for name in PONG_ROWS}
    rollouts, skipped = (3, 2) if options.quick else (PONG_ROLLOUTS, PONG_SKIPPED)
    for repeat in range(repeats_of(options)):
        settings = dataclasses.replace(PONG, env='ALE/Pong-v5', seed=options.seed + repeat)
        for name, others in PONG_ROWS.items():
            job = {'env': settings.env, 'rollouts': rollouts, 'skipped': skipped}
            job['make'] = {**xagents_worker.arguments(settings), 'vector': 'sync', **others}
            rows[name].append(measure_jobs([job], options.timeout)[0]['rate'])
            log(f'{name}: {rows[name][-1]:.0f} steps/s')
    return {'rows': rows}


def render_pong(result: dict[str, Any]) -> str:
    """Return the table of speeds and their ratios."""
    rows = result['rows']
    cells = [
        [name, tables.spread(rates), *(tables.spread(tables.ratios(rates, rows[of]), 2) for of in [*rows][:2])]
        for name, rates in rows.items()
    ]
    return tables.markdown(['explorers', 'steps/s', 'times none', 'times `--overlap` without explorers'], cells)


# ------------------------------------------------------------------------------------------------------------- start


def measure_start(folder: Path, options: argparse.Namespace, log: Log) -> dict[str, Any]:
    """Measure the time of the first rollout, which includes starting explorers, and the memory of each explorer."""
    rows: dict[str, Any] = {}
    for n in (1, 8):
        with make_agent('CartPole-v1', options.seed) as agent:
            stream = agent.train_iter(max_steps=8 * 2048, explorers=n)
            seconds = next(stream)['seconds/wait']
            memory = [process.memory_info().rss / 1e6 for process in explorers()]
            stream.close()
        rows[str(n)] = {'seconds': seconds, 'megabytes': memory}
        log(f'{n}: {seconds:.2f} s')
    return rows


def render_start(result: dict[str, Any]) -> str:
    """Return the table of times and memory."""
    rows = [[n, f'{row["seconds"]:.2f}', f'{statistics.median(row["megabytes"]):.0f}'] for n, row in result.items()]
    return tables.markdown(['explorers', 'first rollout, processes started, s', 'resident MB of one'], rows)


# -------------------------------------------------------------------------------------------------------------- worker

TRIES = 3


def measure_jobs(
    jobs: Sequence[dict[str, Any]], timeout: float, *before: str, **variables: str
) -> list[dict[str, Any]]:
    """Measure jobs in a new process, in an empty folder.

    Args:
        jobs: each has the environment, options of `xagents.make`, the number of rollouts, the number of rollouts that
            are not timed, and, if Ray starts the explorers, the number of processors for Ray.
        timeout: in seconds.
        before: words before the command.
        variables: environment variables.

    Raises:
        Failed: if there is no result.
    """
    return work([*before, *module('explorers.rates', jobs)], timeout, variables)['done']


@contextlib.contextmanager
def ray_cluster(processors: int) -> Iterator[None]:
    """Start Ray if there are processors for it. The process must be in a network namespace."""
    if not processors:
        yield
        return
    import ray

    quiet: dict[str, Any] = {'log_to_driver': False, 'logging_level': 'ERROR', 'include_dashboard': False}
    for left in reversed(range(TRIES)):
        try:
            ray.init(num_cpus=processors, **quiet)
            break
        except Exception:  # on a busy machine, Ray's limit of half a minute can be too short
            ray.shutdown()
            if not left:
                raise
    try:
        yield
    finally:
        ray.shutdown()


def measure(job: dict[str, Any]) -> dict[str, Any]:
    """Measure one job."""
    with ray_cluster(job.get('ray', 0)), contextlib.closing(xagents.make('ppo', job['env'], **job['make'])) as agent:
        return measure_rate(agent, job['rollouts'], job['skipped'])


# ----------------------------------------------------------------------------------------------------------------- Ray

EXPLORERS = 8
RAY_ROWS = {'sync': {}, '`--overlap`': OVERLAP}
RAY_ROLLOUTS, RAY_SKIPPED = 12, 3


def measure_ray(folder: Path, options: argparse.Namespace, log: Log) -> dict[str, Any]:
    """Measure both, with and without overlap, in turn, in one process in a namespace.

    Raises:
        Failed: if Ray is not installed, or there can be no namespace.
    """
    check_namespaces()
    rows: dict[str, Any] = {name: {'local': [], 'ray': []} for name in RAY_ROWS}
    for repeat in range(repeats_of(options)):
        jobs = [job_of(name, starter, options.seed + repeat, options.quick) for name in rows for starter in rows[name]]
        # Ray's sockets have long names, and its token is in the home folder
        with tempfile.TemporaryDirectory(prefix='ray-', dir='/tmp', ignore_cleanup_errors=True) as place:
            variables = {'RAY_USAGE_STATS_ENABLED': '0', 'RAY_TMPDIR': place, 'HOME': place, 'TMPDIR': place}
            done = iter(measure_jobs(jobs, options.timeout, *WITHOUT_NETWORK, **variables))
        for name, row in rows.items():
            for starter, rates in row.items():
                rates.append(next(done)['rate'])
                log(f'{name}, {starter}: {rates[-1]:.0f} steps/s')
    return {'rows': rows}


def job_of(name: str, starter: str, seed: int, quick: bool) -> dict[str, Any]:
    """Return the job of a row, with explorers of the run or of Ray."""
    rollouts, skipped = (4, 2) if quick else (RAY_ROLLOUTS, RAY_SKIPPED)
    job: dict[str, Any] = {'env': SLOW, 'rollouts': rollouts, 'skipped': skipped}
    job['make'] = {**PPO, **RAY_ROWS[name], 'explorers': EXPLORERS, 'seed': seed}
    if starter == 'ray':
        job['ray'] = EXPLORERS
        job['make'] |= {'cluster': 'ray', 'run_dir': f'{name.strip("`-")}-{seed}'}
    return job


def render_ray(result: dict[str, Any]) -> str:
    """Return the table of speeds with and without overlap."""
    rows = [
        [name, *map(tables.spread, row.values()), tables.spread(tables.ratios(row['ray'], row['local']), 2)]
        for name, row in result['rows'].items()
    ]
    return tables.markdown(['8 explorers', 'local, steps/s', 'started by Ray, steps/s', 'times'], rows)


if __name__ == '__main__':
    print(json.dumps({'done': [measure(job) for job in json.loads(sys.argv[1])]}), flush=True)
