"""The policy's gradient by its probabilities: truncated importance weights, bias correction, trust region.

Statistics φ of the policy's distribution are its probabilities; functions take and return them as [T, N, A].
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
    """Return g, the gradient of the policy's objective by its probabilities (equation 10, as in algorithm 2).

    ∇_φ log f(a) is 1 / f(a) in the place of a, and 0 elsewhere.

    Args:
        policy: [T, N, A] f, the present probabilities.
        ratios: [T, N, A] ρ, of the present probabilities to those of the policy that acted.
        taken: [T, N, A] 1 for the action that was taken.
        advantages: [T, N] Q^ret(x, a) − V(x) of that action.
        all_advantages: [T, N, A] Q(x, a) − V(x) of every action.
        importance_c: c, above which weights are cut; the second term makes good for what is cut.
        epsilon: added to what is divided by.

    Returns:
        [T, N, A].
    """
    truncated = taken * tf.minimum(ratios, importance_c) * advantages[..., None]
    correction = tf.nn.relu(1.0 - importance_c / (ratios + epsilon)) * policy * all_advantages
    return (truncated + correction) / (policy + epsilon)


def project(g: tf.Tensor, k: tf.Tensor, delta: float, epsilon: float) -> tuple[tf.Tensor, tf.Tensor]:
    """Return what is nearest to g of all z with kᵀz ≤ δ (equation 12).

    g [T, N, A] is the gradient, k [T, N, A] that of the divergence from the average policy.

    Returns:
        z [T, N, A]; and float [T, N], 1 where it is not g.
    """
    excess = tf.nn.relu(tf.reduce_sum(k * g, -1) - delta)
    z = g - (excess / (tf.reduce_sum(k**2, -1) + epsilon))[..., None] * k
    return z, tf.cast(excess > 0, tf.float32)


def entropy(policy: tf.Tensor, epsilon: float) -> tf.Tensor:
    """Return the entropy [T, N] of probabilities [T, N, A], in nats."""
    return -tf.reduce_sum(policy * tf.math.log(policy + epsilon), -1)


def entropy_gradient(policy: tf.Tensor, epsilon: float) -> tf.Tensor:
    """Return the entropy's gradient [T, N, A] by the probabilities."""
    return -tf.math.log(policy + epsilon) - 1.0


def divergence(average: tf.Tensor, policy: tf.Tensor, epsilon: float) -> tf.Tensor:
    """Return KL(average ‖ policy) [T, N] of probabilities [T, N, A], in nats."""
    return tf.reduce_sum(average * tf.math.log((average + epsilon) / (policy + epsilon)), -1)
