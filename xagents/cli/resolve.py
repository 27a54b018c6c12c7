"""Completing the options of `train` from a file, a preset or a study."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from xagents.config.configuration import Configuration, check_config, read_config_file
from xagents.factory.defaults import add_suggested_options, apply_tuned_settings
from xagents.options.declaration import effective_options
from xagents.options.environment import NET_ONLY_OPTIONS
from xagents.options.errors import OptionError, requires
from xagents.options.runs import PRESET_OPTIONS
from xagents.registry.agents import Entry, find_agent
from xagents.tuning.storages import mask_password

# pairs of options: one on the command line excludes the other one in the file
EXCLUSIVE = (
    ('seed', 'seeds'),
    *((preset, study) for preset in PRESET_OPTIONS for study in ('from_study', 'storage')),
)


# the values of each option that varies among the runs of a grid
Grid = dict[str, list[Any]]


class ResolvedOptions(NamedTuple):
    """The complete options of a `train` command.

    Attributes:
        options: options with one value, by name.
        grid: options with several values, by name.
        messages: a line for each source, with the settings taken from it.
    """

    options: dict[str, Any]
    grid: Grid
    messages: list[str]


def resolve(agent_id: str, given: Mapping[str, Any]) -> ResolvedOptions:
    """Add the options of --config, --from-study and --tuned to the options on the command line.

    If the environment or the weights vary in a grid, presets are added later, for each point of the grid.

    Args:
        agent_id: id of the agent.
        given: options on the command line, which override other sources.

    Raises:
        OptionError: if options conflict, or a source has no settings.
        ValueError: if the file is wrong. The message names the file and the key.
    """
    options, grid, messages = dict(given), Grid(), list[str]()
    if 'config' in options:
        path = options.pop('config')
        check_config(path)
        options, grid = _merge_config(find_agent(agent_id), options, read_config_file(path, agent_id))
    grid = {**grid, **_seeds(options, grid)}
    for name in PRESET_OPTIONS:
        if 'from_study' in options and options.get(name):
            raise OptionError('from_study', f'got {options["from_study"]} with --{name}, expected one of the two')
    for name, flag in (('from_study', '--storage'), ('storage', '--from-study')):
        if name in options and flag[2:].replace('-', '_') not in options:
            raise requires(name, mask_password(options[name]), flag)
    study, storage = options.pop('from_study', None), options.pop('storage', None)
    wants_tuned = options.pop('tuned', False)
    if not wants_tuned and options.pop('published', False):
        raise requires('published', True, '--tuned')
    completed = options
    if study is not None:
        completed, line = best_of_study(agent_id, {**options, **grid}, study, storage)
        messages.append(line)
    elif wants_tuned and not {'env', 'weights'} & grid.keys():
        completed, line = apply_tuned_settings(agent_id, {**options, **grid})
        messages.append(line)
    elif wants_tuned:
        completed = {**options, 'tuned': True}
    return ResolvedOptions({name: value for name, value in completed.items() if name not in grid}, grid, messages)


def _merge_config(entry: Entry, given: dict[str, Any], file: Configuration) -> tuple[dict[str, Any], Grid]:
    """Return the options and the grid of a file, overridden by the options on the command line."""
    known = entry.options_in('environment', 'network', 'agent')
    left_out = {other for pair in EXCLUSIVE for one, other in (pair, pair[::-1]) if given.get(one)}
    if given.get('tuned') is False:
        left_out.add('published')
    if any(name in given for name in entry.models):
        left_out |= {'net', *NET_ONLY_OPTIONS}
    elif 'net' in given:
        left_out |= set(entry.models)
    options, grid = (
        {name: value for name, value in effective_options(part, given, known).items() if name not in left_out}
        for part in (file.options, file.grid)
    )
    return {**options, **given}, grid


def _seeds(options: dict[str, Any], grid: Grid) -> Grid:
    """Remove --seeds from the options, and return its values as a grid over `seed`."""
    if (seeds := options.pop('seeds', None)) is None:
        return {}
    got = f'got {" ".join(map(str, seeds))}'
    if 'seed' in options or 'seed' in grid:
        raise OptionError('seeds', f'{got} with --seed, expected one of the two')
    if len(set(seeds)) < len(seeds):
        raise OptionError('seeds', f'{got}, expected different values')
    return {'seed': seeds}


def best_of_study(agent_id: str, given: Mapping[str, Any], name: str, url: str) -> tuple[dict[str, Any], str]:
    """Add the options of the best trial of a study, including its environment.

    Args:
        agent_id: id of the agent.
        given: options that override those of the trial.
        name: name of the study.
        url: URL of the study's storage.

    Returns:
        All options, and a line with the settings taken from the trial.

    Raises:
        OptionError: if the study does not exist, or has no complete trial.
    """
    from xagents.tuning import studies
    from xagents.tuning.storages import open_storage

    trial, offered = studies.load_best(name, open_storage(url, create=False), agent_id)
    options, flags = add_suggested_options(find_agent(agent_id), given, offered)
    return options, f'Trial {trial.number} of study {name} ({trial.value:.6g}): {flags}'
