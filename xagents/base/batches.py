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
        memory: [T / L, N, M], the memory before each sequence of L steps; empty without memory.
    """

    observations: Any
    actions: Any
    rewards: Any
    terminated: Any
    truncated: Any
    valid: Any
    outputs: tuple[Any, ...] = ()
    memory: tuple[()] | Any = ()

    @property
    def sequence(self) -> tuple[tf.Tensor, ...]:
        """The memory [N, M] before the first of T + 1 observations, and `keep` (see `RolloutSamples.sequence`).

        Empty without memory.
        """
        if isinstance(self.memory, tuple):
            return ()
        valid = tf.cast(self.valid, tf.float32)
        return self.memory[0], flatten(tf.concat([valid, tf.ones_like(valid[:1])], 0))

    def by_sequence(self, x: tf.Tensor) -> tf.Tensor:
        """Return [T, N, …] as [B, …]: with memory, as rows of sequences (see `RolloutSamples`)."""
        if not isinstance(self.memory, tuple):
            n = self.memory.shape[0]
            parts = tf.reshape(x, (n, x.shape[0] // n, *x.shape[1:]))
            ahead = tf.transpose(parts, (1, 0, *range(2, len(parts.shape))))
            x = tf.reshape(ahead, (x.shape[0] // n, n * x.shape[1], *x.shape[2:]))
        return flatten(x)

    def flags(self) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Return terminated, truncated and valid, float32 [T, N] each."""
        terminated, truncated, valid = (tf.cast(x, tf.float32) for x in (self.terminated, self.truncated, self.valid))
        return terminated, truncated, valid


class RolloutSamples(NamedTuple):
    """A flattened rollout with advantages and returns, one row per transition; a whole rollout has B = T x N rows.

    With memory, the rows are those of S sequences of L steps in the order of time: row t S + s is step t of sequence s.

    Attributes:
        observations: [B, *D]
        actions: [B, …]
        advantages: [B]
        returns: [B]
        values: [B], before the update.
        valid: [B], 1, or 0 in rows without a transition.
        log_probs: [B], log probabilities under the policy that acted; 0 if rollouts do not contain its outputs.
        memory: [S, M], the memory before each sequence; empty without memory.
    """

    observations: tf.Tensor
    actions: tf.Tensor
    advantages: tf.Tensor
    returns: tf.Tensor
    values: tf.Tensor
    valid: tf.Tensor
    log_probs: tf.Tensor
    memory: tuple[()] | tf.Tensor = ()

    @property
    def sequence(self) -> tuple[tf.Tensor, ...]:
        """The memory [S, M] before each sequence, and `keep` [B], 0 in rows after which it is zeros; empty without."""
        return () if isinstance(self.memory, tuple) else (self.memory, self.valid)

    def take(self, rows: tf.Tensor) -> Self:
        """Return the given rows; with memory, the given sequences."""
        columns, memory = self[:-1], self.memory
        if isinstance(memory, tuple):
            return type(self)(*(tf.gather(x, rows) for x in columns))

        def sequences(x: tf.Tensor) -> tf.Tensor:
            return flatten(tf.gather(tf.reshape(x, (-1, memory.shape[0], *x.shape[1:])), rows, axis=1))

        return type(self)(*map(sequences, columns))._replace(memory=tf.gather(memory, rows))


class ReplaySamples(NamedTuple):
    """Transitions sampled from a replay buffer: K batches of B transitions.

    Attributes:
        observations: [K, B, *D]
        actions: [K, B, …]
        rewards: [K, B], sums over the steps of an n-step target.
        next_observations: [K, B, *D]
        discounts: [K, B], factors of the next value; 0 if the episode terminated.
        weights: [K, B], importance weights, or those of valid steps of sequences; empty if all rows have equal ones.
        noise: [K, B, A], noise on target actions; empty if the update needs none.
        memory: [K, S, M], with memory: that before each of S sequences, whose steps are the rows (see
            `RolloutSamples`); empty without memory.
        next_memory: the same for next observations.
        keep: [K, B], 0 in rows after which the memory becomes zeros, else 1; empty without memory.
        next_keep: the same for next observations.
    """

    observations: Any
    actions: Any
    rewards: Any
    next_observations: Any
    discounts: Any
    weights: tuple[()] | Any = ()
    noise: tuple[()] | Any = ()
    memory: tuple[()] | Any = ()
    next_memory: tuple[()] | Any = ()
    keep: tuple[()] | Any = ()
    next_keep: tuple[()] | Any = ()

    @property
    def sequence(self) -> tuple[Any, ...]:
        """Of one batch, the memory and `keep` of its observations; empty without memory."""
        return () if isinstance(self.memory, tuple) else (self.memory, self.keep)

    @property
    def next_sequence(self) -> tuple[Any, ...]:
        """Of one batch, the memory and `keep` of its next observations; empty without memory."""
        return () if isinstance(self.memory, tuple) else (self.next_memory, self.next_keep)

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
