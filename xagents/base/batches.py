"""What updates take: rollouts and what they teach, as records whose fields have names.

A field is an array while it is handed over, and a tensor within the compiled update.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Self

import tensorflow as tf


class RolloutBatch(NamedTuple):
    """A rollout as an update sees it: T steps of N environments.

    Attributes:
        observations: [T + 1, N, *D]
        actions: [T, N, …]
        rewards: [T, N]
        terminated: bool [T, N]
        truncated: bool [T, N]
        valid: bool [T, N]; a row that is not valid only reset its environment.
        outputs: of the policy that acted, [T, N, units] each, where they are kept.
    """

    observations: Any
    actions: Any
    rewards: Any
    terminated: Any
    truncated: Any
    valid: Any
    outputs: tuple[Any, ...] = ()

    def flags(self) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Return terminated, truncated and valid as numbers, [T, N] float32."""
        terminated, truncated, valid = (tf.cast(x, tf.float32) for x in (self.terminated, self.truncated, self.valid))
        return terminated, truncated, valid


class RolloutSamples(NamedTuple):
    """What a rollout teaches, a row a transition; B = T x N of a whole rollout.

    Attributes:
        observations: [B, *D]
        actions: [B, …]
        advantages: [B]
        returns: [B]
        values: [B], before the update.
        valid: [B], 1, or 0 where a row means nothing.
        log_probs: [B], of the policy that acted; 0 where its outputs are not kept.
    """

    observations: tf.Tensor
    actions: tf.Tensor
    advantages: tf.Tensor
    returns: tf.Tensor
    values: tf.Tensor
    valid: tf.Tensor
    log_probs: tf.Tensor

    def take(self, rows: tf.Tensor) -> Self:
        """Return some of the rows."""
        return type(self)(*(tf.gather(x, rows) for x in self))


class ReplaySamples(NamedTuple):
    """Transitions that were drawn from a replay buffer: K batches of B.

    Attributes:
        observations: [K, B, *D]
        actions: [K, B, …]
        rewards: [K, B], summed over the steps of a target.
        next_observations: [K, B, *D]
        discounts: [K, B], of the value of the next observation; 0 where the episode terminated.
        weights: [K, B], importance weights; empty where transitions are drawn uniformly.
        noise: [K, B, A], of target actions; empty where there is none.
    """

    observations: Any
    actions: Any
    rewards: Any
    next_observations: Any
    discounts: Any
    weights: tuple[()] | Any = ()
    noise: tuple[()] | Any = ()

    def take(self, k: tf.Tensor) -> Self:
        """Return the batch k, fields [B, …]."""
        return type(self)(*(x if isinstance(x, tuple) else x[k] for x in self))

    @property
    def shape(self) -> tuple[int, int]:
        """K, B."""
        k, size = self.rewards.shape[:2]
        return k, size


def flatten(x: tf.Tensor) -> tf.Tensor:
    """Return [T, N, …] as [T * N, …]."""
    return tf.reshape(x, (x.shape[0] * x.shape[1], *x.shape[2:]))
