"""Policy distributions: sampling in NumPy (see `sampling`), log-probabilities and gradients in TensorFlow.

`log_prob`, `entropy` and `kl` compile under XLA.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from gymnasium import spaces

from xagents.networks import sampling

_LOWEST = np.finfo(np.float32).min
_HALF_LOG_2PI = np.float32(0.5 * math.log(2 * math.pi))
_LOG_2 = np.float32(math.log(2))
# largest action with a finite inverse of tanh that float32 distinguishes from 1
_ALMOST_1 = np.float32(1 - 2**-23)
LOG_STD_BOUNDS = (-5.0, 2.0)


class Distribution(sampling.ActionSampler):
    """A distribution over policy actions, differentiable in TensorFlow."""

    @abstractmethod
    def log_prob(self, outputs: Sequence[tf.Tensor], actions: tf.Tensor) -> tf.Tensor:
        """Return the log-probabilities [B] of actions [B, *action_shape]."""

    @abstractmethod
    def entropy(self, outputs: Sequence[tf.Tensor]) -> tf.Tensor:
        """Return the entropies [B] in nats."""

    @abstractmethod
    def kl(self, old: Sequence[tf.Tensor], new: Sequence[tf.Tensor]) -> tf.Tensor:
        """Return the divergences KL(old || new) [B] in nats."""


class MultiCategorical(sampling.MultiCategoricalSampler, Distribution):
    """Independent categorical distributions; one head contains the concatenated logits."""

    def log_prob(self, outputs: Sequence[tf.Tensor], actions: tf.Tensor) -> tf.Tensor:
        """See `Distribution`."""
        choices = tf.unstack(tf.reshape(actions, [-1, len(self.sizes)]), axis=1)
        parts = zip(self._log_softmax(outputs[0]), choices, strict=True)
        return tf.add_n([take_chosen(log_p, choice) for log_p, choice in parts])

    def entropy(self, outputs: Sequence[tf.Tensor]) -> tf.Tensor:
        """See `Distribution`."""
        return tf.add_n([-tf.reduce_sum(tf.exp(log_p) * log_p, -1) for log_p in self._log_softmax(outputs[0])])

    def kl(self, old: Sequence[tf.Tensor], new: Sequence[tf.Tensor]) -> tf.Tensor:
        """See `Distribution`."""
        pairs = zip(self._log_softmax(old[0]), self._log_softmax(new[0]), strict=True)
        return tf.add_n([tf.reduce_sum(tf.exp(log_p) * (log_p - log_q), -1) for log_p, log_q in pairs])

    def _log_softmax(self, logits: tf.Tensor) -> list[tf.Tensor]:
        return [_log_softmax(part) for part in tf.split(logits, list(self.sizes), axis=-1)]


class Categorical(sampling.CategoricalSampler, MultiCategorical):
    """A categorical distribution over n actions."""


class Bernoulli(sampling.BernoulliSampler, Distribution):
    """n independent Bernoulli variables; a logit is the log-odds of 1."""

    def log_prob(self, outputs: Sequence[tf.Tensor], actions: tf.Tensor) -> tf.Tensor:
        """See `Distribution`."""
        logits = outputs[0]
        return -tf.reduce_sum(tf.nn.softplus(tf.where(tf.cast(actions, tf.bool), -logits, logits)), -1)

    def entropy(self, outputs: Sequence[tf.Tensor]) -> tf.Tensor:
        """See `Distribution`."""
        # symmetric in the sign of the logit; the form for a positive logit avoids cancellation
        size = tf.abs(outputs[0])
        return tf.reduce_sum(tf.nn.softplus(-size) + size * tf.sigmoid(-size), -1)

    def kl(self, old: Sequence[tf.Tensor], new: Sequence[tf.Tensor]) -> tf.Tensor:
        """See `Distribution`."""
        on = tf.sigmoid(old[0]) * (tf.nn.softplus(-new[0]) - tf.nn.softplus(-old[0]))
        off = tf.sigmoid(-old[0]) * (tf.nn.softplus(new[0]) - tf.nn.softplus(old[0]))
        return tf.reduce_sum(on + off, -1)


class Gaussian(sampling.GaussianSampler, Distribution):
    """n independent normal variables; log-probabilities refer to the actions before clipping to bounds."""

    def log_prob(self, outputs: Sequence[tf.Tensor], actions: tf.Tensor) -> tf.Tensor:
        """See `Distribution`."""
        mean, log_std = outputs
        z = (actions - mean) * tf.exp(-log_std)
        return -tf.reduce_sum(0.5 * z * z + (log_std + _HALF_LOG_2PI), -1)

    def entropy(self, outputs: Sequence[tf.Tensor]) -> tf.Tensor:
        """See `Distribution`."""
        return tf.reduce_sum(outputs[1] + (0.5 + _HALF_LOG_2PI), -1)

    def kl(self, old: Sequence[tf.Tensor], new: Sequence[tf.Tensor]) -> tf.Tensor:
        """See `Distribution`."""
        (old_mean, old_log_std), (new_mean, new_log_std) = old, new
        z = (old_mean - new_mean) * tf.exp(-new_log_std)
        ratio = old_log_std - new_log_std
        return tf.reduce_sum(0.5 * (tf.math.expm1(2.0 * ratio) + z * z) - ratio, -1)


class SquashedGaussian(sampling.SquashedGaussianSampler, Gaussian):
    """n independent variables tanh(x) of normal variables x; log-probabilities refer to the squashed actions."""

    def sample_with_log_prob(self, outputs: Sequence[tf.Tensor], noise: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Return actions [B, A] and their log-probabilities [B] (Haarnoja et al. 2018, equation 26 of appendix C).

        The correction is computed from x and not from tanh(x), whose rounding near ±1 would make it infinite:
        log(1 − tanh(x)²) = 2 (log 2 − x − softplus(−2 x)).
        """
        mean, log_std = outputs[0], tf.clip_by_value(outputs[1], *sampling.SQUASHED_LOG_STD_BOUNDS)
        x = mean + tf.exp(log_std) * noise
        normal = -tf.reduce_sum(0.5 * noise**2 + log_std + _HALF_LOG_2PI, -1)
        return tf.tanh(x), normal - tf.reduce_sum(2.0 * (_LOG_2 - x - tf.nn.softplus(-2.0 * x)), -1)

    def log_prob(self, outputs: Sequence[tf.Tensor], actions: tf.Tensor) -> tf.Tensor:
        """See `Distribution`; actions are rounded to the inside of (−1, 1), so that the result is finite."""
        mean, log_std = outputs[0], tf.clip_by_value(outputs[1], *sampling.SQUASHED_LOG_STD_BOUNDS)
        inside = tf.clip_by_value(actions, -_ALMOST_1, _ALMOST_1)
        return self.sample_with_log_prob(outputs, (tf.atanh(inside) - mean) * tf.exp(-log_std))[1]

    def entropy(self, outputs: Sequence[tf.Tensor]) -> tf.Tensor:
        """Raise NotImplementedError: the entropy has no closed form. Agents estimate it by log-probabilities."""
        raise NotImplementedError('the entropy of a squashed Gaussian has no closed form')

    def kl(self, old: Sequence[tf.Tensor], new: Sequence[tf.Tensor]) -> tf.Tensor:
        """See `Distribution`; an invertible function of both variables does not change the divergence."""
        return super().kl(*([x[0], tf.clip_by_value(x[1], *sampling.SQUASHED_LOG_STD_BOUNDS)] for x in (old, new)))


class StateDependentGaussian(sampling.StateDependentSampler, Gaussian):
    """A Gaussian in each state, sampled with noise that may be the same for several steps (gSDE)."""


class SquashedStateDependentGaussian(sampling.SquashedStateDependentSampler, SquashedGaussian):
    """A squashed Gaussian in each state, sampled with noise that may be the same for several steps (gSDE)."""


class Product(sampling.ProductSampler, Distribution):
    """Independent distributions of the parts of a Dict or Tuple of actions; all quantities are sums over the parts."""

    parts: tuple[Distribution, ...]

    def log_prob(self, outputs: Sequence[tf.Tensor], actions: tf.Tensor) -> tf.Tensor:
        """See `Distribution`."""
        each = zip(self.parts, self.split_outputs(outputs), self.action_slices, strict=True)
        taken = [(part, own, tf.cast(actions[:, at], part.action_dtype)) for part, own, at in each]
        return tf.add_n([part.log_prob(own, choice) for part, own, choice in taken])

    def entropy(self, outputs: Sequence[tf.Tensor]) -> tf.Tensor:
        """See `Distribution`."""
        return tf.add_n([p.entropy(own) for p, own in zip(self.parts, self.split_outputs(outputs), strict=True)])

    def kl(self, old: Sequence[tf.Tensor], new: Sequence[tf.Tensor]) -> tf.Tensor:
        """See `Distribution`."""
        each = zip(self.parts, self.split_outputs(old), self.split_outputs(new), strict=True)
        return tf.add_n([part.kl(before, after) for part, before, after in each])


_DISTRIBUTIONS: dict[str, Any] = {
    'categorical': Categorical,
    'multi-categorical': MultiCategorical,
    'bernoulli': Bernoulli,
    'gaussian': Gaussian,
    'product': lambda leaves: Product([distribution_for(leaf) for leaf in leaves]),
}


def distribution_for(action_space: spaces.Space) -> Distribution:
    """Return the policy distribution for an action space; raises the errors of `sampler_kind`."""
    kind, argument = sampling.sampler_kind(action_space)
    return _DISTRIBUTIONS[kind](argument)


def clip_log_std(outputs: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    """Return the outputs of a policy with the log standard deviation, if any, clipped to `LOG_STD_BOUNDS`.

    Without bounds, actions that never vary would drive the standard deviation to 0.
    """
    policy, *log_std = outputs
    return [policy, *(tf.clip_by_value(x, *LOG_STD_BOUNDS) for x in log_std)]


def _log_softmax(logits: Any) -> Any:
    # finite even if a probability is 0, so that 0 times its logarithm is 0
    return tf.maximum(tf.nn.log_softmax(logits), _LOWEST)


def take_chosen(values: Any, choices: Any) -> Any:
    """Return the values [B] of choices [B] in values [B, n]."""
    # a mask, because the gradient of a gather is a slow scatter under XLA
    mask = tf.one_hot(choices, values.shape[-1], on_value=True, off_value=False, dtype=tf.bool)
    return tf.reduce_sum(tf.where(mask, values, 0.0), -1)
