"""Models with recurrent layers as functions of sequences, and of single steps with their state.

The memory of a row is the concatenated states of all recurrent layers of a model, in the order of `memory_layers`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from xagents.networks.keras_to_plan import layer_calls
from xagents.networks.recurrent import Recurrent
from xagents.networks.registry import is_functional


def memory_layers(model: keras.Model) -> list[tuple[Recurrent, Any]]:
    """Return the recurrent layers that lead to the outputs of a model, sources first, with their output tensors."""
    if not is_functional(model):
        return []
    return [(layer, target) for layer, _, target in layer_calls(model) if isinstance(layer, Recurrent)]


def memory_units(model: keras.Model) -> int:
    """Return M, the length of the memory of one row; 0 without recurrent layers."""
    return sum(layer.state_units for layer, _ in memory_layers(model))


def sequence_outputs(
    model: keras.Model,
    observations: tf.Tensor,
    memory: tf.Tensor,
    keep: tf.Tensor,
    training: bool = True,
    burn_in: int = 0,
) -> tuple[list[tf.Tensor], tf.Tensor]:
    """Return the outputs of a model for sequences of consecutive steps, and the memory after them.

    Args:
        model: a functional model.
        observations: network inputs [L * B, *D] of B sequences of L steps, in the order of time.
        memory: [B, M], the memory before the first step.
        keep: float32 [L * B], 0 at steps after which the memory becomes zeros, else 1.
        training: whether layers that normalise use the statistics of the batch.
        burn_in: number of first steps that only prepare the memory: no gradient passes through it to these steps.

    Returns:
        The outputs, [L * B, units] each, and the memory [B, M].
    """
    rows = memory.shape[0]
    keep = tf.reshape(keep, (-1, rows))
    starts = iter(tf.split(memory, [layer.state_units for layer, _ in memory_layers(model)], 1))
    after: list[tf.Tensor] = []

    def run(layer: Recurrent, x: tf.Tensor) -> tf.Tensor:
        features, start = tf.reshape(x, (-1, rows, x.shape[-1])), next(starts)
        if burn_in:
            before = layer.sequence(features[:burn_in], start, keep[:burn_in])
            start = tf.stop_gradient(before[-1] * keep[burn_in - 1][:, None])
            states = tf.concat([before, layer.sequence(features[burn_in:], start, keep[burn_in:])], 0)
        else:
            states = layer.sequence(features, start, keep)
        after.append(states[-1] * keep[-1][:, None])
        return tf.reshape(states[..., : layer.units], (x.shape[0], layer.units))

    outputs = _run_layers(model, observations, run, training)
    return outputs, tf.concat(after, 1)


def step_outputs(model: keras.Model, observations: Any, memory: Any) -> tuple[list[tf.Tensor], tf.Tensor]:
    """Return the outputs [B, units] of a model for one step, and the memory after it.

    Args:
        model: a functional model.
        observations: network inputs [B, *D]; a list of them for a model with several inputs.
        memory: [B, M], the memory before the step.
    """
    starts = iter(tf.split(memory, [layer.state_units for layer, _ in memory_layers(model)], 1))
    states: list[tf.Tensor] = []

    def run(layer: Recurrent, x: tf.Tensor) -> tf.Tensor:
        states.append(layer.one_step(x, next(starts)))
        return states[-1][:, : layer.units]

    outputs = _run_layers(model, observations, run, training=False)
    return outputs, tf.concat(states, 1)


def with_memory_of(model: keras.Model, whole: keras.Model | None) -> keras.Model:
    """Return a model with more outputs, which computes the memory of all recurrent layers of another model.

    An actor then also computes the memory of its critic, so that rollouts contain both.

    Args:
        model: a model of some outputs of `whole`.
        whole: the other model, with the same input; None for no other model.
    """
    own = {layer.name for layer, _ in memory_layers(model)}
    further = [] if whole is None else [target for layer, target in memory_layers(whole) if layer.name not in own]
    return keras.Model(model.input, [*model.outputs, *further]) if further else model


def _run_layers(
    model: keras.Model, observations: Any, run: Callable[[Recurrent, Any], Any], training: bool
) -> list[tf.Tensor]:
    """Return the outputs of a model whose recurrent layers are computed by a function of layer and features."""
    inputs = observations if isinstance(observations, list) else [observations]
    tensors = {id(symbol): value for symbol, value in zip(model.inputs, inputs, strict=True)}
    for layer, sources, target in layer_calls(model):
        x: Any = [tensors[id(source)] for source in sources]
        x = x if len(x) > 1 else x[0]
        tensors[id(target)] = run(layer, x) if isinstance(layer, Recurrent) else layer(x, training=training)
    return [tensors[id(output)] for output in model.outputs]
