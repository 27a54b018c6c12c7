"""A greedy policy as one TensorFlow function, from raw observations to environment actions.

The function repeats in TensorFlow the steps of acting in NumPy: `ObservationEncoder`, `ObservationNormalizer`, network,
`Distribution.mode` (or DQN's best action) and `ActionDecoder`. Every format is converted from this function, and the
result is compared with the agent's actions.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf
from gymnasium import spaces

from xagents.collecting.policy_files import PolicyData
from xagents.envs.normalisation import EPSILON, LIMIT
from xagents.envs.observations.composite import CompositeObservation
from xagents.envs.observations.flat_spaces import byte_scale, channels_last_order
from xagents.envs.space_serialization import space_to_dict
from xagents.envs.spaces import ActionDecoder
from xagents.export.bounds import box_scaling
from xagents.networks.keras_to_plan import flat_parameters, layer_calls, plan_from_model
from xagents.networks.layers import ImageBytes, VectorBytes
from xagents.networks.memory import memory_units, step_outputs
from xagents.networks.programs import float_outputs, network_input
from xagents.networks.sampling import ProductSampler, sampler_for
from xagents.system.arrays import add_prefix
from xagents.system.trees import leaf_spaces

if TYPE_CHECKING:
    from xagents.base.agent import BaseAgent

OUTPUT = 'actions'
# the input and the output of a policy with memory: before and after the step
MEMORY_INPUT, MEMORY_OUTPUT = 'memory', 'next_memory'
# names that inputs cannot have: `self` cannot be a keyword argument, and the output has its own name
_RESERVED = {OUTPUT, 'self'}


class Input(NamedTuple):
    """One input of an exported policy: an array of a batch of observations.

    Attributes:
        name: the name of the input.
        path: the keys and indices that lead to the array through Dict and Tuple spaces.
        space: the space of the array, neither Dict nor Tuple.
    """

    name: str
    path: tuple[str | int, ...]
    space: spaces.Space

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the array for one observation."""
        return tuple(self.space.shape or ())

    @property
    def dtype(self) -> np.dtype:
        """The dtype of the array in the environment."""
        return np.dtype(self.space.dtype)

    def extract(self, batch: Any) -> np.ndarray:
        """Return the array [N, *shape] of this input from a batch of observations."""
        for key in self.path:
            batch = batch[key]
        return np.ascontiguousarray(batch, self.dtype).reshape(-1, *self.shape)


class Output(NamedTuple):
    """One output of an exported policy: the actions, or a part of the actions of a Dict or Tuple space.

    Attributes:
        name: the name of the output.
        path: the keys and indices that lead to the part through Dict and Tuple spaces.
        space: the space of the part, neither Dict nor Tuple.
        units: the units of the network's first output that determine the part.
    """

    name: str
    path: tuple[str | int, ...]
    space: spaces.Space
    units: slice


def policy_outputs(space: spaces.Space) -> list[Output]:
    """Return the outputs of a policy for an action space.

    Outputs of a Dict or Tuple space have the names of its keys and indices, such as `actions_arm_0`.
    """
    if not isinstance(space, spaces.Dict | spaces.Tuple):
        return [Output(OUTPUT, (), space, slice(None))]
    sampler = sampler_for(space)
    assert isinstance(sampler, ProductSampler)
    outputs: list[Output] = []
    for (path, leaf), units in zip(leaf_spaces(space), sampler.unit_slices, strict=True):
        name = re.sub(r'\W', '_', '_'.join(map(str, (OUTPUT, *path))), flags=re.ASCII)
        known = [output.name for output in outputs]
        outputs.append(Output(name if name not in known else f'{name}_{len(outputs)}', path, leaf, units))
    return outputs


def policy_inputs(space: spaces.Space, reserved: Iterable[str] = ()) -> list[Input]:
    """Return the inputs of a policy for an observation space, in the order in which the arrays are encoded.

    Inputs of a Dict space have the names of its keys; nested keys are joined with `_`. Inputs of a Tuple space are
    named `observations_0`, `observations_1`, …; the input of any other space is `observations`. Characters other than
    letters and digits are replaced by `_`. Names in `reserved` are not used.
    """
    inputs: list[Input] = []
    names = {*_RESERVED, *reserved}
    for path, leaf in _leaves(space, ()):
        name = re.sub(r'\W', '_', '_'.join(map(str, path)), flags=re.ASCII)
        name = name if re.match('[A-Za-z]', name) else f'observations_{name}'.rstrip('_')
        name = f'observations_{name}' if name in (*_RESERVED, *reserved) else name
        numbered = (f'{name}_{count}' for count in itertools.count(2))
        unique = next(one for one in itertools.chain([name], numbered) if one not in names)
        names.add(unique)
        inputs.append(Input(unique, path, leaf))
    return inputs


def inputs_of(agent: BaseAgent) -> list[Input]:
    """Return the inputs of an agent's policy: those of its observations without the parts for critics."""
    hidden = [(key,) for key in agent.envs.encoder.encoding.critic_only]
    reserved = (MEMORY_INPUT,) if agent.acting_policy.memory_units else ()
    return [part for part in policy_inputs(agent.envs.encoder.raw_space, reserved) if part.path[:1] not in hidden]


class ExportedPolicy:
    """The greedy policy of an agent as a TensorFlow function, the source of every format.

    Attributes:
        inputs: the inputs of the policy.
        outputs: the outputs of the policy.
        network: the Keras model from encoded, normalised observations [N, *D] to the policy's outputs.
        memory_units: M, the length of the memory [N, M], a further input and output; 0 without memory.
        arrays: raw observations, from which a format may make examples: arrays [N, …] by names of the inputs.
        starts: bool [N], whether an observation is the first one of an episode.
        agent: the agent.
        function: a function from tensors [N, …], by names of the inputs, to those of the outputs, for any N.
        module: a module with the variables of the function, for saving.

    Args:
        agent: the agent.
        network: the agent's acting network, or a copy of it in float32.
        batch: raw observations [N, …], as vector environments return them.
        starts: bool [N], whether an observation is the first one of an episode.
    """

    def __init__(self, agent: BaseAgent, network: keras.Model, batch: Any, starts: np.ndarray):
        self.inputs, self.outputs = inputs_of(agent), policy_outputs(agent.envs.action_space)
        self.arrays = {part.name: part.extract(batch) for part in self.inputs}
        self.starts = starts
        self.network, self.agent = agent.greedy_model(network), agent
        network = self.network
        self.memory_units = memory_units(network)
        self.module = tf.Module()
        self.module.network = [variable.value for variable in network.variables]
        encode, normalize = _make_encoder(agent, self.inputs), _make_normalizer(agent)
        decoders = [(output.name, output.units, _make_decoder(output.space)) for output in self.outputs]

        called, images = (
            (network, None) if not agent.envs.encoder.images else _without_bytes(agent, network, self.inputs)
        )

        def act(**observations: tf.Tensor) -> dict[str, tf.Tensor]:
            memory = observations.pop(MEMORY_INPUT) if self.memory_units else None
            x = network_input(normalize(encode(observations)))
            inputs = x if images is None else images(x, observations)
            after: dict[str, tf.Tensor] = {}
            if self.memory_units:
                outputs, after[MEMORY_OUTPUT] = step_outputs(called, inputs, memory)
            else:
                outputs = called(inputs, training=False)
            (values, *_) = float_outputs(outputs)
            return {**{name: decode(values[:, units]) for name, units, decode in decoders}, **after}

        self.act = act
        signature = {specification.name: specification for specification in self.signature}
        self.function = tf.function(act, autograph=False).get_concrete_function(**signature)

    def as_data(self) -> PolicyData:
        """Return the greedy policy as a plan and arrays, for `numpy_template`.

        Raises:
            ValueError: if the network cannot be represented as a plan.
        """
        agent, encoder = self.agent, self.agent.envs.encoder
        axes = None if encoder._order is None else list(encoder._order)
        observed, composite = encoder.raw_space, encoder.composite
        if composite is not None:
            hidden = composite.critic_only
            leaves = [[list(path), space_to_dict(leaf), path[0] in hidden] for path, leaf in composite.leaves]
        else:
            leaves = [[[], space_to_dict(observed), False]]
        observations, actions = space_to_dict(observed), space_to_dict(agent.envs.action_space)
        shown = {'observation_space': observations, 'action_space': actions}
        arrays = {'weights': flat_parameters(self.network).numpy()}
        normalizer = agent.statistics.observations
        if normalizer is not None:
            arrays |= add_prefix('observation_statistics', _whole_statistics(agent))
        inputs = [[part.name, list(part.path)] for part in self.inputs]
        about = {'agent': agent.id, 'normalizes': normalizer is not None, 'axes': axes, 'inputs': inputs}
        about |= {'leaves': leaves, 'memory_units': self.memory_units}
        about['images'] = [
            [list(image.path), image.start, list(image.shape), channels_last_order(image.space.shape)]
            for image in encoder.images
            if not image.critic_only
        ]
        about['outputs'] = [[o.name, list(o.path), [o.units.start, o.units.stop]] for o in self.outputs]
        return PolicyData({**about, **shown, 'network': plan_from_model(self.network).to_dict()}, arrays)

    @property
    def signature(self) -> list[tf.TensorSpec]:
        """The name, shape and dtype of each input."""
        specs = [tf.TensorSpec((None, *part.shape), tf.as_dtype(part.dtype), part.name) for part in self.inputs]
        memory = [tf.TensorSpec((None, self.memory_units), tf.float32, MEMORY_INPUT)] if self.memory_units else []
        return specs + memory


def to_float32(network: keras.Model) -> keras.Model:
    """Return a copy of a network that computes in float32."""

    def start(layer: keras.layers.Layer) -> keras.layers.Layer:
        return type(layer).from_config({**layer.get_config(), 'dtype': 'float32'})

    copy = keras.models.clone_model(network, clone_function=start)
    copy.set_weights(network.get_weights())
    return copy


def _leaves(space: spaces.Space, path: tuple[str | int, ...]) -> Iterator[tuple[tuple[str | int, ...], spaces.Space]]:
    if isinstance(space, spaces.Dict | spaces.Tuple):
        parts: Any = space.spaces.items() if isinstance(space, spaces.Dict) else enumerate(space.spaces)
        for key, part in parts:
            yield from _leaves(part, (*path, key))
    else:
        yield path, space


def _make_encoder(agent: BaseAgent, inputs: list[Input]) -> Callable[[dict[str, tf.Tensor]], tf.Tensor]:
    """Return a TensorFlow version of `ObservationEncoder`, from raw observations to vectors or images [N, *D]."""
    encoder = agent.envs.encoder
    if encoder.composite is not None:
        return _make_composite_encoder(encoder.composite, inputs)
    if not isinstance(encoder.raw_space, spaces.Box):
        (part,) = inputs
        return lambda x: _flatten(part.space, x[part.name])
    order, shape, dtype = encoder._order, encoder.space.shape, tf.as_dtype(encoder.space.dtype)

    def encode(observations: dict[str, tf.Tensor]) -> tf.Tensor:
        (x,) = observations.values()
        x = x if order is None else tf.transpose(x, order)
        return tf.cast(tf.reshape(x, (-1, *shape)), dtype)

    return encode


def _without_bytes(
    agent: BaseAgent, network: keras.Model, inputs: list[Input]
) -> tuple[keras.Model, Callable[[tf.Tensor, dict[str, tf.Tensor]], list[tf.Tensor]]]:
    """Return a network of the parts of observations instead of their bytes, which not every runtime can read.

    Returns:
        The network, and a function from the scaled vector [N, d] and the raw observations to its inputs.
    """
    reads = [
        (layer, target) for layer, _, target in layer_calls(network) if isinstance(layer, VectorBytes | ImageBytes)
    ]
    names = {part.path: part.name for part in inputs}
    images = {image.start: image for image in agent.envs.encoder.images}

    def read(vector: tf.Tensor, observations: dict[str, tf.Tensor]) -> list[tf.Tensor]:
        parts = []
        for layer, _ in reads:
            if isinstance(layer, VectorBytes):
                parts.append(vector)
                continue
            image = images[layer.start]
            x, order = observations[names[image.path]], channels_last_order(image.space.shape)
            x = x if order is None else tf.transpose(x, (0, *(axis + 1 for axis in order)))
            x = tf.cast(tf.reshape(x, (-1, *image.shape)), tf.float32)
            parts.append(x / 255.0 if layer.pixel == 'uint8' else x)
        return parts

    return keras.Model([target for _, target in reads], network.outputs), read


def _make_composite_encoder(
    composite: CompositeObservation, inputs: list[Input]
) -> Callable[[dict[str, tf.Tensor]], tf.Tensor]:
    """Return a TensorFlow version of the vector of `CompositeObservation`."""
    names = {part.path: part.name for part in inputs}
    # the network receives 0 for the parts for critics, which its actor ignores
    sizes = {path: spaces.flatdim(leaf) for path, leaf in composite.leaves}

    def encode(x: dict[str, tf.Tensor]) -> tf.Tensor:
        n = tf.shape(next(iter(x.values())))[0]
        parts = [
            _flatten(leaf, x[names[path]]) if path in names else tf.zeros((n, sizes[path]))
            for path, leaf in composite.leaves
        ]
        return _concatenate(parts)

    return encode


def _flatten(space: spaces.Space, x: tf.Tensor) -> tf.Tensor:
    """Return a batch of a space as float32 [N, d]. Discrete values are one-hot; values out of range are all zeros."""
    if isinstance(space, spaces.Discrete):
        sizes, start = [int(space.n)], [int(space.start)]
    elif isinstance(space, spaces.MultiDiscrete):
        sizes, start = space.nvec.ravel().tolist(), space.start.ravel().tolist()
    else:
        x, scale = tf.reshape(tf.cast(x, tf.float32), (-1, int(np.prod(space.shape or ())))), byte_scale(space)
        return x if scale == 1 else x * scale
    choices = tf.reshape(tf.cast(x, tf.int64), (-1, len(sizes))) - np.array(start, np.int64)
    return _concatenate([tf.one_hot(choices[:, i], size) for i, size in enumerate(sizes)])


def _concatenate(parts: list[tf.Tensor]) -> tf.Tensor:
    return parts[0] if len(parts) == 1 else tf.concat(parts, 1)


def _whole_statistics(agent: BaseAgent) -> dict[str, np.ndarray]:
    """Return the statistics of observations; an action mask has a mean of 0 and a scale of 1."""
    normalizer, n_mask = agent.statistics.observations, agent.envs.n_mask
    assert normalizer is not None
    state = normalizer.state()
    if n_mask:
        state['mean'] = np.concatenate([state['mean'], np.zeros(n_mask)])
        state['var'] = np.concatenate([state['var'], np.full(n_mask, 1 - EPSILON)])
    return state


def _make_normalizer(agent: BaseAgent) -> Callable[[tf.Tensor], tf.Tensor]:
    """Return a function that normalises encoded observations with the agent's present statistics."""
    normalizer = agent.statistics.observations
    if normalizer is None:
        return lambda x: x
    if not normalizer.statistics.count:
        return lambda x: tf.cast(x, tf.float32)
    statistics = _whole_statistics(agent)
    mean = statistics['mean'].astype(np.float32)
    scale = (1 / np.sqrt(statistics['var'] + EPSILON)).astype(np.float32)
    return lambda x: tf.clip_by_value((tf.cast(x, tf.float32) - mean) * scale, -LIMIT, LIMIT)


def _make_decoder(space: spaces.Space) -> Callable[[tf.Tensor], tf.Tensor]:
    """Return a function from outputs [N, units] to actions of a space: the mode, then the decoder."""
    decoder = ActionDecoder(space)
    dtype = tf.as_dtype(decoder(np.zeros((1, *decoder.action_spec[0]), np.int32)).dtype)
    shape = (-1, *(space.shape or ()))
    if isinstance(space, spaces.Box):
        return lambda x: tf.cast(tf.reshape(_scale_to_bounds(space, x), shape), dtype)
    if isinstance(space, spaces.MultiBinary):
        return lambda x: tf.cast(tf.reshape(x > 0, shape), dtype)
    if isinstance(space, spaces.Discrete):
        return lambda x: tf.cast(tf.argmax(x, 1) + int(space.start), dtype)
    assert isinstance(space, spaces.MultiDiscrete)
    sizes, start = space.nvec.ravel().tolist(), space.start.ravel().astype(np.int64)

    def choose(x: tf.Tensor) -> tf.Tensor:
        choices = tf.stack([tf.argmax(part, 1) for part in tf.split(x, sizes, 1)], 1)
        return tf.cast(tf.reshape(choices + start, shape), dtype)

    return choose


def _scale_to_bounds(space: spaces.Box, x: tf.Tensor) -> tf.Tensor:
    """Return actions [N, A] scaled to the bounds of a Box, in float32, which every runtime supports."""
    scaling = box_scaling(space)
    scaled = tf.clip_by_value(x, -scaling.limit, scaling.limit) * scaling.half + scaling.middle
    if np.issubdtype(space.dtype, np.integer):
        scaled = tf.round(scaled)
    return tf.clip_by_value(scaled, scaling.low, scaling.high)
