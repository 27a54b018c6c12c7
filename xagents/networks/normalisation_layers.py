"""Layers that normalise their input: batch renormalisation. `keras.layers.LayerNormalization` is that of Keras."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

# the momentum and the bounds of the correction in CrossQ (Bhatt et al. 2024, arXiv:1902.05605v4)
MOMENTUM, MAX_RATIO, MAX_SHIFT, WARM_UP_STEPS = 0.99, 3.0, 5.0, 100_000
LAYER_EPSILON, BATCH_EPSILON = 1e-5, 1e-3


@keras.saving.register_keras_serializable('xagents')
class BatchRenorm(keras.layers.Layer):
    """Batch renormalisation (Ioffe 2017, arXiv:1702.03275, algorithm 1) over the last axis.

    In training, the batch is normalised by its own mean and deviation, and corrected by its ratio and its shift to the
    moving ones, within bounds. The bounds are 1 and 0, as in batch normalisation, for the first `warm_up_steps` calls.

    Args:
        momentum: factor of the moving statistics in each call in training.
        max_ratio: largest ratio of the deviations.
        max_shift: largest shift of the means, in deviations.
        warm_up_steps: number of calls in training without the correction.
        epsilon: number that is added to the variances.
    """

    def __init__(
        self,
        momentum: float = MOMENTUM,
        max_ratio: float = MAX_RATIO,
        max_shift: float = MAX_SHIFT,
        warm_up_steps: int = WARM_UP_STEPS,
        epsilon: float = BATCH_EPSILON,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self.momentum, self.max_ratio, self.max_shift = momentum, max_ratio, max_shift
        self.warm_up_steps, self.epsilon = warm_up_steps, epsilon

    def build(self, input_shape: Sequence[int | None]) -> None:
        """Create the scale, the offset, and the moving statistics, [C] each."""
        shape = (input_shape[-1],)
        self.gamma = self.add_weight(shape=shape, initializer='ones', name='gamma', dtype='float32')
        self.beta = self.add_weight(shape=shape, initializer='zeros', name='beta', dtype='float32')
        fixed: dict[str, Any] = {'trainable': False, 'dtype': 'float32'}
        self.moving_mean = self.add_weight(shape=shape, initializer='zeros', name='moving_mean', **fixed)
        self.moving_variance = self.add_weight(shape=shape, initializer='ones', name='moving_variance', **fixed)
        self.steps = self.add_weight(shape=(), initializer='zeros', name='steps', **fixed)

    def call(self, inputs: Any, training: bool = False) -> Any:
        """Return the normalised inputs [B, …, C]; in training, update the moving statistics."""
        x, mean, variance = tf.cast(inputs, tf.float32), self.moving_mean.value, self.moving_variance.value
        if not training:
            normalised = (x - mean) * tf.math.rsqrt(variance + self.epsilon)
            return tf.cast(normalised * self.gamma.value + self.beta.value, inputs.dtype)
        batch_mean, batch_variance = tf.nn.moments(x, list(range(len(x.shape) - 1)))
        deviation, batch_deviation = tf.sqrt(variance + self.epsilon), tf.sqrt(batch_variance + self.epsilon)
        warm = self.steps.value < self.warm_up_steps
        ratio = tf.clip_by_value(batch_deviation / deviation, 1.0 / self.max_ratio, self.max_ratio)
        shift = tf.clip_by_value((batch_mean - mean) / deviation, -self.max_shift, self.max_shift)
        ratio = tf.stop_gradient(tf.where(warm, tf.ones_like(ratio), ratio))
        shift = tf.stop_gradient(tf.where(warm, tf.zeros_like(shift), shift))
        normalised = (x - batch_mean) / batch_deviation * ratio + shift
        for moving, new in ((self.moving_mean, batch_mean), (self.moving_variance, batch_variance)):
            moving.assign(moving.value + (1.0 - self.momentum) * (tf.stop_gradient(new) - moving.value))
        self.steps.assign(self.steps.value + 1.0)
        return tf.cast(normalised * self.gamma.value + self.beta.value, inputs.dtype)

    def get_config(self) -> dict[str, Any]:
        """Return the config from which Keras creates an equal layer."""
        own = ('momentum', 'max_ratio', 'max_shift', 'warm_up_steps', 'epsilon')
        return {**super().get_config(), **{name: getattr(self, name) for name in own}}
