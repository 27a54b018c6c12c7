"""The policy distributions: drawn from in NumPy, learned from in TensorFlow.

Outputs are what the policy's heads return: `[logits]` or, for a Gaussian, `[mean, log_std]`, each [N, units].
`log_prob`, `entropy` and `kl` compile under XLA. A draw is a deterministic function of outputs and noise, so that the
noise of a whole rollout is drawn in one call.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from gymnasium import spaces

from xagents.networks.description import wrong
from xagents.options.errors import one_line

Array = np.ndarray
_TINY = np.finfo(np.float32).tiny
_LOWEST = np.finfo(np.float32).min
_HALF_LOG_2PI = np.float32(0.5 * math.log(2 * math.pi))


def distribution_for(action_space: spaces.Space) -> Distribution:
    """Return a policy's distribution over Discrete, MultiDiscrete, MultiBinary, or Box of floating-point numbers."""
    if isinstance(action_space, spaces.Discrete):
        return Categorical(int(action_space.n))
    if isinstance(action_space, spaces.MultiDiscrete):
        return MultiCategorical([int(n) for n in action_space.nvec.ravel()])
    size = math.prod(map(int, action_space.shape or ()))
    if isinstance(action_space, spaces.MultiBinary) and size:
        return Bernoulli(size)
    if isinstance(action_space, spaces.Box) and np.issubdtype(action_space.dtype, np.floating) and size:
        return Gaussian(size)
    admits = 'Discrete, MultiDiscrete, MultiBinary, or Box of floating-point numbers'
    raise wrong('action space', one_line(action_space), admits)


class Distribution(ABC):
    """A distribution over policy actions; the environments' decoder makes the environment's own actions of them.

    Attributes:
        n_units: Size of the actor's head.
        has_log_std: Whether the outputs are [mean, log_std] rather than [logits].
        action_shape: Shape of one policy action.
        action_dtype: Its type in a rollout.
    """

    n_units: int
    has_log_std: bool = False
    action_shape: tuple[int, ...]
    action_dtype: np.dtype = np.dtype(np.int32)

    @abstractmethod
    def draw_noise(self, rng: np.random.Generator, shape_prefix: Sequence[int]) -> Array:
        """Draw what `sample` turns into actions: float32 [*shape_prefix, n_units].

        The prefix is (N,) for one step, (T, N) for a rollout.
        """

    @abstractmethod
    def sample(self, outputs: Sequence[Array], noise: Array) -> Array:
        """Return actions, a new array [N, *action_shape].

        Outputs and the noise, of `draw_noise`, are float32 [N, n_units] each.
        """

    @abstractmethod
    def mode(self, outputs: Sequence[Array]) -> Array:
        """Return the most probable actions [N, *action_shape]."""

    @abstractmethod
    def log_prob(self, outputs: Sequence[tf.Tensor], actions: tf.Tensor) -> tf.Tensor:
        """Return the log-probabilities [B] of actions [B, *action_shape]."""

    @abstractmethod
    def entropy(self, outputs: Sequence[tf.Tensor]) -> tf.Tensor:
        """Return the entropies [B] in nats."""

    @abstractmethod
    def kl(self, old: Sequence[tf.Tensor], new: Sequence[tf.Tensor]) -> tf.Tensor:
        """Return the divergences KL(old || new) [B] in nats."""


class MultiCategorical(Distribution):
    """Several independent choices, of so many values each; their logits stand side by side in one head.

    A draw is the largest of logits plus Gumbel noise (Maddison et al. 2014, A* Sampling, section 2).
    """

    def __init__(self, sizes: Sequence[int]):
        if not sizes or min(sizes) < 1:
            raise wrong('sizes', list(sizes), 'one or more whole numbers from 1')
        self.sizes = tuple(sizes)
        self.n_units = sum(sizes)
        self.action_shape = (len(sizes),)
        self._largest = max(sizes)
        # Choices of different sizes become rows of one width, whose empty places have no probability.
        self._places: Array | None = None
        if min(sizes) < self._largest:
            self._places = np.concatenate([i * self._largest + np.arange(n) for i, n in enumerate(sizes)])

    def draw_noise(self, rng: np.random.Generator, shape_prefix: Sequence[int]) -> Array:
        """Draw standard Gumbel noise: minus the logarithm of an exponential."""
        return _gumbel(rng, (*shape_prefix, self.n_units))

    def sample(self, outputs: Sequence[Array], noise: Array) -> Array:
        """See `Distribution`."""
        return self._actions((self._pad(outputs[0], -np.inf) + self._pad(noise, 0)).argmax(1))

    def mode(self, outputs: Sequence[Array]) -> Array:
        """See `Distribution`."""
        return self._actions(self._pad(outputs[0], -np.inf).argmax(1))

    def log_prob(self, outputs: Sequence[tf.Tensor], actions: tf.Tensor) -> tf.Tensor:
        """See `Distribution`."""
        choices = tf.unstack(tf.reshape(actions, [-1, len(self.sizes)]), axis=1)
        parts = zip(self._log_softmax(outputs[0]), choices, strict=True)
        return tf.add_n([_chosen(log_p, choice) for log_p, choice in parts])

    def entropy(self, outputs: Sequence[tf.Tensor]) -> tf.Tensor:
        """See `Distribution`."""
        return tf.add_n([-tf.reduce_sum(tf.exp(log_p) * log_p, -1) for log_p in self._log_softmax(outputs[0])])

    def kl(self, old: Sequence[tf.Tensor], new: Sequence[tf.Tensor]) -> tf.Tensor:
        """See `Distribution`."""
        pairs = zip(self._log_softmax(old[0]), self._log_softmax(new[0]), strict=True)
        return tf.add_n([tf.reduce_sum(tf.exp(log_p) * (log_p - log_q), -1) for log_p, log_q in pairs])

    def _pad(self, units: Array, empty: float) -> Array:
        """Return [N, n_units] as [N * k, largest], one row a choice."""
        if self._places is None:
            return units if len(self.sizes) == 1 else units.reshape(-1, self._largest)
        padded = np.full((len(units), len(self.sizes) * self._largest), empty, np.float32)
        padded[:, self._places] = units
        return padded.reshape(-1, self._largest)

    def _actions(self, choices: Array) -> Array:
        return choices.reshape(-1, *self.action_shape).astype(np.int32)

    def _log_softmax(self, logits: tf.Tensor) -> list[tf.Tensor]:
        return [_log_softmax(part) for part in tf.split(logits, list(self.sizes), axis=-1)]


class Categorical(MultiCategorical):
    """One of n actions; a draw is the largest of logits plus Gumbel noise."""

    def __init__(self, n: int):
        super().__init__([n])
        self.action_shape = ()


class _PerUnit(Distribution):
    """Distributions of n numbers, one a unit."""

    def __init__(self, n: int):
        if n < 1:
            raise wrong('n', n, 'a whole number from 1')
        self.n_units, self.action_shape = n, (n,)


class Bernoulli(_PerUnit):
    """n independent switches; a logit is the log-odds of 1.

    A draw is 1 where logit plus logistic noise is positive.
    """

    def draw_noise(self, rng: np.random.Generator, shape_prefix: Sequence[int]) -> Array:
        """Draw standard logistic noise: the difference of two Gumbel draws, exact in both tails."""
        shape = (*shape_prefix, self.n_units)
        return _gumbel(rng, shape) - _gumbel(rng, shape)

    def sample(self, outputs: Sequence[Array], noise: Array) -> Array:
        """See `Distribution`."""
        return (outputs[0] + noise > 0).astype(np.int32)

    def mode(self, outputs: Sequence[Array]) -> Array:
        """See `Distribution`."""
        return (outputs[0] > 0).astype(np.int32)

    def log_prob(self, outputs: Sequence[tf.Tensor], actions: tf.Tensor) -> tf.Tensor:
        """See `Distribution`."""
        logits = outputs[0]
        return -tf.reduce_sum(tf.nn.softplus(tf.where(tf.cast(actions, tf.bool), -logits, logits)), -1)

    def entropy(self, outputs: Sequence[tf.Tensor]) -> tf.Tensor:
        """See `Distribution`."""
        # Symmetric in the logit's sign: written for the positive one, nothing cancels.
        size = tf.abs(outputs[0])
        return tf.reduce_sum(tf.nn.softplus(-size) + size * tf.sigmoid(-size), -1)

    def kl(self, old: Sequence[tf.Tensor], new: Sequence[tf.Tensor]) -> tf.Tensor:
        """See `Distribution`."""
        on = tf.sigmoid(old[0]) * (tf.nn.softplus(-new[0]) - tf.nn.softplus(-old[0]))
        off = tf.sigmoid(-old[0]) * (tf.nn.softplus(new[0]) - tf.nn.softplus(old[0]))
        return tf.reduce_sum(on + off, -1)


class Gaussian(_PerUnit):
    """n independent normal variables: [mean, log standard deviation], of actions without bounds.

    The environment's decoder clips and scales to its bounds; log-probabilities are of the actions before that.
    """

    has_log_std = True
    action_dtype = np.dtype(np.float32)

    def draw_noise(self, rng: np.random.Generator, shape_prefix: Sequence[int]) -> Array:
        """Draw standard normal noise."""
        return rng.standard_normal((*shape_prefix, self.n_units), np.float32)

    def sample(self, outputs: Sequence[Array], noise: Array) -> Array:
        """See `Distribution`."""
        mean, log_std = outputs
        return mean + np.exp(log_std) * noise

    def mode(self, outputs: Sequence[Array]) -> Array:
        """Return the means [N, A], copied."""
        return np.array(outputs[0], np.float32)

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


def _gumbel(rng: np.random.Generator, shape: Sequence[int]) -> Array:
    exponential = rng.standard_exponential(shape, np.float32)
    np.maximum(exponential, _TINY, out=exponential)  # an exact zero would be an infinity
    np.log(exponential, exponential)
    return np.negative(exponential, exponential)


def _log_softmax(logits: Any) -> Any:
    # Finite also where a probability is zero, so that zero times its logarithm is zero.
    return tf.maximum(tf.nn.log_softmax(logits), _LOWEST)


def _chosen(log_p: Any, choices: Any) -> Any:
    # A mask rather than a gather, whose gradient is a slow scatter under XLA.
    mask = tf.one_hot(choices, log_p.shape[-1], on_value=True, off_value=False, dtype=tf.bool)
    return tf.reduce_sum(tf.where(mask, log_p, 0.0), -1)
