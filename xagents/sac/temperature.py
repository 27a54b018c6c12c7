"""The temperature of soft actor-critic: the weight of the entropy, fixed or learned."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from xagents.networks.optimisation.optimisers import FusedOptimizer
from xagents.networks.traced_options import TracedOptions


class Temperature:
    """A fixed temperature α, or one that an optimiser moves until the entropy of the policy equals a target.

    Args:
        traced_options: options of the agent; `entropy_coef` is α, or None to learn it.
        target: the target entropy in nats if the option `target_entropy` is None.
    """

    def __init__(self, traced_options: TracedOptions, target: float):
        self._target, self._traced_options = target, traced_options
        self.is_learned = traced_options.entropy_coef is None
        # the logarithm keeps the temperature positive
        self._log = keras.Variable(tf.zeros(1), name='log_temperature')
        # the temperature is not a weight, so it does not decay, and not a matrix, so Muon cannot update it
        rule = 'rmsprop' if traced_options.optimizer == 'rmsprop' else 'adam'
        self._optimizer = FusedOptimizer(traced_options, 1, rule)

    def __call__(self) -> tf.Tensor:
        """Return α, a scalar."""
        if not self.is_learned:
            return tf.convert_to_tensor(self._traced_options.entropy_coef, tf.float32)
        return tf.exp(self._log.value[0])

    @property
    def target(self) -> Any:
        """The target entropy in nats."""
        given = self._traced_options.target_entropy
        return self._target if given is None else given

    def update(self, excess: tf.Tensor, learning_rate: tf.Tensor, made: tf.Tensor) -> None:
        """Make a step on the loss log(α) excess if `made` is 1, and α is learned.

        Haarnoja et al. 2018 (arXiv:1812.05905), equation 18, with log(α) in the place of α, as in their code.

        Args:
            excess: estimate of the policy's entropy minus the target, in nats, a scalar.
            learning_rate: the learning rate, a scalar.
            made: 1.0, or 0.0 to change nothing.
        """
        if self.is_learned:
            self._optimizer.optimizer.learning_rate.assign(learning_rate)
            gradient = tf.reshape(excess, [1])
            finite = made * tf.cast(tf.math.is_finite(gradient[0]), tf.float32)
            self._optimizer.apply([self._log], [gradient], tf.ones(()), finite)

    def state(self) -> dict[str, np.ndarray]:
        """Return log(α) and the optimiser's variables as arrays by name."""
        variables = [self._log, *self._optimizer.optimizer.variables]
        return {str(i): np.array(variable) for i, variable in enumerate(variables)}

    def load(self, state: Mapping[str, np.ndarray]) -> None:
        """Restore the state that `state` returned."""
        for i, variable in enumerate([self._log, *self._optimizer.optimizer.variables]):
            variable.assign(state[str(i)])
