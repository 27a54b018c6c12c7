"""From names and numbers to an agent that is ready to train: environments, networks, optimisers."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from xagents.networks.named import NetworkFunction, network_of_text, network_text, read_network
from xagents.options.declaration import beside, canonical, describe
from xagents.options.environment import EnvironmentOptions, NetworkOptions
from xagents.options.errors import OptionError, nearest
from xagents.options.runs import RunOptions
from xagents.registry.agents import Entry, Network, find_agent
from xagents.runs import weight_files as checkpoints
from xagents.runs.named import find_stages
from xagents.system.paths import check_folder

_NETWORK = ('net', 'activation', 'shared_network')


def make(agent_id: str, env: Any = None, *, weights: list[str] | None = None, **options: Any) -> Any:
    """Make an agent with its environments, networks and optimisers.

    Args:
        agent_id: as `xagents.agents` names it.
        env: an environment's id, a function that makes one, or ready-made environments as `as_envs` takes them; when
            not given, the one that was saved beside `weights`.
        weights: checkpoints to restore, one path a model; the options saved beside them stand in for defaults.
        options: of the environments, the network, the agent and the run, by their names; values are checked before
            anything is built.

    Returns:
        The agent.

    Raises:
        OptionError: for an unknown option, or a value that is not admitted.
        ValueError: in one line, for anything else that is wrong with the input.
    """
    entry = find_agent(agent_id)
    options = canonical(options, describe(entry.options))
    paths = [weights] if isinstance(weights, str) else weights
    record: dict[str, Any] = {}
    if paths is not None:
        checkpoints.check_paths('weights', paths, entry.labels)
        checkpoints.check_exist(paths)
        record = checkpoints.read_state(paths[0])[1]
        if record.get('agent', agent_id) != agent_id:
            raise ValueError(f'--weights: {paths[0]} is of {record["agent"]}, not of {agent_id}')
    given = options if env is None else {'env': env, **options}

    def load(agent: Any) -> None:
        if paths is None:
            return
        try:
            agent.load_weights(paths)
        except ValueError as error:
            trained = record.get('options', {}).get('env')
            raise ValueError(f'{error}' + (f'; it was trained on {trained}' if trained else '')) from error
        agent.context.plateau_count = agent.context.early_stop_count = 0
        if 'lr' in given:
            agent.context.plateau_factor = 1.0

    return make_saved(entry, given, record, load, name=paths[0] if paths else '')


def make_saved(
    entry: Entry, given: dict[str, Any], record: Mapping[str, Any], load: Callable[[Any], None], name: str = ''
) -> Any:
    """Make an agent whose defaults are what was saved, and load what was saved into it.

    Args:
        entry: the agent's.
        given: options by name, which win.
        record: of a saved state; empty where there is none.
        load: gets the agent that was made.
        name: of what was saved, for messages; empty where nothing was.
    """
    groups = _split(entry, {**_saved(entry, record, given), **given})
    entry.options.resolve({k: v for k, v in given.items() if k in groups['agent']})  # two that exclude each other
    _check_files(groups, entry, continued=bool(name))
    envs = _environments(groups['environment'])
    try:
        trained, saved_networks = record.get('options', {}), record.get('networks', [])
        network_given = {name for name in (*_NETWORK, *entry.models) if given.get(name) is not None}
        for switch in _switches(entry) & given.keys():
            if saved_networks and given[switch] != bool(trained.get(switch)):
                raise OptionError(switch, f'got {given[switch]}, but {name} was trained with {not given[switch]}')
        saved = [] if network_given else saved_networks
        descriptions = _descriptions(entry, envs, groups, saved)
        agent = _build(entry, envs, groups, descriptions)
        agent.seed_given = agent._seed_said = given.get('seed') is not None
        agent.creation = _plain({**groups['environment'], **groups['network'], **groups['models']})
        agent.networks = [network_text(description) for description in descriptions]
        load(agent)
        return agent
    except BaseException:
        envs.close()
        raise


def _saved(entry: Entry, record: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the saved options that stand in for defaults: those that still exist, and that no given one overrules."""
    known = {**describe(EnvironmentOptions), **describe(NetworkOptions), **describe(entry.options)}
    # networks are saved as what they are, not as where they came from
    left_out = {'seed', *_NETWORK, *entry.models, *entry.options.without_effect()}
    options = beside(record.get('options', {}), given, known).items()
    saved = {k: v for k, v in options if k in known and v is not None and k not in left_out}
    # what an option stands instead of is saved with its default, too
    replaced = {known[name].instead_of for name in saved}
    return {k: v for k, v in saved.items() if k not in replaced}


def _split(entry: Entry, options: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Sort options into their groups and check every value."""
    declarations = {
        'environment': describe(EnvironmentOptions),
        'network': describe(NetworkOptions),
        'models': {name: o for name, o in describe(entry.options).items() if name in entry.models},
        'agent': {name: o for name, o in describe(entry.options).items() if name not in entry.models},
        'run': describe(RunOptions),
    }
    known = {name for declaration in declarations.values() for name in declaration}
    for name in options:
        if name not in known:
            raise OptionError(name, f'is no option of {entry.id}{nearest(name, known)}')
    groups = {
        group: {name: _checked(o, options[name]) for name, o in declaration.items() if name in options}
        for group, declaration in declarations.items()
    }
    if groups['environment'].get('env') is None:
        raise OptionError('env', "got nothing, admits an id of Gymnasium's, such as CartPole-v1")
    return groups


def _checked(option: Any, value: Any) -> Any:
    # ready-made environments are no text
    return value if option.name == 'env' and not isinstance(value, str) else option.check(value)


def _check_files(groups: dict[str, dict[str, Any]], entry: Entry, continued: bool) -> None:
    """Check paths and networks before environments and TensorFlow are loaded."""
    run, network, models = groups['run'], groups['network'], groups['models']
    if run.get('checkpoints'):
        checkpoints.check_paths('checkpoints', run['checkpoints'], entry.labels)
    if run.get('history_checkpoint'):
        from xagents.logs.history import check_history_path

        check_history_path(run['history_checkpoint'], resume=continued)
    for name in ('tensorboard', 'run_dir'):
        if run.get(name):
            check_folder(name, run[name])
    if run.get('stages'):
        find_stages(run['stages'])
    if run.get('monitor_session'):
        from xagents.logs.monitors import check_wandb

        check_wandb()
    if 'render_mode' in (groups['environment'].get('env_kwargs') or {}):
        raise OptionError('env_kwargs', 'got render_mode, which play chooses: see --render and --video-dir')
    given = [name for name in models if models[name] is not None]
    for name in given:
        if network.get('net'):
            raise OptionError('net', f'got {network["net"]} beside {name} {models[name]}, admits one of them')
        read_network(models[name], name)
    shares = entry.variant is not None and entry.variant.option == 'shared_network'
    if network.get('shared_network') and not shares:
        raise OptionError('shared_network', f'{entry.id} has no network of two heads to share')
    if given and network.get('shared_network'):
        raise OptionError('shared_network', f'the file {models[given[0]]} says itself what is shared')
    if network.get('activation') and not network.get('net'):
        raise OptionError('activation', f'got {network["activation"]} without net, whose layers it is for')


def _environments(options: dict[str, Any]) -> Any:
    from xagents.envs.create import as_envs, create_envs

    if isinstance(options['env'], str) or callable(options['env']):
        return create_envs(
            **EnvironmentOptions.resolve({k: v for k, v in options.items() if k != 'env'}).creation()
            | {'env': options['env']}
        )
    return as_envs(options['env'])


def _build(entry: Entry, envs: Any, groups: dict[str, dict[str, Any]], descriptions: list[Any]) -> Any:
    options = entry.options.resolve(groups['agent'])
    entry.agent.check_envs(envs, options)
    if options.seed is None:
        options.seed = int.from_bytes(os.urandom(4), 'little')
    convolutional = any(_convolves(network, envs) for network in descriptions)
    if options.precision != 'float32' and not convolutional:
        raise OptionError('precision', f'got {options.precision}, admits float32 for a network without convolutions')
    _set_threads(convolutional)
    units, outputs = entry.agent.output_units(envs), [_outputs(entry, network, options) for network in entry.networks]
    with _precision(options.precision):
        models = [
            _model(network, description, envs, units, outputs[i], _network_seed(options.seed, i))
            for i, (network, description) in enumerate(zip(entry.networks, descriptions, strict=True))
        ]
    return entry.agent(envs, *models, **{**groups['agent'], 'seed': options.seed}, **groups['run'])


def _model(
    network: Network, description: Any, envs: Any, units: Mapping[str, int], outputs: tuple[str, ...], seed: int
) -> Any:
    """Build one network for observations, or for observations and actions."""
    from xagents.networks.models import ModelReader

    own = isinstance(description, NetworkFunction)
    joins = network.takes_actions and ('action_units' in description.takes if own else description.action is not None)
    shape, sizes = envs.observation_space.shape, [units[name] for name in outputs]
    if network.takes_actions and not joins:
        if len(shape) > 1:
            needed = 'the function needs an argument action_units' if own else 'the file needs an action-* section'
            raise OptionError(network.option, f'{envs.id} shows images: {needed}')
        shape = (shape[0] + units['actor'],)
    action_units = units['actor'] if joins else None
    if own:
        return description.build(shape, sizes, seed, action_units)
    return ModelReader(
        description, output_units=sizes, input_shape=shape, seed=seed, action_units=action_units
    ).build_model()


def _descriptions(entry: Entry, envs: Any, groups: dict[str, dict[str, Any]], saved: list[str]) -> list[Any]:
    """Return each network's description: what was saved, a file, `--net`, or the default for these observations."""
    from xagents.networks.cfg import dense_network, parse_network

    if saved:
        return [network_of_text(text, network.option) for text, network in zip(saved, entry.networks, strict=True)]
    given = groups['network'] | groups['agent']
    varied = entry.variant is not None and bool(given.get(entry.variant.option))
    descriptions = []
    for network in entry.networks:
        if groups['models'].get(network.option):
            descriptions.append(read_network(groups['models'][network.option], network.option))
        elif given.get('net'):
            if envs.is_image:
                flag = '--' + network.option.replace('_', '-')
                raise OptionError('net', f'{envs.id} shows images, which need convolutions: give a .cfg by {flag}')
            activation = given.get('activation') or entry.activation
            descriptions.append(
                dense_network(
                    given['net'],
                    activation,
                    varied,
                    _outputs(entry, network, given),
                    output_activation=network.output_activation,
                    initializer=entry.initializer,
                )
            )
        else:
            files = entry[network.option]['cnn' if envs.is_image else 'ann']
            if not files:
                kind = 'images' if envs.is_image else 'vectors'
                raise OptionError(
                    network.option, f'got nothing, and {entry.id} ships no network for {kind}: give a .cfg'
                )
            # what convolves shares its trunk by default
            descriptions.append(parse_network(files[-1] if varied else files[0]))
    return descriptions


def _outputs(entry: Entry, network: Network, options: Any) -> tuple[str, ...]:
    """Return the names of a network's outputs; `options` is an agent's or a mapping."""
    variant = entry.variant
    if variant is None or variant.outputs is None:
        return network.outputs
    chosen = options.get(variant.option) if isinstance(options, Mapping) else getattr(options, variant.option)
    return variant.outputs if chosen else network.outputs


def _switches(entry: Entry) -> set[str]:
    return {entry.variant.option} if entry.variant else set()


def _network_seed(seed: int, index: int) -> int:
    """Return the seed of one network's weights: neither two networks of an agent nor two agents share any."""
    return int(np.random.SeedSequence([seed, index]).generate_state(1)[0]) if index else seed


def _convolves(network: Any, envs: Any) -> bool:
    if isinstance(network, NetworkFunction):
        return envs.is_image  # what it makes is not known before TensorFlow has started
    return any(layer.kind == 'convolutional' for layer in network.layers)


def _set_threads(convolutional: bool) -> None:
    """One thread is best for dense networks on a CPU, all cores for convolutions; a started runtime stays as it is."""
    import tensorflow as tf

    from xagents.system.threads import set_threads

    if tf.config.threading.get_intra_op_parallelism_threads() == 0 and not convolutional:
        set_threads(1)


@contextlib.contextmanager
def _precision(precision: str) -> Iterator[None]:
    import keras

    kept = keras.config.dtype_policy()
    keras.config.set_dtype_policy('mixed_bfloat16' if precision == 'bfloat16' else 'float32')
    try:
        yield
    finally:
        keras.config.set_dtype_policy(kept)


def _plain(options: dict[str, Any]) -> dict[str, Any]:
    """Return what JSON can hold of the given options; functions and ready-made environments are left out."""
    plain = {}
    for name, value in options.items():
        with contextlib.suppress(TypeError):
            # NumPy's scalars have an item()
            plain[name] = json.loads(json.dumps(value, default=lambda x: getattr(x, 'item', _no_json)()))
    return plain


def _no_json() -> None:
    raise TypeError
