"""The sources of options and their order of precedence. Does not load TensorFlow.

The precedence, highest first: the command line, a configuration file, presets and studies, options saved with
weights, defaults. An option that the user sets also wins over an option of another source that would replace it.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from xagents.checkpoints import weight_files
from xagents.factory.presets import find_preset
from xagents.options.declaration import Option, declared_options, effective_options, resolve_aliases, to_flags
from xagents.options.environment import NET_ONLY_OPTIONS, EnvironmentOptions, NetworkOptions
from xagents.options.errors import OptionError
from xagents.options.settings import Settings, resolve_settings
from xagents.registry.agents import Entry, agents, find_agent


def resolve_with_record(entry: Entry, given: Mapping[str, Any], record: Mapping[str, Any] | None = None) -> Settings:
    """Return the settings for the given options. Options of a saved `record` take precedence over defaults.

    Args:
        entry: the registry entry of the agent.
        given: the options that the user set.
        record: the record saved with weights or in a checkpoint; its `options` are used.

    Raises:
        OptionError: for an unknown option, an invalid value, or two options that exclude each other.
    """
    given = resolve_aliases(given, entry.options_in('environment', 'network', 'agent', 'run'))
    # checks that no two given options exclude each other, before saved options are added
    entry.options.resolve({k: v for k, v in given.items() if k in declared_options(entry.options)})
    saved = _usable_saved_options(entry, record or {}, given)
    return resolve_settings(entry.options, entry.models, {**saved, **given}, entry.id)


def _usable_saved_options(entry: Entry, record: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the saved options that replace defaults: they still exist, and no given option overrides them."""
    known = entry.options_in('environment', 'network', 'agent')
    # the record contains the networks themselves, so options that describe networks are not used
    left_out = {'seed', *declared_options(NetworkOptions), *entry.models, *entry.options.ignored_options()}
    options = effective_saved_options(record.get('options', {}), given, known).items()
    return {k: v for k, v in options if k in known and v is not None and k not in left_out}


def effective_saved_options(
    saved: Mapping[str, Any], given: Mapping[str, Any], known: Mapping[str, Option]
) -> dict[str, Any]:
    """Return the saved options, defaults included, that the given options do not override."""
    options = effective_options(saved, given, known)
    # an option that another one replaces is saved, too, with its default
    replaced = {known[name].replaces for name, value in options.items() if name in known and value is not None}
    return {name: value for name, value in options.items() if name not in replaced}


def read_saved_record(entry: Entry, weights: Sequence[str] | None) -> dict[str, Any]:
    """Return the record saved with the weights that an agent starts from, or an empty dict without weights.

    Args:
        entry: the registry entry of the agent.
        weights: paths of saved weights, one for each model.

    Raises:
        ValueError: in one line, if the weights do not exist or belong to another agent.
    """
    if not weights:
        return {}
    weight_files.check_paths('weights', weights, entry.labels)
    weight_files.check_weights_exist(weights)
    record = weight_files.read_saved_state(weights[0])[1]
    saved_agent_id = record.get('agent', entry.id)
    return record if saved_agent_id == entry.id else _transferable_record(entry, saved_agent_id, record, weights[0])


def _transferable_record(entry: Entry, other: str, record: Mapping[str, Any], path: str) -> dict[str, Any]:
    """Return the part of another agent's record that an agent with equal networks can use.

    The part contains the networks, the options of the environment, and `normalize_obs`.

    Raises:
        ValueError: in one line, if the agents have different networks.
    """
    known = agents.get(other)
    if known is None or [n.signature for n in known.networks] != [n.signature for n in entry.networks]:
        has = '' if known is None else f' with the networks {_describe_networks(known)}'
        expected = f'the networks of {entry.id}: {_describe_networks(entry)}'
        raise ValueError(f'--weights: got {path} of {other}{has}, expected {expected}')
    shared = {*declared_options(EnvironmentOptions), 'normalize_obs'}
    options = {name: value for name, value in record.get('options', {}).items() if name in shared}
    return {'agent': other, 'networks': record.get('networks', []), 'options': options}


def _describe_networks(entry: Entry) -> str:
    return ', '.join(f'{network.label} ({" and ".join(network.outputs)})' for network in entry.networks)


def add_suggested_options(
    entry: Entry, given: Mapping[str, Any], suggested: Mapping[str, Any], networks: bool = False
) -> tuple[dict[str, Any], str]:
    """Return the given options together with suggested options that the given ones do not override.

    Args:
        entry: the registry entry of the agent.
        given: the options that the user set.
        suggested: options of a preset or of a study.
        networks: whether the run starts from weights that contain their networks. If so, suggested options of
            networks are ignored.

    Returns:
        The combined options, and the suggested options that were used, as flags in one line.
    """
    accepted = effective_options(suggested, given, entry.options_in('environment', 'network', 'agent'))
    # A .cfg file describes the whole network. Activation and initializer were tuned for the suggested layer widths.
    if networks or any(given.get(name) is not None for name in entry.models):
        left_out = {'net', *NET_ONLY_OPTIONS}
    else:
        left_out = {*NET_ONLY_OPTIONS, *entry.models} if 'net' in given else set()
    accepted = {name: value for name, value in accepted.items() if name not in left_out}
    accepted = _without_conflicts(entry, given, accepted)
    return {**given, **accepted}, shlex.join(to_flags(accepted)) or 'nothing, all options were given'


def _without_conflicts(entry: Entry, given: Mapping[str, Any], suggested: dict[str, Any]) -> dict[str, Any]:
    """Return suggested options without those of the agent that cannot be used with the given ones."""
    own, kept = entry.options_in('agent'), dict(suggested)
    while True:
        try:
            entry.options.resolve({name: value for name, value in {**kept, **given}.items() if name in own})
        except OptionError as error:
            if error.name in kept and error.name not in given:
                del kept[error.name]
                continue
        return kept


def apply_tuned_settings(agent_id: str, given: Mapping[str, Any]) -> tuple[dict[str, Any], str]:
    """Complete options with the preset for the agent and the environment, `max_steps` included.

    Without `env`, the environment is the one saved with `weights`, or the one of the data set. `published` selects the
    published settings.

    Returns:
        All options, and one line that lists the settings of the preset that were used.

    Raises:
        OptionError: if there is no environment, or no preset for the agent and the environment.
        ValueError: for weights that cannot be read.
    """
    entry = find_agent(agent_id)
    record = read_saved_record(entry, given.get('weights'))
    env = given.get('env') or record.get('options', {}).get('env')
    if env is None and given.get('dataset') is not None:
        env = dataset_environment_options(given)['env']
    if env is None:
        raise OptionError('env', 'got nothing, expected the id of an environment that has a preset')
    preset = find_preset(agent_id, env, given)
    suggested = {**preset.options, 'max_steps': preset.max_steps}
    given = {name: value for name, value in given.items() if name != 'published'}
    options, flags = add_suggested_options(entry, given, suggested, networks=bool(record.get('networks')))
    source = ', '.join(filter(None, [preset.source_name, preset.changed]))
    return options, f'Preset ({source}): {flags}'


def dataset_environment_options(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the environment options that a data set names, or an empty dict if `env` is given.

    Args:
        given: the options that the user set; `dataset` is required.

    Raises:
        OptionError: if the data set is unknown or damaged, or if neither the data set nor `env` names an environment.
    """
    # imported here because both modules load Gymnasium
    from xagents.datasets.environments import dataset_environment_options
    from xagents.datasets.reading import open_dataset

    dataset = open_dataset(given['dataset'], download=bool(given.get('download')))
    env_options, why = dataset_environment_options(dataset)
    if given.get('env') is None and not env_options:
        raise OptionError('env', f'got nothing, and {why}')
    return env_options if given.get('env') is None else {}


def resolve_grid_point(agent_id: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of one run of a grid. `tuned` is replaced by the preset for the run's environment."""
    options = dict(options)
    return apply_tuned_settings(agent_id, options)[0] if options.pop('tuned', False) else options


def fixed_options(entry: Entry, known: Iterable[str]) -> set[str]:
    """Return the names of the known options that cannot change when a run is resumed."""
    names = {*known}
    fixed = {*entry.models, *declared_options(NetworkOptions), *entry.options.forms}
    fixed |= names & {
        'env',
        'seed',
        'optimizer',
        'buffer_max_size',
        'frame_stack',
        'grey',
        'resize',
        'flatten',
        'mask_key',
        'critic_only',
    }
    # a replay buffer has one column for each environment
    return fixed | ({'n_envs'} if 'buffer_max_size' in names else set())
