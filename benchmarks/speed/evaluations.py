"""Measure what evaluations cost that take as long as training: none, in the run, and with --eval-async.

`python -m benchmarks.speed.evaluations` trains PPO on Pendulum. Its episodes have equal lengths, so that an evaluation
can be made as long as the training between two evaluations. A time runs from the first iteration to the end of the run
and includes the last evaluation. If the machine runs other processes, read the processor time of the run's own process.
"""

import argparse
import tempfile
import time
from statistics import median
from typing import Any, NamedTuple

import xagents

ITERATIONS, IN_PARALLEL = 10, 10
STEPS = 8 * 256
SETTINGS: dict[str, Any] = {'n_envs': 8, 'n_steps': 256, 'seed': 1, 'quiet': True}
# some rows of a rollout only reset an environment and are not counted as steps
INTERVAL = int((ITERATIONS - 0.5) * STEPS)


class Times(NamedTuple):
    """Seconds of a run: on the clock, of the processor in its own process, and waiting for evaluations."""

    clock: float
    processor: float
    waiting: float


def train(intervals: int, **options: Any) -> Times:
    """Train and return the times from the first iteration to the end of the run."""
    start, waiting = None, 0.0
    with tempfile.TemporaryDirectory() as folder:
        agent = xagents.make('ppo', 'Pendulum-v1', **SETTINGS)
        logs = agent.train_iter(max_steps=intervals * ITERATIONS * STEPS, run_dir=f'{folder}/run', **options)
        for log in logs:
            start = start or (time.perf_counter(), time.process_time())
            waiting += log.get('seconds/evaluate', 0.0)
        assert start is not None
        times = Times(time.perf_counter() - start[0], time.process_time() - start[1], waiting)
        agent.close()
    return times


def episodes_in(seconds: float) -> int:
    """Return the number of episodes that an evaluation plays in about so many seconds."""
    agent = xagents.make('ppo', 'Pendulum-v1', **SETTINGS)
    times = []
    for _ in range(5):
        start = time.perf_counter()
        agent.evaluate(5 * IN_PARALLEL)
        times.append((time.perf_counter() - start) / 5)
    agent.close()
    return IN_PARALLEL * max(round(seconds / min(times)), 1)


def main() -> None:
    """Print medians in seconds, and the difference from a run without evaluations."""
    parser = argparse.ArgumentParser(prog='python -m benchmarks.speed.evaluations', description=__doc__.splitlines()[0])
    parser.add_argument('--repeats', type=int, default=3, help='number of runs of each kind')
    parser.add_argument('--intervals', type=int, default=20, help='number of evaluations in a run')
    arguments = parser.parse_args()
    none: dict[str, Any] = {'final_episodes': 0}
    # the smaller of two times is less affected by other processes
    seconds = min(train(arguments.intervals, **none).clock for _ in range(2)) / arguments.intervals
    in_run = {'eval_frequency': INTERVAL, 'eval_episodes': episodes_in(seconds)}
    ways = {'no evaluations': none, 'in the run': in_run, '--eval-async': {**in_run, 'eval_async': True}}
    times: dict[str, list[Times]] = {name: [] for name in ways}
    for _ in range(arguments.repeats):
        for name, options in ways.items():
            times[name].append(train(arguments.intervals, **options))
    print(
        f'PPO, Pendulum-v1: {arguments.intervals} intervals of {ITERATIONS * STEPS:,} steps, evaluations of '
        f'{in_run["eval_episodes"]} episodes; medians of {arguments.repeats} runs'
    )
    without = median(run.clock for run in times['no evaluations'])
    for name, runs in times.items():
        clock, processor, waiting = (median(values) for values in zip(*runs, strict=True))
        least, most = min(runs).clock, max(runs).clock
        print(
            f'{name:>14}: {clock:6.2f} s ({least:.2f} to {most:.2f}), {clock / without - 1:+.1%}; '
            f'processor {processor:.2f} s, waiting for results {waiting:.2f} s'
        )


if __name__ == '__main__':
    main()
