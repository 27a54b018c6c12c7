"""Keras models of the networks that `.cfg` files describe, and their optimizers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np

from xagents.networks.cfg import parse_network
from xagents.networks.description import INPUT, Layer, NetworkDescription, value_error
from xagents.networks.numpy_inference import TINY
from xagents.networks.registry import is_functional

OPTIMIZERS = ('adam', 'rmsprop')


@keras.saving.register_keras_serializable('xagents')
class LogStd(keras.layers.Layer):
    """The log standard deviation of a diagonal Gaussian, learned and the same in every state; it begins as `init`.

    Called on the mean [B, A] it returns its one variable [A] for each row, [B, A]; no gradient reaches the mean.
    """

    def __init__(self, init: float = 0.0, **kwargs: Any):
        super().__init__(**kwargs)
        self.init = float(init)

    def build(self, input_shape: Sequence[int | None]) -> None:
        """Make the variable [A]."""
        initializer = keras.initializers.Constant(self.init)
        self.log_std = self.add_weight(shape=(input_shape[-1],), initializer=initializer, name='log_std')

    def call(self, mean: Any) -> Any:
        """Return the log standard deviations [B, A] of means [B, A]."""
        return keras.ops.zeros_like(mean) + self.log_std

    def get_config(self) -> dict[str, Any]:
        """Return what makes an equal layer."""
        return {**super().get_config(), 'init': self.init}


@keras.saving.register_keras_serializable('xagents')
class LogProbabilities(keras.layers.Layer):
    """The logarithm of probabilities, which are logits again: softmax gives back the same."""

    def call(self, probabilities: Any) -> Any:
        """Return logits [B, A] of probabilities [B, A]; a probability of 0 has the smallest that there is."""
        return keras.ops.log(keras.ops.maximum(probabilities, TINY))


class ModelReader:
    """Builds the Keras model of a network description.

    Args:
        cfg: Path of a `.cfg` file, or a description (`parse_network`, `dense_network`).
        output_units: Sizes of the outputs without `units`, in the order of the file; or of all outputs.
        input_shape: Shape of one observation, D or (height, width, channels). Images are scaled before the model.
        optimizer: `adam` or `rmsprop` (with Keras' defaults; see `make_optimizer`), a Keras optimizer, or None.
        seed: With each layer's place it decides the initial weights; None draws them at random.
        log_std: First value of a LogStd layer on the first output, added as the last output where there is none.
        action_units: A, the length of one action, for a critic with an `action` section. One of vectors without it has
            the `input_shape` (D + A,), the observation and the action behind it.

    Raises:
        ValueError: If the network is wrong, or does not fit these sizes; nothing is built then.
    """

    def __init__(
        self,
        cfg: str | Path | NetworkDescription,
        output_units: Sequence[int],
        input_shape: Sequence[int],
        optimizer: str | keras.optimizers.Optimizer | None = None,
        seed: int | None = None,
        log_std: float | None = None,
        action_units: int | None = None,
    ):
        self.network = cfg if isinstance(cfg, NetworkDescription) else parse_network(cfg)
        self.output_units = list(output_units)
        self.input_shape = tuple(input_shape)
        self.optimizer, self.seed, self.log_std, self.action_units = optimizer, seed, log_std, action_units
        self.network.shapes(self.input_shape, self.output_units, self.action_units)
        if isinstance(optimizer, str) and optimizer not in OPTIMIZERS:
            raise value_error('optimizer', optimizer, ', '.join(OPTIMIZERS), OPTIMIZERS)
        if seed is not None:
            _check_seed(seed)
        if log_std is not None and not math.isfinite(log_std):
            raise value_error('log_std', log_std, 'a finite number')

    def build_model(self) -> keras.Model:
        """Build the model; each call makes a new one.

        It takes float32 observations [B, *input_shape], with an `action` section [observations, actions [B, A]]. Its
        outputs, float32 [B, units] under any precision policy, are in the order of the file, log standard deviations
        last. With an optimizer, it is compiled and the optimizer's slots exist.
        """
        shapes = self.network.shapes(self.input_shape, self.output_units, self.action_units)
        inputs = observations = keras.Input(shapes[INPUT], name='observations', dtype='float32')
        if self.network.action is not None:
            actions = keras.Input((int(self.action_units or 0),), name='actions', dtype='float32')
            inputs = [observations, actions]
        tensors = {INPUT: observations}
        for index, layer in enumerate(self.network.layers):
            source = tensors[layer.source]
            called_on = [source, actions] if layer.kind == 'action' else source
            tensors[layer.name] = self._build(layer, index, shapes[layer.name], shapes[layer.source])(called_on)
        outputs = [tensors[layer.name] for layer in self.network.outputs]
        if self.network.log_std is not None:
            outputs.append(tensors[self.network.log_std.name])
        elif self.log_std is not None:
            outputs.append(LogStd(self.log_std, name='log-std', dtype='float32')(outputs[0]))
        model = keras.Model(inputs, outputs)
        if self.optimizer is not None:
            model.compile(_unbuilt_optimizer(self.optimizer))
            model.optimizer.build(model.trainable_variables)
        return model

    def _build(self, layer: Layer, index: int, shape: tuple[int, ...], source: tuple[int, ...]) -> keras.layers.Layer:
        if layer.kind == 'flatten':
            return keras.layers.Flatten(name=layer.name)
        if layer.kind == 'action':
            return keras.layers.Concatenate(name=layer.name)
        if layer.kind == 'log-std':
            return LogStd(layer.init, name=layer.name, dtype='float32')
        options: dict[str, Any] = self._initializers(layer, index, source[-1] * max(layer.size, 1) ** 2)
        options |= {'name': layer.name, 'activation': layer.activation, 'dtype': 'float32' if layer.output else None}
        if layer.kind == 'dense':
            return keras.layers.Dense(shape[-1], **options)
        return keras.layers.Conv2D(layer.filters, layer.size, layer.stride, data_format='channels_last', **options)

    def _initializers(self, layer: Layer, index: int, fan_in: int) -> dict[str, keras.initializers.Initializer]:
        seeds: list[int | None] = [None, None]
        if self.seed is not None:
            # Layers of equal shapes must not get equal weights: each place has seeds of its own.
            seeds = [int(s >> 1) for s in np.random.SeedSequence([int(self.seed), index]).generate_state(2)]
        if layer.initializer == 'orthogonal':
            return {'kernel_initializer': keras.initializers.Orthogonal(layer.gain, seeds[0])}
        if layer.initializer == 'glorot_uniform':
            return {'kernel_initializer': keras.initializers.GlorotUniform(seeds[0])}
        limit = 1.0 / math.sqrt(fan_in)
        names = ('kernel_initializer', 'bias_initializer')
        return {n: keras.initializers.RandomUniform(-limit, limit, s) for n, s in zip(names, seeds, strict=True)}


def with_log_std(model: keras.Model, init: float) -> keras.Model:
    """Return a model that ends in a LogStd layer on its first output: itself, or a new one of the same layers.

    A compiled model's optimizer is made anew: one that was built does not take another variable.
    """
    if any(isinstance(layer, LogStd) for layer in model.layers):
        return model
    log_std = LogStd(init, name='log-std', dtype='float32')(model.outputs[0])
    return with_outputs(model, [*model.outputs, log_std])


def with_outputs(model: keras.Model, outputs: list[Any]) -> keras.Model:
    """Return a model of the same layers with other outputs, and an optimizer of the same kind if it has one."""
    other = keras.Model(model.input, outputs)
    if getattr(model, 'optimizer', None) is not None:
        other.compile(_unbuilt_optimizer(model.optimizer))
        other.optimizer.build(other.trainable_variables)
    return other


def with_logits(model: keras.Model) -> keras.Model:
    """Return a model whose first output is the policy's logits: itself, or one that takes softmax back.

    Distributions start from logits. A model that ends in softmax stays as it is, whatever else reads its probabilities.
    """
    head = model.outputs[0]._keras_history.operation  # a layer, or one of Keras' functions
    if type(head).__name__ == 'Softmax' or getattr(head, 'activation', None) is keras.activations.softmax:
        logits = LogProbabilities(name='logits', dtype='float32')(model.outputs[0])
        return with_outputs(model, [logits, *model.outputs[1:]])
    return model


def reinitialise(model: keras.Model, seed: int) -> keras.Model:
    """Return a new model of the same layers that starts anew: for example the second critic of TD3.

    Every random initializer of the layers draws again, with a seed of its own that follows from `seed`, so that the new
    weights differ from the model's whatever its seed was; constant ones (biases) give the same constants. An
    initializer that a layer of one's own does not name in its config draws by Keras' global seed instead. The model
    shares nothing with the other one; it is compiled if that is, with an optimizer whose slots are empty.

    Raises:
        ValueError: If the model is neither functional nor a built sequential one, or the seed no whole number from 0.
    """
    _check_seed(seed)
    if not is_functional(model):
        raise ValueError(
            f'model: got a {type(model).__name__}, expected a functional or a built sequential Keras model'
        )
    seeds = np.random.default_rng(int(seed))

    def start_anew(layer: keras.layers.Layer) -> keras.layers.Layer:
        return type(layer).from_config(_reseeded(layer.get_config(), seeds))

    return keras.models.clone_model(model, clone_function=start_anew)


def _reseeded(config: Any, seeds: np.random.Generator) -> Any:
    """Copy a layer's config, with another seed in each initializer, those of wrapped layers and cells included."""
    if isinstance(config, list | tuple):
        return type(config)([_reseeded(item, seeds) for item in config])
    if not isinstance(config, dict):
        return config
    copy = {key: _reseeded(value, seeds) for key, value in config.items()}
    for key, value in copy.items():
        if key.endswith('initializer') and isinstance(value, dict) and 'seed' in value.get('config', {}):
            value['config']['seed'] = int(seeds.integers(2**31))
    return copy


def _check_seed(seed: Any) -> None:
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
        raise value_error('seed', seed, 'a whole number from 0')


def make_optimizer(
    name: str = 'adam', lr: float = 7e-4, beta1: float = 0.9, beta2: float = 0.999, epsilon: float = 1e-7
) -> keras.optimizers.Optimizer:
    """Make an optimizer, not built yet.

    `beta1` and `beta2` are Adam's; rmsprop decays its mean of squared gradients by 0.99 (Mnih et al. 2016, section 8 of
    the supplement). `epsilon` is added to the denominator.

    Raises:
        ValueError: If there is no such optimizer.
    """
    if name == 'adam':
        return keras.optimizers.Adam(lr, beta_1=beta1, beta_2=beta2, epsilon=epsilon)
    if name == 'rmsprop':
        return keras.optimizers.RMSprop(lr, rho=0.99, epsilon=epsilon)
    raise value_error('optimizer', name, ', '.join(OPTIMIZERS), OPTIMIZERS)


def _unbuilt_optimizer(optimizer: str | keras.optimizers.Optimizer) -> keras.optimizers.Optimizer:
    """Return an optimizer without slots: one that was built for a model cannot be built for a second one."""
    if isinstance(optimizer, str):
        return keras.optimizers.get(optimizer)
    return type(optimizer).from_config(optimizer.get_config()) if optimizer.built else optimizer
