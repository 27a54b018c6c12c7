"""Sampling of actions from policy outputs, as arrays or as tensors. Does not load TensorFlow.

Outputs are the arrays [N, units] of the policy heads: `[logits]` or, for a Gaussian, `[mean, log_std]`. Actions are a
deterministic function of outputs and noise, so that one call can draw the noise of a whole rollout.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium import spaces

from xagents.networks.description import value_error
from xagents.options.errors import one_line
from xagents.system.array_functions import functions_for
from xagents.system.trees import leaf_spaces

Array = np.ndarray
_TINY = np.finfo(np.float32).tiny
SQUASHED_LOG_STD_BOUNDS = np.float32(-20.0), np.float32(2.0)
VARIANCE_EPSILON = 1e-6  # added to the variance of state-dependent noise, which is 0 if all features are 0


class ActionSampler(ABC):
    """A sampler of policy actions; the decoder of the environments converts them to environment actions.

    Attributes:
        n_units: size of the actor head.
        has_log_std: whether the outputs are [mean, log_std] instead of [logits].
        action_shape: shape of one policy action.
        action_dtype: dtype of actions in a rollout.
    """

    n_units: int
    has_log_std: bool = False
    action_shape: tuple[int, ...]
    action_dtype: np.dtype = np.dtype(np.int32)

    @abstractmethod
    def draw_noise(self, rng: np.random.Generator, shape_prefix: Sequence[int]) -> Array:
        """Draw the noise for `sample`: float32 [*shape_prefix, n_units].

        `shape_prefix` is (N,) for one step and (T, N) for a rollout.
        """

    @abstractmethod
    def sample(self, outputs: Sequence[Array], noise: Array) -> Array:
        """Return actions, a new array [N, *action_shape].

        Args:
            outputs: policy outputs, float32 [N, n_units] each.
            noise: noise from `draw_noise`, float32 [N, n_units].
        """

    @abstractmethod
    def mode(self, outputs: Sequence[Array]) -> Array:
        """Return the most probable actions [N, *action_shape]."""

    def draw_random(self, rng: np.random.Generator, shape_prefix: Sequence[int]) -> Array:
        """Draw actions [*shape_prefix, *action_shape] independently of any output, for exploration without a policy.

        Actions with bounds are uniform, others are standard normal.
        """
        zeros = [np.zeros((math.prod(shape_prefix), units), np.float32) for units in self.output_units]
        noise = self.draw_noise(rng, (math.prod(shape_prefix),))
        return self.sample(zeros, noise).reshape(*shape_prefix, *self.action_shape)

    @property
    def output_names(self) -> tuple[str, ...]:
        """Names of the distribution parameters as columns of a rollout."""
        return ('mean', 'log_std') if self.has_log_std else ('logits',)

    @property
    def n_log_std(self) -> int:
        """Number of log standard deviations."""
        return self.n_units if self.has_log_std else 0

    @property
    def parameter_units(self) -> tuple[int, ...]:
        """Sizes of the distribution parameters, in the order of `output_names`."""
        return (self.n_units, self.n_log_std) if self.has_log_std else (self.n_units,)

    @property
    def output_units(self) -> tuple[int, ...]:
        """Sizes of the outputs."""
        return self.parameter_units

    def parameters(self, outputs: Sequence[Array]) -> dict[str, Array]:
        """Return the distribution parameters [N, n_units] by name for the outputs of the acting network."""
        return dict(zip(self.output_names, outputs, strict=True))


class MultiCategoricalSampler(ActionSampler):
    """Independent categorical distributions; one head contains the concatenated logits.

    A sample is the argmax of logits plus Gumbel noise (Maddison et al. 2014, A* Sampling, section 2).

    Args:
        sizes: number of values of each distribution.
    """

    def __init__(self, sizes: Sequence[int]):
        if not sizes or min(sizes) < 1:
            raise value_error('sizes', list(sizes), 'one or more whole numbers from 1')
        self.sizes = tuple(sizes)
        self.n_units = sum(sizes)
        self.action_shape = (len(sizes),)
        self._largest = max(sizes)
        # distributions of different sizes become rows of one width; the padding has probability 0
        self._sources: Array | None = None
        if min(sizes) < self._largest:
            self._sources = np.full(len(sizes) * self._largest, self.n_units)
            self._sources[np.concatenate([i * self._largest + np.arange(n) for i, n in enumerate(sizes)])] = range(
                self.n_units
            )

    def draw_noise(self, rng: np.random.Generator, shape_prefix: Sequence[int]) -> Array:
        """Draw standard Gumbel noise: the negative logarithm of exponential noise."""
        return _gumbel(rng, (*shape_prefix, self.n_units))

    def sample(self, outputs: Sequence[Array], noise: Array) -> Array:
        """See `ActionSampler`."""
        perturbed = self._pad(outputs[0], -np.inf) + self._pad(noise, 0)
        return self._actions(functions_for(perturbed).argmax(perturbed, 1))

    def mode(self, outputs: Sequence[Array]) -> Array:
        """See `ActionSampler`."""
        logits = self._pad(outputs[0], -np.inf)
        return self._actions(functions_for(logits).argmax(logits, 1))

    def _pad(self, units: Array, empty: float) -> Array:
        """Return `units` [N, n_units] as [N * k, largest], one row per distribution, padded with `empty`."""
        xp = functions_for(units)
        if self._sources is None:
            return units if len(self.sizes) == 1 else xp.reshape(units, (-1, self._largest))
        with_padding = xp.concatenate([units, xp.full_like(units[:, :1], empty)], 1)
        return xp.reshape(xp.take(with_padding, self._sources, 1), (-1, self._largest))

    def _actions(self, choices: Array) -> Array:
        xp = functions_for(choices)
        return xp.astype(xp.reshape(choices, (-1, *self.action_shape)), np.int32)


class CategoricalSampler(MultiCategoricalSampler):
    """A categorical distribution over n actions; a sample is the argmax of logits plus Gumbel noise."""

    def __init__(self, n: int):
        super().__init__([n])
        self.action_shape = ()


class _PerUnitSampler(ActionSampler):
    """Distributions of n numbers, one per unit."""

    def __init__(self, n: int):
        if n < 1:
            raise value_error('n', n, 'a whole number from 1')
        self.n_units, self.action_shape = n, (n,)


class BernoulliSampler(_PerUnitSampler):
    """n independent Bernoulli variables; a logit is the log-odds of 1.

    A sample is 1 if logit plus logistic noise is positive.
    """

    def draw_noise(self, rng: np.random.Generator, shape_prefix: Sequence[int]) -> Array:
        """Draw standard logistic noise: the difference of two Gumbel samples, which is exact in both tails."""
        shape = (*shape_prefix, self.n_units)
        return _gumbel(rng, shape) - _gumbel(rng, shape)

    def sample(self, outputs: Sequence[Array], noise: Array) -> Array:
        """See `ActionSampler`."""
        return functions_for(noise).astype(outputs[0] + noise > 0, np.int32)

    def mode(self, outputs: Sequence[Array]) -> Array:
        """See `ActionSampler`."""
        return functions_for(outputs[0]).astype(outputs[0] > 0, np.int32)


class GaussianSampler(_PerUnitSampler):
    """n independent normal variables with the outputs [mean, log standard deviation]; actions have no bounds.

    The decoder of the environments clips and scales actions to the bounds of the action space. Log-probabilities refer
    to the actions before the decoder.
    """

    has_log_std = True
    action_dtype = np.dtype(np.float32)

    def draw_noise(self, rng: np.random.Generator, shape_prefix: Sequence[int]) -> Array:
        """Draw standard normal noise."""
        return rng.standard_normal((*shape_prefix, self.n_units), np.float32)

    def sample(self, outputs: Sequence[Array], noise: Array) -> Array:
        """See `ActionSampler`."""
        mean, log_std = outputs
        return mean + functions_for(noise).exp(log_std) * noise

    def mode(self, outputs: Sequence[Array]) -> Array:
        """Return the means [N, A], copied."""
        return functions_for(outputs[0]).array(outputs[0], np.float32)


class SquashedGaussianSampler(GaussianSampler):
    """n independent variables tanh(x) from −1 to 1 of normal variables x with the outputs [mean, log_std].

    The log standard deviation is clipped to `SQUASHED_LOG_STD_BOUNDS` (Haarnoja et al. 2018, arXiv:1812.05905).
    """

    def sample(self, outputs: Sequence[Array], noise: Array) -> Array:
        """See `ActionSampler`."""
        (mean, log_std), xp = outputs, functions_for(noise)
        return xp.tanh(mean + xp.exp(xp.clip(log_std, *SQUASHED_LOG_STD_BOUNDS)) * noise)

    def mode(self, outputs: Sequence[Array]) -> Array:
        """Return the actions tanh(mean), [N, A]."""
        return functions_for(outputs[0]).tanh(outputs[0])

    def draw_random(self, rng: np.random.Generator, shape_prefix: Sequence[int]) -> Array:
        """Draw uniform actions from −1 to 1."""
        return rng.uniform(-1.0, 1.0, (*shape_prefix, self.n_units)).astype(np.float32)


class StateDependentSampler(GaussianSampler):
    """n normal variables with state-dependent noise: gSDE (see `xagents.networks.state_dependent`).

    Outputs are the mean [N, n] and the deviations [N, n_features * n]; noise has the shape of the deviations. A sample
    is mean_j + Σ_i deviation_ij noise_ij. While the noise does not change, actions are a function of the state.
    """

    def __init__(self, n: int, n_features: int):
        super().__init__(n)
        self.n_features = n_features

    @property
    def output_units(self) -> tuple[int, ...]:
        """Sizes of the outputs."""
        return self.n_units, self.n_features * self.n_units

    def parameters(self, outputs: Sequence[Array]) -> dict[str, Array]:
        """Return mean and log standard deviation [N, n]."""
        mean, deviations = outputs
        variance = self._sum(deviations, deviations)
        log_variance = functions_for(variance).log(variance + np.float32(VARIANCE_EPSILON))
        return {'mean': mean, 'log_std': np.float32(0.5) * log_variance}

    def draw_noise(self, rng: np.random.Generator, shape_prefix: Sequence[int]) -> Array:
        """Draw standard normal noise [*shape_prefix, n_features * n]."""
        return rng.standard_normal((*shape_prefix, self.n_features * self.n_units), np.float32)

    def sample(self, outputs: Sequence[Array], noise: Array) -> Array:
        """See `ActionSampler`."""
        mean, deviations = outputs
        return mean + self._sum(deviations, noise)

    def _sum(self, a: Array, b: Array) -> Array:
        """Return the sums [N, n] of products over the features."""
        # the order of the sum is fixed, so that a row does not depend on the other rows
        xp = functions_for(a)
        return xp.sum(xp.reshape(xp.multiply(a, b, order='C'), (-1, self.n_features, self.n_units)), 1)


class SquashedStateDependentSampler(StateDependentSampler, SquashedGaussianSampler):
    """The hyperbolic tangent of normal variables with state-dependent noise."""

    def sample(self, outputs: Sequence[Array], noise: Array) -> Array:
        """See `ActionSampler`."""
        mean, deviations = outputs
        xp = functions_for(noise)
        std = xp.sqrt(self._sum(deviations, deviations) + np.float32(VARIANCE_EPSILON))
        clipped = xp.minimum(np.exp(np.float32(SQUASHED_LOG_STD_BOUNDS[1])) / std, np.float32(1))
        return xp.tanh(mean + clipped * self._sum(deviations, noise))


class ProductSampler(ActionSampler):
    """Independent distributions of the parts of a Dict or Tuple of actions.

    An action is the concatenation of the actions of all parts, float32. Outputs are the concatenated logits and means
    of the parts, continuous parts first, and the log standard deviations of the continuous parts.

    Args:
        parts: the samplers of the parts.
    """

    action_dtype = np.dtype(np.float32)

    def __init__(self, parts: Sequence[ActionSampler]):
        self.parts = tuple(parts)
        ends = np.cumsum([math.prod(part.action_shape) for part in parts]).tolist()
        self.action_shape = (ends[-1],)
        self.action_slices = [slice(start, end) for start, end in zip([0, *ends], ends, strict=False)]
        self.n_units, self.has_log_std = sum(part.n_units for part in parts), any(part.has_log_std for part in parts)
        at, self.unit_slices = 0, [slice(0)] * len(parts)
        for i in sorted(range(len(parts)), key=lambda i: not parts[i].has_log_std):
            self.unit_slices[i] = slice(at, at + parts[i].n_units)
            at += parts[i].n_units

    @property
    def n_log_std(self) -> int:
        """Number of log standard deviations."""
        return sum(part.n_units for part in self.parts if part.has_log_std)

    @property
    def output_names(self) -> tuple[str, ...]:
        """Names of the distribution parameters as columns of a rollout."""
        return ('parameters', 'log_std') if self.has_log_std else ('logits',)

    def split_outputs(self, outputs: Sequence[Any]) -> list[list[Any]]:
        """Return the outputs of each part."""
        # continuous parts are first, so means and log standard deviations have the same places
        pairs = zip(self.parts, self.unit_slices, strict=True)
        return [[output[:, own] for output in outputs[: 1 + part.has_log_std]] for part, own in pairs]

    def draw_noise(self, rng: np.random.Generator, shape_prefix: Sequence[int]) -> Array:
        """See `ActionSampler`."""
        noise = np.empty((*shape_prefix, self.n_units), np.float32)
        for part, own in zip(self.parts, self.unit_slices, strict=True):
            noise[..., own] = part.draw_noise(rng, shape_prefix)
        return noise

    def sample(self, outputs: Sequence[Array], noise: Array) -> Array:
        """See `ActionSampler`."""
        each = zip(self.parts, self.split_outputs(outputs), self.unit_slices, strict=True)
        return self._join([part.sample(own, noise[:, units]) for part, own, units in each])

    def mode(self, outputs: Sequence[Array]) -> Array:
        """See `ActionSampler`."""
        pairs = zip(self.parts, self.split_outputs(outputs), strict=True)
        return self._join([part.mode(own) for part, own in pairs])

    def _join(self, actions: list[Array]) -> Array:
        xp, n = functions_for(actions[0]), actions[0].shape[0]
        return xp.concatenate([xp.astype(xp.reshape(own, (n, -1)), np.float32) for own in actions], 1)


def factorised_noise(rng: np.random.Generator, shape: Sequence[int]) -> Array:
    """Return f(ε) = sgn(ε) √|ε| of normal ε, the noise of noisy layers (Fortunato et al. 2018, equations 10 and 11)."""
    noise = rng.standard_normal(tuple(shape), np.float32)
    return np.sign(noise) * np.sqrt(np.abs(noise))


def _gumbel(rng: np.random.Generator, shape: Sequence[int]) -> Array:
    exponential = rng.standard_exponential(shape, np.float32)
    np.maximum(exponential, _TINY, out=exponential)  # the logarithm of 0 is infinite
    np.log(exponential, exponential)
    return np.negative(exponential, exponential)


SAMPLERS: dict[str, Any] = {
    'categorical': CategoricalSampler,
    'multi-categorical': MultiCategoricalSampler,
    'bernoulli': BernoulliSampler,
    'gaussian': GaussianSampler,
    'product': lambda leaves: ProductSampler([sampler_for(leaf) for leaf in leaves]),
}


def sampler_kind(action_space: spaces.Space) -> tuple[str, Any]:
    """Return the key in SAMPLERS for an action space, and the argument of the sampler.

    Raises:
        ValueError: for a space other than Discrete, MultiDiscrete, MultiBinary, Box of floating-point numbers, and
            Dicts and Tuples of them.
    """
    if isinstance(action_space, spaces.Dict | spaces.Tuple) and leaf_spaces(action_space):
        return 'product', [leaf for _, leaf in leaf_spaces(action_space)]
    if isinstance(action_space, spaces.Discrete):
        return 'categorical', int(action_space.n)
    if isinstance(action_space, spaces.MultiDiscrete):
        return 'multi-categorical', [int(n) for n in action_space.nvec.ravel()]
    size = math.prod(map(int, action_space.shape or ()))
    if isinstance(action_space, spaces.MultiBinary) and size:
        return 'bernoulli', size
    if isinstance(action_space, spaces.Box) and np.issubdtype(action_space.dtype, np.floating) and size:
        return 'gaussian', size
    expected = 'Discrete, MultiDiscrete, MultiBinary, Box of floating-point numbers, or a Dict or Tuple of them'
    raise value_error('action space', one_line(action_space), expected)


def sampler_for(action_space: spaces.Space, n_features: int | None = None, squashed: bool = False) -> ActionSampler:
    """Return the sampler for an action space.

    Args:
        action_space: action space of the environment.
        n_features: number of features of state-dependent noise; None for independent noise.
        squashed: whether continuous actions are the hyperbolic tangent of normal variables.

    Raises:
        ValueError: for an unsupported action space (see `sampler_kind`), and for state-dependent noise with actions
            that are not continuous.
    """
    kind, argument = sampler_kind(action_space)
    if n_features is not None or squashed:
        if kind != 'gaussian':
            raise value_error('action space', one_line(action_space), 'Box of floating-point numbers')
        if n_features is None:
            return SquashedGaussianSampler(argument)
        return (SquashedStateDependentSampler if squashed else StateDependentSampler)(argument, n_features)
    return SAMPLERS[kind](argument)
