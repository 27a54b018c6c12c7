"""Distributions of returns: action values from quantiles or from the probabilities of fixed returns."""

from __future__ import annotations

from typing import Any, Protocol

import keras
import numpy as np
import tensorflow as tf


class ValueDistribution(Protocol):
    """The distribution of a return, given by K numbers ("atoms").

    Attributes:
        n_atoms: K.
        support: smallest and largest return; empty if they are not fixed.
    """

    n_atoms: int
    support: tuple[Any, ...]

    def means(self, atoms: tf.Tensor) -> tf.Tensor:
        """Return the means [...] of distributions [..., K]."""

    def targets(self, rewards: tf.Tensor, discounts: tf.Tensor, atoms: tf.Tensor) -> tf.Tensor:
        """Return the distribution [B, K] of reward + discount x return.

        Args:
            rewards: [B].
            discounts: [B].
            atoms: distribution of the return of the next observations, [B, K].
        """

    def losses(self, atoms: tf.Tensor, targets: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Return the losses [B] of distributions [B, K], and their errors [B] for priorities and metrics."""


class QuantileDistribution:
    """Quantiles of a return at the fractions (2 i + 1) / 2 K (QR-DQN, Dabney et al. 2018, arXiv:1710.10044)."""

    support: tuple[Any, ...] = ()

    def __init__(self, n_atoms: int):
        self.n_atoms = n_atoms

    def means(self, atoms: tf.Tensor) -> tf.Tensor:
        """See `ValueDistribution`."""
        return tf.reduce_mean(atoms, -1)

    def targets(self, rewards: tf.Tensor, discounts: tf.Tensor, atoms: tf.Tensor) -> tf.Tensor:
        """See `ValueDistribution`."""
        return rewards[:, None] + discounts[:, None] * atoms

    def losses(self, atoms: tf.Tensor, targets: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Return the quantile Huber losses [B] (algorithm 1), and the differences of the means [B]."""
        losses = tf.reduce_sum(tf.reduce_mean(quantile_huber_loss(atoms, targets), 1), 1)
        return losses, self.means(targets) - self.means(atoms)


class CategoricalDistribution:
    """Probabilities of K equidistant returns, as logits (C51, Bellemare et al. 2017, arXiv:1707.06887).

    Args:
        n_atoms: K.
        low: smallest return, a number or a scalar tensor.
        high: largest return.
    """

    def __init__(self, n_atoms: int, low: Any, high: Any):
        self.n_atoms = n_atoms
        self.support: tuple[Any, ...] = (low, high)
        self.returns = low + (high - low) * np.linspace(0, 1, n_atoms, dtype=np.float32)

    def means(self, atoms: tf.Tensor) -> tf.Tensor:
        """See `ValueDistribution`."""
        return tf.reduce_sum(tf.nn.softmax(atoms) * self.returns, -1)

    def targets(self, rewards: tf.Tensor, discounts: tf.Tensor, atoms: tf.Tensor) -> tf.Tensor:
        """Return the probabilities [B, K] of the returns, projected on the support (algorithm 1)."""
        low, high = self.support[0], self.support[1]
        returns = tf.clip_by_value(rewards[:, None] + discounts[:, None] * self.returns, low, high)
        positions = (returns - low) * ((self.n_atoms - 1) / (high - low))
        # a return between two atoms is shared by both, in proportion to its nearness
        indices = tf.range(self.n_atoms, dtype=tf.float32)
        shares = tf.maximum(1.0 - tf.abs(positions[:, None, :] - indices[:, None]), 0.0)
        return tf.linalg.matvec(shares, tf.nn.softmax(atoms))

    def losses(self, atoms: tf.Tensor, targets: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Return the cross-entropies [B], and the Kullback-Leibler divergences [B] from the targets.

        Rainbow takes the divergences as priorities (Hessel et al. 2018, arXiv:1710.02298, section 3).
        """
        losses = -tf.reduce_sum(targets * tf.nn.log_softmax(atoms), 1)
        entropies = -tf.reduce_sum(tf.math.xlogy(targets, targets), 1)
        return losses, tf.maximum(losses - entropies, 0.0)


def value_distribution(n_atoms: int, support: tuple[Any, ...]) -> ValueDistribution:
    """Return the categorical distribution of a support, or quantiles if the support is empty."""
    return CategoricalDistribution(n_atoms, *support) if support else QuantileDistribution(n_atoms)


def huber(errors: tf.Tensor) -> tf.Tensor:
    """Return the Huber loss: half the squared error up to an absolute error of 1, and linear above."""
    size = tf.abs(errors)
    return tf.where(size <= 1.0, 0.5 * errors**2, size - 0.5)


def quantile_huber_loss(quantiles: tf.Tensor, targets: tf.Tensor) -> Any:
    """Return the quantile Huber loss [B, k, M] of quantiles [B, M] at (2 m − 1) / 2 M and samples `targets` [B, k].

    Dabney et al. 2018 (arXiv:1710.10044), equations 9 and 10 with κ = 1.
    """
    n = quantiles.shape[1]
    fractions = tf.constant((np.arange(n, dtype=np.float32) + 0.5) / n)
    errors = targets[:, :, None] - quantiles[:, None, :]
    return tf.abs(fractions - tf.cast(errors < 0, tf.float32)) * huber(errors)


def dueling(advantages: tf.Tensor, value: tf.Tensor) -> tf.Tensor:
    """Return V + A − mean A of advantages [B, n, …] and values [B, 1, …] (arXiv:1511.06581, equation 9)."""
    return value + advantages - tf.reduce_mean(advantages, 1, keepdims=True)


def action_atoms(outputs: list[tf.Tensor], n_atoms: int) -> tf.Tensor:
    """Return the distributions of all actions [B, n, K].

    Args:
        outputs: the outputs of a network: [B, n K], or [advantages [B, n K], value [B, K]] of a dueling network.
        n_atoms: K.
    """
    atoms = [tf.reshape(x, (-1, x.shape[1] // n_atoms, n_atoms)) for x in outputs]
    return dueling(atoms[0], atoms[1]) if len(atoms) > 1 else atoms[0]


@keras.saving.register_keras_serializable('xagents')
class ActionValues(keras.layers.Layer):
    """The means of the distributions that a network returns for each action: the network that acts.

    Args:
        n_actions: n.
        n_atoms: K.
        support: smallest and largest return of categorical distributions; empty for quantiles.
    """

    def __init__(self, n_actions: int, n_atoms: int, support: tuple[float, ...] = (), **kwargs: Any):
        super().__init__(**{**kwargs, 'dtype': 'float32'})
        self.n_actions, self.n_atoms, self.support = n_actions, n_atoms, tuple(support)

    def call(self, outputs: Any) -> Any:
        """Return action values [B, n] for the outputs of the network (see `action_atoms`)."""
        parts = [tf.cast(x, tf.float32) for x in (outputs if isinstance(outputs, list | tuple) else [outputs])]
        distribution = value_distribution(self.n_atoms, self.support)
        return distribution.means(action_atoms(parts, self.n_atoms))

    def compute_output_shape(self, input_shape: Any) -> tuple[int | None, int]:
        """Return the shape [B, n] of the action values."""
        first = input_shape[0] if isinstance(input_shape[0], list | tuple) else input_shape
        return first[0], self.n_actions

    def get_config(self) -> dict[str, Any]:
        """Return the config from which Keras creates an equal layer."""
        own = {'n_actions': self.n_actions, 'n_atoms': self.n_atoms, 'support': list(self.support)}
        return {**super().get_config(), **own}
