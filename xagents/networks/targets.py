"""Target networks: copies that follow a network slowly, so that what is learned from does not move with every step."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from xagents.networks.keras_to_plan import flat_parameters
from xagents.networks.optimisers import flatten_tensors, split_like, xla_compile
from xagents.networks.programs import float_outputs


class TargetNetwork:
    """A copy of a network whose parameters are one vector, which makes following it one operation.

    `steps` are the environment steps at the last update, by which an agent knows when the next copy is due.
    """

    def __init__(self, model: keras.Model):
        self._model = model
        self.n_inputs = len(model.inputs)
        self._vector = tf.Variable(flat_parameters(model), name='target')
        self.steps = 0

    def __call__(self, inputs: Any) -> list[tf.Tensor]:
        """Return the copy's outputs, float32 [B, units] each."""
        parameters = split_like(self._vector, self._model.trainable_variables)
        others = [v.value for v in self._model.non_trainable_variables]
        outputs, _ = self._model.stateless_call(parameters, others, inputs, training=False)
        return float_outputs(outputs)

    def copy(self) -> None:
        """Become equal to the network."""
        self._vector.assign(flat_parameters(self._model))

    def copy_if(self, enabled: tf.Tensor) -> None:
        """Become equal to the network where the scalar `enabled` is true (Mnih et al. 2015, algorithm 1)."""
        self._vector.assign(tf.where(enabled, flat_parameters(self._model), self._vector))

    def soft_update(self, tau: float | tf.Tensor) -> None:
        """Move by the fraction `tau` towards the network (Polyak averaging; Lillicrap et al. 2016, algorithm 1)."""
        parameters = [v.value for v in self._model.trainable_variables]
        self._vector.assign(_interpolate(self._vector, parameters, tf.convert_to_tensor(tau)))

    def state(self) -> dict[str, np.ndarray]:
        """Return the parameters as arrays."""
        return {'parameters': self._vector.numpy(), 'steps': np.array(self.steps)}

    def load(self, state: Mapping[str, np.ndarray]) -> None:
        """Take over what `state` returned, of an equal network."""
        parameters = np.asarray(state['parameters'], np.float32)
        if parameters.shape != tuple(self._vector.shape):
            raise ValueError(f'the saved target network has {parameters.size} parameters, not {self._vector.shape[0]}')
        self._vector.assign(parameters)
        self.steps = int(state['steps'])


@xla_compile
def _interpolate(vector: tf.Tensor, parameters: list[tf.Tensor], tau: tf.Tensor) -> tf.Tensor:
    return (1.0 - tau) * vector + tau * flatten_tensors(parameters)
