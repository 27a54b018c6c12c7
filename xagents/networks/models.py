"""Keras models of network descriptions, and their optimizers."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import keras
import numpy as np

from xagents.networks.cfg import parse_network
from xagents.networks.description import (
    INPUT,
    MEMORIES,
    NORMALISATIONS,
    PART_PREFIX,
    Layer,
    NetworkDescription,
    value_error,
)
from xagents.networks.layers import (
    LAYER_EPSILON,
    NARROW,
    BatchRenorm,
    HeadDense,
    ImageBytes,
    NoisyDense,
    Part,
    VectorBytes,
)
from xagents.networks.numpy_inference import TINY
from xagents.networks.recurrent import RECURRENT
from xagents.networks.registry import is_functional
from xagents.options.agents import OPTIMIZERS


@keras.saving.register_keras_serializable('xagents')
class LogStd(keras.layers.Layer):
    """The learned log standard deviation of a diagonal Gaussian, equal in all states.

    The input is the mean [B, A]. The output [B, A] repeats the one variable [A] in each row; the mean gets no gradient.

    Args:
        init: initial value of the variable.
    """

    def __init__(self, init: float = 0.0, **kwargs: Any):
        super().__init__(**kwargs)
        self.init = float(init)

    def build(self, input_shape: Sequence[int | None]) -> None:
        """Create the variable [A]."""
        initializer = keras.initializers.Constant(self.init)
        self.log_std = self.add_weight(shape=(input_shape[-1],), initializer=initializer, name='log_std')

    def call(self, mean: Any) -> Any:
        """Return the log standard deviations [B, A] for means [B, A]."""
        return keras.ops.zeros_like(mean) + self.log_std

    def get_config(self) -> dict[str, Any]:
        """Return the config from which Keras creates an equal layer."""
        return {**super().get_config(), 'init': self.init}


@keras.saving.register_keras_serializable('xagents')
class LogProbabilities(keras.layers.Layer):
    """The logarithm of probabilities; the results are logits whose softmax equals the probabilities."""

    def call(self, probabilities: Any) -> Any:
        """Return logits [B, A] for probabilities [B, A]; a probability of 0 counts as the smallest normal float32."""
        return keras.ops.log(keras.ops.maximum(probabilities, TINY))


class ByteParts(NamedTuple):
    """The parts of observations that consist of the bytes of a vector and of images.

    Attributes:
        n_bytes: the number of bytes of an observation.
        n_floats: the number of elements of the whole vector.
        shapes: the shapes of the parts that a network receives, by name; a part that is no image is a vector, the first
            elements of the whole vector.
        images: the first byte of each image and the dtype of its pixels, by name.
    """

    n_bytes: int
    n_floats: int
    shapes: Mapping[str, tuple[int, ...]]
    images: Mapping[str, tuple[int, str]]

    def layers(self) -> dict[str, Callable[[Any], Any]]:
        """Return functions from bytes to the parts, by name."""
        return {name: self._layer(name, shape) for name, shape in self.shapes.items()}

    def _layer(self, name: str, shape: tuple[int, ...]) -> Callable[[Any], Any]:
        if name in self.images:
            return ImageBytes(self.images[name][0], shape, self.images[name][1], name=f'bytes-{name}')

        def vector(observations: Any) -> Any:
            whole = VectorBytes(self.n_floats, name='bytes-vector')(observations)
            return whole if shape[0] == self.n_floats else Part(0, shape[0], name='observed', dtype='float32')(whole)

        return vector


class ModelReader:
    """A builder of Keras models from a network description.

    Args:
        cfg: path of a `.cfg` file, or a description (`parse_network`, `dense_network`).
        output_units: sizes of the outputs without `units`, in the order of the file; or of all outputs.
        input_shape: shape of one observation, D or (height, width, channels). Images must be scaled before the model.
            For bytes of several parts, `ByteParts`.
        optimizer: a name in `OPTIMIZERS`, for an optimizer with the defaults of Keras; a Keras optimizer; or None. The
            defaults of Keras have Muon update the first and the last layers, too (see `outer_matrices`).
        seed: seed of the initial weights, combined with the position of each layer; None for random weights.
        log_std: initial value of a LogStd layer on the first output; it is added as the last output if there is none.
        action_units: A, the length of one action, for a critic with an `action` section. A critic of vectors without
            this section has the `input_shape` (D + A,), the observation followed by the action.
        noisy: whether dense layers are noisy (`NoisyDense`).

    Raises:
        ValueError: if the network is not valid or does not fit these sizes.
    """

    def __init__(
        self,
        cfg: str | Path | NetworkDescription,
        output_units: Sequence[int],
        input_shape: Sequence[int] | ByteParts,
        optimizer: str | keras.optimizers.Optimizer | None = None,
        seed: int | None = None,
        log_std: float | None = None,
        action_units: int | None = None,
        noisy: bool = False,
    ):
        self.network = cfg if isinstance(cfg, NetworkDescription) else parse_network(cfg)
        self.output_units = list(output_units)
        self.byte_parts = input_shape if isinstance(input_shape, ByteParts) else None
        self.input_shape: Any = tuple(input_shape) if self.byte_parts is None else self.byte_parts.shapes
        self.optimizer, self.seed, self.log_std, self.action_units = optimizer, seed, log_std, action_units
        self.noisy = noisy
        self.network.shapes(self.input_shape, self.output_units, self.action_units)
        if isinstance(optimizer, str) and optimizer not in OPTIMIZERS:
            raise value_error('optimizer', optimizer, ', '.join(OPTIMIZERS), OPTIMIZERS)
        if seed is not None:
            _check_seed(seed)
        if log_std is not None and not math.isfinite(log_std):
            raise value_error('log_std', log_std, 'a finite number')

    def build_model(self) -> keras.Model:
        """Build a new model.

        Its input is float32 observations [B, *input_shape]; with an `action` section, [observations, actions [B, A]];
        with noisy layers, [observations, noise [B, M]].
        Its outputs are float32 [B, units] under any precision policy, in the order of the file; log standard deviations
        are the last output. If there is an optimizer, the model is compiled and the slots of the optimizer exist.
        """
        shapes = self.network.shapes(self.input_shape, self.output_units, self.action_units)
        tensors = {}
        if self.byte_parts is None:
            inputs = observations = keras.Input(shapes[INPUT], name='observations', dtype='float32')
            tensors[INPUT] = observations
        else:
            inputs = observations = keras.Input((self.byte_parts.n_bytes,), name='observations', dtype='int8')
            used = {name for layer in self.network.layers for name in layer.sources}
            for name, part in self.byte_parts.layers().items():
                if PART_PREFIX + name in used:
                    tensors[PART_PREFIX + name] = part(observations)
        if self.network.action is not None:
            actions = keras.Input((int(self.action_units or 0),), name='actions', dtype='float32')
            inputs = [observations, actions]
        noise_starts, noise_size = self._noise_starts(shapes)
        if noise_starts:
            noise = keras.Input((noise_size,), name='noise', dtype='float32')
            inputs = [observations, noise]
        for index, layer in enumerate(self.network.layers):
            source = tensors[layer.source]
            called_on = [source, actions] if layer.kind == 'action' else source
            called_on = [source, tensors[layer.second]] if layer.second else called_on
            built = self._build(layer, index, shapes[layer.name], shapes[layer.source], noise_starts.get(layer.name))
            tensors[layer.name] = built([source, noise] if layer.name in noise_starts else called_on)
            if layer.kind in NORMALISATIONS and layer.activation != 'linear':
                activation = keras.layers.Activation(layer.activation, name=f'{layer.name}-activation')
                tensors[layer.name] = activation(tensors[layer.name])
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

    def _noise_starts(self, shapes: Mapping[str, tuple[int, ...]]) -> tuple[dict[str, int], int]:
        """Return the index of the first noise of each noisy layer, and the length of the noise."""
        starts, size = {}, 0
        for layer in self.network.layers:
            if self.noisy and layer.kind == 'dense':
                starts[layer.name] = size
                size += shapes[layer.source][-1] + shapes[layer.name][-1]
        return starts, size

    def _build(
        self, layer: Layer, index: int, shape: tuple[int, ...], source: tuple[int, ...], noise_at: int | None
    ) -> keras.layers.Layer:
        if layer.kind == 'flatten':
            return keras.layers.Flatten(name=layer.name)
        if layer.kind in ('action', 'concatenate'):
            return keras.layers.Concatenate(name=layer.name)
        if layer.kind == 'add':
            return keras.layers.Add(name=layer.name)
        if layer.kind == 'layernorm':
            return keras.layers.LayerNormalization(epsilon=LAYER_EPSILON, name=layer.name)
        if layer.kind == 'batchnorm':
            return BatchRenorm(name=layer.name)
        if layer.kind == 'part':
            return Part(0, shape[0], name=layer.name, dtype='float32')
        if layer.kind == 'log-std':
            return LogStd(layer.init, name=layer.name, dtype='float32')
        options: dict[str, Any] = self._initializers(layer, index, source[-1] * max(layer.size, 1) ** 2)
        if layer.kind in MEMORIES:
            return RECURRENT[layer.kind](shape[0], **self._recurrent_initializers(index), name=layer.name)
        options |= {'name': layer.name, 'activation': layer.activation, 'dtype': 'float32' if layer.output else None}
        if noise_at is not None:
            return NoisyDense(shape[-1], noise_at, **options)
        if layer.kind == 'dense':
            return (HeadDense if shape[-1] <= NARROW else keras.layers.Dense)(shape[-1], **options)
        return keras.layers.Conv2D(layer.filters, layer.size, layer.stride, data_format='channels_last', **options)

    def _seeds(self, index: int) -> list[int | None]:
        """Return two seeds for the layer at a position; layers of equal shapes get different weights."""
        if self.seed is None:
            return [None, None]
        return [int(s >> 1) for s in np.random.SeedSequence([int(self.seed), index]).generate_state(2)]

    def _recurrent_initializers(self, index: int) -> dict[str, keras.initializers.Initializer]:
        kernel, recurrent = self._seeds(index)
        orthogonal = keras.initializers.Orthogonal(seed=recurrent)
        return {'kernel_initializer': keras.initializers.GlorotUniform(kernel), 'recurrent_initializer': orthogonal}

    def _initializers(self, layer: Layer, index: int, fan_in: int) -> dict[str, keras.initializers.Initializer]:
        seeds = self._seeds(index)
        if layer.initializer == 'orthogonal':
            return {'kernel_initializer': keras.initializers.Orthogonal(layer.gain, seeds[0])}
        if layer.initializer == 'glorot_uniform':
            return {'kernel_initializer': keras.initializers.GlorotUniform(seeds[0])}
        limit = 1.0 / math.sqrt(fan_in)
        names = ('kernel_initializer', 'bias_initializer')
        return {n: keras.initializers.RandomUniform(-limit, limit, s) for n, s in zip(names, seeds, strict=True)}


def with_log_std(model: keras.Model, init: float, size: int | None = None) -> keras.Model:
    """Return a model whose last output is a LogStd layer on its first output: `model`, or a new one of its layers.

    A new model gets a new optimizer if `model` is compiled, because a built optimizer accepts no further variables.

    Args:
        model: the model.
        init: initial value of the log standard deviations.
        size: the number of means, the first units of the first output; all of them if None.
    """
    if any(isinstance(layer, LogStd) for layer in model.layers):
        return model
    means = model.outputs[0]
    if size is not None and size != means.shape[-1]:
        means = Part(0, size, name='means', dtype='float32')(means)
    log_std = LogStd(init, name='log-std', dtype='float32')(means)
    return with_outputs(model, [*model.outputs, log_std])


def with_outputs(model: keras.Model, outputs: list[Any]) -> keras.Model:
    """Return a model of the same layers with other outputs, and with an equal optimizer if `model` has one."""
    return as_model(model.input, outputs, model)


def as_model(inputs: Any, outputs: list[Any], model: keras.Model) -> keras.Model:
    """Return a model of inputs and outputs, with an optimizer equal to that of `model` if there is one."""
    other = keras.Model(inputs, outputs)
    if getattr(model, 'optimizer', None) is not None:
        other.compile(_unbuilt_optimizer(model.optimizer))
        other.optimizer.build(other.trainable_variables)
    return other


def with_logits(model: keras.Model) -> keras.Model:
    """Return a model whose first output is the logits of the policy: `model`, or a new one that inverts a softmax.

    Distributions need logits. `model` itself does not change, so that other code can still read its probabilities.
    """
    head = model.outputs[0]._keras_history.operation  # a layer or a function of Keras
    if type(head).__name__ == 'Softmax' or getattr(head, 'activation', None) is keras.activations.softmax:
        logits = LogProbabilities(name='logits', dtype='float32')(model.outputs[0])
        return with_outputs(model, [logits, *model.outputs[1:]])
    return model


def reinitialise(model: keras.Model, seed: int) -> keras.Model:
    """Return a copy of a model with new initial weights: for example the second critic of TD3.

    Each random initializer of the layers gets its own seed, derived from `seed`; the new weights differ from those of
    the model for any seed of the model. Constant initializers (biases) give the same constants. An initializer that is
    not in the config of a custom layer uses the global seed of Keras. The models share nothing. If the model is
    compiled, the copy is compiled with an optimizer whose slots are empty.

    Raises:
        ValueError: if the model is neither functional nor a built sequential one, or the seed is not a whole number
            from 0.
    """
    _check_seed(seed)
    if not is_functional(model):
        raise ValueError(f'model: got a {type(model).__name__}, expected a functional or built sequential Keras model')
    seeds = np.random.default_rng(int(seed))

    def reseeded_copy(layer: keras.layers.Layer) -> keras.layers.Layer:
        return type(layer).from_config(_reseeded(layer.get_config(), seeds))

    return keras.models.clone_model(model, clone_function=reseeded_copy)


def _reseeded(config: Any, seeds: np.random.Generator) -> Any:
    """Copy the config of a layer with a new seed in each initializer, including those of wrapped layers and cells."""
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
    name: str = 'adam',
    lr: float = 7e-4,
    beta1: float = 0.9,
    beta2: float = 0.999,
    epsilon: float = 1e-7,
    weight_decay: float = 0.01,
    adam_paths: Sequence[str] = (),
) -> keras.optimizers.Optimizer:
    """Return a new optimizer that is not built.

    Args:
        name: `adam`, `rmsprop`, `adamw` or `muon`. The mean of squared gradients of rmsprop decays by 0.99 (Mnih et al.
            2016, section 8 of the supplement). Muon has the defaults of Keras: momentum 0.95 with Nesterov's step, five
            iterations of Newton and Schulz, and updates with the root mean square 0.2, which is close to that of Adam
            (Liu et al. 2025, arXiv:2502.16982).
        lr: learning rate.
        beta1: decay of the first moment, only for Adam, AdamW, and the parameters that Muon updates by AdamW.
        beta2: decay of the second moment, for the same.
        epsilon: number that is added to the denominator; with Muon, to that of AdamW. Keras adds that of RMSprop inside
            of the root.
        weight_decay: share of each parameter that a step subtracts, times the learning rate, only for AdamW and Muon.
        adam_paths: paths of the matrices that Muon updates by AdamW. Parameters that are not matrices always are.

    Raises:
        ValueError: for another name.
    """
    if name == 'adam':
        return keras.optimizers.Adam(lr, beta_1=beta1, beta_2=beta2, epsilon=epsilon)
    if name == 'rmsprop':
        return keras.optimizers.RMSprop(lr, rho=0.99, epsilon=epsilon)
    if name == 'adamw':
        return keras.optimizers.AdamW(lr, weight_decay, beta_1=beta1, beta_2=beta2, epsilon=epsilon)
    if name == 'muon':
        return keras.optimizers.Muon(
            lr,
            adam_beta_1=beta1,
            adam_beta_2=beta2,
            epsilon=epsilon,
            weight_decay=weight_decay,
            adam_weight_decay=weight_decay,
            exclude_layers=[f'^{re.escape(path)}$' for path in adam_paths],
        )
    raise value_error('optimizer', name, ', '.join(OPTIMIZERS), OPTIMIZERS)


def outer_matrices(model: keras.Model) -> list[str]:
    """Return the paths of the matrices in the first and the last layers of a model, for `make_optimizer`.

    A layer with matrices or kernels is a first one if it reads an input, and a last one if it computes an output,
    directly or through layers without them, such as activations. The result is empty if the model is not functional.
    """
    if not is_functional(model):
        return []
    outer = _nearest_weights(model.inputs, _consumers) | _nearest_weights(model.outputs, _producer)
    return [v.path for v in model.trainable_variables if len(v.shape) == 2 and v.path in outer]


def _nearest_weights(tensors: Sequence[Any], neighbours: Callable[[Any], list[tuple[Any, list[Any]]]]) -> set[str]:
    """Return the paths of the matrices and kernels of the operations that are nearest to tensors.

    `neighbours` returns operations next to a tensor, each with the tensors on its other side.
    """
    found: set[str] = set()
    pending, seen = list(tensors), set()
    while pending:
        tensor = pending.pop()
        if id(tensor) in seen:
            continue
        seen.add(id(tensor))
        for operation, others in neighbours(tensor):
            variables = () if _is_nested(operation) else getattr(operation, 'trainable_variables', ())
            paths = {v.path for v in variables if len(v.shape) > 1}
            found |= paths
            pending += [] if paths else others
    return found


def _consumers(tensor: Any) -> list[tuple[Any, list[Any]]]:
    """Return the operations that read a tensor, and their outputs; for a nested model, its inputs."""
    nodes = tensor._keras_history.operation._outbound_nodes
    reading = [node for node in nodes if any(source is tensor for source in _signals(node))]
    return [(n.operation, n.operation.inputs if _is_nested(n.operation) else n.outputs) for n in reading]


def _signals(node: Any) -> Sequence[Any]:
    """Return the tensors that an operation reads, without the noise of a noisy layer."""
    return node.input_tensors[:1] if isinstance(node.operation, NoisyDense) else node.input_tensors


def _producer(tensor: Any) -> list[tuple[Any, list[Any]]]:
    """Return the operation that computed a tensor, if any, and its inputs; for a nested model, its outputs."""
    operation, node, _ = tensor._keras_history
    if isinstance(operation, keras.layers.InputLayer):
        return []
    return [(operation, operation.outputs if _is_nested(operation) else operation._inbound_nodes[node].input_tensors)]


def _is_nested(operation: Any) -> bool:
    return isinstance(operation, keras.Model) and is_functional(operation)


def _unbuilt_optimizer(optimizer: str | keras.optimizers.Optimizer) -> keras.optimizers.Optimizer:
    """Return an optimizer without slots, because a built optimizer cannot be built for a second model."""
    if isinstance(optimizer, str):
        return keras.optimizers.get(optimizer)
    return type(optimizer).from_config(optimizer.get_config()) if optimizer.built else optimizer
