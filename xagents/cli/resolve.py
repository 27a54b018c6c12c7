"""What completes a line of `train`: a file, tuned settings or a study."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from xagents.config.configuration import Configuration, check_config, read_config_file
from xagents.factory.defaults import add_suggested_options, apply_tuned_settings
from xagents.options.declaration import effective_options
from xagents.options.environment import NET_ONLY_OPTIONS
from xagents.options.errors import OptionError
from xagents.registry.agents import Entry, find_agent

# a line that has one of a pair has no use for the file's other one
EXCLUSIVE = (('seed', 'seeds'), ('tuned', 'from_study'), ('tuned', 'storage'))


class ResolvedOptions(NamedTuple):
    """The options of a `train` command with everything that completes them.

    `grid` has those with several values; `messages` is a line for each source, on what was taken from it.
    """

    options: dict[str, Any]
    grid: dict[str, list[Any]]
    messages: list[str]


def resolve(agent_id: str, given: Mapping[str, Any]) -> ResolvedOptions:
    """Complete the options of a line by those of its --config, --from-study and --tuned.

    Tuned settings wait for `resolve_point` where the environment varies.

    Raises:
        OptionError: for options that contradict each other, or a source that has nothing.
        ValueError: for a file that cannot be taken as it is; names it and the key.
    """
    options, messages = dict(given), list[str]()
    grid: dict[str, list[Any]] = {}
    if 'config' in options:
        path = options.pop('config')
        check_config(path)
        options, grid = _merge_config(find_agent(agent_id), options, read_config_file(path, agent_id))
    grid = {**grid, **_seeds(options, grid)}
    if 'from_study' in options and options.get('tuned'):
        raise OptionError('from_study', f'got {options["from_study"]} with --tuned, expected one of the two')
    if len({'from_study', 'storage'} & options.keys()) == 1:
        raise ValueError('--from-study and --storage: got one of them, expected both: the study and where it is kept')
    study, storage = options.pop('from_study', None), options.pop('storage', None)
    wants_tuned = options.pop('tuned', False)
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


def _merge_config(
    entry: Entry, given: dict[str, Any], file: Configuration
) -> tuple[dict[str, Any], dict[str, list[Any]]]:
    """Return the options and the grid of a file with those of the line over them."""
    known = entry.options_in('environment', 'network', 'agent')
    left_out = {other for pair in EXCLUSIVE for one, other in (pair, pair[::-1]) if given.get(one)}
    if any(name in given for name in entry.models):
        left_out |= {'net', *NET_ONLY_OPTIONS}
    elif 'net' in given:
        left_out |= set(entry.models)
    options, grid = (
        {name: value for name, value in effective_options(part, given, known).items() if name not in left_out}
        for part in (file.options, file.grid)
    )
    return {**options, **given}, grid


def _seeds(options: dict[str, Any], grid: Mapping[str, Any]) -> dict[str, list[Any]]:
    """Take --seeds from the options; return the grid over seeds that it stands for."""
    seeds = options.pop('seeds', None)
    if seeds is None:
        return {}
    got = f'got {" ".join(map(str, seeds))}'
    if 'seed' in options or 'seed' in grid:
        raise OptionError('seeds', f'{got} with --seed, expected one of the two')
    if len(set(seeds)) < len(seeds):
        raise OptionError('seeds', f'{got}, expected different ones')
    return {'seed': seeds}


def best_of_study(agent_id: str, given: Mapping[str, Any], name: str, url: str) -> tuple[dict[str, Any], str]:
    """Complete options by those of the best trial of study `name` in the storage at `url`, its environment included.

    Returns:
        All options, and one line that says what was taken.

    Raises:
        OptionError: where there is no such study, or nothing to take from it.
    """
    from xagents.tuning import studies
    from xagents.tuning.storages import open_storage

    trial, offered = studies.load_best(name, open_storage(url, create=False), agent_id)
    options, flags = add_suggested_options(find_agent(agent_id), given, offered)
    return options, f'Trial {trial.number} of study {name} ({trial.value:.6g}): {flags}'
