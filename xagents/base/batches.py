"""Inputs of updates, as named tuples: rollouts, samples of rollouts, and samples of a replay buffer.

A field is an array when a caller passes it, and a tensor within the compiled update.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Self

import tensorflow as tf


class RolloutBatch(NamedTuple):
    """A rollout as the input of an update: T steps of N environments.

    Attributes:
        observations: [T + 1, N, *D]
        actions: [T, N, …]
        rewards: [T, N]
        terminated: bool [T, N]
        truncated: bool [T, N]
        valid: bool [T, N]; False in a row that only reset its environment.
        outputs: outputs of the policy that acted, [T, N, units] each; empty if rollouts do not contain them.
    """

    observations: Any
    actions: Any
    rewards: Any
    terminated: Any
    truncated: Any
    valid: Any
    outputs: tuple[Any, ...] = ()

    def flags(self) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Return terminated, truncated and valid, float32 [T, N] each."""
        terminated, truncated, valid = (tf.cast(x, tf.float32) for x in (self.terminated, self.truncated, self.valid))
        return terminated, truncated, valid


class RolloutSamples(NamedTuple):
    """A flattened rollout with advantages and returns, one row per transition; a whole rollout has B = T x N rows.

    Attributes:
        observations: [B, *D]
        actions: [B, …]
        advantages: [B]
        returns: [B]
        values: [B], before the update.
        valid: [B], 1, or 0 in rows without a transition.
        log_probs: [B], log probabilities under the policy that acted; 0 if rollouts do not contain its outputs.
    """

    observations: tf.Tensor
    actions: tf.Tensor
    advantages: tf.Tensor
    returns: tf.Tensor
    values: tf.Tensor
    valid: tf.Tensor
    log_probs: tf.Tensor

    def take(self, rows: tf.Tensor) -> Self:
        """Return the given rows."""
        return type(self)(*(tf.gather(x, rows) for x in self))


class ReplaySamples(NamedTuple):
    """Transitions sampled from a replay buffer: K batches of B transitions.

    Attributes:
        observations: [K, B, *D]
        actions: [K, B, …]
        rewards: [K, B], sums over the steps of an n-step target.
        next_observations: [K, B, *D]
        discounts: [K, B], factors of the next value; 0 if the episode terminated.
        weights: [K, B], importance weights; empty if sampling is uniform.
        noise: [K, B, A], noise on target actions; empty if the update needs none.
    """

    observations: Any
    actions: Any
    rewards: Any
    next_observations: Any
    discounts: Any
    weights: tuple[()] | Any = ()
    noise: tuple[()] | Any = ()

    def take(self, k: tf.Tensor) -> Self:
        """Return batch k, with fields [B, …]."""
        return type(self)(*(x if isinstance(x, tuple) else x[k] for x in self))

    @property
    def shape(self) -> tuple[int, int]:
        """K, B."""
        k, size = self.rewards.shape[:2]
        return k, size


def flatten(x: tf.Tensor) -> tf.Tensor:
    """Return [T, N, …] as [T * N, …]."""
    return tf.reshape(x, (x.shape[0] * x.shape[1], *x.shape[2:]))
