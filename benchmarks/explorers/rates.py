"""How fast explorers make a run: by how many there are, ahead of learning, late, and of Pong."""

from __future__ import annotations

import argparse
import dataclasses
import statistics
from pathlib import Path
from typing import Any

from benchmarks import tables
from benchmarks.explorers.runs import SLOW, STRAGGLER, agent_of, explorers, pace
from benchmarks.explorers.worker import work
from benchmarks.jobs import Log
from benchmarks.speed.cases import PONG
from benchmarks.workers import xagents_worker

NUMBERS = (1, 2, 4, 8)
# rollouts of each measurement, and of them those that are not timed
ROLLOUTS, SKIPPED = 6, 2
LAGS = (0, 1, 2, 3, 4)
# a slow explorer takes a third of a second for its part of a rollout
LATE_ROLLOUTS, LATE_SKIPPED = 48, 8
LEAST_OF_SYNC = 3
PONG_ROWS: dict[str, dict[str, Any]] = {
    'none': {},
    '`--overlap`': {'overlap': True},
    '2, `--overlap`': {'overlap': True, 'explorers': 2},
}
PONG_ROLLOUTS, PONG_SKIPPED = 8, 2


def rate(env: str, seed: int, explorers: int | None, overlap: bool = False) -> float:
    """Return environment steps a second, start-up and compiling left out."""
    with agent_of(env, seed) as agent:
        return pace(agent, ROLLOUTS, SKIPPED, explorers=explorers, overlap=overlap)['rate']


def measure_scaling(folder: Path, options: argparse.Namespace, log: Log) -> dict[str, Any]:
    """Measure 1, 2, 4 and 8 explorers, with and without overlap, and none, in turn."""
    return measure_rates(SLOW, options, log)


def measure_cartpole(folder: Path, options: argparse.Namespace, log: Log) -> dict[str, Any]:
    """The same with an environment that takes no time."""
    return measure_rates('CartPole-v1', options, log)


def measure_rates(env: str, options: argparse.Namespace, log: Log) -> dict[str, Any]:
    """Return steps/s by row, one a repeat."""
    rows = [(None, False), *((n, False) for n in NUMBERS), *((n, True) for n in NUMBERS)]
    rates: dict[str, list[float]] = {}
    for repeat in range(repeats_of(options)):
        for number, overlap in rows[:2] if options.quick else rows:
            name = f'{number or "none"}{", overlap" if overlap else ""}'
            rates.setdefault(name, []).append(rate(env, options.seed + repeat, number, overlap))
            log(f'{name}: {rates[name][-1]:.0f} steps/s')
    return {'rates': rates}


def repeats_of(options: argparse.Namespace) -> int:
    """Return how often each is measured."""
    return 1 if options.quick else options.repeats


def render_rates(result: dict[str, Any]) -> str:
    """A row for each number, with what it is of as many times one explorer."""
    rows = ['| explorers | steps/s | times one explorer | of N |', '|---|---|---|---|']
    for name, rates in result['rates'].items():
        one = result['rates']['1, overlap' if 'overlap' in name else '1']
        times = [a / b for a, b in zip(rates, one, strict=True)]
        n = name.split(',')[0]
        share = [t / int(n) for t in times] if n.isdecimal() else []
        shown = tables.spread(share, 2) if share else ''
        rows.append(f'| {name} | {tables.spread(rates, 0)} | {tables.spread(times, 2)} | {shown} |')
    return '\n'.join(rows)


# ------------------------------------------------------------------------------------------------------- one is slow


def measure_straggler(folder: Path, options: argparse.Namespace, log: Log) -> dict[str, Any]:
    """Measure 8 explorers of which one takes five times as long, without a lag and with four, in turn."""
    rows: dict[str, Any] = {str(lag): {'rates': [], 'lags': []} for lag in ((0, 4) if options.quick else LAGS)}
    rollouts, skipped = (10, 4) if options.quick else (LATE_ROLLOUTS, LATE_SKIPPED)
    for repeat in range(repeats_of(options)):
        for lag, row in rows.items():
            lock = folder / f'{repeat}-{lag}'
            lock.touch()
            late = {'n_steps': 32, 'env_kwargs': {'lock': str(lock)}}
            with agent_of(STRAGGLER, options.seed + repeat, **late) as agent:
                found = pace(agent, rollouts, skipped, explorers=8, max_lag=int(lag) or None)
            row['rates'].append(found['rate'])
            row['lags'].append(found['most_lag'])
            log(f'max_lag {lag}: {found["rate"]:.0f} steps/s, most lag {found["most_lag"]}')
    return {'rows': rows}


def render_straggler(result: dict[str, Any]) -> str:
    """A row for each lag: how fast, beside none, and whether the bound was kept."""
    rows = []
    for lag, row in result['rows'].items():
        times = tables.ratios(row['rates'], result['rows']['0']['rates'])
        floor = str(LEAST_OF_SYNC) if lag == '4' else ''
        name = f'`--max-lag {lag}`' if int(lag) else 'sync'
        rows.append([name, tables.spread(row['rates']), tables.spread(times, 2), floor, max(row['lags'])])
    return tables.markdown(['', 'steps/s', 'times sync', 'at least', 'oldest fragment, rollouts'], rows)


# -------------------------------------------------------------------------------------------------------------- Pong


def measure_pong(folder: Path, options: argparse.Namespace, log: Log) -> dict[str, Any]:
    """Measure Pong from its frames, each in a process of its own, which has all threads that the project gives it."""
    rows: dict[str, list[float]] = {name: [] for name in PONG_ROWS}
    rollouts, skipped = (3, 2) if options.quick else (PONG_ROLLOUTS, PONG_SKIPPED)
    for repeat in range(repeats_of(options)):
        settings = dataclasses.replace(PONG, env='ALE/Pong-v5', seed=options.seed + repeat)
        for name, others in PONG_ROWS.items():
            job = {'env': settings.env, 'rollouts': rollouts, 'skipped': skipped}
            job['make'] = {**xagents_worker.arguments(settings), 'vector': 'sync', **others}
            rows[name].append(work([job], options.timeout)[0]['rate'])
            log(f'{name}: {rows[name][-1]:.0f} steps/s')
    return {'rows': rows}


def render_pong(result: dict[str, Any]) -> str:
    """A row for each, beside none and beside overlap alone."""
    rows = result['rows']
    cells = [
        [name, tables.spread(rates), *(tables.spread(tables.ratios(rates, rows[of]), 2) for of in [*rows][:2])]
        for name, rates in rows.items()
    ]
    return tables.markdown(['explorers', 'steps/s', 'times none', 'times `--overlap` alone'], cells)


# ------------------------------------------------------------------------------------------------------------- start


def measure_start(folder: Path, options: argparse.Namespace, log: Log) -> dict[str, Any]:
    """Measure how long the first rollout takes with explorers that have to start, and the memory of each."""
    rows: dict[str, Any] = {}
    for n in (1, 8):
        with agent_of('CartPole-v1', options.seed) as agent:
            stream = agent.train_iter(max_steps=8 * 2048, explorers=n)
            seconds = next(stream)['seconds/wait']
            memory = [process.memory_info().rss / 1e6 for process in explorers()]
            stream.close()
        rows[str(n)] = {'seconds': seconds, 'megabytes': memory}
        log(f'{n}: {seconds:.2f} s')
    return rows


def render_start(result: dict[str, Any]) -> str:
    """A row for each number."""
    rows = ['| explorers | first rollout, processes started, s | resident MB of one |', '|---|---|---|']
    for n, row in result.items():
        rows.append(f'| {n} | {row["seconds"]:.2f} | {statistics.median(row["megabytes"]):.0f} |')
    return '\n'.join(rows)
