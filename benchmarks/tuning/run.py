"""Measure `xagents tune`: speed, kills, and the results of a search. `python -m benchmarks.tuning.run`."""

import sys
from collections.abc import Sequence

from benchmarks import jobs
from benchmarks.jobs import Part
from benchmarks.tuning.kills import measure_kills, render_kills
from benchmarks.tuning.search import measure_search, render_search
from benchmarks.tuning.speed import measure_jobs, measure_overhead, render_jobs, render_overhead

PACKAGES = ('xagents', 'optuna', 'tensorflow', 'keras', 'gymnasium', 'numpy')
PARTS = {
    'jobs': Part('Two workers compared with one', measure_jobs, render_jobs, ('repeats',)),
    'overhead': Part('From the start of a trial to its first environment step', measure_overhead, render_overhead),
    'kills': Part('Killed at random times', measure_kills, render_kills),
    'search': Part('The ready ranges compared with the defaults', measure_search, render_search),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, keep, write. Return 1 if a part fails; exit with 2 on wrong input."""
    parser = jobs.make_parts_parser('tuning.run', __doc__, PARTS)
    parser.add_argument('--repeats', type=jobs.positive, default=3, help='jobs: number of measurements')
    return jobs.run_parts(parser, arguments, PARTS, PACKAGES)


if __name__ == '__main__':
    sys.exit(main())
