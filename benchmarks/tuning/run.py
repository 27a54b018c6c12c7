"""What `xagents tune` was asked to reach: speed, kills, and what a search finds. `python -m benchmarks.tuning.run`."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from benchmarks import jobs as parts
from benchmarks.jobs import Part
from benchmarks.tuning.kills import measure_kills, render_kills
from benchmarks.tuning.search import measure_search, render_search
from benchmarks.tuning.speed import measure_jobs, measure_overhead, render_jobs, render_overhead

PACKAGES = ('xagents', 'optuna', 'tensorflow', 'keras', 'gymnasium', 'numpy')
PARTS = {
    'jobs': Part('Two workers beside one', measure_jobs, render_jobs, ('repeats',)),
    'overhead': Part('From the start of a trial to its first environment step', measure_overhead, render_overhead),
    'kills': Part('Killed at random instants', measure_kills, render_kills),
    'search': Part('The ready ranges beside the defaults', measure_search, render_search),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, keep, write; 1 when a part failed, 2 on wrong input."""
    parser = parts.make_parser('tuning', __doc__, PARTS)
    parser.add_argument('--repeats', type=int, default=3, help='of what two workers are timed by')
    options = parser.parse_args(arguments)
    if options.repeats < 1:
        parser.error(f'--repeats: got {options.repeats}, admits 1 or more')
    return parts.run(PARTS, parser, options, PACKAGES)


if __name__ == '__main__':
    sys.exit(main())
