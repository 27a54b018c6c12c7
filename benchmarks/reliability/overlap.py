"""Measure the speed with `--overlap`, compared with the same run without it and with Stable-Baselines3, in turn."""

from __future__ import annotations

import argparse
import dataclasses
import statistics
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks import tables
from benchmarks.jobs import Log
from benchmarks.processes import Failed, module, work
from benchmarks.speed.cases import BASELINE, PONG, PPO, SB3, find_cases
from benchmarks.speed.run import find_pythons, measure
from benchmarks.workers.settings import Settings


@dataclass(frozen=True)
class Pair:
    """A run with overlap, and the run that it is compared with.

    Args:
        label: of its row.
        case: case of the speed benchmark, which gives the number of timed steps.
        settings: of both runs.
        asked: required ratio; None without a requirement.
        peer: whether the other run is that of Stable-Baselines3, instead of the run without overlap.
        most: largest number of repeats, for slow runs.
    """

    label: str
    case: str
    settings: Settings
    asked: float | None = None
    peer: bool = False
    most: int = 100


SHARED = replace(PPO, shared_network=True)
PAIRS = {
    'cartpole': Pair('PPO, CartPole-v1, 16 x 128', 'ppo-cartpole', PPO, 1.15),
    'cartpole-long': Pair('PPO, CartPole-v1, 16 x 1024', 'ppo-cartpole-long', replace(PPO, n_steps=1024), 1.5),
    'shared': Pair('PPO, CartPole-v1, 16 x 128, shared network', 'ppo-cartpole', SHARED),
    'peer': Pair(f'the same compared with {BASELINE}', 'ppo-cartpole', SHARED, 6, True),
}
BFLOAT16 = replace(PONG, precision='bfloat16')
PONG_PAIRS = {
    'float32': Pair('PPO, PongNoFrameskip-v4, 8 x 128, float32', 'ppo-pong', PONG),
    'bfloat16': Pair('PPO, PongNoFrameskip-v4, 8 x 128, bfloat16', 'ppo-pong', BFLOAT16, most=1),
}


def measure_overlap(folder: Path, options: argparse.Namespace, log: Log) -> dict[str, Any]:
    """Measure the pairs on CartPole."""
    return measure_pairs({name: PAIRS[name] for name in options.pairs or PAIRS}, options, log)


def measure_pong(folder: Path, options: argparse.Namespace, log: Log) -> dict[str, Any]:
    """Measure the pairs on Pong, where convolutions take nearly all of the time."""
    return measure_pairs(PONG_PAIRS, options, log)


def measure_pairs(chosen: dict[str, Pair], options: argparse.Namespace, log: Log) -> dict[str, Any]:
    """Measure pairs in turn, repeat by repeat; start-up and compiling are not timed.

    Returns:
        Steps per second of both runs of each pair, one for each repeat.
    """
    rates: dict[str, Any] = {name: {'overlap': [], 'other': [], 'parts': []} for name in chosen}
    for repeat in range(1 if options.quick else options.repeats):
        for name, pair in chosen.items():
            row = rates[name]
            if 'problem' in row or repeat >= pair.most:
                continue
            settings = replace(pair.settings, seed=pair.settings.seed + repeat)
            try:
                other = peer(settings, pair, options) if pair.peer else ours(settings, pair, False, options)
                overlap = ours(settings, pair, True, options)
            except Failed as error:
                row['problem'] = str(error)
                log(f'{name}: {error}')
                continue
            row['other'].append(other['steps'] / other['seconds'])
            row['overlap'].append(overlap['steps'] / overlap['seconds'])
            row['parts'].append({k: v / overlap['seconds'] for k, v in overlap.get('parts', {}).items()})
            ratio = row['overlap'][-1] / row['other'][-1]
            log(f'{name} {repeat + 1}: {row["other"][-1]:.0f} and {row["overlap"][-1]:.0f} steps/s: {ratio:.2f} times')
    return {'pairs': rates}


def ours(settings: Settings, pair: Pair, overlap: bool, options: argparse.Namespace) -> dict[str, Any]:
    """Measure xagents once."""
    (case,) = find_cases([pair.case])
    warmup, steps = case.quick if options.quick else (case.warmup, case.steps)
    job = {'task': 'overlap', 'settings': dataclasses.asdict(settings), 'warmup': warmup, 'steps': steps}
    return work(module('reliability.worker', {**job, 'overlap': overlap}), options.timeout)


def peer(settings: Settings, pair: Pair, options: argparse.Namespace) -> dict[str, Any]:
    """Measure Stable-Baselines3 once, as the speed benchmark does."""
    (case,) = find_cases([pair.case])
    python = find_pythons([replace(case, runs=(SB3,))], options)[SB3.peer]
    if isinstance(python, str):
        raise Failed(f'not installed: {python}')
    return measure(case, SB3, replace(settings, shared_network=False), python, options)


def render_overlap(result: dict[str, Any]) -> str:
    """Return the table of steps per second and their ratios."""
    heading = ['', 'compared with, steps/s', 'with `--overlap`, steps/s', 'times', 'asked', 'of the time']
    rows, problems = [], []
    for name, row in result['pairs'].items():
        pair = {**PAIRS, **PONG_PAIRS}[name]
        if row['overlap']:
            ratios = tables.spread(tables.ratios(row['overlap'], row['other']), 2)
            parts = {part for one in row['parts'] for part in one}
            shares = {part: statistics.median(one.get(part, 0.0) for one in row['parts']) for part in sorted(parts)}
            cells = [pair.label, tables.spread(row['other']), tables.spread(row['overlap']), ratios]
            cells += [f'{pair.asked:g}' if pair.asked else '']
            cells += [', '.join(f'{part} {tables.percent(share)}' for part, share in shares.items())]
            rows.append(cells)
        if 'problem' in row:
            problems.append(f'{pair.label}: {row["problem"]}')
    note = 'Shares of the time are those of the run with overlap, which collects and learns in parallel.'
    return tables.markdown(heading, rows, *tables.with_problems(note, problems))
