"""Aggregate scores of several environments and seeds, with stratified bootstrap intervals.

The statistics are those of Agarwal et al. (2021), "Deep Reinforcement Learning at the Edge of the Statistical
Precipice", arXiv:2108.13264, sections 3 and 4, in the form of their library rliable. Every environment counts equally,
also if numbers of runs differ between environments, which rliable does not support.

Scores are a list with one array per environment, each with one score per run. A resample is a list with one array of
weights [R, M] per environment: how often each of M runs was drawn, divided by M, in R draws. So every statistic is a
function of scores and weights, and the statistic of the scores themselves is that of equal weights.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from xagents.reports.statistics import LEVEL, trimmed_weights

Scores = Sequence[np.ndarray]
Weights = Sequence[np.ndarray]

# scores above this value do not reduce the optimality gap
GAMMA = 1.0
# maximal number of weights in memory
_CHUNK = 4_000_000


class Interval(NamedTuple):
    """A statistic and the bounds of its 95 % confidence interval; NaN bounds without one (see `has_spread`)."""

    value: float
    low: float
    high: float


class Band(NamedTuple):
    """A curve and the bounds of its pointwise 95 % confidence intervals, [G] each."""

    values: np.ndarray
    low: np.ndarray
    high: np.ndarray


def equal_weights(scores: Scores) -> Weights:
    """Return the weights of the scores themselves, [1, M] per environment."""
    return [np.full((1, len(task)), 1 / len(task)) for task in scores]


def draw_weights(scores: Scores, resamples: int, rng: np.random.Generator) -> Weights:
    """Draw runs with replacement within each environment (stratified bootstrap).

    Args:
        scores: scores of M runs per environment, [M] or [M, G] each.
        resamples: number of draws, R.
        rng: random generator.

    Returns:
        The weights of the runs, [R, M] per environment; the weights of a draw sum to 1.
    """
    return [rng.multinomial(len(task), np.full(len(task), 1 / len(task)), resamples) / len(task) for task in scores]


def task_means(scores: Scores, weights: Weights) -> np.ndarray:
    """Return the mean of each environment's scores, [R, environments]."""
    return np.stack([drawn @ task for task, drawn in zip(scores, weights, strict=True)], axis=1)


def aggregate_mean(scores: Scores, weights: Weights) -> np.ndarray:
    """Return the mean of the environments' means, [R]."""
    return task_means(scores, weights).mean(axis=1)


def aggregate_median(scores: Scores, weights: Weights) -> np.ndarray:
    """Return the median of the environments' means, [R]."""
    return np.median(task_means(scores, weights), axis=1)


def aggregate_iqm(scores: Scores, weights: Weights, n: int | None = None) -> np.ndarray:
    """Return the interquartile mean of all scores, [R].

    Of n scores, the n // 4 lowest and the n // 4 highest are left out, as in `scipy.stats.trim_mean`. If numbers of
    runs differ, a score counts as n / (environments * runs of its environment) scores.

    Args:
        scores: scores of M runs per environment.
        weights: weights of the runs, [R, M] per environment.
        n: number of scores, if some have no weight in any resample.
    """
    values, each = np.concatenate(scores), np.concatenate(weights, axis=1)
    order = np.argsort(values, kind='stable')
    n = len(values) if n is None else n
    return trimmed_weights(each[:, order] * n / len(scores), n // 4) @ values[order]


def optimality_gap(scores: Scores, weights: Weights, gamma: float = GAMMA) -> np.ndarray:
    """Return the mean distance of the scores below `gamma`, [R]. Scores above `gamma` count as `gamma`."""
    return gamma - aggregate_mean([np.minimum(task, gamma) for task in scores], weights)


def performance_profile(scores: Scores, weights: Weights, thresholds: np.ndarray) -> np.ndarray:
    """Return the share of runs whose score is above each threshold (run-score distribution), [R, G].

    Args:
        scores: scores of M runs per environment.
        weights: weights of the runs, [R, M] per environment.
        thresholds: the thresholds, [G].
    """
    above = [task[:, None] > thresholds for task in scores]
    return np.mean([drawn @ task for task, drawn in zip(above, weights, strict=True)], axis=0)


def curve_iqm(curves: Sequence[np.ndarray], weights: Weights) -> np.ndarray:
    """Return the interquartile mean of curves at each of G points, [R, G].

    Args:
        curves: curves of M runs per environment, [M, G] each.
        weights: weights of the runs, [R, M] per environment.
    """
    points = range(curves[0].shape[1])
    return np.stack([aggregate_iqm([task[:, point] for task in curves], weights) for point in points], axis=1)


def probability_of_improvement(x: Scores, y: Scores, x_weights: Weights, y_weights: Weights) -> np.ndarray:
    """Return the probability that a run of `x` has a higher score than a run of `y`, [R].

    It is the mean over environments of the Mann-Whitney statistic divided by the number of pairs. A tie counts half.
    """
    better = [(a[:, None] > b) + 0.5 * (a[:, None] == b) for a, b in zip(x, y, strict=True)]
    terms = zip(better, x_weights, y_weights, strict=True)
    return np.mean([((drawn_x @ wins) * drawn_y).sum(axis=1) for wins, drawn_x, drawn_y in terms], axis=0)


def estimate(
    statistic: Callable[..., np.ndarray], *groups: Scores, resamples: int, seed: int = 0, level: float = LEVEL
) -> Interval:
    """Return a statistic of one or several groups and its confidence interval.

    The interval is that of the percentile bootstrap. Groups are resampled independently.

    Args:
        statistic: function of the scores of each group, then the weights of each group.
        groups: the scores of each group.
        resamples: number of draws.
        seed: seed of the draws.
        level: probability of the interval.
    """
    band = estimate_band(statistic, *groups, resamples=resamples, seed=seed, level=level)
    return Interval(float(band.values), float(band.low), float(band.high))


def estimate_band(
    statistic: Callable[..., np.ndarray], *groups: Scores, resamples: int, seed: int = 0, level: float = LEVEL
) -> Band:
    """Return a statistic with several values and the confidence interval of each, see `estimate`."""
    values = statistic(*groups, *map(equal_weights, groups))[0]
    if not has_spread(*groups):
        return Band(values, np.full(np.shape(values), np.nan), np.full(np.shape(values), np.nan))
    rngs = [np.random.default_rng((seed, number)) for number in range(len(groups))]
    size = max(1, _CHUNK // sum(np.size(task) for scores in groups for task in scores))
    found = []
    for start in range(0, resamples, size):
        count = min(size, resamples - start)
        drawn = [draw_weights(scores, count, rng) for scores, rng in zip(groups, rngs, strict=True)]
        found.append(statistic(*groups, *drawn))
    tails = (1 - level) / 2
    low, high = np.quantile(np.concatenate(found), [tails, 1 - tails], axis=0)
    return Band(values, low, high)


def has_spread(*groups: Scores) -> bool:
    """Return whether each group has at least two runs of every environment.

    A bootstrap of one run has no spread, so that the interval would be too narrow.
    """
    return all(len(task) > 1 for scores in groups for task in scores)


def iqm_difference(x: Scores, y: Scores, x_weights: Weights, y_weights: Weights) -> np.ndarray:
    """Return the interquartile mean of `x` minus that of `y`, [R]."""
    return aggregate_iqm(x, x_weights) - aggregate_iqm(y, y_weights)


def permutation_p_value(x: Scores, y: Scores, resamples: int, seed: int = 0) -> float:
    """Return the p-value of a permutation test that two groups do not differ.

    Runs are exchanged between the groups within each environment. The statistic is the absolute difference of the
    interquartile means. Unlike a bootstrap interval, the test keeps its level for few runs, too: if both groups have
    the same distribution of scores in each environment, p <= 0.05 has at most the probability 0.05 (Phipson and Smyth
    2010, "Permutation P-values Should Never Be Zero", arXiv:1603.05766, equation 2).

    If there are at most `resamples` exchanges, each is counted once, and the p-value is exact. Otherwise exchanges are
    drawn.

    Args:
        x: scores of one group.
        y: scores of the other group.
        resamples: largest number of exchanges.
        seed: seed of the drawn exchanges.
    """
    both = [np.concatenate(pair) for pair in zip(x, y, strict=True)]
    sizes = [sum(map(len, scores)) for scores in (x, y)]
    found = []
    for in_x in _exchanges([(len(a), len(b)) for a, b in zip(x, y, strict=True)], resamples, seed):
        sides = (
            [(rows / rows.sum(axis=1, keepdims=True)) for rows in in_x],
            [(~rows) / (~rows).sum(axis=1, keepdims=True) for rows in in_x],
        )
        means = [aggregate_iqm(both, side, n) for side, n in zip(sides, sizes, strict=True)]
        found.append(np.abs(means[0] - means[1]))
    distance = np.concatenate(found)
    # rounding must not separate permutations with equal scores
    return float(np.mean(distance >= distance[0] * (1 - 1e-9)))


def least_p_value(x: Scores, y: Scores, resamples: int) -> float:
    """Return the p-value of `permutation_p_value` if all runs of one group were far better than those of the other.

    The interquartile mean leaves out scores, so several exchanges can have the largest difference, for example 4 of the
    70 exchanges of 4 and 4 runs.
    """
    # environments differ by less than the groups, and runs by less than environments: few exchanges are equal
    rng, gap = np.random.default_rng(0), 10 * len(x)
    far, near = ([3 * n + rng.random(len(task)) for n, task in enumerate(scores)] for scores in (x, y))
    return permutation_p_value([gap + task for task in far], near, resamples)


def _exchanges(sizes: Sequence[tuple[int, int]], resamples: int, seed: int) -> Iterator[list[np.ndarray]]:
    """Yield chunks of exchanges, the data first: which runs belong to the first group, [R, M] per environment.

    Args:
        sizes: numbers of runs of both groups in each environment.
        resamples: largest number of exchanges.
        seed: seed of the drawn exchanges.
    """
    counts = [math.comb(a + b, a) for a, b in sizes]
    is_exact = math.prod(counts) <= resamples
    choices = [_choices(*pair) for pair in sizes] if is_exact else []
    data = [np.arange(a + b) < a for a, b in sizes]
    rng = np.random.default_rng(seed)
    total, size = math.prod(counts) if is_exact else resamples + 1, max(1, _CHUNK // sum(map(sum, sizes)))
    for start in range(0, total, size):
        stop = min(start + size, total)
        if is_exact:
            rows = np.unravel_index(np.arange(start, stop), counts)
            yield [every[row] for every, row in zip(choices, rows, strict=True)]
            continue
        drawn = [rng.permuted(np.tile(first, (stop - start, 1)), axis=1) for first in data]
        if start == 0:
            for exchanged, first in zip(drawn, data, strict=True):
                exchanged[0] = first
        yield drawn


def _choices(a: int, b: int) -> np.ndarray:
    """Return all choices of `a` of `a + b` runs, [choices, a + b]; the first choice is that of the first `a` runs."""
    chosen = np.array(list(itertools.combinations(range(a + b), a)))
    return (chosen[:, :, None] == np.arange(a + b)).any(axis=1)
