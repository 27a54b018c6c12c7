"""What explorers give, take and promise: `python -m benchmarks.explorers.run`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from benchmarks import jobs as parts
from benchmarks.explorers import rates
from benchmarks.explorers.cost import measure_cost, render_cost
from benchmarks.explorers.kills import measure_kills, render_kills
from benchmarks.explorers.learner import measure_learner, render_learner
from benchmarks.explorers.machines import measure_machines, render_machines
from benchmarks.explorers.messages import MESSAGES, measure_messages, render_messages
from benchmarks.explorers.placement import measure_ray, render_ray
from benchmarks.jobs import Part

PACKAGES = ('xagents', 'tensorflow', 'keras', 'gymnasium', 'numpy', 'grpcio', 'ale-py', 'ray')
TWICE = ('repeats', 'seed')

PARTS = {
    'scaling': Part(
        'An environment with a millisecond a step: PPO, 16 x 128', rates.measure_scaling, rates.render_rates, TWICE
    ),
    'ray': Part('The same, 8 explorers placed by Ray', measure_ray, render_ray, TWICE),
    'straggler': Part(
        'One explorer of 8 five times slower: PPO, 16 x 32', rates.measure_straggler, rates.render_straggler, TWICE
    ),
    'pong': Part('Pong from its frames: PPO, 8 x 128', rates.measure_pong, rates.render_pong, TWICE),
    'cartpole': Part('CartPole itself', rates.measure_cartpole, rates.render_rates, TWICE),
    'start': Part('Start and memory', rates.measure_start, rates.render_start, ('seed',)),
    'cost': Part('What a fragment costs the learner: PPO, 128 steps', measure_cost, render_cost, ('seed',)),
    'kills': Part('Explorers killed at random instants', measure_kills, render_kills, ('kills', 'seed')),
    'learner': Part('Learners killed at random instants', measure_learner, render_learner, ('seed',)),
    'machines': Part('Explorers on another machine', measure_machines, render_machines),
    'messages': Part('Messages at random', measure_messages, render_messages, ('messages', 'seed')),
}


def make_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = parts.make_parser('explorers', __doc__, PARTS)
    parser.add_argument('--repeats', type=int, default=3, help='of speeds: how often each is measured')
    parser.add_argument('--kills', type=int, default=100, help='kills: how many')
    parser.add_argument('--messages', type=int, default=MESSAGES, help='messages: how many')
    parser.add_argument('--seed', type=int, default=1, help='of the runs, and of what is random')
    parser.add_argument('--timeout', type=float, default=1800, help='seconds that one measured process may take')
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure what the command line names."""
    parser = make_parser()
    return parts.run(PARTS, parser, parser.parse_args(arguments), PACKAGES)


if __name__ == '__main__':
    sys.exit(main())
