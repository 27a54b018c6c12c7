"""The policy gradient with respect to probabilities: truncated importance weights, bias correction, trust region.

The statistics φ of the policy's distribution are its probabilities, [T, N, A].
"""

from __future__ import annotations

import tensorflow as tf


def policy_gradient(
    policy: tf.Tensor,
    ratios: tf.Tensor,
    taken: tf.Tensor,
    advantages: tf.Tensor,
    all_advantages: tf.Tensor,
    importance_c: float,
    epsilon: float,
) -> tf.Tensor:
    """Return g, the gradient of the objective with respect to the probabilities (equation 10, as in algorithm 2).

    ∇_φ log f(a) is 1 / f(a) for action a, and 0 for the other actions.

    Args:
        policy: [T, N, A] f, the present probabilities.
        ratios: [T, N, A] ρ, the present probabilities divided by those of the policy that acted.
        taken: [T, N, A], 1 for the action that was taken.
        advantages: [T, N] Q^ret(x, a) − V(x) of that action.
        all_advantages: [T, N, A] Q(x, a) − V(x) of every action.
        importance_c: c, the largest importance weight; the second term corrects the bias of the truncation.
        epsilon: added to denominators.

    Returns:
        g [T, N, A].
    """
    truncated = taken * tf.minimum(ratios, importance_c) * advantages[..., None]
    correction = tf.nn.relu(1.0 - importance_c / (ratios + epsilon)) * policy * all_advantages
    return (truncated + correction) / (policy + epsilon)


def project(g: tf.Tensor, k: tf.Tensor, delta: float, epsilon: float) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the vector z nearest to g with kᵀz ≤ δ (equation 12).

    Args:
        g: [T, N, A], the gradient of the objective.
        k: [T, N, A], the gradient of the divergence from the average policy.
        delta: δ.
        epsilon: added to the denominator.

    Returns:
        z [T, N, A], and float [T, N], 1 if z differs from g.
    """
    excess = tf.nn.relu(tf.reduce_sum(k * g, -1) - delta)
    z = g - (excess / (tf.reduce_sum(k**2, -1) + epsilon))[..., None] * k
    return z, tf.cast(excess > 0, tf.float32)


def entropy(policy: tf.Tensor, epsilon: float) -> tf.Tensor:
    """Return the entropy [T, N] of probabilities [T, N, A], in nats."""
    return -tf.reduce_sum(policy * tf.math.log(policy + epsilon), -1)


def entropy_gradient(policy: tf.Tensor, epsilon: float) -> tf.Tensor:
    """Return the gradient [T, N, A] of the entropy with respect to the probabilities."""
    return -tf.math.log(policy + epsilon) - 1.0


def divergence(average: tf.Tensor, policy: tf.Tensor, epsilon: float) -> tf.Tensor:
    """Return KL(average ‖ policy) [T, N] of probabilities [T, N, A], in nats."""
    return tf.reduce_sum(average * tf.math.log((average + epsilon) / (policy + epsilon)), -1)
