"""Optimisers and their steps: what is not finite is not applied. Also the schedules of rates and ranges."""

from __future__ import annotations

import math
from typing import Any

import keras
import tensorflow as tf

from xagents.networks import make_optimizer
from xagents.settings import AgentOptions


def prepare_optimizer(model: keras.Model, options: AgentOptions) -> keras.optimizers.Optimizer:
    """Return the optimizer that a model was compiled with, or a new one made of the options; it is built."""
    optimizer = getattr(model, 'optimizer', None)
    if optimizer is None:
        optimizer = make_optimizer(options.optimizer, options.lr, options.beta1, options.beta2, options.opt_epsilon)
        model.compile(optimizer)
        optimizer = model.optimizer
    if not optimizer.built:
        optimizer.build(model.trainable_variables)
    return optimizer


def apply_if_finite(
    optimizer: keras.optimizers.Optimizer,
    variables: list[Any],
    tape: tf.GradientTape,
    loss: tf.Tensor,
    max_norm: float,
    wanted: tf.Tensor,
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Make one step with gradients whose global norm is clipped, unless the loss or a gradient is not finite.

    Args:
        optimizer: whose learning rate is set.
        variables: what `loss` is minimised over.
        tape: that recorded `loss`.
        loss: scalar.
        max_norm: largest global norm of the gradients.
        wanted: whether there is anything to learn from; a minibatch without a valid row is left out, because the
            optimizer's momentum would move the weights all the same.

    Returns:
        The norm before clipping, and 1.0 or 0.0 for: a step was made, a step was refused.
    """
    gradients = tape.gradient(loss, variables, unconnected_gradients=tf.UnconnectedGradients.ZERO)
    norm = tf.linalg.global_norm(gradients)
    finite = tf.math.is_finite(norm) & tf.math.is_finite(loss)
    factor = max_norm / tf.maximum(norm, max_norm)

    def step() -> tf.Tensor:
        optimizer.apply([gradient * tf.cast(factor, gradient.dtype) for gradient in gradients], variables)
        return tf.ones(())

    applied = tf.cond(finite & wanted, step, lambda: tf.zeros(()))
    return norm, applied, tf.cast(wanted & ~finite, tf.float32)


def scheduled(kind: str, progress: float) -> float:
    """Return the factor of a schedule, from 1 at progress 0 to 0 at progress 1: constant, linear or cosine."""
    progress = min(max(progress, 0.0), 1.0)
    if kind == 'linear':
        return 1.0 - progress
    if kind == 'cosine':
        return 0.5 * (1.0 + math.cos(math.pi * progress))
    return 1.0
