"""What evaluations cost a run that take as long as its training: none, in the run, and with --eval-async.

`python -m benchmarks.speed.evaluations` trains PPO on Pendulum. All of its episodes are as long, so that evaluations can be
made as long as what is trained between two of them. Times go from the first iteration to the run's end, the last
evaluation included. On a machine that does other things, the processor time of the run's own process says more.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from statistics import median
from typing import Any, NamedTuple

import xagents

ITERATIONS, SIDE_BY_SIDE = 10, 10
STEPS = 8 * 256
SETTINGS: dict[str, Any] = {'n_envs': 8, 'n_steps': 256, 'seed': 1, 'quiet': True}
# some rows only reset, and are no steps
INTERVAL = int((ITERATIONS - 0.5) * STEPS)


class Taken(NamedTuple):
    """Seconds that a run took: on the clock, of the processor in its own process, and waiting for evaluations."""

    clock: float
    processor: float
    waiting: float


def trained(intervals: int, **options: Any) -> Taken:
    """Train, and return what it took from the first iteration to the end of the run."""
    start, waiting = None, 0.0
    with tempfile.TemporaryDirectory() as folder:
        agent = xagents.make('ppo', 'Pendulum-v1', **SETTINGS)
        logs = agent.train_iter(max_steps=intervals * ITERATIONS * STEPS, run_dir=f'{folder}/run', **options)
        for log in logs:
            start = start or (time.perf_counter(), time.process_time())
            waiting += log.get('seconds/evaluate', 0.0)
        assert start is not None
        taken = Taken(time.perf_counter() - start[0], time.process_time() - start[1], waiting)
        agent.close()
    return taken


def episodes_in(seconds: float) -> int:
    """Return how many episodes an evaluation plays in about so many seconds."""
    agent = xagents.make('ppo', 'Pendulum-v1', **SETTINGS)
    times = []
    for _ in range(5):
        start = time.perf_counter()
        agent.evaluate(5 * SIDE_BY_SIDE)
        times.append((time.perf_counter() - start) / 5)
    agent.close()
    return SIDE_BY_SIDE * max(round(seconds / min(times)), 1)


def main() -> None:
    """Print medians in seconds, and what they lose beside a run without evaluations."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--repeats', type=int, default=3, help='runs of each kind')
    parser.add_argument('--intervals', type=int, default=20, help='evaluations in a run')
    arguments = parser.parse_args()
    none: dict[str, Any] = {'final_episodes': 0}
    # the least of two: what else the machine does makes them longer
    seconds = min(trained(arguments.intervals, **none).clock for _ in range(2)) / arguments.intervals
    within = {'eval_frequency': INTERVAL, 'eval_episodes': episodes_in(seconds)}
    ways = {'no evaluations': none, 'in the run': within, '--eval-async': {**within, 'eval_async': True}}
    times: dict[str, list[Taken]] = {name: [] for name in ways}
    for _ in range(arguments.repeats):
        for name, options in ways.items():
            times[name].append(trained(arguments.intervals, **options))
    print(
        f'PPO, Pendulum-v1: {arguments.intervals} intervals of {ITERATIONS * STEPS:,} steps, evaluations of '
        f'{within["eval_episodes"]} episodes; medians of {arguments.repeats} runs'
    )
    alone = median(taken.clock for taken in times['no evaluations'])
    for name, runs in times.items():
        clock, processor, waiting = (median(values) for values in zip(*runs, strict=True))
        least, most = min(runs).clock, max(runs).clock
        print(
            f'{name:>14}: {clock:6.2f} s ({least:.2f} to {most:.2f}), {clock / alone - 1:+.1%}; '
            f'processor {processor:.2f} s, waiting for results {waiting:.2f} s'
        )


if __name__ == '__main__':
    main()
