"""Conversion of Keras models to plans for inference in NumPy (see `xagents.networks.numpy_inference`)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import keras
import tensorflow as tf

from xagents.networks.layers import (
    BatchRenorm,
    HeadDense,
    ImageBytes,
    MaskIllegal,
    NoisyDense,
    Part,
    VectorBytes,
    noise_units,
)
from xagents.networks.models import LogProbabilities, LogStd, as_model
from xagents.networks.plan import ACTIVATIONS, JOINING_KINDS, NORM_WEIGHTS, STATES, Kind, LayerCall, NetworkPlan
from xagents.networks.recurrent import GRU, LSTM
from xagents.networks.registry import is_functional
from xagents.networks.state_dependent import Deviations
from xagents.networks.value_distributions import ActionValues

_KINDS: dict[type, Kind] = {
    keras.layers.Dense: 'dense',
    HeadDense: 'dense',
    keras.layers.Conv2D: 'convolution',
    keras.layers.Activation: 'activation',
    keras.layers.Flatten: 'flatten',
    keras.layers.Identity: 'same',
    keras.layers.LayerNormalization: 'layer-norm',
    keras.layers.BatchNormalization: 'batch-norm',
    BatchRenorm: 'batch-norm',
    LogStd: 'log-std',
    Deviations: 'deviations',
    LogProbabilities: 'log-probabilities',
    NoisyDense: 'noisy-dense',
    keras.layers.Add: 'add',
    ActionValues: 'action-values',
    Part: 'part',
    MaskIllegal: 'mask-illegal',
    keras.layers.Concatenate: 'concatenate',
    VectorBytes: 'vector-bytes',
    ImageBytes: 'image-bytes',
    GRU: 'gru',
    LSTM: 'lstm',
}
_NOT_OF_VECTORS = ('convolution', 'flatten', 'same', 'activation', 'layer-norm', 'batch-norm')


def plan_from_model(model: keras.Model, n_outputs: int | None = None) -> NetworkPlan:
    """Return the plan of a functional model. Its weight vector is `flat_parameters(model)`.

    The plan has the first `n_outputs` outputs of the model, by default all. It computes the layers of all outputs.

    The model must have one input, and only Dense, Conv2D without padding, Flatten, Activation, Identity, Add of two
    vectors, LayerNormalization and BatchNormalization of the last axis, and layers of xagents. The noise of noisy
    layers is a second input. No layer may be frozen. Weights are float32, and NumPy computes in float32. A model that
    computes in bfloat16 has a plan only if it has no convolutions: inference by the plan is then faster than by a
    graph, and more precise.

    Raises:
        ValueError: with a message of one line, for any other model.
    """
    reason = _unsupported(model)
    if reason:
        raise ValueError(f'model: {reason}, expected one input and the layers in docs/policy.md')
    offsets, size = {}, 0
    for variable in model.weights:
        offsets[id(variable)] = size
        size += int(tf.size(variable.value))
    numbers = {id(model.inputs[0]): 0}
    calls, memory_at = [], 0
    for layer, sources, target in layer_calls(model):
        numbers[id(target)] = len(numbers)
        call = _call(layer, [numbers[id(x)] for x in sources], numbers[id(target)], offsets)
        if call.kind in STATES:
            call = replace(call, memory_at=memory_at)
            memory_at += STATES[call.kind] * call.kernel[-1]
        calls.append(call)
    outputs = tuple(numbers[id(tensor)] for tensor in model.outputs[:n_outputs])
    return NetworkPlan(tuple(model.inputs[0].shape[1:]), tuple(calls), outputs, size)


def has_plan(model: keras.Model) -> bool:
    """Return whether a model has a plan."""
    return _unsupported(model) is None


def flat_parameters(model: keras.Model) -> tf.Tensor:
    """Return the weights of a model as one vector, float32: parameters, and the moving statistics of normalisations.

    A compiled update can call this function to return the weights in one tensor.
    """
    parts = [tf.reshape(tf.cast(v.value, tf.float32), [-1]) for v in model.weights]
    return tf.concat(parts, 0) if parts else tf.zeros([0])


def _call(layer: Any, sources: list[int], target: int, offsets: dict[int, int]) -> LayerCall:
    """Return the plan entry of one call of a layer."""
    kind, source = _KINDS[type(layer)], sources[0]
    if kind in JOINING_KINDS:
        second = sources[1] if len(sources) > 1 else None
        if kind in ('add', 'mask-illegal', 'concatenate'):
            return LayerCall(kind, source, target, second=second)
        kernel, support = (layer.n_actions, layer.n_atoms), tuple(map(float, layer.support))
        return LayerCall(kind, source, target, kernel=kernel, second=second, support=support)
    if kind == 'vector-bytes':
        return LayerCall(kind, source, target, kernel=(layer.size,))
    if kind == 'image-bytes':
        return LayerCall(kind, source, target, kernel=layer.shape, start=layer.start, pixel=layer.pixel)
    if kind == 'part':
        return LayerCall(kind, source, target, kernel=(layer.size,), start=layer.start)
    if kind in ('log-std', 'deviations'):
        expln = kind == 'deviations' and layer.expln
        return LayerCall(kind, source, target, offsets[id(layer.log_std)], tuple(layer.log_std.shape), expln=expln)
    if kind in NORM_WEIGHTS:
        return LayerCall(
            kind, source, target, offsets[id(layer.gamma)], tuple(layer.gamma.shape), epsilon=float(layer.epsilon)
        )
    if kind in STATES:
        kernel = layer.kernel.shape[0], layer.units
        return LayerCall(kind, source, target, offsets[id(layer.kernel)], kernel, True)
    activation = _activation_name(layer.activation) if hasattr(layer, 'activation') else 'linear'
    if kind not in ('dense', 'noisy-dense', 'convolution'):
        return LayerCall(kind, source, target, activation=activation)
    strides = tuple(layer.strides) if kind == 'convolution' else ()
    kernel, at = tuple(layer.kernel.shape), offsets[id(layer.kernel)]
    if kind == 'noisy-dense':
        return LayerCall(kind, source, target, at, kernel, True, activation=activation, noise_at=layer.noise_at)
    return LayerCall(kind, source, target, offsets[id(layer.kernel)], kernel, layer.use_bias, strides, activation)


def layer_calls(model: keras.Model, with_noise: bool = False) -> Iterator[tuple[keras.layers.Layer, list[Any], Any]]:
    """Yield the layer calls of a model, sources first: a layer, its input tensors, and its output tensor.

    Keras has no public method to find the layer that returned a tensor.

    Args:
        model: a functional model.
        with_noise: whether the input tensors of noisy layers include the noise.
    """
    given = {id(tensor) for tensor in model.inputs}
    noise = {id(tensor) for tensor in model.inputs[1:]} if noise_units(model) and not with_noise else set()
    pending = [(tensor, False) for tensor in reversed(model.outputs)]
    while pending:  # depth first; an iteration, because a deep network would exceed the recursion limit
        tensor, sources_done = pending.pop()
        layer, node_index, _ = tensor._keras_history
        if id(tensor) in given or isinstance(layer, keras.layers.InputLayer):
            continue
        sources = [x for x in layer._inbound_nodes[node_index].input_tensors if id(x) not in noise]
        if sources_done:
            given.add(id(tensor))
            yield layer, sources, tensor
        else:
            pending += [(tensor, True), *((source, False) for source in reversed(sources))]


def without_noise(model: keras.Model) -> keras.Model:
    """Return a model of the same layers whose noisy layers have their mean weights; `model` if it has none."""
    if not noise_units(model):
        return model
    observations = keras.Input(model.inputs[0].shape[1:], name='observations')
    return keras.Model(observations, called_on(model, observations))


def called_on(model: keras.Model, observations: Any, *others: Any) -> list[Any]:
    """Return the outputs of the layers of a model that has a plan for other symbolic inputs.

    The noise of noisy layers is a second input; without it, they have their mean weights.
    """
    tensors = {id(old): new for old, new in zip(model.inputs, (observations, *others), strict=False)}
    for layer, sources, target in layer_calls(model, with_noise=bool(others)):
        inputs = [tensors[id(source)] for source in sources]
        tensors[id(target)] = layer(inputs if len(inputs) > 1 else inputs[0])
    return [tensors[id(output)] for output in model.outputs]


def for_whole_observations(model: keras.Model, n_whole: int, n_mask: int, masked: bool) -> keras.Model:
    """Return a model of the same layers for whole encoded observations [B, n_whole].

    The layers receive the first elements. The model gets a new optimizer if `model` is compiled.

    Args:
        model: a functional model of the first D elements of observations, [B, D], possibly with further inputs.
        n_whole: the number of elements of an observation.
        n_mask: the number of elements of an action mask, the last ones; 0 without a mask.
        masked: whether the first output, of `n_mask` units, gets `ILLEGAL` for illegal actions.
    """
    first, *others = model.inputs
    observations = keras.Input((n_whole,), name='observations', dtype='float32')
    more = [keras.Input(x.shape[1:], name=x.name, dtype=x.dtype) for x in others]
    observed = Part(0, first.shape[1], name='observed', dtype='float32')(observations)
    outputs = called_on(model, observed, *more) if has_plan(model) else model([observed, *more] if more else observed)
    outputs = list(outputs) if isinstance(outputs, list | tuple) else [outputs]
    if masked and n_mask:
        outputs[0] = masked_output(outputs[0], observations, n_mask, n_whole)
    return as_model([observations, *more] if more else observations, outputs, model)


def with_mask(model: keras.Model, n_mask: int, n_floats: int) -> keras.Model:
    """Return a model of the same layers whose first output has `ILLEGAL` for illegal actions; see `masked_output`."""
    first = masked_output(model.outputs[0], model.inputs[0], n_mask, n_floats)
    return as_model(model.input, [first, *model.outputs[1:]], model)


def masked_output(output: Any, observations: Any, n_mask: int, n_floats: int) -> Any:
    """Return an output [B, n] with `ILLEGAL` for actions that are illegal by the observations.

    Args:
        output: logits or values.
        observations: vectors [B, n_floats] whose last n elements are the mask, or bytes of such vectors and of images.
        n_mask: n.
        n_floats: the number of elements of a vector.
    """
    if observations.dtype == 'int8':
        observations = VectorBytes(n_floats, name='bytes-mask')(observations)
    mask = Part(n_floats - n_mask, n_mask, name='mask', dtype='float32')(observations)
    return MaskIllegal(name='legal', dtype='float32')([output, mask])


def _unsupported(model: keras.Model) -> str | None:
    """Return the reason why a model has no plan, or None."""
    if not is_functional(model):
        return 'it is not a built functional model'
    inputs, layers = model.inputs, model.layers
    if len(inputs) != 1 + (noise_units(model) > 0) or None in inputs[0].shape[1:]:
        return f'it has {len(inputs)} inputs, or one of unknown shape'
    if any(len(output.shape) != 2 for output in model.outputs):
        return 'an output is not a vector'
    weights = [id(variable) for variable in model.weights]
    called = [layer for layer, *_ in layer_calls(model)]  # functions of Keras are not layers
    for layer in (*layers, *called):
        problem = '' if isinstance(layer, keras.layers.InputLayer) else _problem(layer, weights)
        if problem:
            return f'layer {layer.name!r} {problem}'
    joins = (keras.layers.Add, keras.layers.Concatenate)
    joined = [sources for layer, sources, _ in layer_calls(model) if isinstance(layer, joins)]
    return None if all(len(sources) == 2 for sources in joined) else 'a layer joins more than two tensors'


def _problem(layer: Any, weights: list[int]) -> str:
    """Return the reason why a plan cannot contain a layer, or an empty string."""
    kind = _KINDS.get(type(layer))
    if kind is None:
        return f'is a {type(layer).__name__}'
    policy = layer.dtype_policy
    admitted = ('float32',) if kind == 'convolution' else ('float32', 'bfloat16')
    exact = policy.variable_dtype == 'float32' and policy.quantization_mode is None
    if policy.compute_dtype not in admitted or not exact:
        return f'computes in {policy.name} (--precision)'
    if hasattr(layer, 'activation') and not _activation_name(layer.activation):
        return f'has the activation {layer.activation!r}'
    if getattr(layer, 'data_format', 'channels_last') != 'channels_last':
        return 'is channels-first'
    if kind == 'convolution' and (layer.padding, layer.groups, tuple(layer.dilation_rate)) != ('valid', 1, (1, 1)):
        return 'pads, dilates or has groups'
    called_on = [tensor for node in layer._inbound_nodes for tensor in node.input_tensors]
    if kind not in _NOT_OF_VECTORS and {len(tensor.shape) for tensor in called_on} != {2}:
        return 'has an input that is not a vector'
    if getattr(layer, 'lora_enabled', False):
        return 'has LoRA weights'
    if kind in NORM_WEIGHTS and (problem := _norm_problem(layer)):
        return problem
    if not layer.trainable:
        return 'is frozen'
    return '' if _is_contiguous([id(variable) for variable in layer.weights], weights) else 'shares weights'


def _norm_problem(layer: Any) -> str:
    """Return the reason why a plan cannot contain a normalisation, or an empty string."""
    rank = len(layer._inbound_nodes[0].input_tensors[0].shape)
    axis = getattr(layer, 'axis', -1)
    axes = list(axis) if isinstance(axis, list | tuple) else [axis]
    if [a % rank for a in axes] != [rank - 1] or getattr(layer, 'rms_scaling', False):
        return 'does not normalise its last axis'
    if not (getattr(layer, 'scale', True) and getattr(layer, 'center', True)):
        return 'has no scale or no offset'
    return ''


def _is_contiguous(items: list[int], row: list[int]) -> bool:
    start = row.index(items[0]) if items and items[0] in row else 0
    return row[start : start + len(items)] == items


def _activation_name(activation: Any) -> str:
    """Return an activation's name, or an empty string if it has none in NumPy."""
    return next((name for name in ACTIVATIONS if activation is getattr(keras.activations, name)), '')
