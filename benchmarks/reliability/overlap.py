"""Measure the speed with `--overlap`, compared with the same run without it and with Stable-Baselines3, in turn."""

import argparse
import statistics
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks import tables
from benchmarks.jobs import Log
from benchmarks.processes import Failed
from benchmarks.speed.cases import BASELINE, GYMNASIUM, PONG, PPO, SB3, Run, find_cases
from benchmarks.speed.run import find_pythons, measure
from benchmarks.workers.settings import Settings


@dataclass(frozen=True)
class Pair:
    """A run with overlap, and the run that it is compared with.

    Args:
        label: of its row.
        case: case of the speed benchmark, which gives the number of timed steps.
        settings: of both runs.
        required: smallest ratio that is required, if any.
        other: what it is compared with: xagents without overlap, or another library.
        most: largest number of repeats, for slow runs.
    """

    label: str
    case: str
    settings: Settings
    required: float | None = None
    other: Run = GYMNASIUM
    most: int = 100


OVERLAP = replace(GYMNASIUM, options={'overlap': True})
SHARED = replace(PPO, shared_network=True)
PAIRS = {
    'cartpole': Pair('PPO, CartPole-v1, 16 x 128', 'ppo-cartpole', PPO, 1.15),
    'cartpole-long': Pair('PPO, CartPole-v1, 16 x 1024', 'ppo-cartpole-long', replace(PPO, n_steps=1024), 1.5),
    'shared': Pair('PPO, CartPole-v1, 16 x 128, shared network', 'ppo-cartpole', SHARED),
    'peer': Pair(f'the same compared with {BASELINE}', 'ppo-cartpole', SHARED, 6, SB3),
}
BFLOAT16 = replace(PONG, precision='bfloat16')
PONG_PAIRS = {
    'float32': Pair('PPO, PongNoFrameskip-v4, 8 x 128, float32', 'ppo-pong', PONG),
    'bfloat16': Pair('PPO, PongNoFrameskip-v4, 8 x 128, bfloat16', 'ppo-pong', BFLOAT16, most=1),
}


def measure_pairs(pairs: dict[str, Pair], folder: Path, options: argparse.Namespace, log: Log) -> dict[str, Any]:
    """Measure pairs in turn, repeat by repeat; start-up and compiling are not timed.

    Returns:
        Steps per second of both runs of each pair, one for each repeat.
    """
    chosen = {name: pair for name, pair in pairs.items() if name in (options.pairs or pairs)} or pairs
    rates: dict[str, Any] = {name: {'overlap': [], 'other': [], 'parts': []} for name in chosen}
    for repeat in range(1 if options.quick else options.repeats):
        for name, pair in chosen.items():
            row = rates[name]
            if 'problem' in row or repeat >= pair.most:
                continue
            settings = replace(pair.settings, seed=pair.settings.seed + repeat)
            try:
                other, overlap = (measure_once(run, pair, settings, options) for run in (pair.other, OVERLAP))
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


def measure_once(run: Run, pair: Pair, settings: Settings, options: argparse.Namespace) -> dict[str, Any]:
    """Measure one run, as the speed benchmark does."""
    (case,) = find_cases([pair.case])
    if run.peer == 'xagents':
        return measure(case, run, settings, Path(sys.executable), options)
    python = find_pythons([replace(case, runs=(run,))], options)[run.peer]
    if isinstance(python, str):
        raise Failed(f'not installed: {python}')
    return measure(case, run, replace(settings, shared_network=False), python, options)


def render_overlap(result: dict[str, Any]) -> str:
    """Return the table of steps per second and their ratios."""
    heading = ['', 'compared with, steps/s', 'with `--overlap`, steps/s', 'times', 'required', 'of the time']
    rows, problems = [], []
    for name, row in result['pairs'].items():
        pair = {**PAIRS, **PONG_PAIRS}[name]
        if row['overlap']:
            ratios = tables.spread(tables.ratios(row['overlap'], row['other']), 2)
            parts = {part for one in row['parts'] for part in one}
            shares = {part: statistics.median(one.get(part, 0.0) for one in row['parts']) for part in sorted(parts)}
            cells = [pair.label, tables.spread(row['other']), tables.spread(row['overlap']), ratios]
            cells += [f'{pair.required:g}' if pair.required else '']
            cells += [', '.join(f'{part} {tables.percent(share)}' for part, share in shares.items())]
            rows.append(cells)
        if 'problem' in row:
            problems.append(f'{pair.label}: {row["problem"]}')
    note = 'Shares of the time are those of the run with overlap, which collects and learns in parallel.'
    return tables.markdown(heading, rows, *tables.with_problems(note, problems))
