"""Measure how often `--versus` of `xagents compare` finds a difference: `python -m benchmarks.learning.verdicts`.

Scores are normally distributed. The groups are equal, or differ by 1.5 standard deviations. Prints a Markdown table.
"""

import argparse

import numpy as np

from benchmarks import jobs, tables
from xagents.reports.aggregates import estimate, iqm_difference, permutation_p_value

CASES = ((1, 3), (1, 5), (1, 10), (5, 3), (5, 5))
RESAMPLES, DIFFERENCE = 1000, 1.5


def found(n_envs: int, runs: int, shift: float, rng: np.random.Generator) -> tuple[bool, bool]:
    """Return whether the interval alone finds a difference, and whether the permutation test finds it, too."""
    x, y = ([rng.normal(size=runs) + moved for _ in range(n_envs)] for moved in (shift, 0.0))
    interval = estimate(iqm_difference, x, y, resamples=RESAMPLES)
    excludes_zero = interval.low > 0 or interval.high < 0
    return excludes_zero, excludes_zero and permutation_p_value(x, y, RESAMPLES) <= 0.05


def main() -> None:
    """Print the shares of comparisons with a difference."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--comparisons', type=jobs.positive, default=1000, help='comparisons of each case')
    n = parser.parse_args().comparisons
    rng, rows = np.random.default_rng(0), []
    for n_envs, runs in CASES:
        shares = [np.mean([found(n_envs, runs, shift, rng) for _ in range(n)], axis=0) for shift in (0.0, DIFFERENCE)]
        rows.append([str(n_envs), str(runs), *(f'{100 * share:.0f} %' for pair in shares for share in pair)])
    header = ['environments', 'seeds', 'equal: interval', 'equal: both', 'different: interval', 'different: both']
    print(tables.markdown(header, rows))


if __name__ == '__main__':
    main()
