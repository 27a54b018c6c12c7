"""Statistics of score matrices by rliable: the job is a JSON object in the first argument, the result a JSON line."""

import json
import sys

import numpy as np
from rliable import library, metrics


def aggregate(scores: np.ndarray) -> np.ndarray:
    """Return interquartile mean, median, mean and optimality gap."""
    functions = (metrics.aggregate_iqm, metrics.aggregate_median, metrics.aggregate_mean)
    return np.array([*(one(scores) for one in functions), metrics.aggregate_optimality_gap(scores)])


def estimate(job: dict) -> dict:
    """Return values and bounds: of the aggregates and the profile of each group, and of the probability."""
    np.random.seed(0)  # rliable draws from NumPy's global generator
    groups = {name: np.array(job[name]) for name in ('x', 'y')}
    thresholds, n, fewer = np.array(job['thresholds']), job['resamples'], job['fewer']
    found = library.get_interval_estimates(groups, aggregate, reps=n)
    profiles = library.create_performance_profile(groups, thresholds, reps=fewer)
    pair = library.get_interval_estimates(
        {'pair': tuple(groups.values())},
        lambda x, y: np.array([metrics.probability_of_improvement(x, y)]),
        reps=fewer,
    )
    return {
        **{f'aggregates {name}': [found[0][name].tolist(), *found[1][name].tolist()] for name in groups},
        **{f'profile {name}': [profiles[0][name].tolist(), *profiles[1][name].tolist()] for name in groups},
        'probability': [pair[0]['pair'].tolist(), *pair[1]['pair'].tolist()],
    }


if __name__ == '__main__':
    print(json.dumps(estimate(json.loads(sys.argv[1]))))
