"""How an optimiser changes parameters, in as few passes over memory as can be."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Protocol

import keras
import tensorflow as tf

from xagents.networks.models import make_optimizer
from xagents.networks.traced_options import TracedOptions

Tensors = Sequence[tf.Tensor]
Variables = Sequence[keras.Variable]
# parameters, their gradient and slots, [P] each; rate, number of the step from 1, constants; new parameters and slots
UpdateRule = Callable[[tf.Tensor, tf.Tensor, Tensors, tf.Tensor, tf.Tensor, Tensors], tuple[tf.Tensor, Tensors]]


def adam(
    parameters: tf.Tensor, gradient: tf.Tensor, slots: Tensors, rate: tf.Tensor, step: tf.Tensor, constants: Tensors
) -> tuple[tf.Tensor, Tensors]:
    """Kingma & Ba 2015 (arXiv:1412.6980), in the order of computation of their section 2.

    Slots are m and v, constants β1, β2 and ε.
    """
    (m, v), (beta1, beta2, epsilon) = slots, constants
    m = m + (gradient - m) * (1.0 - beta1)
    v = v + (gradient**2 - v) * (1.0 - beta2)
    alpha = rate * tf.sqrt(1.0 - beta2**step) / (1.0 - beta1**step)
    return parameters - alpha * m / (tf.sqrt(v) + epsilon), (m, v)


def rmsprop(
    parameters: tf.Tensor, gradient: tf.Tensor, slots: Tensors, rate: tf.Tensor, step: tf.Tensor, constants: Tensors
) -> tuple[tf.Tensor, Tensors]:
    """RMSProp as in Mnih et al. 2016 (arXiv:1602.01783, section 8 of the supplement), whose ε is within the root.

    The slot is the mean of squared gradients, constants are its decay and ε.
    """
    (mean,), (decay, epsilon) = slots, constants
    mean = decay * mean + (1.0 - decay) * gradient**2
    return parameters - rate * gradient / tf.sqrt(mean + epsilon), (mean,)


def xla_compile(function: Callable) -> Callable:
    """Let XLA compile a function of tensors, also within a graph, whose operations pass over memory one by one."""
    return tf.function(function, jit_compile=True, autograph=False)


def split_like(vector: tf.Tensor, template: Tensors) -> list[tf.Tensor]:
    """Return a vector's parts in the shapes of parameters."""
    parts = tf.split(vector, [math.prod(p.shape) for p in template])
    return [tf.reshape(part, p.shape) for part, p in zip(parts, template, strict=True)]


def flatten_tensors(tensors: Tensors) -> tf.Tensor:
    """Return tensors as one vector."""
    return tf.concat([tf.reshape(tensor, (-1,)) for tensor in tensors], 0)


def assign_flat(variables: Variables, vector: tf.Tensor) -> None:
    """Undo `flatten_tensors`: assign each variable its part of a vector."""
    for variable, part in zip(variables, split_like(vector, variables), strict=True):
        variable.assign(part)


class FlatOptimizer(Protocol):
    """What makes a gradient step: a Keras optimizer, which knows all parameters as one vector and keeps the slots."""

    optimizer: keras.optimizers.Optimizer

    def apply(self, variables: Variables, gradients: Tensors, factor: tf.Tensor, made: tf.Tensor) -> None:
        """Change variables by `factor` times their gradients where `made` is 1; where it is 0, nothing changes."""


class FusedOptimizer:
    """The optimizers that have a rule here; one program holds one slot of each kind instead of one a layer."""

    def __init__(self, traced_options: TracedOptions, size: int):
        o = traced_options
        self.optimizer = make_optimizer(o.optimizer, o.lr, o.beta1, o.beta2, o.opt_epsilon)
        self.optimizer.build([keras.Variable(tf.zeros(size), name='parameters')])
        self._traced_options, (self._iterations, self._rate, *self._slots) = traced_options, self.optimizer.variables

    def _constants(self) -> tuple[UpdateRule, Tensors]:
        o = self._traced_options
        if o.optimizer == 'adam':
            return adam, [tf.convert_to_tensor(x) for x in (o.beta1, o.beta2, o.opt_epsilon)]
        return rmsprop, [tf.convert_to_tensor(x) for x in (self.optimizer.rho, o.opt_epsilon)]

    def apply(self, variables: Variables, gradients: Tensors, factor: tf.Tensor, made: tf.Tensor) -> None:
        """See `Optimizer`."""
        rule, constants = self._constants()
        slots = [slot.value for slot in self._slots]
        step = tf.cast(self._iterations.value + 1, tf.float32)
        parameters, slots = _FUSED_PASSES[rule](
            [v.value for v in variables], gradients, slots, factor, made, self._rate.value, step, constants
        )
        for variable, value in zip((*variables, *self._slots), (*parameters, *slots), strict=True):
            variable.assign(value)
        self._iterations.assign_add(tf.cast(made, self._iterations.dtype))


class KerasOptimizer:
    """Any optimizer that a model was compiled with."""

    def __init__(self, optimizer: keras.optimizers.Optimizer, size: int):
        self.optimizer = optimizer
        self._vector = keras.Variable(tf.zeros(size), name='parameters')
        self.optimizer.build([self._vector])

    def apply(self, variables: Variables, gradients: Tensors, factor: tf.Tensor, made: tf.Tensor) -> None:
        """See `Optimizer`."""

        def step() -> tf.Tensor:
            self._vector.assign(flatten_tensors([v.value for v in variables]))
            self.optimizer.apply([flatten_tensors(gradients) * factor], [self._vector])
            assign_flat(variables, self._vector.value)
            return tf.zeros(())

        tf.cond(made > 0, step, lambda: tf.zeros(()))


def _fused_pass(rule: UpdateRule) -> Callable:
    """Return the one pass of a rule over all parameters.

    They are one vector in it: XLA would run a dozen small passes in several threads, and wait for these.
    """

    def over(
        parameters: Tensors,
        gradients: Tensors,
        slots: Tensors,
        factor: tf.Tensor,
        made: tf.Tensor,
        rate: tf.Tensor,
        step: tf.Tensor,
        constants: Tensors,
    ) -> tuple[Tensors, Tensors]:
        before = flatten_tensors(parameters)
        after, changed = rule(before, flatten_tensors(gradients) * factor, slots, rate, step, constants)
        kept = [tf.where(made > 0, new, old) for new, old in zip(changed, slots, strict=True)]
        return split_like(tf.where(made > 0, after, before), parameters), kept

    return xla_compile(over)


_FUSED_PASSES: dict[UpdateRule, Callable] = {rule: _fused_pass(rule) for rule in (adam, rmsprop)}
