"""The policy distributions: in NumPy to act, in TensorFlow to learn.

The two halves are the same mathematics and are tested to agree. Outputs are what the policy's heads return: `[logits]`
or, for a Gaussian, `[mean, log_std]`, each [N, units]. TensorFlow is imported where it is first used, in `log_prob`,
`entropy` and `kl`; all three compile under XLA.

A draw is a deterministic function of outputs and noise, so that the noise of a whole rollout is drawn in one call.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from xagents.networks.description import wrong

if TYPE_CHECKING:
    import tensorflow as tf
    from gymnasium.spaces import Space

Array = np.ndarray
_TINY = np.finfo(np.float32).tiny
_LOWEST = np.finfo(np.float32).min
_ZERO = np.float32(0)
_FEW = 256
_HALF_LOG_2PI = np.float32(0.5 * math.log(2 * math.pi))


def distribution_for(action_space: Space) -> Distribution:
    """Return the distribution of a policy over `action_space`.

    Args:
        action_space: Discrete, MultiDiscrete, MultiBinary, or Box of floating-point numbers.

    Returns:
        The distribution.

    Raises:
        ValueError: If the space is none of these.
    """
    from gymnasium import spaces

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
    raise wrong('action space', ' '.join(str(action_space).split()), admits)


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
        """Draw what `sample` turns into actions.

        Args:
            rng: Source of the noise.
            shape_prefix: What stands before the units: (N,) for one step, (T, N) for a rollout.

        Returns:
            Float32 [*shape_prefix, n_units].
        """

    def sample_with_log_prob(self, outputs: Sequence[Array], noise: Array) -> tuple[Array, Array]:
        """Draw actions and return their log-probabilities, which costs less than one after the other.

        Args:
            outputs: The policy's outputs, float32 [N, n_units] each.
            noise: Of `draw_noise`, [N, n_units].

        Returns:
            Actions [N, *action_shape] and float32 log-probabilities [N], both new arrays.
        """
        actions = self.sample(outputs, noise)
        return actions, self.log_prob_np(outputs, actions)

    @abstractmethod
    def sample(self, outputs: Sequence[Array], noise: Array) -> Array:
        """Draw actions [N, *action_shape]; arguments as in `sample_with_log_prob`."""

    @abstractmethod
    def mode(self, outputs: Sequence[Array]) -> Array:
        """Return the most probable actions [N, *action_shape]."""

    @abstractmethod
    def log_prob_np(self, outputs: Sequence[Array], actions: Array) -> Array:
        """Return the log-probabilities (densities, of a Gaussian) [N] of actions [N, *action_shape], float32."""

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
    """Several independent choices; their logits stand side by side in one head.

    A draw is the largest of logits plus Gumbel noise (Maddison et al. 2014, A* Sampling, section 2).

    Args:
        sizes: Number of values of each of the k choices.
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

    def sample_with_log_prob(self, outputs: Sequence[Array], noise: Array) -> tuple[Array, Array]:
        """See `Distribution`."""
        logits = self._pad(outputs[0], -np.inf)
        choices = (logits + self._pad(noise, 0)).argmax(1)
        return self._actions(choices), self._log_prob_np(logits, choices)

    def sample(self, outputs: Sequence[Array], noise: Array) -> Array:
        """See `Distribution`."""
        return self._actions((self._pad(outputs[0], -np.inf) + self._pad(noise, 0)).argmax(1))

    def mode(self, outputs: Sequence[Array]) -> Array:
        """See `Distribution`."""
        return self._actions(self._pad(outputs[0], -np.inf).argmax(1))

    def log_prob_np(self, outputs: Sequence[Array], actions: Array) -> Array:
        """See `Distribution`."""
        return self._log_prob_np(self._pad(outputs[0], -np.inf), np.asarray(actions).reshape(-1))

    def log_prob(self, outputs: Sequence[tf.Tensor], actions: tf.Tensor) -> tf.Tensor:
        """See `Distribution`."""
        import tensorflow as tf

        choices = tf.unstack(tf.reshape(actions, [-1, len(self.sizes)]), axis=1)
        parts = zip(self._tf_log_softmax(outputs[0]), choices, strict=True)
        return _total([_tf_chosen(log_p, choice) for log_p, choice in parts])

    def entropy(self, outputs: Sequence[tf.Tensor]) -> tf.Tensor:
        """See `Distribution`."""
        return _total([_tf_entropy(log_p) for log_p in self._tf_log_softmax(outputs[0])])

    def kl(self, old: Sequence[tf.Tensor], new: Sequence[tf.Tensor]) -> tf.Tensor:
        """See `Distribution`."""
        pairs = zip(self._tf_log_softmax(old[0]), self._tf_log_softmax(new[0]), strict=True)
        return _total([_tf_kl(log_p, log_q) for log_p, log_q in pairs])

    def _pad(self, units: Array, empty: float) -> Array:
        """Return [N, n_units] as [N * k, largest], one row a choice."""
        if self._places is None:
            return units if len(self.sizes) == 1 else units.reshape(-1, self._largest)
        padded = np.full((len(units), len(self.sizes) * self._largest), empty, np.float32)
        padded[:, self._places] = units
        return padded.reshape(-1, self._largest)

    def _actions(self, choices: Array) -> Array:
        return choices.reshape(-1, len(self.sizes)).astype(np.int32)

    def _log_prob_np(self, logits: Array, choices: Array) -> Array:
        return np.add.reduce(_chosen(logits, choices).reshape(-1, len(self.sizes)), 1)

    def _tf_log_softmax(self, logits: tf.Tensor) -> list[tf.Tensor]:
        import tensorflow as tf

        return [_tf_log_softmax(part) for part in tf.split(logits, list(self.sizes), axis=-1)]


class Categorical(MultiCategorical):
    """One of n actions; a draw is the largest of logits plus Gumbel noise.

    Args:
        n: Number of actions.
    """

    def __init__(self, n: int):
        super().__init__([n])
        self.action_shape = ()

    def _actions(self, choices: Array) -> Array:
        return choices.astype(np.int32)

    def _log_prob_np(self, logits: Array, choices: Array) -> Array:
        return _chosen(logits, choices)


class Bernoulli(Distribution):
    """Independent switches; a logit is the log-odds of 1.

    A draw is 1 where logit plus logistic noise is positive.

    Args:
        n: Number of switches.
    """

    def __init__(self, n: int):
        if n < 1:
            raise wrong('n', n, 'a whole number from 1')
        self.n_units = n
        self.action_shape = (n,)

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

    def log_prob_np(self, outputs: Sequence[Array], actions: Array) -> Array:
        """See `Distribution`."""
        logits = outputs[0]
        return -np.add.reduce(np.logaddexp(_ZERO, np.where(actions, -logits, logits)), 1)

    def log_prob(self, outputs: Sequence[tf.Tensor], actions: tf.Tensor) -> tf.Tensor:
        """See `Distribution`."""
        import tensorflow as tf

        logits = outputs[0]
        return -tf.reduce_sum(tf.nn.softplus(tf.where(tf.cast(actions, tf.bool), -logits, logits)), -1)

    def entropy(self, outputs: Sequence[tf.Tensor]) -> tf.Tensor:
        """See `Distribution`."""
        import tensorflow as tf

        # Symmetric in the logit's sign: written for the positive one, nothing cancels.
        size = tf.abs(outputs[0])
        return tf.reduce_sum(tf.nn.softplus(-size) + size * tf.sigmoid(-size), -1)

    def kl(self, old: Sequence[tf.Tensor], new: Sequence[tf.Tensor]) -> tf.Tensor:
        """See `Distribution`."""
        import tensorflow as tf

        on = tf.sigmoid(old[0]) * (tf.nn.softplus(-new[0]) - tf.nn.softplus(-old[0]))
        off = tf.sigmoid(-old[0]) * (tf.nn.softplus(new[0]) - tf.nn.softplus(old[0]))
        return tf.reduce_sum(on + off, -1)


class Gaussian(Distribution):
    """Independent normal variables: [mean, log standard deviation], of actions without bounds.

    Clipping and scaling to the environment's bounds happen in its decoder; log-probabilities are those of the actions
    before that.

    Args:
        n: Number of dimensions.
    """

    has_log_std = True
    action_dtype = np.dtype(np.float32)

    def __init__(self, n: int):
        if n < 1:
            raise wrong('n', n, 'a whole number from 1')
        self.n_units = n
        self.action_shape = (n,)

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

    def log_prob_np(self, outputs: Sequence[Array], actions: Array) -> Array:
        """See `Distribution`."""
        mean, log_std = outputs
        z = (actions - mean) * np.exp(-log_std)
        return -np.add.reduce(np.float32(0.5) * z * z + (log_std + _HALF_LOG_2PI), 1)

    def log_prob(self, outputs: Sequence[tf.Tensor], actions: tf.Tensor) -> tf.Tensor:
        """See `Distribution`."""
        import tensorflow as tf

        mean, log_std = outputs
        z = (actions - mean) * tf.exp(-log_std)
        return -tf.reduce_sum(0.5 * z * z + (log_std + _HALF_LOG_2PI), -1)

    def entropy(self, outputs: Sequence[tf.Tensor]) -> tf.Tensor:
        """See `Distribution`."""
        import tensorflow as tf

        return tf.reduce_sum(outputs[1] + (0.5 + _HALF_LOG_2PI), -1)

    def kl(self, old: Sequence[tf.Tensor], new: Sequence[tf.Tensor]) -> tf.Tensor:
        """See `Distribution`."""
        import tensorflow as tf

        (old_mean, old_log_std), (new_mean, new_log_std) = old, new
        z = (old_mean - new_mean) * tf.exp(-new_log_std)
        ratio = old_log_std - new_log_std
        return tf.reduce_sum(0.5 * (tf.math.expm1(2.0 * ratio) + z * z) - ratio, -1)


def _gumbel(rng: np.random.Generator, shape: Sequence[int]) -> Array:
    exponential = rng.standard_exponential(shape, np.float32)
    np.maximum(exponential, _TINY, out=exponential)  # an exact zero would be an infinity
    np.log(exponential, exponential)
    return np.negative(exponential, exponential)


def _chosen(logits: Array, choices: Array) -> Array:
    """Return the log-probabilities [N] that logits [N, n] give to choices [N]."""
    # Choices first, as the mirror's buffers are: sums over them are then sums of contiguous rows.
    columns = logits.T if logits.size <= _FEW else np.ascontiguousarray(logits.T)
    # Relative to the chosen logit nothing cancels, be it the largest or 1000 below.
    relative = columns - columns[choices, np.arange(len(choices))]
    if logits.size <= _FEW:  # one slow call costs less than six fast ones
        log_sum = np.logaddexp.reduce(relative, 0)
    else:
        largest = np.maximum.reduce(relative, 0)
        np.subtract(relative, largest, relative)
        np.exp(relative, relative)
        log_sum = np.log(np.add.reduce(relative, 0))
        np.add(log_sum, largest, log_sum)
    return np.negative(log_sum, log_sum)


def _tf_log_softmax(logits: Any) -> Any:
    import tensorflow as tf

    # Finite also where a probability is zero, so that zero times its logarithm is zero.
    return tf.maximum(tf.nn.log_softmax(logits), _LOWEST)


def _tf_chosen(log_p: Any, choices: Any) -> Any:
    import tensorflow as tf

    # A mask rather than a gather, whose gradient is a slow scatter under XLA.
    mask = tf.one_hot(choices, log_p.shape[-1], on_value=True, off_value=False, dtype=tf.bool)
    return tf.reduce_sum(tf.where(mask, log_p, 0.0), -1)


def _tf_entropy(log_p: Any) -> Any:
    import tensorflow as tf

    return -tf.reduce_sum(tf.exp(log_p) * log_p, -1)


def _tf_kl(log_p: Any, log_q: Any) -> Any:
    import tensorflow as tf

    return tf.reduce_sum(tf.exp(log_p) * (log_p - log_q), -1)


def _total(parts: Sequence[Any]) -> Any:
    import tensorflow as tf

    return tf.add_n(list(parts))
