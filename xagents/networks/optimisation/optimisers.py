"""Optimisers that update all parameters in as few passes over memory as possible."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import keras
import tensorflow as tf

from xagents.networks.models import make_optimizer
from xagents.networks.traced_options import TracedOptions

Tensors = Sequence[tf.Tensor]
Variables = Sequence[keras.Variable]
# (parameters, gradient, slots, all [P]; learning rate, step from 1, constants) to (new parameters, new slots)
UpdateRule = Callable[[tf.Tensor, tf.Tensor, Tensors, tf.Tensor, tf.Tensor, Tensors], tuple[tf.Tensor, Tensors]]


def adam(
    parameters: tf.Tensor, gradient: tf.Tensor, slots: Tensors, rate: tf.Tensor, step: tf.Tensor, constants: Tensors
) -> tuple[tf.Tensor, Tensors]:
    """Return parameters and slots after a step of Adam, Kingma & Ba 2015 (arXiv:1412.6980).

    The order of computation is that of section 2 of the paper. Slots are m and v; constants are β1, β2 and ε.
    """
    (m, v), (beta1, beta2, epsilon) = slots, constants
    m = m + (gradient - m) * (1.0 - beta1)
    v = v + (gradient**2 - v) * (1.0 - beta2)
    alpha = rate * tf.sqrt(1.0 - beta2**step) / (1.0 - beta1**step)
    return parameters - alpha * m / (tf.sqrt(v) + epsilon), (m, v)


def adamw(
    parameters: tf.Tensor, gradient: tf.Tensor, slots: Tensors, rate: tf.Tensor, step: tf.Tensor, constants: Tensors
) -> tuple[tf.Tensor, Tensors]:
    """Return parameters and slots after a step of AdamW, Loshchilov & Hutter 2019 (arXiv:1711.05101), algorithm 2.

    The decay is multiplied by the learning rate, as in Keras and PyTorch. Slots are those of `adam`; constants are β1,
    β2, ε and the weight decay.
    """
    *of_adam, decay = constants
    return adam(parameters - parameters * (decay * rate), gradient, slots, rate, step, of_adam)


def rmsprop(
    parameters: tf.Tensor, gradient: tf.Tensor, slots: Tensors, rate: tf.Tensor, step: tf.Tensor, constants: Tensors
) -> tuple[tf.Tensor, Tensors]:
    """Return parameters and slots after a step of RMSProp, Mnih et al. 2016 (arXiv:1602.01783).

    ε is added to the root, as in Adam and in PyTorch; in section 8 of the supplement and in Keras, it is inside of the
    root. The slot is the mean of squared gradients; constants are its decay and ε.
    """
    (mean,), (decay, epsilon) = slots, constants
    mean = decay * mean + (1.0 - decay) * gradient**2
    return parameters - rate * gradient / (tf.sqrt(mean) + epsilon), (mean,)


def xla_compile(function: Callable) -> Callable:
    """Compile a function of tensors with XLA, also within a graph without XLA, whose operations are not fused."""
    return tf.function(function, jit_compile=True, autograph=False)


def split_like(vector: tf.Tensor, template: Tensors) -> list[tf.Tensor]:
    """Split a vector into tensors with the shapes of `template`."""
    parts = tf.split(vector, [math.prod(p.shape) for p in template])
    return [tf.reshape(part, p.shape) for part, p in zip(parts, template, strict=True)]


def flatten_tensors(tensors: Tensors) -> tf.Tensor:
    """Concatenate tensors to one vector."""
    return tf.concat([tf.reshape(tensor, (-1,)) for tensor in tensors], 0)


def assign_flat(variables: Variables, vector: tf.Tensor) -> None:
    """Assign each variable its part of a vector; the inverse of `flatten_tensors`."""
    for variable, part in zip(variables, split_like(vector, variables), strict=True):
        variable.assign(part)


class NetworkOptimizer(Protocol):
    """An optimiser that updates all parameters of a network.

    Attributes:
        optimizer: Keras optimizer, which stores the slots.
    """

    optimizer: keras.optimizers.Optimizer

    def apply(self, variables: Variables, gradients: Tensors, factor: tf.Tensor, made: tf.Tensor) -> None:
        """Update variables with `factor` times their gradients if `made` is 1; change nothing if it is 0."""


class FusedOptimizer:
    """Adam, AdamW and RMSProp as one compiled pass, with one slot of each kind for all layers.

    Args:
        traced_options: options of the agent.
        size: number of parameters.
        name: name of the rule; the option `optimizer` by default.
    """

    def __init__(self, traced_options: TracedOptions, size: int, name: str | None = None):
        o, self._name = traced_options, name or traced_options.optimizer
        self.optimizer = make_optimizer(self._name, o.lr, o.beta1, o.beta2, o.opt_epsilon, o.weight_decay)
        self.optimizer.build([keras.Variable(tf.zeros(size), name='parameters')])
        self._traced_options, (self._iterations, self._rate, *self._slots) = traced_options, self.optimizer.variables

    def _constants(self) -> tuple[UpdateRule, Tensors]:
        o = self._traced_options
        if self._name == 'rmsprop':
            return rmsprop, [tf.convert_to_tensor(x) for x in (self.optimizer.rho, o.opt_epsilon)]
        constants = [tf.convert_to_tensor(x) for x in (o.beta1, o.beta2, o.opt_epsilon)]
        if self._name == 'adam':
            return adam, constants
        return adamw, [*constants, tf.convert_to_tensor(o.weight_decay)]

    def apply(self, variables: Variables, gradients: Tensors, factor: tf.Tensor, made: tf.Tensor) -> None:
        """See `NetworkOptimizer`."""
        rule, constants = self._constants()
        slots = [slot.value for slot in self._slots]
        step = tf.cast(self._iterations.value + 1, tf.float32)
        before, rate = [v.value for v in variables], self._rate.value
        parameters, slots = _FUSED_PASSES[rule](before, gradients, slots, factor, made, rate, step, constants)
        for variable, value in zip((*variables, *self._slots), (*parameters, *slots), strict=True):
            variable.assign(value)
        self._iterations.assign_add(tf.cast(made, self._iterations.dtype))


class KerasOptimizer:
    """The optimizer of a compiled model, which may be any Keras optimizer."""

    def __init__(self, optimizer: keras.optimizers.Optimizer, size: int):
        self.optimizer = optimizer
        self._vector = keras.Variable(tf.zeros(size), name='parameters')
        self.optimizer.build([self._vector])

    def apply(self, variables: Variables, gradients: Tensors, factor: tf.Tensor, made: tf.Tensor) -> None:
        """See `NetworkOptimizer`."""

        def step() -> None:
            self._vector.assign(flatten_tensors([v.value for v in variables]))
            self.optimizer.apply([flatten_tensors(gradients) * factor], [self._vector])
            assign_flat(variables, self._vector.value)

        _run_if(made, step)


class MuonOptimizer:
    """Muon of Keras, which updates each variable separately, because a step depends on the shape of a matrix.

    Args:
        optimizer: a Muon that is not built.
        variables: parameters.
        traced_options: options of the agent, from which compiled programs read the numbers of AdamW and the weight
            decay; None to use those of the optimizer.
    """

    def __init__(
        self, optimizer: keras.optimizers.Muon, variables: Variables, traced_options: TracedOptions | None = None
    ):
        self.optimizer, self._traced_options = optimizer, traced_options
        self.optimizer.build(list(variables))

    def apply(self, variables: Variables, gradients: Tensors, factor: tf.Tensor, made: tf.Tensor) -> None:
        """See `NetworkOptimizer`."""

        def step() -> None:
            o = self._traced_options
            numbers = {} if o is None else {name: getattr(o, option) for name, option in _MUON_OPTIONS.items()}
            with _attributes(self.optimizer, numbers):
                self.optimizer.apply([gradient * factor for gradient in gradients], variables)

        _run_if(made, step)


# attributes of Muon in Keras, and the options that set them
_MUON_OPTIONS = {
    'adam_beta_1': 'beta1',
    'adam_beta_2': 'beta2',
    'epsilon': 'opt_epsilon',
    'weight_decay': 'weight_decay',
    'adam_weight_decay': 'weight_decay',
}


@contextlib.contextmanager
def _attributes(optimizer: keras.optimizers.Optimizer, values: Mapping[str, Any]) -> Iterator[None]:
    """Set attributes of an optimizer in the block. Tensors of a program must not stay, because configs contain them."""
    before = {name: getattr(optimizer, name) for name in values}
    vars(optimizer).update(values)
    try:
        yield
    finally:
        vars(optimizer).update(before)


def _run_if(made: tf.Tensor, step: Callable[[], None]) -> None:
    """Run a step if `made` is 1."""

    def run() -> tf.Tensor:
        step()
        return tf.zeros(())

    tf.cond(made > 0, run, lambda: tf.zeros(()))


def _fused_pass(rule: UpdateRule) -> Callable:
    """Return one compiled pass of a rule over all parameters.

    The parameters are one vector in the pass. XLA would run separate small passes in several threads and wait for them.
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


_FUSED_PASSES: dict[UpdateRule, Callable] = {rule: _fused_pass(rule) for rule in (adam, adamw, rmsprop)}
