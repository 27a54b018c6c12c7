"""Statistics of scores over environments and seeds: numbers of rliable, brute force, and properties."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import mannwhitneyu, trim_mean

from xagents.reports import aggregates
from xagents.reports.aggregates import equal_weights, estimate, estimate_band, least_p_value, permutation_p_value
from xagents.reports.statistics import interquartile_mean

# rliable 1.2.0, arch 7.2.0, NumPy 2.4.6, 50 000 resamples (20 000 of profiles and probabilities), by
# benchmarks/workers/rliable_worker.py: values, lower bounds, upper bounds
X = np.array([[0.9, 0.4, 1.2], [0.7, 0.5, 1.0], [0.8, 0.1, -0.3], [1.1, 0.5, 1.0], [0.2, 0.6, 5.0]])
Y = np.array([[0.6, 0.4, 1.0], [0.7, 0.2, 0.9], [0.5, 0.3, 0.8], [0.9, -0.4, 1.0]])
THRESHOLDS = np.array([-1, 0, 0.5, 0.9, 2])  # 0.5 and 0.9 are scores
AGGREGATES = {
    'aggregate_iqm': [(32 / 45, 0.466667, 0.866667), (0.65, 0.55, 0.75)],
    'aggregate_median': [(0.74, 0.42, 0.96), (0.675, 0.55, 0.825)],
    'aggregate_mean': [(137 / 150, 0.473333, 1.513333), (0.575, 0.45, 0.675)],
    'optimality_gap': [(28 / 75, 0.22, 0.573333), (0.425, 0.325, 0.55)],
}
PROFILES = [
    ([1, 14 / 15, 0.6, 1 / 3, 1 / 15], [1, 0.8, 0.4, 0.2, 0], [1, 1, 0.8, 7 / 15, 0.2]),
    ([1, 11 / 12, 7 / 12, 1 / 6, 0], [1, 0.75, 5 / 12, 0, 0], [1, 1, 2 / 3, 1 / 3, 0]),
]
PROBABILITY = (0.725, 0.516667, 0.9)

# also ties
numbers = st.integers(-4, 4).map(lambda n: n / 2) | st.floats(-1e3, 1e3)
ragged = st.lists(st.lists(numbers, min_size=1, max_size=6).map(np.array), min_size=1, max_size=5)


def value(statistic, *groups):
    return statistic(*groups, *map(equal_weights, groups))[0]


def columns(matrix):
    return list(matrix.T)


# ------------------------------------------------------------------------------------------------------------- rliable


@pytest.mark.parametrize('name', AGGREGATES)
def test_aggregates_equal_those_of_rliable(name):
    for matrix, (expected, low, high) in zip((X, Y), AGGREGATES[name], strict=True):
        found = estimate(getattr(aggregates, name), columns(matrix), resamples=20_000)
        assert found.value == pytest.approx(expected, abs=1e-12)
        assert found.low == pytest.approx(low, abs=0.03) and found.high == pytest.approx(high, abs=0.03)


def test_profiles_equal_those_of_rliable():
    for matrix, expected in zip((X, Y), PROFILES, strict=True):

        def profile(scores, weights):
            return aggregates.performance_profile(scores, weights, THRESHOLDS)

        found = estimate_band(profile, columns(matrix), resamples=20_000)
        np.testing.assert_allclose(found.values, expected[0], atol=1e-12)
        np.testing.assert_allclose([found.low, found.high], expected[1:], atol=0.001)


def test_the_probability_of_improvement_equals_that_of_rliable():
    found = estimate(aggregates.probability_of_improvement, columns(X), columns(Y), resamples=20_000)
    assert found.value == pytest.approx(PROBABILITY[0], abs=1e-12)
    assert (found.low, found.high) == pytest.approx(PROBABILITY[1:], abs=0.01)


# --------------------------------------------------------------------------------------------------------- brute force


@given(scores=ragged)
@settings(max_examples=60, deadline=None)
def test_statistics_of_ragged_scores_by_brute_force(scores):
    # repeat each score so that all environments have equally many
    size = np.lcm.reduce([len(task) for task in scores])
    means = [float(np.mean(task)) for task in scores]
    assert value(aggregates.aggregate_mean, scores) == pytest.approx(np.mean(means), abs=1e-9)
    assert value(aggregates.aggregate_median, scores) == pytest.approx(np.median(means), abs=1e-9)
    gap = np.mean([np.mean([max(1 - score, 0) for score in task]) for task in scores])
    assert value(aggregates.optimality_gap, scores) == pytest.approx(gap, abs=1e-9)
    thresholds = np.array([-2.0, 0.0, 0.25])
    profile = [np.mean([np.mean(task > t) for task in scores]) for t in thresholds]
    weights = equal_weights(scores)
    np.testing.assert_allclose(aggregates.performance_profile(scores, weights, thresholds)[0], profile, atol=1e-12)
    # the interquartile mean as an integral over the quantile function of the repeated scores
    n, total = sum(map(len, scores)), size * len(scores)
    repeated = np.sort(np.concatenate([np.repeat(task, size // len(task)) for task in scores]))
    fine = np.repeat(repeated, n)  # of n * total parts, n // 4 * total are left out at either end
    cut = n // 4 * total
    assert value(aggregates.aggregate_iqm, scores) == pytest.approx(fine[cut : len(fine) - cut].mean(), abs=1e-9)


@given(st.integers(1, 5), st.integers(1, 7), st.integers(0, 2**32 - 1))
@settings(max_examples=40, deadline=None)
def test_the_interquartile_mean_trims_whole_scores(n_envs, runs, seed):
    matrix = np.random.default_rng(seed).standard_cauchy((runs, n_envs))
    found = value(aggregates.aggregate_iqm, columns(matrix))
    assert found == pytest.approx(trim_mean(matrix, 0.25, axis=None), rel=1e-9, abs=1e-9)
    if matrix.size % 4 == 0:  # then `xagents runs` defines it in the same way
        assert found == pytest.approx(float(interquartile_mean(matrix.ravel())), rel=1e-9, abs=1e-9)


@given(x=ragged, y=ragged)
@settings(max_examples=60, deadline=None)
def test_the_probability_of_improvement_by_brute_force(x, y):
    x, y = x[: len(y)], y[: len(x)]
    each = [
        np.mean([(a > b) + 0.5 * (a == b) for a, b in itertools.product(one, other)])
        for one, other in zip(x, y, strict=True)
    ]
    found = value(aggregates.probability_of_improvement, x, y)
    assert found == pytest.approx(np.mean(each), abs=1e-12)
    assert found + value(aggregates.probability_of_improvement, y, x) == pytest.approx(1, abs=1e-12)
    u = mannwhitneyu(x[0], y[0], alternative='greater').statistic / (len(x[0]) * len(y[0]))
    assert value(aggregates.probability_of_improvement, x[:1], y[:1]) == pytest.approx(u, abs=1e-12)


def test_a_resample_is_the_statistic_of_the_drawn_runs():
    scores = [np.array([3.0, 1.0, 2.0]), np.array([5.0, 4.0])]
    weights = aggregates.draw_weights(scores, 50, np.random.default_rng(1))
    for row in range(50):
        counts = [np.rint(drawn[row] * len(task)).astype(int) for drawn, task in zip(weights, scores, strict=True)]
        assert [count.sum() for count in counts] == [3, 2]
        drawn = [np.repeat(task, count) for task, count in zip(scores, counts, strict=True)]
        for name in AGGREGATES:
            statistic = getattr(aggregates, name)
            assert statistic(scores, weights)[row] == pytest.approx(value(statistic, drawn), abs=1e-12)


def test_curves_are_interquartile_means_at_each_point():
    rng = np.random.default_rng(2)
    curves = [rng.normal(size=(4, 7)), rng.normal(size=(3, 7))]
    weights = equal_weights(curves)
    for point, found in enumerate(aggregates.curve_iqm(curves, weights)[0]):
        assert found == pytest.approx(value(aggregates.aggregate_iqm, [task[:, point] for task in curves]))


# ---------------------------------------------------------------------------------------------------------- properties


@given(scores=ragged)
@settings(max_examples=40, deadline=None)
def test_an_interval_lies_within_the_scores_and_scales_with_them(scores):
    found = estimate(aggregates.aggregate_iqm, scores, resamples=200)
    flat = np.concatenate(scores)
    assert flat.min() - 1e-9 <= found.value <= flat.max() + 1e-9
    if any(len(task) == 1 for task in scores):
        assert np.isnan(found.low) and np.isnan(found.high)
        return
    assert flat.min() - 1e-9 <= found.low <= found.high <= flat.max() + 1e-9
    moved = estimate(aggregates.aggregate_iqm, [2 * task + 1 for task in scores], resamples=200)
    np.testing.assert_allclose(moved, 2 * np.array(found) + 1, atol=1e-8)


def test_an_environment_with_many_runs_counts_as_much_as_another_one():
    scores = [np.zeros(100), np.ones(2)]
    assert value(aggregates.aggregate_mean, scores) == pytest.approx(0.5)
    assert value(aggregates.aggregate_iqm, scores) == pytest.approx(0.5)


def test_chunks_do_not_change_the_number_of_resamples(monkeypatch):
    found = []

    def mean(scores, weights):
        found.append(len(weights[0]))
        return aggregates.aggregate_mean(scores, weights)

    monkeypatch.setattr(aggregates, '_CHUNK', 12)
    estimate(mean, [np.arange(4.0)], resamples=10)
    assert found == [1, 3, 3, 3, 1]


# ---------------------------------------------------------------------------------------------------- permutation test


def test_a_permutation_test_counts_all_exchanges():
    """With two environments of 3 and 3 runs, 400 exchanges exist."""
    x = [np.array([5.0, 3.0, 4.5]), np.array([2.0, 2.5, 0.5])]
    y = [np.array([1.0, 3.5, 0.0]), np.array([1.5, 0.0, 1.0])]

    def difference(first):
        sides = [
            [np.delete(np.r_[a, b], c) if out else np.r_[a, b][list(c)] for a, b, c in zip(x, y, first, strict=True)]
            for out in (False, True)
        ]
        return abs(np.subtract(*(trim_mean(np.concatenate(side), 0.25) for side in sides)))

    choices = list(itertools.product(itertools.combinations(range(6), 3), repeat=2))
    observed = difference([(0, 1, 2), (0, 1, 2)])
    exact = np.mean([difference(choice) >= observed - 1e-9 for choice in choices])
    assert permutation_p_value(x, y, 399) == pytest.approx(exact, abs=0.05), 'exchanges are drawn'
    assert permutation_p_value(x, y, 400) == pytest.approx(exact, abs=1e-12)


def test_a_permutation_test_keeps_its_level_for_few_runs():
    rng = np.random.default_rng(3)
    found = [permutation_p_value([rng.normal(size=3)], [rng.normal(size=3)], 200) for _ in range(200)]
    # of 20 exchanges of 3 and 3 runs, 2 give the largest difference
    assert min(found) > 0.05
    assert permutation_p_value([np.ones(3)], [np.ones(3)], 100) == 1
    assert permutation_p_value([np.arange(6.0)], [np.arange(6.0) + 10], 2000) < 0.01


@pytest.mark.parametrize(('a', 'b'), [(1, 1), (2, 3), (2, 5), (3, 3), (4, 4), (3, 5), (1, 6), (5, 2)])
def test_no_scores_have_a_lower_p_value_than_separate_ones(a, b):
    rng = np.random.default_rng(a + 7 * b)
    least = least_p_value([np.zeros(a)], [np.zeros(b)], 1000)
    drawn = [rng.standard_cauchy(a + b) for _ in range(100)]
    separate = [np.sort(np.r_[rng.normal(size=b), rng.normal(size=a) + 50]) for _ in range(20)]
    found = [permutation_p_value([one[b:]], [one[:b]], 1000) for one in (*drawn, *separate)]
    assert min(found) == pytest.approx(least, abs=1e-12)


def test_least_p_values_of_few_runs():
    cases = {(2, 3): 1 / 10, (2, 5): 1 / 21, (3, 3): 2 / 20, (4, 4): 4 / 70}
    for (a, b), least in cases.items():
        assert least_p_value([np.zeros(a)], [np.zeros(b)], 10_000) == pytest.approx(least, abs=1e-12)
    for n_envs, a, b, least in ((2, 2, 2, 2 / 36), (2, 2, 3, 1 / 100), (5, 1, 1, 2 / 32)):
        found = least_p_value([np.zeros(a)] * n_envs, [np.zeros(b)] * n_envs, 10_000)
        assert found == pytest.approx(least, abs=1e-12)
