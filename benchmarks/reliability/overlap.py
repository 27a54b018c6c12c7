"""Speed with `--overlap` beside the same run without it, and beside Stable-Baselines3, in turn."""

from __future__ import annotations

import argparse
import dataclasses
import statistics
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks import tables
from benchmarks.jobs import Log
from benchmarks.reliability.cost import work
from benchmarks.speed.cases import BASELINE, PONG, PPO, SB3, find_cases
from benchmarks.speed.run import Failed, find_pythons, measure
from benchmarks.workers.settings import Settings


@dataclass(frozen=True)
class Pair:
    """The same run with overlap and beside something.

    Args:
        label: of its row.
        case: of the benchmark of speed, which says how many steps are timed.
        settings: of both.
        asked: the least ratio; None where it is only reported.
        beside_peer: whether Stable-Baselines3 stands beside it, and not the run without overlap.
        most: how often it is measured at most, where that takes long.
    """

    label: str
    case: str
    settings: Settings
    asked: float | None = None
    beside_peer: bool = False
    most: int = 100


SHARED = replace(PPO, shared_network=True)
PAIRS = {
    'cartpole': Pair('PPO, CartPole-v1, 16 x 128', 'ppo-cartpole', PPO, 1.15),
    'cartpole-long': Pair('PPO, CartPole-v1, 16 x 1024', 'ppo-cartpole-long', replace(PPO, n_steps=1024), 1.5),
    'shared': Pair('PPO, CartPole-v1, 16 x 128, shared network', 'ppo-cartpole', SHARED),
    'peer': Pair(f'the same beside {BASELINE}', 'ppo-cartpole', SHARED, 6, True),
}
BFLOAT16 = replace(PONG, precision='bfloat16')
PONG_PAIRS = {
    'float32': Pair('PPO, PongNoFrameskip-v4, 8 x 128, float32', 'ppo-pong', PONG),
    'bfloat16': Pair('PPO, PongNoFrameskip-v4, 8 x 128, bfloat16', 'ppo-pong', BFLOAT16, most=1),
}


def measure_overlap(folder: Path, options: argparse.Namespace, log: Log) -> dict[str, Any]:
    """Measure the pairs that the command line names, of CartPole."""
    return measure_pairs({name: PAIRS[name] for name in options.pairs or PAIRS}, options, log)


def measure_pong(folder: Path, options: argparse.Namespace, log: Log) -> dict[str, Any]:
    """Measure the pairs of Pong, where nearly all the time is that of the convolutions."""
    return measure_pairs(PONG_PAIRS, options, log)


def measure_pairs(chosen: dict[str, Pair], options: argparse.Namespace, log: Log) -> dict[str, Any]:
    """Measure pairs in turn, repeat by repeat; what took the place of start-up and compiling is not timed.

    Returns:
        Steps/s of both sides of each pair, one a repeat.
    """
    rates: dict[str, Any] = {name: {'overlap': [], 'beside': [], 'parts': []} for name in chosen}
    for repeat in range(1 if options.quick else options.repeats):
        for name, pair in chosen.items():
            row = rates[name]
            if 'problem' in row or repeat >= pair.most:
                continue
            settings = replace(pair.settings, seed=pair.settings.seed + repeat)
            try:
                beside = peer(settings, pair, options) if pair.beside_peer else ours(settings, pair, False, options)
                overlap = ours(settings, pair, True, options)
            except Failed as error:
                row['problem'] = str(error)
                log(f'{name}: {error}')
                continue
            row['beside'].append(beside['steps'] / beside['seconds'])
            row['overlap'].append(overlap['steps'] / overlap['seconds'])
            row['parts'].append({k: v / overlap['seconds'] for k, v in overlap.get('parts', {}).items()})
            ratio = row['overlap'][-1] / row['beside'][-1]
            log(f'{name} {repeat + 1}: {row["beside"][-1]:.0f} and {row["overlap"][-1]:.0f} steps/s: {ratio:.2f} times')
    return {'pairs': rates}


def ours(settings: Settings, pair: Pair, overlap: bool, options: argparse.Namespace) -> dict[str, Any]:
    """Measure xagents once."""
    (case,) = find_cases([pair.case])
    warmup, steps = case.quick if options.quick else (case.warmup, case.steps)
    job = {'task': 'overlap', 'settings': dataclasses.asdict(settings), 'warmup': warmup, 'steps': steps}
    return work({**job, 'overlap': overlap}, options.timeout)


def peer(settings: Settings, pair: Pair, options: argparse.Namespace) -> dict[str, Any]:
    """Measure Stable-Baselines3 once, as the benchmark of speed does."""
    (case,) = find_cases([pair.case])
    python = find_pythons([replace(case, runs=(SB3,))], options)[SB3.peer]
    if isinstance(python, str):
        raise Failed(f'not installed: {python}')
    return measure(case, SB3, replace(settings, shared_network=False), python, options)


def render_overlap(result: dict[str, Any]) -> str:
    """The table of steps/s and their ratios, pair by pair."""
    heading = ['', 'beside, steps/s', 'with `--overlap`, steps/s', 'times', 'asked', 'of the time']
    rows, problems = [], []
    for name, row in result['pairs'].items():
        pair = {**PAIRS, **PONG_PAIRS}[name]
        if row['overlap']:
            ratios = tables.spread(tables.ratios(row['overlap'], row['beside']), 2)
            parts = {part for one in row['parts'] for part in one}
            shares = {part: statistics.median(one.get(part, 0.0) for one in row['parts']) for part in sorted(parts)}
            cells = [pair.label, tables.spread(row['beside']), tables.spread(row['overlap']), ratios]
            cells += [f'{pair.asked:g}' if pair.asked else '']
            cells += [', '.join(f'{part} {100 * share:.0f} %' for part, share in shares.items())]
            rows.append(cells)
        if 'problem' in row:
            problems.append(f'- {pair.label}: {row["problem"]}')
    note = 'Where the time goes is that of the run with overlap, collecting and learning side by side.'
    return tables.markdown(heading, rows, note, *([''] if problems else []), *problems)
