"""What completes a line of `train`: a file, tuned settings, a study."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from xagents.config.configuration import Configuration, check_config, read_config_file
from xagents.factory.supply import complete, tuned
from xagents.options.declaration import beside, describe
from xagents.options.environment import EnvironmentOptions, NetworkOptions
from xagents.options.errors import OptionError
from xagents.registry.agents import Entry, find_agent

# a line that has one of a pair has no use for the file's other one
EXCLUSIVE = (('seed', 'seeds'), ('tuned', 'from_study'), ('tuned', 'storage'))


class Settled(NamedTuple):
    """The options of a command of `train` with everything that completes them.

    Args:
        options: by name.
        grid: the values of those that have several, likewise.
        said: a line for each supplier, on what was taken from it.
    """

    options: dict[str, Any]
    grid: dict[str, list[Any]]
    said: list[str]


def settle(agent_id: str, given: Mapping[str, Any]) -> Settled:
    """Complete the options of a line by those of its --config, --from-study and --tuned, in this order.

    Tuned settings wait for `settle_point` where the environment varies.

    Args:
        agent_id: as `xagents.agents` names it.
        given: options by name.

    Raises:
        OptionError: for options that contradict each other, or a supplier that has nothing.
        ValueError: for a file that cannot be taken as it is; names it and the key.
    """
    options, said = dict(given), list[str]()
    grid: dict[str, list[Any]] = {}
    if 'config' in options:
        path = options.pop('config')
        check_config(path)
        options, grid = _over_file(find_agent(agent_id), options, read_config_file(path, agent_id))
    options, grid = _seeds(options, grid)
    _check_suppliers(options)
    study, storage = options.pop('from_study', None), options.pop('storage', None)
    wants_tuned = options.pop('tuned', False)
    if study is not None:
        completed, line = best_of_study(agent_id, {**options, **grid}, study, storage)
        said.append(line)
    elif wants_tuned and not {'env', 'weights'} & grid.keys():
        completed, line = tuned(agent_id, {**options, **grid})
        said.append(line)
    else:
        completed = {**options, 'tuned': True} if wants_tuned else options
    return Settled({name: value for name, value in completed.items() if name not in grid}, grid, said)


def _over_file(entry: Entry, given: dict[str, Any], file: Configuration) -> tuple[dict[str, Any], dict[str, list[Any]]]:
    """Return the options and the grid of a file with those of the line over them."""
    known = {**describe(EnvironmentOptions), **describe(NetworkOptions), **describe(entry.options)}
    left_out = {other for pair in EXCLUSIVE for one, other in (pair, pair[::-1]) if given.get(one)}
    if any(name in given for name in entry.models):
        left_out |= {'net', 'activation'}
    elif 'net' in given:
        left_out |= set(entry.models)
    options, grid = (
        {name: value for name, value in beside(part, given, known).items() if name not in left_out}
        for part in (file.options, file.grid)
    )
    return {**options, **given}, grid


def _seeds(options: dict[str, Any], grid: dict[str, list[Any]]) -> tuple[dict[str, Any], dict[str, list[Any]]]:
    """Return options and grid with --seeds as the grid over seeds that it is."""
    options = dict(options)
    seeds = options.pop('seeds', None)
    if seeds is None:
        return options, grid
    if 'seed' in options or 'seed' in grid:
        raise OptionError('seeds', f'got {" ".join(map(str, seeds))} beside --seed, admits one of the two')
    if len(set(seeds)) < len(seeds):
        raise OptionError('seeds', f'got {" ".join(map(str, seeds))}, admits different ones')
    return options, {**grid, 'seed': seeds}


def _check_suppliers(options: Mapping[str, Any]) -> None:
    if 'from_study' in options and options.get('tuned'):
        raise OptionError('from_study', f'got {options["from_study"]} beside --tuned, admits one of the two')
    if len({'from_study', 'storage'} & options.keys()) == 1:
        raise ValueError('--from-study and --storage: got one of them, admits both: the study and where it is kept')


def best_of_study(agent_id: str, given: Mapping[str, Any], name: str, url: str) -> tuple[dict[str, Any], str]:
    """Complete options by those of a study's best trial, its environment and steps included.

    Args:
        agent_id: as `xagents.agents` names it.
        given: options by name.
        name: of the study.
        url: of the storage that has it.

    Returns:
        All options, and one line that says what was taken.

    Raises:
        OptionError: where there is no such study, or nothing to take from it.
    """
    from xagents.tuning import studies
    from xagents.tuning.storages import open_storage

    studies.hush_optuna()
    trial, offered = studies.load_best(name, open_storage(url, create=False), agent_id)
    options, flags = complete(find_agent(agent_id), given, offered)
    said = flags or 'nothing, all was given'
    return options, f'Trial {trial.number} of study {name} ({trial.value:.6g}): {said}'
