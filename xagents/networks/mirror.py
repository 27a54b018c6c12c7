"""A dense Keras network as a few NumPy calls: how agents act without paying for a TensorFlow call a step.

For 16 observations and two layers of 64, a compiled TensorFlow call costs 130 to 400 µs, this 15 to 20 µs:

- Activations stand features first, [units, N], in buffers with one more row of ones. A kernel [D, units] and its bias,
  one after the other in the flat vector of weights, are then one matrix [D + 1, units] without a copy, and a layer is
  one matrix product, bias included, into the rows of the next buffer, which are contiguous.
- All weights live in one flat vector: a refresh is one copy.
- What is called on which buffers is worked out once for each N; a call runs down a list of (function, from, to).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from xagents.networks.models import TINY, LogProbabilities, LogStd
from xagents.networks.named import is_functional

Array = np.ndarray
Step = tuple[Callable[[Any, Any], Any], Any, Any]  # f(from, to)

_MAX_PLANS = 8  # of different N; acting and evaluating need two
_ZERO, _HALF, _TWO_TENTHS = np.float32(0), np.float32(0.5), np.float32(0.2)
_SELU_ALPHA, _SELU_SCALE = np.float32(1.6732632423543772), np.float32(1.0507009873554805)


class DenseMirror:
    """A functional Keras model of dense layers, for which `supports` holds, that is called in NumPy.

    Its weights, `n_parameters` in one vector, are its own, copied at construction and by `refresh`; so are its buffers:
    it is not for two threads.
    """

    def __init__(self, model: keras.Model):
        reason = _unsupported(model)
        if reason:
            raise ValueError(f'model: {reason}, admits dense networks of one input (see DenseMirror.supports)')
        self._nodes = _nodes(model)
        self._input = id(model.inputs[0])
        self._outputs = [id(tensor) for tensor in model.outputs]
        self._input_units = int(np.prod(model.inputs[0].shape[1:]))
        self._offsets: dict[int, int] = {}
        self.n_parameters = 0
        for variable in model.trainable_variables:
            self._offsets[id(variable)] = self.n_parameters
            self.n_parameters += int(np.prod(variable.shape))
        self._weights = np.zeros(self.n_parameters, np.float32)
        self._plans: dict[int, tuple[Array, list[Step], list[Array]]] = {}
        self.refresh(flat_parameters(model).numpy())

    @staticmethod
    def supports(model: keras.Model) -> bool:
        """Whether a model has a mirror: one input, only Dense, Flatten, Activation, Identity and xagents' own layers.

        False for nested models, other precisions than float32, frozen layers, and activations without a mirror.
        """
        return _unsupported(model) is None

    def refresh(self, vector: Array) -> None:
        """Take over new weights, float32 [n_parameters], as `flat_parameters` returns them."""
        if np.shape(vector) != self._weights.shape:
            raise ValueError(f'vector: got shape {np.shape(vector)}, admits ({self.n_parameters},)')
        np.copyto(self._weights, vector)

    @property
    def weights(self) -> Array:
        """The flat vector of weights; the next refresh overwrites it."""
        return self._weights

    def __call__(self, observations: Array) -> list[Array]:
        """Return the model's outputs, one float32 array [N, units] each, for observations [N, D] of any numeric dtype.

        They may be [N, *shape] where the model begins with Flatten. The outputs are the mirror's own buffers, which the
        next call for the same N overwrites.
        """
        n = len(observations)
        entry, steps, outputs = self._plans.get(n) or self._plan(n)
        np.copyto(entry, observations if observations.ndim == 2 else observations.reshape(n, -1), 'same_kind')
        for function, source, target in steps:
            function(source, target)
        return outputs.copy()

    def _plan(self, n: int) -> tuple[Array, list[Step], list[Array]]:
        """Make the buffers and the list of calls for N observations."""
        buffers = {self._input: _buffer(self._input_units, n)}
        steps: list[Step] = []
        for node in self._nodes:
            source = buffers[node.source]
            if isinstance(node.layer, keras.layers.Dense):
                buffers[node.target] = self._dense(node.layer, source, steps)
            elif isinstance(node.layer, LogStd | keras.layers.Activation | LogProbabilities):
                units = len(source) - 1
                buffers[node.target] = _buffer(units, n)
                values, target = source[:-1], buffers[node.target][:-1]
                if isinstance(node.layer, LogStd):
                    values = self._view(node.layer.log_std, (units, 1))
                steps.append((_fill, values, target))
                if isinstance(node.layer, LogProbabilities):
                    steps.append((_log, target, target))
                elif isinstance(node.layer, keras.layers.Activation):
                    steps.extend(_activation_steps(node.layer.activation, target))
            else:  # Flatten and Identity: the same numbers
                buffers[node.target] = source
        while len(self._plans) >= _MAX_PLANS:
            self._plans.pop(next(iter(self._plans)))
        outputs = [buffers[output][:-1].T for output in self._outputs]
        plan = self._plans[n] = buffers[self._input][:-1].T, steps, outputs
        return plan

    def _dense(self, layer: keras.layers.Dense, source: Array, steps: list[Step]) -> Array:
        inputs, units = layer.kernel.shape
        target = _buffer(units, source.shape[1])
        if layer.use_bias:
            weights = self._view(layer.kernel, (inputs + 1, units))  # the bias stands behind the kernel
        else:
            weights, source = self._view(layer.kernel, (inputs, units)), source[:-1]
        steps.append((weights.T.dot, source, target[:-1]))
        steps.extend(_activation_steps(layer.activation, target[:-1]))
        return target

    def _view(self, variable: keras.Variable, shape: tuple[int, ...]) -> Array:
        start = self._offsets[id(variable)]
        return self._weights[start : start + int(np.prod(shape))].reshape(shape)


def flat_parameters(model: keras.Model) -> tf.Tensor:
    """Return a model's trainable variables, raveled, one after the other: float32 [number of trainable parameters].

    It may be called inside a `tf.function`, so that a compiled update returns the weights in one tensor.
    """
    parts = [tf.reshape(tf.cast(v.value, tf.float32), [-1]) for v in model.trainable_variables]
    return tf.concat(parts, 0) if parts else tf.zeros([0])


class _Node(NamedTuple):
    """One call of a layer, from one tensor to another; tensors by their ids."""

    layer: keras.layers.Layer
    source: int
    target: int


def _nodes(model: keras.Model) -> list[_Node]:
    """List a model's calls of layers, sources first. Keras offers no public way from a tensor to its origin."""
    nodes: dict[int, _Node] = {}
    pending = [(tensor, False) for tensor in reversed(model.outputs)]
    while pending:  # depth first, without a recursion that a deep network would exhaust
        tensor, sources_done = pending.pop()
        layer, node_index, _ = tensor._keras_history
        if id(tensor) in nodes or isinstance(layer, keras.layers.InputLayer):
            continue
        source = layer._inbound_nodes[node_index].input_tensors[0]
        if sources_done:
            nodes[id(tensor)] = _Node(layer, id(source), id(tensor))
        else:
            pending += [(tensor, True), (source, False)]
    return list(nodes.values())


_OF_VECTORS = (keras.layers.Dense, keras.layers.Activation, LogStd, LogProbabilities)
_LAYERS = (*_OF_VECTORS, keras.layers.InputLayer, keras.layers.Flatten, keras.layers.Identity)


def _unsupported(model: keras.Model) -> str | None:
    """Say what about a model has no mirror."""
    if not is_functional(model):
        return 'it is not a built functional model'
    inputs, layers = model.inputs, model.layers
    if len(inputs) != 1 or None in inputs[0].shape[1:]:
        return f'it has {len(inputs)} inputs, or one of unknown shape'
    for layer in layers:
        if type(layer) not in _LAYERS:
            return f'layer {layer.name!r} is a {type(layer).__name__}'
        if layer.dtype_policy.compute_dtype != 'float32' or layer.dtype_policy.quantization_mode is not None:
            return f'layer {layer.name!r} computes in {layer.dtype_policy.name}'
        if hasattr(layer, 'activation') and not _name(layer.activation):
            return f'layer {layer.name!r} has the activation {layer.activation!r}'
        if isinstance(layer, keras.layers.Flatten) and layer.data_format != 'channels_last':
            return f'layer {layer.name!r} is channels-first'
        called_on = [tensor for node in layer._inbound_nodes for tensor in node.input_tensors]
        if isinstance(layer, _OF_VECTORS) and {len(tensor.shape) for tensor in called_on} != {2}:
            return f'layer {layer.name!r} is called on something else than vectors'
        if getattr(layer, 'lora_enabled', False):
            return f'layer {layer.name!r} has LoRA weights'
    trainable = [id(variable) for variable in model.trainable_variables]
    for layer in layers:
        if not _in_a_row([id(variable) for variable in layer.variables], trainable):
            return f'layer {layer.name!r} is frozen'
    return None


def _in_a_row(items: list[int], row: list[int]) -> bool:
    start = row.index(items[0]) if items and items[0] in row else 0
    return row[start : start + len(items)] == items


def _buffer(units: int, n: int) -> Array:
    """Make [units + 1, N] whose last row, of ones, meets the bias."""
    return np.ones((units + 1, n), np.float32)


def _fill(source: Array, target: Array) -> None:
    np.copyto(target, source)


def _activation_steps(activation: Any, x: Array) -> Iterable[Step]:
    """List the calls that apply an activation to x [units, N] in place."""
    name = _name(activation)
    if name in _WITH_SCRATCH:
        return [(_WITH_SCRATCH[name], x, np.empty_like(x))]
    return [(_IN_PLACE[name], x, x)] if name in _IN_PLACE else []


def _name(activation: Any) -> str:
    """Return an activation's name, or an empty string if it has no mirror."""
    names = ('linear', *_IN_PLACE, *_WITH_SCRATCH)
    return next((name for name in names if activation is getattr(keras.activations, name)), '')


def _log(x: Array, out: Array) -> None:
    np.maximum(x, np.float32(TINY), out=out)
    np.log(out, out)


def _relu(x: Array, out: Array) -> None:
    np.maximum(x, _ZERO, out=out)


def _sigmoid(x: Array, out: Array) -> None:
    np.multiply(x, _HALF, out)  # 1 / (1 + e^-x) = (1 + tanh(x / 2)) / 2, without an overflow
    np.tanh(out, out)
    np.multiply(out, _HALF, out)
    np.add(out, _HALF, out)


def _softmax(x: Array, out: Array) -> None:
    np.subtract(x, np.maximum.reduce(x, 0), out)
    np.exp(out, out)
    np.divide(out, np.add.reduce(out, 0), out)


def _elu(x: Array, scratch: Array) -> None:
    np.minimum(x, _ZERO, out=scratch)
    np.expm1(scratch, scratch)
    np.maximum(x, _ZERO, out=x)
    np.add(x, scratch, x)


def _selu(x: Array, scratch: Array) -> None:
    np.minimum(x, _ZERO, out=scratch)
    np.expm1(scratch, scratch)
    np.multiply(scratch, _SELU_ALPHA, scratch)
    np.maximum(x, _ZERO, out=x)
    np.add(x, scratch, x)
    np.multiply(x, _SELU_SCALE, x)


def _silu(x: Array, scratch: Array) -> None:
    _sigmoid(x, scratch)
    np.multiply(x, scratch, x)


def _leaky_relu(x: Array, scratch: Array) -> None:
    np.multiply(x, _TWO_TENTHS, scratch)
    np.maximum(x, scratch, out=x)


def _softsign(x: Array, scratch: Array) -> None:
    np.abs(x, scratch)
    np.add(scratch, np.float32(1), scratch)
    np.divide(x, scratch, x)


_IN_PLACE: dict[str, Callable[[Array, Array], Any]] = {
    'tanh': np.tanh,
    'relu': _relu,
    'sigmoid': _sigmoid,
    'softmax': _softmax,
    'softplus': functools.partial(np.logaddexp, _ZERO),
    'exponential': np.exp,
}
_WITH_SCRATCH: dict[str, Callable[[Array, Array], Any]] = {
    'elu': _elu,
    'selu': _selu,
    'silu': _silu,
    'leaky_relu': _leaky_relu,
    'softsign': _softsign,
}
