"""Advantages against a brute-force sum, whatever ends and wherever; means over valid rows."""

import numpy as np
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from xagents.base.returns import explained_variance, gae, masked_mean, masked_normalise, vtrace


def episodes_of(rng, steps, envs):
    """Rows as NEXT_STEP gives them: after an end comes a row that only resets."""
    terminated, truncated = np.zeros((2, steps, envs), bool)
    valid = np.ones((steps, envs), bool)
    valid[0] = rng.random(envs) < 0.7  # the rollout may begin with a reset row
    for n in range(envs):
        for t in range(steps):
            if t and (terminated | truncated)[t - 1, n]:
                valid[t, n] = False
            if valid[t, n]:
                kind = rng.choice(['on', 'terminated', 'truncated', 'both'], p=[0.6, 0.15, 0.15, 0.1])
                terminated[t, n] = kind in ('terminated', 'both')
                truncated[t, n] = kind in ('truncated', 'both')
    return terminated, truncated, valid


def brute_force(rewards, values, terminated, truncated, gamma, lam, t, n):
    """The sum of equation 16, term by term, for one row."""
    total, weight = 0.0, 1.0
    for k in range(t, len(rewards)):
        bootstrap = 0.0 if terminated[k, n] else values[k + 1, n]
        total += weight * (rewards[k, n] + gamma * bootstrap - values[k, n])
        weight *= gamma * lam
        if terminated[k, n] or truncated[k, n]:
            break
    return total


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), gamma=st.floats(0, 1), lam=st.floats(0, 1))
def test_gae_is_the_sum_of_discounted_differences(seed, gamma, lam):
    rng = np.random.default_rng(seed)
    steps, envs = 7, 3
    terminated, truncated, valid = episodes_of(rng, steps, envs)
    rewards = rng.normal(size=(steps, envs)).astype(np.float32)
    values = rng.normal(size=(steps + 1, envs)).astype(np.float32)
    rewards[~valid] = 1e6  # nothing of a reset row may leak into others
    ended = (terminated | truncated).astype(np.float32)
    advantages = gae(
        tf.constant(rewards),
        tf.constant(values),
        tf.constant(terminated.astype(np.float32)),
        tf.constant(ended),
        gamma,
        lam,
    ).numpy()
    for t in range(steps):
        for n in range(envs):
            if valid[t, n]:
                expected = brute_force(rewards, values, terminated, truncated, gamma, lam, t, n)
                np.testing.assert_allclose(advantages[t, n], expected, rtol=1e-4, atol=1e-4)


def brute_force_vtrace(rewards, values, ratios, terminated, truncated, gamma, lam, t, n):
    """The target of equation 1 as its sum, and the advantage of section 4.2, for one row."""

    def target(t):
        total, weight = values[t, n], 1.0
        for k in range(t, len(rewards)):
            rho = min(1.0, ratios[k, n])
            bootstrap = 0.0 if terminated[k, n] else values[k + 1, n]
            total += weight * rho * (rewards[k, n] + gamma * bootstrap - values[k, n])
            weight *= gamma * lam * rho
            if terminated[k, n] or truncated[k, n]:
                break
        return total

    if terminated[t, n]:
        following = 0.0
    elif truncated[t, n] or t + 1 == len(rewards):
        following = values[t + 1, n]
    else:
        following = target(t + 1)
    return target(t), min(1.0, ratios[t, n]) * (rewards[t, n] + gamma * following - values[t, n])


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), gamma=st.floats(0, 1), lam=st.floats(0, 1), on_policy=st.booleans())
def test_vtrace_is_the_sum_of_corrected_differences(seed, gamma, lam, on_policy):
    rng = np.random.default_rng(seed)
    steps, envs = 7, 3
    terminated, truncated, valid = episodes_of(rng, steps, envs)
    rewards = rng.normal(size=(steps, envs)).astype(np.float32)
    values = rng.normal(size=(steps + 1, envs)).astype(np.float32)
    ratios = np.exp(rng.normal(size=(steps, envs))).astype(np.float32)
    if on_policy:
        ratios[:], lam = 1.0, 1.0
    rewards[~valid] = 1e6  # nothing of a reset row may leak into others
    ends = [tf.constant(x.astype(np.float32)) for x in (terminated, terminated | truncated)]
    found = [x.numpy() for x in vtrace(*map(tf.constant, (rewards, values, ratios)), *ends, gamma, lam)]
    for t, n in np.argwhere(valid):
        expected = brute_force_vtrace(rewards, values, ratios, terminated, truncated, gamma, lam, t, n)
        np.testing.assert_allclose([x[t, n] for x in found], expected, rtol=1e-4, atol=1e-4)
    if on_policy:
        advantages = gae(*map(tf.constant, (rewards, values)), *ends, gamma, 1.0).numpy()
        np.testing.assert_allclose(found[1][valid], advantages[valid], rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(found[0][valid], (advantages + values[:-1])[valid], rtol=1e-4, atol=1e-4)


def test_masked_statistics_ignore_whatever_stands_in_other_rows():
    x, valid = tf.constant([1.0, np.nan, 3.0, np.inf]), tf.constant([1.0, 0.0, 1.0, 0.0])
    assert masked_mean(x, valid).numpy() == 2.0
    assert masked_mean(x, tf.zeros(4)).numpy() == 0.0
    np.testing.assert_allclose(masked_normalise(x, valid, 0.0).numpy()[[0, 2]], [-1.0, 1.0])


def test_explained_variance():
    returns, valid = tf.constant([1.0, 2.0, 3.0, 99.0]), tf.constant([1.0, 1.0, 1.0, 0.0])
    assert explained_variance(returns, returns, valid).numpy() == 1.0
    assert explained_variance(tf.fill([4], 2.0), returns, valid).numpy() == 0.0
    assert explained_variance(-returns, returns, valid).numpy() < 0
