"""Measure the speed of runs with explorers: by their number, with overlap, with a slow explorer, and on Pong."""

from __future__ import annotations

import argparse
import dataclasses
import statistics
from pathlib import Path
from typing import Any

from benchmarks import tables
from benchmarks.explorers.runs import SLOW, STRAGGLER, explorers, make_agent, measure_rate
from benchmarks.explorers.worker import measure_jobs
from benchmarks.jobs import Log
from benchmarks.speed.cases import PONG
from benchmarks.workers import xagents_worker

NUMBERS = (1, 2, 4, 8)
# rollouts of each measurement, and how many of them are not timed
ROLLOUTS, SKIPPED = 6, 2
LAGS = (0, 1, 2, 3, 4)
# the slow explorer takes a third of a second for its part of a rollout
LATE_ROLLOUTS, LATE_SKIPPED = 48, 8
LEAST_OF_SYNC = 3
PONG_ROWS: dict[str, dict[str, Any]] = {
    'none': {},
    '`--overlap`': {'overlap': True},
    '2, `--overlap`': {'overlap': True, 'explorers': 2},
}
PONG_ROLLOUTS, PONG_SKIPPED = 8, 2


def measure_scaling(folder: Path, options: argparse.Namespace, log: Log) -> dict[str, Any]:
    """Measure 1, 2, 4 and 8 explorers, with and without overlap, and none, in turn."""
    return measure_rates(SLOW, options, log)


def measure_cartpole(folder: Path, options: argparse.Namespace, log: Log) -> dict[str, Any]:
    """Measure the same with an environment that takes little time."""
    return measure_rates('CartPole-v1', options, log)


def measure_rates(env: str, options: argparse.Namespace, log: Log) -> dict[str, Any]:
    """Return steps per second by row, one for each repeat."""
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
        floor = str(LEAST_OF_SYNC) if lag == '4' else ''
        name = f'`--max-lag {lag}`' if int(lag) else 'sync'
        rows.append([name, tables.spread(row['rates']), tables.spread(times, 2), floor, max(row['lags'])])
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
