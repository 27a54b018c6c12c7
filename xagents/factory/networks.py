"""The networks of an agent: their descriptions from files, `--net` or defaults, and their Keras models."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from xagents.envs.interface import Envs
from xagents.envs.observations.composite import VECTOR
from xagents.networks.cfg import dense_network, parse_network
from xagents.networks.description import fit_small_images, joined_inputs, with_actor_part, with_memory
from xagents.networks.registry import NetworkFunction, network_from_text, read_network
from xagents.options.errors import OptionError
from xagents.options.settings import Settings
from xagents.registry.agents import Entry, NetworkRole

# height and width from which convolutions use all cores; threads that wait for each other made updates of 10 x 10
# images 8 times slower on a busy machine
SIDE_FOR_ALL_CORES = 32


def describe_networks(entry: Entry, envs: Envs, settings: Settings, saved: list[str]) -> list[Any]:
    """Return the description of each network: the saved one, or the one from a file, `--net` or the default."""
    if saved:
        return [network_from_text(text, network.option) for text, network in zip(saved, entry.networks, strict=True)]
    return [_network_description(entry, network, envs, settings) for network in entry.networks]


def _network_description(entry: Entry, network: NetworkRole, envs: Envs, settings: Settings) -> Any:
    """Return the description of a network from a file, `--net` or the default, with the layer of `--memory`."""
    file, memory = settings.models[network.option], settings.network.memory
    if file:
        return read_network(file, network.option)
    description = _network_without_memory(entry, network, envs, settings)
    return with_memory(description, memory, settings.network.memory_kind) if memory else description


def _network_without_memory(entry: Entry, network: NetworkRole, envs: Envs, settings: Settings) -> Any:
    net = settings.network.net
    uses_variant = _uses_variant(entry, settings)
    has_images = bool(envs.image_shape)
    if net:
        if has_images:
            flag = '--' + network.option.replace('_', '-')
            expected = f'expected --flatten, or a .cfg with convolutions by {flag}'
            raise OptionError('net', f'{envs.id} has image observations, {expected}')
        outputs, last = _network_outputs(entry, network, settings), network.output_activation
        block = settings.network.block
        activation = settings.network.activation or ('relu' if block else entry.activation)
        initializer = settings.network.initializer or entry.initializer
        shared = uses_variant or network.shares_trunk
        chosen = settings.network.normalize_layers or entry.normalise
        normalise = None if chosen == 'none' else chosen
        return dense_network(net, activation, shared, outputs, last, initializer, normalise, block)
    files = entry[network.option]['cnn' if has_images else 'ann']
    if not files:
        kind = 'images' if has_images else 'vectors'
        raise OptionError(network.option, f'got nothing, expected a .cfg: {entry.id} has no default network for {kind}')
    # the first file is the default form, the last file the variant
    description = parse_network(files[-1] if uses_variant else files[0])
    if parts := envs.input_parts(acts=network.is_actor):
        return joined_inputs(description, parts, VECTOR)
    return fit_small_images(description, envs.observation_space.shape) if envs.is_image else description


def _uses_variant(entry: Entry, settings: Settings) -> bool:
    """Return whether the variant of the agent's networks is selected."""
    if entry.variant is None:
        return False
    name = entry.variant.option
    return bool(getattr(settings.network if hasattr(settings.network, name) else settings.agent, name))


def _network_outputs(entry: Entry, network: NetworkRole, settings: Settings) -> tuple[str, ...]:
    outputs = entry.variant.outputs if entry.variant and _uses_variant(entry, settings) else None
    return network.outputs if outputs is None else outputs


def _network_seed(seed: int, index: int) -> int:
    """Return the seed of the initial weights of one network. Different networks and agents get different seeds."""
    return int(np.random.SeedSequence([seed, index]).generate_state(1)[0]) if index else seed


def check_batch_statistics(entry: Entry, descriptions: list[Any]) -> None:
    """Check that a network normalises over batches only if its agent can learn with it."""
    reason = entry.agent.traits.no_batch_statistics_reason
    for role, description in zip(entry.networks, descriptions, strict=True):
        layers = () if isinstance(description, NetworkFunction) else description.layers
        if reason and any(layer.kind == 'batchnorm' for layer in layers):
            got = f'got batch normalisation, but {entry.id} {reason}'
            named = description.where.startswith('net ')
            raise OptionError('normalize_layers' if named else role.option, f'{got}, expected layer normalisation')


def use_all_cores(descriptions: list[Any], envs: Envs) -> bool:
    """Return whether networks are convolutions of large images; one core is fastest for all others on a CPU."""
    convolutional = any(_is_convolutional(network, envs) for network in descriptions)
    return convolutional and min(envs.image_shape[:2], default=0) >= SIDE_FOR_ALL_CORES


def _is_convolutional(network: Any, envs: Envs) -> bool:
    if isinstance(network, NetworkFunction):
        return envs.is_image  # the layers are unknown until TensorFlow is loaded
    return any(layer.kind == 'convolutional' for layer in network.layers)


def build_networks(entry: Entry, envs: Envs, settings: Settings, descriptions: list[Any]) -> list[Any]:
    """Build the Keras model of each description, with the initial weights of the agent's seed.

    Raises:
        OptionError: if a network does not fit the environments or another option.
        TypeError: if the agent names no size for an output.
    """
    options, models = settings.agent, []
    units = entry.agent._units_for(envs, options)
    with _dtype_policy(options.precision):
        for i, (network, description) in enumerate(zip(entry.networks, descriptions, strict=True)):
            outputs = _network_outputs(entry, network, settings)
            if missing := [name for name in outputs if name not in units]:
                expected = f'expected the sizes of {", ".join(outputs)}'
                raise TypeError(f'{entry.agent.__name__}.output_units returned no {missing[0]!r}, {expected}')
            sizes, seed = [units[name] for name in outputs], _network_seed(options.drawn_seed, i)
            noisy = getattr(options, 'noisy', False)
            models.append(_build_network(network, description, envs, sizes, units.get('actor', 0), seed, noisy))
    return models


def _build_network(
    network: NetworkRole,
    description: Any,
    envs: Envs,
    sizes: list[int],
    action_units: int,
    seed: int,
    noisy: bool = False,
) -> Any:
    """Build one network with observations, or observations and actions, as input.

    Args:
        network: the network's role in the agent.
        description: a parsed description, or a registered function that makes the network.
        envs: the environments, whose spaces give the input shape.
        sizes: the number of units of each output.
        action_units: the number of units of an action; 0 if the agent has no actor.
        seed: the seed of the initial weights.
        noisy: whether dense layers are noisy.
    """
    from xagents.networks.models import ByteParts, ModelReader

    own = isinstance(description, NetworkFunction)
    takes_actions = 'action_units' in description.argument_names if own else description.action is not None
    joins = network.takes_actions and takes_actions
    is_actor, encoder = network.is_actor, envs.encoder
    shape: Any = envs.actor_shape if is_actor else envs.network_shape
    parts = envs.input_parts(acts=is_actor)
    if parts:
        if own:
            expected = 'expected a .cfg file with from=input:KEY, or the default network'
            raise OptionError(network.option, f'got {description.name} for observations with images, {expected}')
        images = {image.name: (image.start, image.dtype.name) for image in encoder.images}
        shape = ByteParts(envs.observation_space.shape[0], encoder.n_floats, parts, images)
    if encoder.composite is not None and encoder.composite.critic_only and not is_actor and 'actor' in network.outputs:
        if own or parts:
            what = f'{description.name}, which makes' if own else 'one network for images that is'
            expected = 'expected --flatten, or trpo, sac, td3 or ddpg' if parts else 'expected a .cfg file or --net'
            raise OptionError('critic_only', f'cannot be used with {what} actor and critic, {expected}')
        try:
            description = with_actor_part(description, *envs.actor_shape)
        except ValueError as error:
            raise OptionError('critic_only', str(error)) from error
    if network.takes_actions and not joins:
        if parts or len(shape) > 1:
            needed = 'an argument action_units of the function' if own else 'an action-* section in the file'
            raise OptionError(network.option, f'{envs.id} has image observations, expected {needed}')
        shape = (shape[0] + action_units,)
    joined = action_units if joins else None
    if own:
        if noisy:
            raise OptionError('noisy', f'cannot be used with {description.name}, expected a .cfg file or --net')
        return description.build(shape, sizes, seed, joined)
    reader = ModelReader(
        description, output_units=sizes, input_shape=shape, seed=seed, action_units=joined, noisy=noisy
    )
    return reader.build_model()


@contextlib.contextmanager
def _dtype_policy(precision: str) -> Iterator[None]:
    import keras

    kept = keras.config.dtype_policy()
    keras.config.set_dtype_policy('mixed_bfloat16' if precision == 'bfloat16' else 'float32')
    try:
        yield
    finally:
        keras.config.set_dtype_policy(kept)
