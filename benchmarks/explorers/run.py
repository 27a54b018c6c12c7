"""Measure speed, cost and safety of explorers: `python -m benchmarks.explorers.run`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from benchmarks import jobs
from benchmarks.explorers import rates
from benchmarks.explorers.cost import measure_cost, render_cost
from benchmarks.explorers.kills import measure_kills, render_kills
from benchmarks.explorers.learner import measure_learner, render_learner
from benchmarks.explorers.machines import measure_machines, render_machines
from benchmarks.explorers.messages import MESSAGES, measure_messages, render_messages
from benchmarks.explorers.placement import measure_ray, render_ray
from benchmarks.jobs import Part

PACKAGES = ('xagents', 'tensorflow', 'keras', 'gymnasium', 'numpy', 'grpcio', 'ale-py', 'ray')
BOTH = ('repeats', 'seed')
SCALING = 'An environment with a millisecond a step: PPO, 16 x 128'
PARTS = {
    'scaling': Part(SCALING, rates.measure_scaling, rates.render_rates, BOTH),
    'ray': Part('The same, 8 explorers started by Ray', measure_ray, render_ray, BOTH),
    'straggler': Part(
        'One explorer of 8 five times slower: PPO, 16 x 32', rates.measure_straggler, rates.render_straggler, BOTH
    ),
    'pong': Part('Pong from its frames: PPO, 8 x 128', rates.measure_pong, rates.render_pong, BOTH),
    'cartpole': Part('CartPole itself', rates.measure_cartpole, rates.render_rates, BOTH),
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
    parser.add_argument('--repeats', type=int, default=3, help='number of measurements of each speed')
    parser.add_argument('--kills', type=int, default=100, help='kills: number of kills')
    parser.add_argument('--messages', type=int, default=MESSAGES, help='messages: number of messages')
    parser.add_argument('--seed', type=int, default=1, help='seed of the runs and of random choices')
    parser.add_argument('--timeout', type=float, default=1800, help='largest number of seconds of a process')
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure the parts that the command line names."""
    parser = make_parser()
    return jobs.run_parts(PARTS, parser, parser.parse_args(arguments), PACKAGES)


if __name__ == '__main__':
    sys.exit(main())
