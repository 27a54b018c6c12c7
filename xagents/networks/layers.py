"""Layers that Keras lacks: batch renormalisation, dense layers with fast gradients, and those with learned noise."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from xagents.networks.acting import ILLEGAL
from xagents.networks.registry import is_functional

# the momentum and the bounds of the correction in CrossQ (Bhatt et al. 2024, arXiv:1902.05605v4)
MOMENTUM, MAX_RATIO, MAX_SHIFT, WARM_UP_STEPS = 0.99, 3.0, 5.0, 100_000
LAYER_EPSILON, BATCH_EPSILON = 1e-5, 1e-3
# the initial standard deviation of noise, σ0 / √inputs (Fortunato et al. 2018, section 3.2)
INITIAL_STD = 0.5
# the most units of a dense layer with fast gradients, and of one whose gradients are sums instead of products
NARROW, SUMMED = 8, 4


@keras.saving.register_keras_serializable('xagents')
class HeadDense(keras.layers.Dense):
    """A dense layer that computes the gradients of few units fast; it is equal to Keras's up to rounding.

    With 2 units, 64 inputs and 512 rows, the products of both gradients take 74 µs on a CPU, and their sums 8 µs.
    """

    def call(self, inputs: Any, training: bool | None = None) -> Any:
        """Return the outputs [B, units] of inputs [B, n]."""
        is_narrow = self.units <= NARROW and len(inputs.shape) == 2 and self.compute_dtype == 'float32'
        if not (training and is_narrow):
            return super().call(inputs, training)
        outputs = _narrow_product(inputs, tf.convert_to_tensor(self.kernel))
        outputs = outputs + self.bias if self.use_bias else outputs
        return outputs if self.activation is None else self.activation(outputs)


@tf.custom_gradient
def _narrow_product(x: tf.Tensor, kernel: tf.Tensor) -> tuple[tf.Tensor, Any]:
    """Return the product [B, k] of x [B, n] and a kernel [n, k] with small k."""

    def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        if kernel.shape[1] > SUMMED:
            of_kernel = tf.transpose(tf.matmul(tf.transpose(upstream), x))
            return tf.matmul(upstream, kernel, transpose_b=True), of_kernel
        columns = [column[:, None] for column in tf.unstack(upstream, axis=1)]
        of_x = tf.add_n([column * kernel[:, i] for i, column in enumerate(columns)])
        return of_x, tf.stack([tf.reduce_sum(x * column, 0) for column in columns], 1)

    return tf.matmul(x, kernel), gradient


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
        own: dict[str, Any] = {'dtype': 'float32', 'autocast': False}
        self.gamma = self.add_weight(shape=shape, initializer='ones', name='gamma', **own)
        self.beta = self.add_weight(shape=shape, initializer='zeros', name='beta', **own)
        fixed = {'trainable': False, **own}
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


@keras.saving.register_keras_serializable('xagents')
class NoisyDense(keras.layers.Layer):
    """A dense layer with factorised Gaussian noise on its weights (Fortunato et al. 2018, arXiv:1706.10295).

    The input is x [B, inputs], for the mean weights; or [x, noise]. The noise [B, M] contains f(ε) of equations 10 and
    11 in the columns from `noise_at` on, for the inputs and then for the units. A noise of [1, M] is the same for all
    rows.

    Args:
        units: number of units.
        noise_at: index of the first noise of the layer.
        activation: activation.
        kernel_initializer: initializer of the mean kernel.
        bias_initializer: initializer of the mean bias.
    """

    def __init__(
        self,
        units: int,
        noise_at: int,
        activation: Any = None,
        kernel_initializer: Any = 'glorot_uniform',
        bias_initializer: Any = 'zeros',
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self.units, self.noise_at = units, noise_at
        self.activation = keras.activations.get(activation)
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.bias_initializer = keras.initializers.get(bias_initializer)

    def build(self, input_shape: Any) -> None:
        """Create the mean kernel [inputs, units] and bias [units], then their standard deviations."""
        first: Sequence[int] = input_shape[0] if isinstance(input_shape[0], list | tuple) else input_shape
        self.inputs = int(first[-1])
        kernel, bias = (self.inputs, self.units), (self.units,)
        self.kernel = self.add_weight(shape=kernel, initializer=self.kernel_initializer, name='kernel')
        self.bias = self.add_weight(shape=bias, initializer=self.bias_initializer, name='bias')
        std = keras.initializers.Constant(INITIAL_STD / self.inputs**0.5)
        self.kernel_std = self.add_weight(shape=kernel, initializer=std, name='kernel_std')
        self.bias_std = self.add_weight(shape=bias, initializer=std, name='bias_std')

    def call(self, inputs: Any) -> Any:
        """Return the outputs [B, units] (equation 9, with the factors taken out of the product)."""
        x, noise = inputs if isinstance(inputs, list | tuple) else (inputs, None)
        y = keras.ops.matmul(x, self.kernel) + self.bias
        if noise is not None:
            noise = keras.ops.cast(noise, x.dtype)
            middle = self.noise_at + self.inputs
            into, out = noise[:, self.noise_at : middle], noise[:, middle : middle + self.units]
            y = y + (keras.ops.matmul(x * into, self.kernel_std) + self.bias_std) * out
        return self.activation(y)

    def compute_output_shape(self, input_shape: Any) -> tuple[int | None, int]:
        """Return the shape [B, units]."""
        first = input_shape[0] if isinstance(input_shape[0], list | tuple) else input_shape
        return first[0], self.units

    def get_config(self) -> dict[str, Any]:
        """Return the config from which Keras creates an equal layer."""
        own = {
            'units': self.units,
            'noise_at': self.noise_at,
            'activation': keras.activations.serialize(self.activation),
            'kernel_initializer': keras.initializers.serialize(self.kernel_initializer),
            'bias_initializer': keras.initializers.serialize(self.bias_initializer),
        }
        return {**super().get_config(), **own}


@keras.saving.register_keras_serializable('xagents')
class Part(keras.layers.Layer):
    """Adjacent elements of a vector: the part of an encoded observation that a network receives.

    Args:
        start: index of the first element.
        size: number of elements.
    """

    def __init__(self, start: int, size: int, **kwargs: Any):
        super().__init__(**kwargs)
        self.start, self.size = int(start), int(size)

    def call(self, inputs: Any) -> Any:
        """Return the elements [B, size] of vectors [B, D]."""
        return inputs[:, self.start : self.start + self.size]

    def get_config(self) -> dict[str, Any]:
        """Return the config from which Keras creates an equal layer."""
        return {**super().get_config(), 'start': self.start, 'size': self.size}


@keras.saving.register_keras_serializable('xagents')
class VectorBytes(keras.layers.Layer):
    """The vector in the first bytes of an observation with images (see `xagents.envs.observations.composite`).

    Args:
        size: number of elements.
    """

    def __init__(self, size: int, **kwargs: Any):
        super().__init__(**{**kwargs, 'dtype': 'float32', 'autocast': False})
        self.size = int(size)

    def call(self, inputs: Any) -> Any:
        """Return vectors, float32 [B, size], for bytes, int8 [B, D]."""
        return vector_bytes(inputs, self.size)

    def compute_output_spec(self, inputs: Any) -> Any:
        """Return the shape and dtype of the vectors."""
        return keras.KerasTensor((inputs.shape[0], self.size), 'float32')

    def get_config(self) -> dict[str, Any]:
        """Return the config from which Keras creates an equal layer."""
        return {**super().get_config(), 'size': self.size}


@keras.saving.register_keras_serializable('xagents')
class ImageBytes(keras.layers.Layer):
    """An image among the bytes of an observation; pixels that are bytes become numbers from 0 to 1.

    Args:
        start: index of the first byte.
        shape: height, width and channels.
        pixel: dtype of the pixels, `uint8` or `float32`.
    """

    def __init__(self, start: int, shape: Sequence[int], pixel: str = 'uint8', **kwargs: Any):
        super().__init__(**{**kwargs, 'dtype': 'float32', 'autocast': False})
        self.start, self.shape, self.pixel = int(start), tuple(shape), pixel

    def call(self, inputs: Any) -> Any:
        """Return images, float32 [B, H, W, C], for bytes, int8 [B, D]."""
        size = math.prod(self.shape)
        if self.pixel == 'float32':
            pixels = tf.bitcast(tf.reshape(inputs[:, self.start : self.start + 4 * size], (-1, size, 4)), tf.float32)
        else:
            pixels = tf.cast(tf.bitcast(inputs[:, self.start : self.start + size], tf.uint8), tf.float32) / 255.0
        return tf.reshape(pixels, (-1, *self.shape))

    def compute_output_spec(self, inputs: Any) -> Any:
        """Return the shape and dtype of the images."""
        return keras.KerasTensor((inputs.shape[0], *self.shape), 'float32')

    def get_config(self) -> dict[str, Any]:
        """Return the config from which Keras creates an equal layer."""
        return {**super().get_config(), 'start': self.start, 'shape': list(self.shape), 'pixel': self.pixel}


def vector_bytes(observations: tf.Tensor, size: int) -> tf.Tensor:
    """Return the vectors, float32 [B, size], in the first bytes of observations, int8 [B, D]."""
    return tf.bitcast(tf.reshape(observations[:, : 4 * size], (-1, size, 4)), tf.float32)


@keras.saving.register_keras_serializable('xagents')
class MaskIllegal(keras.layers.Layer):
    """The logits or values of actions, with `ILLEGAL` for illegal actions."""

    def call(self, inputs: Sequence[Any]) -> Any:
        """Return [B, n] for values [B, n] and an action mask [B, n]."""
        return mask_illegal(tf.cast(inputs[0], tf.float32), inputs[1])

    def compute_output_shape(self, input_shape: Sequence[Any]) -> Any:
        """Return the shape of the values."""
        return input_shape[0]


def mask_illegal(values: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
    """Return values [B, n] with `ILLEGAL` for actions whose mask [B, n] is 0.

    After the end of an episode, no action may be legal. All values then stay unchanged.
    """
    illegal = (mask < 0.5) & (tf.reduce_max(mask, -1, keepdims=True) > 0.5)
    return tf.where(illegal, tf.constant(ILLEGAL), values)


def noise_units(model: keras.Model) -> int:
    """Return the length of the noise of one observation, the second input of a model; 0 without noisy layers.

    Raises:
        ValueError: if the noise is not as long as the noisy layers need.
    """
    layers = [layer for layer in model.layers if isinstance(layer, NoisyDense)]
    if not layers or not is_functional(model) or len(model.inputs) != 2:
        return 0
    needed = max(layer.noise_at + layer.inputs + layer.units for layer in layers)
    if (size := int(model.inputs[1].shape[1])) < needed:
        raise ValueError(f'model: got noise of length {size}, expected {needed} for its noisy layers')
    return size
