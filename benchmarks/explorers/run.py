"""Measure speed, cost and safety of explorers: `python -m benchmarks.explorers.run`."""

import argparse
import functools
import sys
from collections.abc import Sequence

from benchmarks import jobs
from benchmarks.explorers import rates
from benchmarks.explorers.cost import measure_cost, render_cost
from benchmarks.explorers.kills import measure_kills, measure_learner, render_kills, render_learner
from benchmarks.explorers.machines import measure_machines, render_machines
from benchmarks.explorers.messages import MESSAGES, measure_messages, render_messages
from benchmarks.explorers.runs import SLOW
from benchmarks.jobs import Part

PACKAGES = ('xagents', 'tensorflow', 'keras', 'gymnasium', 'numpy', 'grpcio', 'ale-py', 'ray')
BOTH = ('repeats', 'seed')
SCALING = 'An environment with a millisecond a step: PPO, 16 x 128'
PARTS = {
    'scaling': Part(SCALING, functools.partial(rates.measure_rates, SLOW), rates.render_rates, BOTH),
    'ray': Part('The same, 8 explorers started by Ray', rates.measure_ray, rates.render_ray, BOTH),
    'straggler': Part(
        'One explorer of 8 five times slower: PPO, 16 x 32', rates.measure_straggler, rates.render_straggler, BOTH
    ),
    'pong': Part('Pong from its frames: PPO, 8 x 128', rates.measure_pong, rates.render_pong, BOTH),
    'cartpole': Part(
        'CartPole itself', functools.partial(rates.measure_rates, 'CartPole-v1'), rates.render_rates, BOTH
    ),
    'start': Part('Start and memory', rates.measure_start, rates.render_start, ('seed',)),
    'cost': Part('Cost of a fragment for the learner: PPO, 128 steps', measure_cost, render_cost, ('seed',)),
    'kills': Part('Explorers killed at random times', measure_kills, render_kills, ('kills', 'seed')),
    'learner': Part('Learners killed at random times', measure_learner, render_learner, ('seed',)),
    'machines': Part('Explorers on another machine', measure_machines, render_machines),
    'messages': Part('Random messages', measure_messages, render_messages, ('messages', 'seed')),
}


def make_parser() -> argparse.ArgumentParser:
    """Return the command line."""
    parser = jobs.make_parts_parser('explorers.run', __doc__, PARTS)
    parser.add_argument('--repeats', type=jobs.positive, default=3, help='number of measurements of each speed')
    parser.add_argument('--kills', type=jobs.positive, default=100, help='kills: number of kills')
    parser.add_argument('--messages', type=jobs.positive, default=MESSAGES, help='messages: number of messages')
    parser.add_argument('--seed', type=int, default=1, help='seed of the runs and of random choices')
    parser.add_argument('--timeout', type=float, default=1800, help='largest number of seconds of a process')
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure the parts that the command line names."""
    return jobs.run_parts(make_parser(), arguments, PARTS, PACKAGES)


if __name__ == '__main__':
    sys.exit(main())
