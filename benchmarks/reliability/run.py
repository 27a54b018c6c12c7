"""Measure exact resume, safety from kills, and the cost of a run directory: `python -m benchmarks.reliability.run`."""

import argparse
import functools
import sys
from collections.abc import Sequence

from benchmarks import jobs
from benchmarks.jobs import Part
from benchmarks.reliability.cost import BUFFER, COSTS, SECONDS, measure_cost, measure_memory, render_cost, render_memory
from benchmarks.reliability.exact import measure_exact, render_exact
from benchmarks.reliability.fuzz import EXAMPLES, measure_fuzz, render_fuzz
from benchmarks.reliability.kills import measure_kills, render_kills
from benchmarks.reliability.overlap import PAIRS, PONG_PAIRS, measure_pairs, render_overlap
from benchmarks.reliability.runs import SETTINGS
from benchmarks.speed.run import add_python

PACKAGES = ('xagents', 'tensorflow', 'keras', 'gymnasium', 'numpy', 'ale-py', 'hypothesis')
KILLS = ('agents', 'kills', 'save_seconds', 'seed')
PARTS = {
    'exact': Part(
        '2N steps compared with N, a stop and N more', measure_exact, render_exact, ('agents', 'steps', 'seed')
    ),
    'kills': Part('Trainings killed at random times', measure_kills, render_kills, KILLS),
    'cost': Part('Time for checkpoints', measure_cost, render_cost, ('costs', 'seconds')),
    'memory': Part('Resident memory of a long run', measure_memory, render_memory, ('steps',)),
    'overlap': Part(
        'The same run with and without `--overlap`',
        functools.partial(measure_pairs, PAIRS),
        render_overlap,
        ('pairs', 'repeats'),
    ),
    'pong': Part('`--overlap` on Pong', functools.partial(measure_pairs, PONG_PAIRS), render_overlap, ('repeats',)),
    'fuzz': Part('Random command lines and files', measure_fuzz, render_fuzz, ('examples', 'seed')),
}


def make_parser() -> argparse.ArgumentParser:
    """Return the command line."""
    parser = jobs.make_parts_parser('reliability.run', __doc__, PARTS)
    add = parser.add_argument
    add('--agents', nargs='+', choices=SETTINGS, metavar='AGENT', help='exact, kills: only these agents')
    add('--steps', type=jobs.positive, help='exact: N; memory: steps of the run (10 million)')
    add('--kills', type=jobs.positive, help='kills: number of kills (100)')
    add('--save-seconds', type=float, default=2.0, help='kills: --save-seconds of the runs (2)')
    add('--costs', nargs='+', choices=COSTS, metavar='CASE', help=f'cost: some of {", ".join(COSTS)}')
    add('--seconds', type=float, help=f'cost: of training, after {BUFFER} transitions ({SECONDS:g})')
    add('--pairs', nargs='+', choices=PAIRS, metavar='PAIR', help=f'overlap: some of {", ".join(PAIRS)}')
    add('--repeats', type=jobs.positive, default=5, help='overlap, pong: number of measurements')
    add('--examples', type=jobs.positive, help=f'fuzz: number of lines and files ({EXAMPLES})')
    add('--seed', type=int, default=1, help='exact, kills, fuzz: seed of the random choices')
    add('--timeout', type=float, default=3600, help='largest number of seconds of a process')
    add_python(parser)
    parser.set_defaults(cleanrl=None)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, keep, write. Return 1 if a part fails; exit with 2 on wrong input."""
    return jobs.run_parts(make_parser(), arguments, PARTS, PACKAGES)


if __name__ == '__main__':
    sys.exit(main())
