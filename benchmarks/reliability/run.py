"""What a run promises: exact resume, safety from kills, little cost. `python -m benchmarks.reliability.run`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks import jobs as parts
from benchmarks.jobs import Part
from benchmarks.reliability.cost import BUFFER, COSTS, SECONDS, measure_cost, measure_memory, render_cost, render_memory
from benchmarks.reliability.exact import measure_exact, render_exact
from benchmarks.reliability.fuzz import EXAMPLES, measure_fuzz, render_fuzz
from benchmarks.reliability.kills import measure_kills, render_kills
from benchmarks.reliability.overlap import PAIRS, measure_overlap, measure_pong, render_overlap
from benchmarks.reliability.runs import SETTINGS
from benchmarks.venvs import CACHE

PACKAGES = ('xagents', 'tensorflow', 'keras', 'gymnasium', 'numpy', 'ale-py', 'hypothesis')


PARTS = {
    'exact': Part(
        '2N steps beside N, a stop and N more', measure_exact, render_exact, ('agents', 'steps', 'seed')
    ),
    'kills': Part(
        'Trainings killed at random instants',
        measure_kills,
        render_kills,
        ('agents', 'kills', 'save_seconds', 'seed'),
    ),
    'cost': Part('What checkpoints take of the time', measure_cost, render_cost, ('costs', 'seconds')),
    'memory': Part('Resident memory of a long run', measure_memory, render_memory, ('steps',)),
    'overlap': Part('`--overlap` beside the same run without', measure_overlap, render_overlap, ('pairs', 'repeats')),
    'pong': Part('`--overlap` on Pong', measure_pong, render_overlap, ('repeats',)),
    'fuzz': Part('Random command lines and files', measure_fuzz, render_fuzz, ('examples', 'seed')),
}  # fmt: skip


def make_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = parts.make_parser('reliability', __doc__, PARTS)
    parser.add_argument(
        '--agents', nargs='+', choices=SETTINGS, metavar='AGENT', help='exact, kills: these agents only'
    )
    parser.add_argument('--steps', type=int, help='exact: N; memory: steps of the run (10 million)')
    parser.add_argument('--kills', type=int, help='kills: how many (100)')
    parser.add_argument('--save-seconds', type=float, default=2.0, help='kills: of the runs (2)')
    parser.add_argument('--costs', nargs='+', choices=COSTS, metavar='CASE', help=f'cost: of {", ".join(COSTS)}')
    parser.add_argument('--seconds', type=float, help=f'cost: of training, after {BUFFER} transitions ({SECONDS:g})')
    parser.add_argument('--pairs', nargs='+', choices=PAIRS, metavar='PAIR', help=f'overlap: of {", ".join(PAIRS)}')
    parser.add_argument('--repeats', type=int, default=5, help='overlap, pong: how often each is measured')
    parser.add_argument('--examples', type=int, help=f'fuzz: how many lines and files ({EXAMPLES})')
    parser.add_argument('--seed', type=int, default=1, help='exact, kills, fuzz: of what is random')
    parser.add_argument('--timeout', type=float, default=3600, help='seconds that one measured process may take')
    parser.add_argument(
        '--python',
        nargs='+',
        default=[],
        metavar='PEER=PYTHON',
        help='overlap: a library in an environment that exists',
    )
    parser.add_argument('--cache', type=Path, default=CACHE, help='overlap: where environments are kept')
    parser.set_defaults(cleanrl=None)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, keep, write; 1 when a part failed, 2 on wrong input."""
    parser = make_parser()
    options = parser.parse_args(arguments)
    for name in ('steps', 'kills', 'seconds', 'repeats', 'examples'):
        if getattr(options, name) is not None and not getattr(options, name) > 0:
            parser.error(f'--{name}: got {getattr(options, name)}, admits more than 0')
    if any('=' not in pair for pair in options.python):
        parser.error(f'--python: got {" ".join(options.python)}, admits PEER=PYTHON pairs')
    return parts.run(PARTS, parser, options, PACKAGES)


if __name__ == '__main__':
    sys.exit(main())
