"""Returns of rollouts: generalised advantage estimates, Retrace and V-trace targets, and means over valid rows."""

from __future__ import annotations

import tensorflow as tf


def gae(
    rewards: tf.Tensor, values: tf.Tensor, terminated: tf.Tensor, ended: tf.Tensor, gamma: float, lam: float
) -> tf.Tensor:
    """Return generalised advantage estimates (Schulman et al. 2016, arXiv:1506.02438, equation 16).

    A truncated episode bootstraps from the value of its true last observation; a terminated episode does not. The sum
    over later steps stops at the end of an episode, because the next row only resets the environment. The advantages
    of such rows have no meaning.

    Args:
        rewards: [T, N] float32.
        values: [T + 1, N] values of all observations, including the observation after the last step.
        terminated: [T, N] float32, 1 if the episode reached a terminal state.
        ended: [T, N] float32, 1 if the episode terminated or was truncated.
        gamma: discount factor.
        lam: weight of later steps; 1 gives n-step returns, 0 gives one-step temporal differences.

    Returns:
        Advantages, [T, N] float32.
    """
    deltas = rewards + gamma * (1.0 - terminated) * values[1:] - values[:-1]
    return _accumulated(deltas, gamma * lam * (1.0 - ended))


def retrace(
    rewards: tf.Tensor,
    q_taken: tf.Tensor,
    values: tf.Tensor,
    ratios: tf.Tensor,
    terminated: tf.Tensor,
    ended: tf.Tensor,
    valid: tf.Tensor,
    gamma: float,
    lam: float,
) -> tf.Tensor:
    """Return Retrace targets of Q values (Munos et al. 2016, arXiv:1606.02647, section 3; ACER's algorithm 2).

    Q^ret(x_t, a_t) = r_t + γ V(x_t+1) + γ λ min(1, ρ_t+1) [Q^ret(x_t+1, a_t+1) − Q(x_t+1, a_t+1)]. The target of a
    terminated episode has no V(x_t+1); the target of a truncated episode uses the value of its true last observation.
    At the end of an episode, and before a row that only resets the environment, the bracket is 0.

    Args:
        rewards: [T, N] float32.
        q_taken: [T, N] float32, Q(x_t, a_t).
        values: [T + 1, N] float32, as for `gae`.
        ratios: [T, N] float32, ρ: present probability of the action, divided by its probability when it was taken.
        terminated: [T, N] float32, as for `gae`.
        ended: [T, N] float32, as for `gae`.
        valid: [T, N] float32, 0 if the row only reset its environment.
        gamma: discount factor.
        lam: λ; 1 gives the Retrace of ACER.

    Returns:
        Targets, [T, N] float32.
    """
    errors = rewards + gamma * (1.0 - terminated) * values[1:] - q_taken
    traces = lam * tf.minimum(ratios, 1.0) * valid
    following = tf.concat([traces[1:], tf.zeros_like(traces[:1])], 0)
    return q_taken + _accumulated(errors, gamma * (1.0 - ended) * following)


def vtrace(
    rewards: tf.Tensor,
    values: tf.Tensor,
    ratios: tf.Tensor,
    terminated: tf.Tensor,
    ended: tf.Tensor,
    gamma: float,
    lam: float,
) -> tuple[tf.Tensor, tf.Tensor]:
    """Return V-trace targets and advantages (Espeholt et al. 2018, arXiv:1802.01561, equation 1 and section 4.2).

    v_t = V(x_t) + δ_t + γ c_t (v_t+1 − V(x_t+1)), where δ_t = ρ_t (r_t + γ V(x_t+1) − V(x_t)), ρ_t = min(1, ratio) and
    c_t = λ ρ_t; the advantage is ρ_t (r_t + γ v_t+1 − V(x_t)). A terminated episode has no value of x_t+1. At the end
    of a truncated episode, and of the rollout, v_t+1 is V(x_t+1). With ratios of 1, both equal those of GAE for λ = 1.

    Args:
        rewards: [T, N] float32.
        values: [T + 1, N] float32, as for `gae`.
        ratios: [T, N] float32: present probability of the action, divided by its probability when it was taken.
        terminated: [T, N] float32, as for `gae`.
        ended: [T, N] float32, as for `gae`.
        gamma: discount factor.
        lam: λ.

    Returns:
        Targets and advantages, [T, N] float32 each.
    """
    clipped, following = tf.minimum(ratios, 1.0), (1.0 - terminated) * values[1:]
    deltas = clipped * (rewards + gamma * following - values[:-1])
    targets = values[:-1] + _accumulated(deltas, gamma * lam * (1.0 - ended) * clipped)
    later = tf.concat([targets[1:], values[-1:]], 0)
    bootstraps = tf.where(ended > 0, following, later)
    return targets, clipped * (rewards + gamma * bootstraps - values[:-1])


def _accumulated(now: tf.Tensor, decays: tf.Tensor) -> tf.Tensor:
    """Return x [T, N] with x_t = now_t + decay_t x_t+1, and 0 after the last row."""
    return tf.scan(lambda later, row: row[0] + row[1] * later, (now, decays), tf.zeros_like(now[0]), reverse=True)


def masked_mean(x: tf.Tensor, valid: tf.Tensor) -> tf.Tensor:
    """Return the mean of `x` over rows whose `valid` is 1, or 0 if there are none; other rows may contain anything."""
    return tf.reduce_sum(tf.where(valid > 0, x, 0.0)) / tf.maximum(tf.reduce_sum(valid), 1.0)


def masked_normalise(x: tf.Tensor, valid: tf.Tensor, epsilon: float) -> tf.Tensor:
    """Return `x` with mean 0 and standard deviation 1 over its valid rows."""
    return (x - masked_mean(x, valid)) / (masked_deviation(x, valid) + epsilon)


def masked_deviation(x: tf.Tensor, valid: tf.Tensor) -> tf.Tensor:
    """Return the standard deviation of `x` over its valid rows."""
    return tf.sqrt(_masked_variance(x, valid))


def _masked_variance(x: tf.Tensor, valid: tf.Tensor) -> tf.Tensor:
    return masked_mean((x - masked_mean(x, valid)) ** 2, valid)


def explained_variance(values: tf.Tensor, returns: tf.Tensor, valid: tf.Tensor) -> tf.Tensor:
    """Return 1 − Var(returns − values) / Var(returns) over valid rows: 1 is perfect, 0 no better than the mean."""
    total, left = _masked_variance(returns, valid), _masked_variance(returns - values, valid)
    return tf.where(total > 0, 1.0 - left / tf.maximum(total, 1e-12), 0.0)
