"""From a Keras model to the plan by which NumPy computes the same (see `xagents.networks.numpy_inference`)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import keras
import tensorflow as tf

from xagents.networks.models import LogProbabilities, LogStd
from xagents.networks.plan import (
    ACTIVATION,
    ACTIVATIONS,
    CONVOLUTION,
    DENSE,
    DEVIATIONS,
    FLATTEN,
    IDENTITY,
    LOG_PROBABILITIES,
    LOG_STD,
    LayerCall,
    NetworkPlan,
)
from xagents.networks.registry import is_functional
from xagents.networks.state_dependent import Deviations

_KINDS: dict[type, str] = {
    keras.layers.Dense: DENSE,
    keras.layers.Conv2D: CONVOLUTION,
    keras.layers.Activation: ACTIVATION,
    keras.layers.Flatten: FLATTEN,
    keras.layers.Identity: IDENTITY,
    LogStd: LOG_STD,
    Deviations: DEVIATIONS,
    LogProbabilities: LOG_PROBABILITIES,
}
_OF_VECTORS = (DENSE, ACTIVATION, LOG_STD, DEVIATIONS, LOG_PROBABILITIES)


def plan_from_model(model: keras.Model) -> NetworkPlan:
    """Return the plan of a functional model, whose vector of weights is `flat_parameters(model)`.

    It has one input and no other layers than Dense, Conv2D without padding, Flatten, Activation, Identity and those of
    xagents; none is frozen. Their weights are float32, and what NumPy computes is. Of layers that compute in bfloat16
    only those without convolutions have a plan: acting by it is sooner done than by a graph, and more precise.

    Raises:
        ValueError: in one line, for another model.
    """
    reason = _unsupported(model)
    if reason:
        raise ValueError(f'model: {reason}, expected networks of one input and plain layers (see plan_of)')
    offsets, size = {}, 0
    for variable in model.trainable_variables:
        offsets[id(variable)] = size
        size += int(tf.size(variable.value))
    numbers = {id(model.inputs[0]): 0}
    calls = []
    for layer, source, target in _calls(model):
        numbers[target] = len(numbers)
        calls.append(_call(layer, numbers[source], numbers[target], offsets))
    outputs = tuple(numbers[id(tensor)] for tensor in model.outputs)
    return NetworkPlan(tuple(model.inputs[0].shape[1:]), tuple(calls), outputs, size)


def has_plan(model: keras.Model) -> bool:
    """Return whether a model has a plan."""
    return _unsupported(model) is None


def flat_parameters(model: keras.Model) -> tf.Tensor:
    """Return a model's trainable variables, raveled, one after the other: float32 [number of trainable parameters].

    It may be called inside a `tf.function`, so that a compiled update returns the weights in one tensor.
    """
    parts = [tf.reshape(tf.cast(v.value, tf.float32), [-1]) for v in model.trainable_variables]
    return tf.concat(parts, 0) if parts else tf.zeros([0])


def _call(layer: Any, source: int, target: int, offsets: dict[int, int]) -> LayerCall:
    """Return what a plan says of a call of a layer."""
    kind = _KINDS[type(layer)]
    if kind in (LOG_STD, DEVIATIONS):
        expln = kind == DEVIATIONS and layer.expln
        return LayerCall(kind, source, target, offsets[id(layer.log_std)], tuple(layer.log_std.shape), expln=expln)
    activation = _activation_name(layer.activation) if hasattr(layer, 'activation') else 'linear'
    if kind not in (DENSE, CONVOLUTION):
        return LayerCall(kind, source, target, activation=activation)
    strides = tuple(layer.strides) if kind == CONVOLUTION else ()
    kernel = tuple(layer.kernel.shape)
    return LayerCall(kind, source, target, offsets[id(layer.kernel)], kernel, layer.use_bias, strides, activation)


def _calls(model: keras.Model) -> Iterator[tuple[keras.layers.Layer, int, int]]:
    """Give a model's calls of layers, sources first: a layer, and the ids of what it is called on and returns.

    Keras offers no public way from a tensor to its origin.
    """
    given = set()
    pending = [(tensor, False) for tensor in reversed(model.outputs)]
    while pending:  # depth first, without a recursion that a deep network would exhaust
        tensor, sources_done = pending.pop()
        layer, node_index, _ = tensor._keras_history
        if id(tensor) in given or isinstance(layer, keras.layers.InputLayer):
            continue
        source = layer._inbound_nodes[node_index].input_tensors[0]
        if sources_done:
            given.add(id(tensor))
            yield layer, id(source), id(tensor)
        else:
            pending += [(tensor, True), (source, False)]


def _unsupported(model: keras.Model) -> str | None:
    """Say what about a model has no plan."""
    if not is_functional(model):
        return 'it is not a built functional model'
    inputs, layers = model.inputs, model.layers
    if len(inputs) != 1 or None in inputs[0].shape[1:]:
        return f'it has {len(inputs)} inputs, or one of unknown shape'
    if any(len(output.shape) != 2 for output in model.outputs):
        return 'an output is no vector'
    trainable = [id(variable) for variable in model.trainable_variables]
    called = [layer for layer, _, _ in _calls(model)]  # Keras' functions are no layers
    for layer in (*layers, *called):
        problem = '' if isinstance(layer, keras.layers.InputLayer) else _problem(layer, trainable)
        if problem:
            return f'layer {layer.name!r} {problem}'
    return None


def _problem(layer: Any, trainable: list[int]) -> str:
    """Say what about a layer a plan cannot tell; nothing where it can."""
    kind = _KINDS.get(type(layer))
    if kind is None:
        return f'is a {type(layer).__name__}'
    policy = layer.dtype_policy
    admitted = ('float32',) if kind == CONVOLUTION else ('float32', 'bfloat16')
    exact = policy.variable_dtype == 'float32' and policy.quantization_mode is None
    if policy.compute_dtype not in admitted or not exact:
        return f'computes in {policy.name} (--precision)'
    if hasattr(layer, 'activation') and not _activation_name(layer.activation):
        return f'has the activation {layer.activation!r}'
    if getattr(layer, 'data_format', 'channels_last') != 'channels_last':
        return 'is channels-first'
    if kind == CONVOLUTION and (layer.padding, layer.groups, tuple(layer.dilation_rate)) != ('valid', 1, (1, 1)):
        return 'pads, dilates or has groups'
    called_on = [tensor for node in layer._inbound_nodes for tensor in node.input_tensors]
    if kind in _OF_VECTORS and {len(tensor.shape) for tensor in called_on} != {2}:
        return 'is called on something else than vectors'
    if getattr(layer, 'lora_enabled', False):
        return 'has LoRA weights'
    return '' if _is_contiguous([id(variable) for variable in layer.variables], trainable) else 'is frozen'


def _is_contiguous(items: list[int], row: list[int]) -> bool:
    start = row.index(items[0]) if items and items[0] in row else 0
    return row[start : start + len(items)] == items


def _activation_name(activation: Any) -> str:
    """Return an activation's name, or an empty string if it has none in NumPy."""
    return next((name for name in ACTIVATIONS if activation is getattr(keras.activations, name)), '')
