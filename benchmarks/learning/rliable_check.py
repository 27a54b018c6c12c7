"""Compare the statistics of `xagents compare` with rliable: `python -m benchmarks.learning.rliable_check`.

Ten synthetic pairs of score matrices are given to both. Values must be equal to 1e-12. Bounds of intervals depend on
random resamples. Of about 900 bounds of rliable, each must lie between our bounds for a probability that is 4 standard
errors lower and higher, or within 1 % of the range of the scores. The exit code is 1 if a value or a bound differs.
"""

import argparse
import functools
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from benchmarks import jobs
from benchmarks.processes import Failed, module, work
from xagents.reports import aggregates
from xagents.reports.aggregates import Band, estimate_band
from xagents.reports.statistics import LEVEL

TOLERANCE = 1e-12
# for profiles and probabilities, which rliable computes in loops over thresholds and tasks
FEWER_RESAMPLES = 2000
STANDARD_ERRORS, BOUND_TOLERANCE = 4, 0.01
STATISTICS = (
    aggregates.aggregate_iqm,
    aggregates.aggregate_median,
    aggregates.aggregate_mean,
    aggregates.optimality_gap,
)
Matrices = tuple[np.ndarray, np.ndarray]


def cases() -> dict[str, Matrices]:
    """Return pairs of matrices, [runs, tasks] each."""
    rng = np.random.default_rng(0)
    normal, same = rng.normal, rng.normal(0.5, 0.3, (5, 4))
    return {
        'normal, 3 tasks': (normal(0.8, 0.2, (5, 3)), normal(0.6, 0.3, (5, 3))),
        'lognormal, 26 tasks': (rng.lognormal(0, 1.2, (10, 26)), rng.lognormal(-0.3, 1.5, (10, 26))),
        'one task': (normal(1.0, 0.5, (10, 1)), normal(0.5, 0.5, (10, 1))),
        'two runs': (normal(0.9, 0.2, (2, 4)), normal(0.4, 0.2, (2, 4))),
        'negative': (normal(-3.0, 1.0, (6, 8)), normal(-2.5, 2.0, (6, 8))),
        'ties': (rng.integers(0, 4, (8, 5)) / 4, rng.integers(0, 5, (8, 5)) / 4),
        'outliers': (rng.standard_t(1.5, (7, 6)), rng.standard_t(1.5, (7, 6)) + 0.5),
        'different numbers of runs': (normal(0.7, 0.3, (10, 5)), normal(0.5, 0.3, (4, 5))),
        'equal matrices': (same, same.copy()),
        'saturated': (np.minimum(normal(1.0, 0.2, (5, 7)), 1.0), np.minimum(normal(0.9, 0.3, (5, 7)), 1.0)),
    }


def bands(x: np.ndarray, y: np.ndarray, thresholds: np.ndarray, resamples: int, errors: float = 0.0) -> dict[str, Band]:
    """Return the statistics of `xagents compare`, under the names of the worker.

    Args:
        x: scores of a group, [runs, tasks].
        y: scores of another group.
        thresholds: thresholds of the profiles.
        resamples: number of resamples.
        errors: move both bounds outwards by this number of standard errors.
    """

    def aggregate(scores: aggregates.Scores, weights: aggregates.Weights) -> np.ndarray:
        return np.stack([one(scores, weights) for one in STATISTICS], axis=1)

    def profile(scores: aggregates.Scores, weights: aggregates.Weights) -> np.ndarray:
        return aggregates.performance_profile(scores, weights, thresholds)

    def probability(*given: aggregates.Scores) -> np.ndarray:
        return aggregates.probability_of_improvement(*given)[:, None]

    groups = {'x': list(x.T), 'y': list(y.T)}

    def interval(statistic: Callable, *given: aggregates.Scores, n: int) -> Band:
        tail = (1 - LEVEL) / 2
        tail -= errors * np.sqrt(2 * tail * (1 - tail) / n)  # of the difference of two shares
        return estimate_band(statistic, *given, resamples=n, level=1 - 2 * max(tail, 0.0))

    fewer = min(resamples, FEWER_RESAMPLES)
    found = {'probability': interval(probability, *groups.values(), n=fewer)}
    for name, one in groups.items():
        found[f'aggregates {name}'] = interval(aggregate, one, n=resamples)
        found[f'profile {name}'] = interval(profile, one, n=fewer)
    return found


def check(pair: Matrices, run: Callable[[dict], dict], resamples: int) -> Iterator[tuple[str, float, float]]:
    """Yield each statistic, its largest difference, and the largest excess of a bound as a share of the range."""
    x, y = pair
    scores = np.concatenate([x.ravel(), y.ravel()])
    # also thresholds that are equal to scores
    thresholds = np.sort([*np.linspace(scores.min() - 0.1, scores.max() + 0.1, 15), *scores[:6]])
    job = {'x': x.tolist(), 'y': y.tolist(), 'thresholds': thresholds.tolist()}
    job |= {'resamples': resamples, 'fewer': min(resamples, FEWER_RESAMPLES)}
    theirs = run(job)
    own, wide, narrow = (bands(x, y, thresholds, resamples, n) for n in (0, STANDARD_ERRORS, -STANDARD_ERRORS))
    for name, (values, low, high) in theirs.items():
        span = 1.0 if name.startswith(('profile', 'probability')) else float(np.ptp(scores))
        excess = [
            np.maximum(wide[name].low - low, low - narrow[name].low),
            np.maximum(narrow[name].high - high, high - wide[name].high),
        ]
        yield name, float(np.max(np.abs(own[name].values - values))), max(float(np.max(excess)), 0.0) / span


def run_rliable(python: Path, job: dict) -> dict:
    """Return the result of a worker."""
    return work(module('workers.rliable_worker', job, python), timeout=3600)


def main() -> int:
    """Compare all cases and print a table."""
    parser = argparse.ArgumentParser(prog='python -m benchmarks.learning.rliable_check', description=__doc__)
    parser.add_argument('--resamples', type=jobs.positive, default=50_000, help='bootstrap resamples of both')
    jobs.add_names(parser, '--only', cases())
    jobs.add_peer(parser, 'rliable')
    options = parser.parse_args()
    try:
        python: Path = jobs.find_peer('rliable', options)
        rows, wrong = [], False
        print('matrices | largest difference of a value | largest excess of a bound, as a share of the range')
        for name, pair in cases().items():
            if options.only and name not in options.only:
                continue
            found = list(check(pair, functools.partial(run_rliable, python), options.resamples))
            difference, share = max(one[1] for one in found), max(one[2] for one in found)
            wrong |= difference > TOLERANCE or share > BOUND_TOLERANCE
            rows.append((name, f'{difference:.1e}', f'{share:.1e}'))
            print(*rows[-1], sep=' | ', flush=True)
    except Failed as error:
        print(error, file=sys.stderr)
        return 1
    print('differs' if wrong else f'All {len(rows)} pairs agree.')
    return int(wrong)


if __name__ == '__main__':
    sys.exit(main())
