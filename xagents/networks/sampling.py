"""What a policy's outputs mean, and how actions are drawn from them, in NumPy: loads no TensorFlow.

Outputs are what the policy's heads return: `[logits]` or, for a Gaussian, `[mean, log_std]`, each [N, units]. A draw is
a deterministic function of outputs and noise, so that the noise of a whole rollout is drawn in one call.
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

Array = np.ndarray
_TINY = np.finfo(np.float32).tiny
VARIANCE_EPSILON = 1e-6  # added to the variance of state-dependent noise, which would be 0 where all features are


class ActionSampler(ABC):
    """Draws policy actions; the environments' decoder makes the environment's own actions of them.

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

    @property
    def output_names(self) -> tuple[str, ...]:
        """What the distribution's parameters are called as columns of a rollout."""
        return ('mean', 'log_std') if self.has_log_std else ('logits',)

    @property
    def output_units(self) -> tuple[int, ...]:
        """Sizes of the outputs."""
        return (self.n_units,) * len(self.output_names)

    def parameters(self, outputs: Sequence[Array]) -> dict[str, Array]:
        """Return the distribution's parameters [N, n_units] by name, of the outputs that acting draws by."""
        return dict(zip(self.output_names, outputs, strict=True))


class MultiCategoricalSampler(ActionSampler):
    """Several independent choices, of so many values each; their logits stand side by side in one head.

    A draw is the largest of logits plus Gumbel noise (Maddison et al. 2014, A* Sampling, section 2).
    """

    def __init__(self, sizes: Sequence[int]):
        if not sizes or min(sizes) < 1:
            raise value_error('sizes', list(sizes), 'one or more whole numbers from 1')
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
        """See `ActionSampler`."""
        return self._actions((self._pad(outputs[0], -np.inf) + self._pad(noise, 0)).argmax(1))

    def mode(self, outputs: Sequence[Array]) -> Array:
        """See `ActionSampler`."""
        return self._actions(self._pad(outputs[0], -np.inf).argmax(1))

    def _pad(self, units: Array, empty: float) -> Array:
        """Return [N, n_units] as [N * k, largest], one row a choice."""
        if self._places is None:
            return units if len(self.sizes) == 1 else units.reshape(-1, self._largest)
        padded = np.full((len(units), len(self.sizes) * self._largest), empty, np.float32)
        padded[:, self._places] = units
        return padded.reshape(-1, self._largest)

    def _actions(self, choices: Array) -> Array:
        return choices.reshape(-1, *self.action_shape).astype(np.int32)


class CategoricalSampler(MultiCategoricalSampler):
    """One of n actions; a draw is the largest of logits plus Gumbel noise."""

    def __init__(self, n: int):
        super().__init__([n])
        self.action_shape = ()


class _PerUnitSampler(ActionSampler):
    """Distributions of n numbers, one a unit."""

    def __init__(self, n: int):
        if n < 1:
            raise value_error('n', n, 'a whole number from 1')
        self.n_units, self.action_shape = n, (n,)


class BernoulliSampler(_PerUnitSampler):
    """n independent switches; a logit is the log-odds of 1.

    A draw is 1 where logit plus logistic noise is positive.
    """

    def draw_noise(self, rng: np.random.Generator, shape_prefix: Sequence[int]) -> Array:
        """Draw standard logistic noise: the difference of two Gumbel draws, exact in both tails."""
        shape = (*shape_prefix, self.n_units)
        return _gumbel(rng, shape) - _gumbel(rng, shape)

    def sample(self, outputs: Sequence[Array], noise: Array) -> Array:
        """See `ActionSampler`."""
        return (outputs[0] + noise > 0).astype(np.int32)

    def mode(self, outputs: Sequence[Array]) -> Array:
        """See `ActionSampler`."""
        return (outputs[0] > 0).astype(np.int32)


class GaussianSampler(_PerUnitSampler):
    """n independent normal variables: [mean, log standard deviation], of actions without bounds.

    The environment's decoder clips and scales to its bounds; log-probabilities are of the actions before that.
    """

    has_log_std = True
    action_dtype = np.dtype(np.float32)

    def draw_noise(self, rng: np.random.Generator, shape_prefix: Sequence[int]) -> Array:
        """Draw standard normal noise."""
        return rng.standard_normal((*shape_prefix, self.n_units), np.float32)

    def sample(self, outputs: Sequence[Array], noise: Array) -> Array:
        """See `ActionSampler`."""
        mean, log_std = outputs
        return mean + np.exp(log_std) * noise

    def mode(self, outputs: Sequence[Array]) -> Array:
        """Return the means [N, A], copied."""
        return np.array(outputs[0], np.float32)


class StateDependentSampler(GaussianSampler):
    """n normal variables, each the mean plus a sum of normal ones: gSDE (see `xagents.networks.state_dependent`).

    Outputs are the mean [N, n] and the deviations [N, n_features * n]; noise is as long as these. A draw is
    mean_j + Σ_i deviation_ij noise_ij, so that actions are a function of the state as long as the noise stays.
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
        return {'mean': mean, 'log_std': np.float32(0.5) * np.log(variance + np.float32(VARIANCE_EPSILON))}

    def draw_noise(self, rng: np.random.Generator, shape_prefix: Sequence[int]) -> Array:
        """Draw standard normal noise [*shape_prefix, n_features * n]."""
        return rng.standard_normal((*shape_prefix, self.n_features * self.n_units), np.float32)

    def sample(self, outputs: Sequence[Array], noise: Array) -> Array:
        """See `ActionSampler`."""
        mean, deviations = outputs
        return mean + self._sum(deviations, noise)

    def _sum(self, a: Array, b: Array) -> Array:
        """Return the sums [N, n] of products over the features."""
        # summed in a fixed order, a row does not depend on the other rows
        return np.multiply(a, b, order='C').reshape(-1, self.n_features, self.n_units).sum(1)


def _gumbel(rng: np.random.Generator, shape: Sequence[int]) -> Array:
    exponential = rng.standard_exponential(shape, np.float32)
    np.maximum(exponential, _TINY, out=exponential)  # an exact zero would be an infinity
    np.log(exponential, exponential)
    return np.negative(exponential, exponential)


SAMPLERS: dict[str, Any] = {
    'categorical': CategoricalSampler,
    'multi-categorical': MultiCategoricalSampler,
    'bernoulli': BernoulliSampler,
    'gaussian': GaussianSampler,
}


def sampler_kind(action_space: spaces.Space) -> tuple[str, Any]:
    """Return which of SAMPLERS draws actions of a space, and its argument.

    Raises:
        ValueError: for another space than Discrete, MultiDiscrete, MultiBinary, or Box of floating-point numbers.
    """
    if isinstance(action_space, spaces.Discrete):
        return 'categorical', int(action_space.n)
    if isinstance(action_space, spaces.MultiDiscrete):
        return 'multi-categorical', [int(n) for n in action_space.nvec.ravel()]
    size = math.prod(map(int, action_space.shape or ()))
    if isinstance(action_space, spaces.MultiBinary) and size:
        return 'bernoulli', size
    if isinstance(action_space, spaces.Box) and np.issubdtype(action_space.dtype, np.floating) and size:
        return 'gaussian', size
    admits = 'Discrete, MultiDiscrete, MultiBinary, or Box of floating-point numbers'
    raise value_error('action space', one_line(action_space), admits)


def sampler_for(action_space: spaces.Space, n_features: int | None = None) -> ActionSampler:
    """Return what draws a policy's actions of a space, by state-dependent noise where it is one of so many features.

    Raises:
        ValueError: as `sampler_kind` does, and for state-dependent noise of actions that are not continuous.
    """
    kind, argument = sampler_kind(action_space)
    if n_features is not None:
        if kind != 'gaussian':
            raise value_error('action space', one_line(action_space), 'Box of floating-point numbers')
        return StateDependentSampler(argument, n_features)
    return SAMPLERS[kind](argument)
