"""What a rollout is worth: advantages by generalised advantage estimation. Also means over valid rows."""

from __future__ import annotations

import tensorflow as tf


def gae(
    rewards: tf.Tensor, values: tf.Tensor, terminated: tf.Tensor, ended: tf.Tensor, gamma: float, lam: float
) -> tf.Tensor:
    """Return generalised advantage estimates (Schulman et al. 2016, arXiv:1506.02438, equation 16).

    A truncated episode bootstraps from the value of its true last observation, a terminated one does not; the sum over
    later steps stops at either, because the next row only resets the environment. Advantages of such rows mean nothing.

    Args:
        rewards: [T, N] float32.
        values: [T + 1, N] values of all observations, the one after the last step included.
        terminated: [T, N] float32, 1 where the episode reached a terminal state.
        ended: [T, N] float32, 1 where it terminated or was truncated.
        gamma: discount factor.
        lam: weight of later steps; 1 gives n-step returns, 0 one-step temporal differences.

    Returns:
        [T, N] float32.
    """
    deltas = rewards + gamma * (1.0 - terminated) * values[1:] - values[:-1]
    decays = gamma * lam * (1.0 - ended)
    return tf.scan(lambda later, now: now[0] + now[1] * later, (deltas, decays), tf.zeros_like(deltas[0]), reverse=True)


def masked_mean(x: tf.Tensor, valid: tf.Tensor) -> tf.Tensor:
    """Return the mean of `x` over rows whose `valid` is 1, and 0 where there are none; others may hold anything."""
    return tf.reduce_sum(tf.where(valid > 0, x, 0.0)) / tf.maximum(tf.reduce_sum(valid), 1.0)


def masked_normalise(x: tf.Tensor, valid: tf.Tensor, epsilon: float) -> tf.Tensor:
    """Return `x` with mean 0 and standard deviation 1 over its valid rows."""
    centred = x - masked_mean(x, valid)
    return centred / (tf.sqrt(masked_mean(centred**2, valid)) + epsilon)


def explained_variance(values: tf.Tensor, returns: tf.Tensor, valid: tf.Tensor) -> tf.Tensor:
    """Return 1 − Var(returns − values) / Var(returns) over valid rows: 1 is perfect, 0 no better than the mean."""

    def variance(x: tf.Tensor) -> tf.Tensor:
        return masked_mean((x - masked_mean(x, valid)) ** 2, valid)

    total = variance(returns)
    return tf.where(total > 0, 1.0 - variance(returns - values) / tf.maximum(total, 1e-12), 0.0)
