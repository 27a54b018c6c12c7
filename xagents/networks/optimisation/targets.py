"""Target networks: slowly updated copies of a network, so that learning targets do not change with every step."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from xagents.networks.memory import sequence_outputs
from xagents.networks.optimisation.optimisers import flatten_tensors, split_like, xla_compile
from xagents.networks.programs import float_outputs


class TargetNetwork:
    """A copy of a network whose parameters are one vector, so that an update is one operation.

    Moving statistics of normalisations are those of the network itself.

    Attributes:
        n_inputs: number of inputs of the network.
        steps: environment steps at the last update, from which an agent computes when the next copy is due.
    """

    def __init__(self, model: keras.Model):
        self._model = model
        self.n_inputs = len(model.inputs)
        self._vector = tf.Variable(_parameters(model), name='target')
        self.steps = 0

    def __call__(self, inputs: Any, memory: tf.Tensor | None = None, keep: tf.Tensor | None = None) -> list[tf.Tensor]:
        """Return the outputs of the target network, float32 [B, units] each.

        `memory` and `keep` are those of sequences, for a network with memory (see `sequence_outputs`).
        """
        variables = self._model.trainable_variables
        parameters = split_like(self._vector, variables)
        if memory is not None and keep is not None:
            with keras.StatelessScope(state_mapping=zip(variables, parameters, strict=True)):
                return float_outputs(sequence_outputs(self._model, inputs, memory, keep, training=False)[0])
        others = [v.value for v in self._model.non_trainable_variables]
        outputs, _ = self._model.stateless_call(parameters, others, inputs, training=False)
        return float_outputs(outputs)

    def copy(self) -> None:
        """Copy the parameters of the network."""
        self._vector.assign(_parameters(self._model))

    def copy_if(self, enabled: tf.Tensor) -> None:
        """Copy the parameters of the network if the scalar `enabled` is true (Mnih et al. 2015, algorithm 1)."""
        self._vector.assign(tf.where(enabled, _parameters(self._model), self._vector))

    def soft_update(self, tau: float | tf.Tensor) -> None:
        """Move the parameters by the fraction `tau` towards those of the network.

        This is Polyak averaging (Lillicrap et al. 2016, algorithm 1).
        """
        parameters = [v.value for v in self._model.trainable_variables]
        self._vector.assign(_interpolate(self._vector, parameters, tf.convert_to_tensor(tau)))

    def state(self) -> dict[str, np.ndarray]:
        """Return parameters and steps as arrays by name."""
        return {'parameters': self._vector.numpy(), 'steps': np.array(self.steps)}

    def load(self, state: Mapping[str, np.ndarray]) -> None:
        """Restore the state that `state` of an equal network returned."""
        parameters = np.asarray(state['parameters'], np.float32)
        if parameters.shape != tuple(self._vector.shape):
            raise ValueError(f'the saved target network has {parameters.size} parameters, not {self._vector.shape[0]}')
        self._vector.assign(parameters)
        self.steps = int(state['steps'])


def _parameters(model: keras.Model) -> tf.Tensor:
    """Return the trainable variables of a model as one vector, float32 [P]."""
    return flatten_tensors([tf.cast(v.value, tf.float32) for v in model.trainable_variables] or [tf.zeros(0)])


@xla_compile
def _interpolate(vector: tf.Tensor, parameters: list[tf.Tensor], tau: tf.Tensor) -> tf.Tensor:
    return (1.0 - tau) * vector + tau * flatten_tensors(parameters)
