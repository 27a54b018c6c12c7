"""What evaluations cost a run that take as long as its training: none, in the run, and with --eval-async.

`python benchmarks/evaluations.py` trains PPO on Pendulum. All of its episodes are as long, so that evaluations can be
made as long as what is trained between two of them. Times go from the first iteration to the run's end, the last
evaluation included.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import xagents

ITERATIONS, SIDE_BY_SIDE = 10, 10
STEPS = 8 * 256
SETTINGS: dict[str, Any] = {'n_envs': 8, 'n_steps': 256, 'seed': 1, 'quiet': True}
INTERVAL = ITERATIONS * STEPS


def trained(intervals: int, **options: Any) -> float:
    """Train, and return the seconds from the first iteration to the end of the run."""
    start = 0.0
    with tempfile.TemporaryDirectory() as folder:
        agent = xagents.make('ppo', 'Pendulum-v1', **SETTINGS)
        logs = agent.train_iter(max_steps=intervals * INTERVAL + STEPS, run_dir=f'{folder}/run', **options)
        for _ in logs:
            start = start or time.perf_counter()
        seconds = time.perf_counter() - start
        agent.close()
    return seconds


def episodes_in(seconds: float) -> int:
    """Return how many episodes an evaluation plays in about so many seconds."""
    agent = xagents.make('ppo', 'Pendulum-v1', **SETTINGS)
    agent.evaluate(SIDE_BY_SIDE)
    start = time.perf_counter()
    agent.evaluate(5 * SIDE_BY_SIDE)
    each = (time.perf_counter() - start) / 5
    agent.close()
    return SIDE_BY_SIDE * max(round(seconds / each), 1)


def main() -> None:
    """Print medians in seconds, and what they lose beside a run without evaluations."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--repeats', type=int, default=3, help='runs of each kind')
    parser.add_argument('--intervals', type=int, default=20, help='evaluations in a run')
    arguments = parser.parse_args()
    none: dict[str, Any] = {'final_episodes': 0}
    seconds = trained(arguments.intervals, **none) / arguments.intervals
    within = {'eval_frequency': INTERVAL, 'eval_episodes': episodes_in(seconds)}
    ways = {'no evaluations': none, 'in the run': within, '--eval-async': {**within, 'eval_async': True}}
    times: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(arguments.repeats):
        for name, options in ways.items():
            times[name].append(trained(arguments.intervals, **options))
    print(
        f'PPO, Pendulum-v1: {arguments.intervals} intervals of {INTERVAL:,} steps, evaluations of '
        f'{within["eval_episodes"]} episodes; medians of {arguments.repeats} runs'
    )
    alone = median(times['no evaluations'])
    for name, taken in times.items():
        loss = median(taken) / alone - 1
        print(f'{name:>14}: {median(taken):6.2f} s ({min(taken):.2f} to {max(taken):.2f}), {loss:+.1%}')


if __name__ == '__main__':
    main()
