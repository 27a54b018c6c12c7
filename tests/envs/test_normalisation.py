"""Running statistics against NumPy on everything at once."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from xagents.envs.normalisation import ObservationNormalizer, RewardNormalizer, RunningStatistics

BATCHES = st.lists(
    hnp.arrays(np.float64, st.tuples(st.integers(0, 6), st.just(3)), elements=st.floats(-1e3, 1e3)), max_size=6
)


@settings(deadline=None)
@given(BATCHES)
def test_batches_add_up_to_numpys_statistics_of_all(batches):
    statistics = RunningStatistics((3,))
    for batch in batches:
        statistics.update(batch)
    everything = np.concatenate([np.zeros((0, 3)), *batches])
    assert statistics.count == len(everything)
    if len(everything):
        np.testing.assert_allclose(statistics.mean, everything.mean(axis=0), atol=1e-8)
        np.testing.assert_allclose(statistics.var, everything.var(axis=0), atol=1e-6)


def test_a_large_mean_does_not_drown_the_variance():
    samples = 1e8 + np.random.default_rng(0).normal(size=(50, 40))
    statistics = RunningStatistics()
    for batch in samples:
        statistics.update(batch)
    assert statistics.var == pytest.approx(samples.var(), rel=1e-5)


def test_samples_that_are_not_finite_are_left_out():
    statistics = RunningStatistics((2,))
    statistics.update(np.array([[1.0, 2.0], [np.nan, 5.0], [3.0, np.inf], [3.0, 4.0]]))
    assert statistics.count == 2
    assert statistics.mean.tolist() == [2.0, 3.0]
    statistics.update(np.full((3, 2), np.nan))
    assert statistics.count == 2


def test_observations_are_scaled_and_clipped():
    rng = np.random.default_rng(1)
    normalizer = ObservationNormalizer((3,))
    raw = rng.normal([5, -2, 0], [2, 0.1, 30], (16, 8, 3)).astype(np.float32)
    np.testing.assert_array_equal(normalizer(raw), raw)  # identity before the first update
    normalizer.update(raw[:8])
    before = normalizer(raw)
    np.testing.assert_array_equal(normalizer(raw), before)  # scaling changes no statistics
    normalizer.update(raw[8:])
    flat = raw.reshape(-1, 3).astype(np.float64)
    expected = np.clip((raw - flat.mean(axis=0)) / np.sqrt(flat.var(axis=0) + 1e-8), -10, 10)
    scaled = normalizer(raw)
    assert scaled.dtype == np.float32
    np.testing.assert_allclose(scaled, expected, atol=2e-4)
    assert normalizer(np.array([[1e6, -1e6, 0]], np.float32))[0, :2].tolist() == [10, -10]
    copy = ObservationNormalizer((3,))
    copy.load(normalizer.state())
    np.testing.assert_array_equal(copy(raw), scaled)


def test_images_are_scaled_without_wrapping_around():
    normalizer = ObservationNormalizer((2, 2, 1))
    images = np.array([0, 200], np.uint8).repeat(4).reshape(2, 2, 2, 1)
    normalizer.update(images)
    np.testing.assert_allclose(normalizer(images).reshape(2, 4), [[-1] * 4, [1] * 4], rtol=1e-5)


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 10_000), st.lists(st.integers(1, 7), min_size=1, max_size=4))
def test_returns_run_through_rollouts_and_restart_after_episodes(seed, lengths):
    rng = np.random.default_rng(seed)
    n, gamma = 3, 0.9
    normalizer = RewardNormalizer(n, gamma)
    returns, running = [], np.zeros(n)
    previous = np.zeros(n, bool)
    for steps in lengths:
        rewards, ended, valid = rng.normal(size=(steps, n)), np.zeros((steps, n), bool), np.ones((steps, n), bool)
        for t, i in np.ndindex(steps, n):  # brute force, one environment after the other
            valid[t, i] = not previous[i]
            ended[t, i] = previous[i] = valid[t, i] and rng.random() < 0.3
            if valid[t, i]:
                running[i] = gamma * running[i] + rewards[t, i]
                returns.append(running[i])
            if ended[t, i]:
                running[i] = 0
        normalizer.update(rewards, ended, valid)
    assert normalizer.statistics.count == len(returns)
    assert normalizer.statistics.var == pytest.approx(np.var(returns), abs=1e-9)
    scaled = normalizer(np.array([1.0, 1e9], np.float32))
    assert scaled.dtype == np.float32
    assert scaled[0] == pytest.approx(min(10, 1 / np.sqrt(np.var(returns) + 1e-8)), rel=1e-4)
    assert scaled[1] == 10
    copy, other = RewardNormalizer(n, gamma), RewardNormalizer(5, gamma)
    other.load(normalizer.state())  # of another number of environments: the statistics only
    assert other.returns.tolist() == [0] * 5 and other.statistics.var == normalizer.statistics.var
    copy.load(normalizer.state())
    more = rng.normal(size=(4, n)), np.zeros((4, n), bool), np.ones((4, n), bool)
    normalizer.update(*more)
    copy.update(*more)
    np.testing.assert_equal(copy.state(), normalizer.state())


def test_one_bad_reward_does_not_stay():
    normalizer = RewardNormalizer(2, 0.99)
    for rewards in (np.array([[1.0, np.nan], [2.0, 1.0]]), np.ones((2, 2))):
        normalizer.update(rewards, np.zeros((2, 2), bool), np.ones((2, 2), bool))
    assert np.isfinite(normalizer.returns).all() and np.isfinite(normalizer(np.ones(2))).all()


def test_other_shapes_are_refused_in_one_line():
    with pytest.raises(ValueError, match=r'shape \(4, 3\); expected \(2,\)'):
        RunningStatistics((2,)).update(np.zeros((4, 3)))
    with pytest.raises(ValueError, match=r"'mean' of shape \(3,\); expected \(4,\)"):
        ObservationNormalizer((4,)).load(RunningStatistics((3,)).state())
    with pytest.raises(ValueError, match="have no 'var'"):
        ObservationNormalizer((3,)).load({'mean': np.zeros(3)})
