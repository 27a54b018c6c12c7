"""State-dependent exploration (gSDE; Raffin, Kober and Stulp 2021, arXiv:2005.05719) as layers of a policy network.

An action is the mean plus a linear function of the features φ(s) [L], the input of the layer that returns the mean. The
weights of the linear function are normal variables with learned standard deviations σ [L, A]. A sample of them is used
for several steps:

    a_j = μ_j(s) + Σ_i φ_i(s) σ_ij z_ij,   z_ij ~ N(0, 1)

In one state, actions are therefore normal with the standard deviation √Σ_i (φ_i σ_ij)². The log-probability, entropy
and divergence of a diagonal Gaussian need nothing else. The layer `Deviations` returns φ_i σ_ij for acting; the layer
`LogNorm` returns the logarithm of the standard deviation.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from xagents.networks.models import LogStd, with_outputs
from xagents.networks.sampling import VARIANCE_EPSILON
from xagents.options.errors import OptionError


@keras.saving.register_keras_serializable('xagents')
class Deviations(keras.layers.Layer):
    """The contribution of each noise weight to the deviation of an action: φ_i(s) σ_ij.

    The input is the features [B, L], the output [B, L * A]. The features get no gradient from this layer; only the mean
    trains them, as in the authors' code for on-policy agents.

    Args:
        units: A, the length of an action.
        init: initial value of the one variable, log σ [L, A].
        expln: whether σ is 1 + log(1 + x) instead of e^x if the variable x is above 0, so that σ grows more slowly.
    """

    def __init__(self, units: int, init: float = 0.0, expln: bool = False, **kwargs: Any):
        super().__init__(**kwargs)
        self.units, self.init, self.expln = int(units), float(init), bool(expln)

    def build(self, input_shape: Sequence[int | None]) -> None:
        """Create the variable [L, A]."""
        initializer = keras.initializers.Constant(self.init)
        self.log_std = self.add_weight(shape=(input_shape[-1], self.units), initializer=initializer, name='log_std')

    def call(self, features: Any) -> Any:
        """Return the deviations [B, L * A] for features [B, L]."""
        std = _expln(self.log_std) if self.expln else ops.exp(self.log_std)
        scaled = ops.expand_dims(ops.stop_gradient(features), -1) * std
        return ops.reshape(scaled, (-1, features.shape[-1] * self.units))

    def get_config(self) -> dict[str, Any]:
        """Return the config from which Keras creates an equal layer."""
        return {**super().get_config(), 'units': self.units, 'init': self.init, 'expln': self.expln}


@keras.saving.register_keras_serializable('xagents')
class LogNorm(keras.layers.Layer):
    """The logarithm of the standard deviations of actions, √(Σ_i d_ij² + 1e-6), for deviations d.

    The input is deviations [B, L * A], the output [B, A].

    Args:
        units: A, the length of an action.
    """

    def __init__(self, units: int, **kwargs: Any):
        super().__init__(**kwargs)
        self.units = int(units)

    def call(self, deviations: Any) -> Any:
        """Return the log standard deviations [B, A] for deviations [B, L * A]."""
        by_feature = ops.reshape(deviations, (-1, deviations.shape[-1] // self.units, self.units))
        return 0.5 * ops.log(ops.sum(ops.square(by_feature), 1) + VARIANCE_EPSILON)

    def get_config(self) -> dict[str, Any]:
        """Return the config from which Keras creates an equal layer."""
        return {**super().get_config(), 'units': self.units}


def with_state_dependent_std(model: keras.Model, init: float, expln: bool) -> keras.Model:
    """Return a model whose last output is the log standard deviation of state-dependent noise.

    The features of the noise are those of the first output. If `model` already has this output, return `model`;
    otherwise return a new model of the same layers (see `with_outputs`).

    Args:
        model: functional model whose first output is the mean.
        init: see `Deviations`.
        expln: see `Deviations`.

    Raises:
        OptionError: if the model has another log standard deviation, or its first output is not from a dense layer.
    """
    if any(isinstance(layer, LogNorm) for layer in model.layers):
        return model
    if any(isinstance(layer, LogStd) for layer in model.layers):
        raise OptionError('sde', 'got a network with its own log-std, expected one without')
    mean = model.outputs[0]
    deviations = Deviations(mean.shape[-1], init, expln, name='deviations', dtype='float32')(_features(mean))
    return with_outputs(model, [*model.outputs, LogNorm(mean.shape[-1], name='log-std', dtype='float32')(deviations)])


def acting_model(model: keras.Model) -> keras.Model:
    """Return the model for acting: with state-dependent noise, its last output is the deviations."""
    made_by, node, _ = model.outputs[-1]._keras_history
    if not isinstance(made_by, LogNorm):
        return model
    return keras.Model(model.input, [*model.outputs[:-1], *made_by._inbound_nodes[node].input_tensors])


def count_features(model: keras.Model) -> int:
    """Return L, the number of features of the state-dependent noise in a model."""
    return next(layer.log_std.shape[0] for layer in model.layers if isinstance(layer, Deviations))


def _features(mean: Any) -> Any:
    """Return the input of the dense layer that computes an output, possibly followed by activations."""
    tensor = mean
    while True:
        made_by, node, _ = tensor._keras_history
        sources = [] if isinstance(made_by, keras.layers.InputLayer) else made_by._inbound_nodes[node].input_tensors
        if isinstance(made_by, keras.layers.Dense) and len(sources[0].shape) == 2:
            return sources[0]
        if len(sources) != 1 or sources[0].shape != tensor.shape:
            found = f'{type(made_by).__name__} {made_by.name!r}'
            raise OptionError('sde', f'got a network whose first output is made by the {found}, expected a Dense layer')
        (tensor,) = sources


def _expln(x: Any) -> Any:
    # clipped, so that the branch that is not selected does not overflow and make the gradient NaN
    return ops.where(x > 0, ops.log1p(ops.maximum(x, 0.0)) + 1.0, ops.exp(ops.minimum(x, 0.0)))
