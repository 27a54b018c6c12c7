"""State-dependent exploration (gSDE; Raffin, Kober and Stulp 2021, arXiv:2005.05719) as layers of a policy's network.

An action is the mean plus a linear function of the features φ(s) [L], which are the input of the mean's layer. The
function's weights are normal; each has a standard deviation σ [L, A] that is learned, and stays for several steps:

    a_j = μ_j(s) + Σ_i φ_i(s) σ_ij z_ij,   z_ij ~ N(0, 1)

So in one state actions are normal, with the standard deviation √Σ_i (φ_i σ_ij)²: all that a diagonal Gaussian's
log-probability, entropy and divergence need. `Deviations` gives the φ_i σ_ij, that acting draws by, `LogNorm` the rest.
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
    """What each weight of the noise contributes to the actions' deviations: φ_i(s) σ_ij.

    Called on features [B, L] it returns [B, L * A]. No gradient reaches the features: the mean alone shapes
    them, as in the authors' code for on-policy agents.

    Args:
        units: A, the length of an action.
        init: first value of log σ [L, A], its one variable.
        expln: whether σ = 1 + log(1 + x), not e^x, where the variable x is above 0: it grows more slowly then.
    """

    def __init__(self, units: int, init: float = 0.0, expln: bool = False, **kwargs: Any):
        super().__init__(**kwargs)
        self.units, self.init, self.expln = int(units), float(init), bool(expln)

    def build(self, input_shape: Sequence[int | None]) -> None:
        """Make the variable [L, A]."""
        initializer = keras.initializers.Constant(self.init)
        self.log_std = self.add_weight(shape=(input_shape[-1], self.units), initializer=initializer, name='log_std')

    def call(self, features: Any) -> Any:
        """Return the deviations [B, L * A] of features [B, L]."""
        std = _expln(self.log_std) if self.expln else ops.exp(self.log_std)
        scaled = ops.expand_dims(ops.stop_gradient(features), -1) * std
        return ops.reshape(scaled, (-1, features.shape[-1] * self.units))

    def get_config(self) -> dict[str, Any]:
        """Return what makes an equal layer."""
        return {**super().get_config(), 'units': self.units, 'init': self.init, 'expln': self.expln}


@keras.saving.register_keras_serializable('xagents')
class LogNorm(keras.layers.Layer):
    """The logarithm of the actions' standard deviations, √(Σ_i d_ij² + 1e-6), of deviations d.

    Called on deviations [B, L * A] it returns [B, A].

    Args:
        units: A.
    """

    def __init__(self, units: int, **kwargs: Any):
        super().__init__(**kwargs)
        self.units = int(units)

    def call(self, deviations: Any) -> Any:
        """Return the log standard deviations [B, A] of deviations [B, L * A]."""
        by_feature = ops.reshape(deviations, (-1, deviations.shape[-1] // self.units, self.units))
        return 0.5 * ops.log(ops.sum(ops.square(by_feature), 1) + VARIANCE_EPSILON)

    def get_config(self) -> dict[str, Any]:
        """Return what makes an equal layer."""
        return {**super().get_config(), 'units': self.units}


def with_state_dependent_std(model: keras.Model, init: float, expln: bool) -> keras.Model:
    """Return a model that ends in the log standard deviations of state-dependent noise, on its first output's features.

    That is itself, where it does so already, or a new one of the same layers (see `with_outputs`).

    Raises:
        OptionError: where there is another log standard deviation, or the first output is of no dense layer.
    """
    if any(isinstance(layer, LogNorm) for layer in model.layers):
        return model
    if any(isinstance(layer, LogStd) for layer in model.layers):
        raise OptionError('sde', 'got a network with a log-std of its own, expected one without')
    mean = model.outputs[0]
    deviations = Deviations(mean.shape[-1], init, expln, name='deviations', dtype='float32')(_features(mean))
    return with_outputs(model, [*model.outputs, LogNorm(mean.shape[-1], name='log-std', dtype='float32')(deviations)])


def acting_model(model: keras.Model) -> keras.Model:
    """Return the model that acting draws by: its last output are the deviations where it was their norm."""
    made_by, node, _ = model.outputs[-1]._keras_history
    if not isinstance(made_by, LogNorm):
        return model
    return keras.Model(model.input, [*model.outputs[:-1], *made_by._inbound_nodes[node].input_tensors])


def count_features(model: keras.Model) -> int:
    """Return L, the length of the features that a model's state-dependent noise is a function of."""
    return next(layer.log_std.shape[0] for layer in model.layers if isinstance(layer, Deviations))


def _features(mean: Any) -> Any:
    """Return what the dense layer behind an output is called on; activations may stand between."""
    tensor = mean
    while True:
        made_by, node, _ = tensor._keras_history
        sources = [] if isinstance(made_by, keras.layers.InputLayer) else made_by._inbound_nodes[node].input_tensors
        if isinstance(made_by, keras.layers.Dense) and len(sources[0].shape) == 2:
            return sources[0]
        if len(sources) != 1 or sources[0].shape != tensor.shape:
            found = f'{type(made_by).__name__} {made_by.name!r}'
            raise OptionError(
                'sde', f'got a network whose first output is made by the {found}, expected one of a Dense layer'
            )
        (tensor,) = sources


def _expln(x: Any) -> Any:
    # neither branch overflows where it is not taken, so that its gradient is no NaN there
    return ops.where(x > 0, ops.log1p(ops.maximum(x, 0.0)) + 1.0, ops.exp(ops.minimum(x, 0.0)))
