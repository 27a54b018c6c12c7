"""Where options come from that were not given, and which source wins. Loads no TensorFlow.

The line wins over a file, a file over tuned settings and studies, those over what was saved with weights, and all of
them over defaults. What was given always wins, also over an option that stands instead of it.
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
    """Return the settings that given options make, those of a saved `record` before defaults; raises OptionError."""
    given = resolve_aliases(given, entry.options_in('environment', 'network', 'agent', 'run'))
    entry.options.resolve(
        {k: v for k, v in given.items() if k in declared_options(entry.options)}
    )  # exclude each other?
    return resolve_settings(
        entry.options, entry.models, {**_usable_saved_options(entry, record or {}, given), **given}, entry.id
    )


def _usable_saved_options(entry: Entry, record: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the saved options that stand in for defaults: those that still exist, and that no given one overrules."""
    known = entry.options_in('environment', 'network', 'agent')
    # networks are saved as what they are, not as where they came from
    left_out = {'seed', *declared_options(NetworkOptions), *entry.models, *entry.options.ignored_options()}
    options = effective_saved_options(record.get('options', {}), given, known).items()
    return {k: v for k, v in options if k in known and v is not None and k not in left_out}


def effective_saved_options(
    saved: Mapping[str, Any], given: Mapping[str, Any], known: Mapping[str, Option]
) -> dict[str, Any]:
    """Return the saved options, defaults included, that the given options do not override."""
    options = effective_options(saved, given, known)
    # what an option stands instead of is saved with its default, too
    replaced = {known[name].replaces for name, value in options.items() if name in known and value is not None}
    return {name: value for name, value in options.items() if name not in replaced}


def read_saved_record(entry: Entry, weights: Sequence[str] | None) -> dict[str, Any]:
    """Return the options saved with the weights that an agent starts from; empty without weights.

    Raises:
        ValueError: in one line, for weights that are not there, or of another agent.
    """
    if not weights:
        return {}
    weight_files.check_paths('weights', weights, entry.labels)
    weight_files.check_weights_exist(weights)
    record = weight_files.read_saved_state(weights[0])[1]
    saved_agent_id = record.get('agent', entry.id)
    return record if saved_agent_id == entry.id else _transferable_record(entry, saved_agent_id, record, weights[0])


def _transferable_record(entry: Entry, other: str, record: Mapping[str, Any], path: str) -> dict[str, Any]:
    """Return what of another agent's record is of use to one with equal networks: what these see, and where."""
    known = agents.get(other)
    if known is None or [n.signature for n in known.networks] != [n.signature for n in entry.networks]:
        has = '' if known is None else f', whose networks are {_describe_networks(known)}'
        raise ValueError(f'--weights: {path} is of {other}{has}; {entry.id} has {_describe_networks(entry)}')
    shared = {*declared_options(EnvironmentOptions), 'normalize_obs'}
    options = {name: value for name, value in record.get('options', {}).items() if name in shared}
    return {'agent': other, 'networks': record.get('networks', []), 'options': options}


def _describe_networks(entry: Entry) -> str:
    return ', '.join(f'{network.label} ({" and ".join(network.outputs)})' for network in entry.networks)


def add_suggested_options(
    entry: Entry, given: Mapping[str, Any], suggested: Mapping[str, Any], networks: bool = False
) -> tuple[dict[str, Any], str]:
    """Return the given options with the suggested ones that they do not override, and the latter as flags.

    `networks` says whether the weights that a run starts from hold their networks; nothing else chooses them then.
    """
    accepted = effective_options(suggested, given, entry.options_in('environment', 'network', 'agent'))
    # a file is the whole network, and activation and initializer belong to the widths they were chosen for
    if networks or any(given.get(name) is not None for name in entry.models):
        left_out = {'net', *NET_ONLY_OPTIONS}
    else:
        left_out = {*NET_ONLY_OPTIONS, *entry.models} if 'net' in given else set()
    accepted = {name: value for name, value in accepted.items() if name not in left_out}
    return {**given, **accepted}, shlex.join(to_flags(accepted)) or 'nothing, all was given'


def apply_tuned_settings(agent_id: str, given: Mapping[str, Any]) -> tuple[dict[str, Any], str]:
    """Complete options by the tuned settings that ship for the agent and the environment, and by their steps.

    Without `env` the environment is that of the saved `weights`.

    Returns:
        All options, and one line that says what was taken.

    Raises:
        OptionError: where there is no environment, or the agent has no settings for it.
        ValueError: for weights that cannot be read.
    """
    entry = find_agent(agent_id)
    record = read_saved_record(entry, given.get('weights'))
    env = given.get('env') or record.get('options', {}).get('env')
    if env is None and given.get('dataset') is not None:
        env = dataset_environment_options(given)['env']
    if env is None:
        raise OptionError('env', "got nothing, expected an id of Gymnasium's that there are tuned settings for")
    preset = find_preset(agent_id, env)
    suggested = {**preset.options, 'max_steps': preset.max_steps}
    options, flags = add_suggested_options(entry, given, suggested, networks=bool(record.get('networks')))
    return options, f'Tuned settings ({preset.source_name}): {flags}'


def dataset_environment_options(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of the environment of the given `dataset`, if no `env` is given.

    Raises:
        OptionError: for a data set that is unknown or damaged, or tells of no environment.
    """
    # these load gymnasium
    from xagents.datasets.environments import dataset_environment_options
    from xagents.datasets.reading import open_dataset

    dataset = open_dataset(given['dataset'], download=bool(given.get('download')))
    env_options, why = dataset_environment_options(dataset)
    if given.get('env') is None and not env_options:
        raise OptionError('env', f'got nothing, and {why}')
    return env_options if given.get('env') is None else {}


def resolve_grid_point(agent_id: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of one run of a grid, with the tuned settings that waited for its environment."""
    options = dict(options)
    return apply_tuned_settings(agent_id, options)[0] if options.pop('tuned', False) else options


def fixed_options(entry: Entry, known: Iterable[str]) -> set[str]:
    """Return those of the known options that are fixed for a run that goes on."""
    names = {*known}
    fixed = {*entry.models, *declared_options(NetworkOptions)}
    fixed |= names & {'env', 'seed', 'optimizer', 'buffer_max_size', 'frame_stack'}
    return fixed | ({'n_envs'} if 'buffer_max_size' in names else set())  # a replay buffer has a column for each
