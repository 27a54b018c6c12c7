"""What stands in for options that were not given: a file, tuned settings that ship, a study. Loads no TensorFlow.

What was given always wins, also over an option that stands instead of it: the line over the file, the file over tuned
settings and studies.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any, NamedTuple

from xagents.configuration import Configuration, check_config, read_config_file
from xagents.options import Option, OptionError, describe, flags_of
from xagents.registry import Entry, find_agent
from xagents.settings import EnvironmentOptions, NetworkOptions

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


def settle_point(agent_id: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of one run of a grid, with the tuned settings that waited for its environment."""
    options = dict(options)
    return tuned(agent_id, options)[0] if options.pop('tuned', False) else options


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


def beside(offered: Mapping[str, Any], given: Mapping[str, Any], known: Mapping[str, Option]) -> dict[str, Any]:
    """Return what of the offered options still counts beside the given ones.

    Left out is what was given itself, what a given option stands instead of, and what would stand instead of one.
    """
    overruled = given.keys() | {option.instead_of for name, option in known.items() if name in given}
    overruled |= {name for name, option in known.items() if option.instead_of in given}
    return {name: value for name, value in offered.items() if name not in overruled}


def complete(
    entry: Entry, given: Mapping[str, Any], offered: Mapping[str, Any], networks: bool = False
) -> tuple[dict[str, Any], str]:
    """Return the given options with those that are offered and count beside them, and the latter as flags.

    Args:
        entry: the agent's.
        given: options by name.
        offered: likewise.
        networks: whether the weights that a run starts from say what their networks are; nothing else does then.
    """
    known = {**describe(EnvironmentOptions), **describe(NetworkOptions), **describe(entry.options)}
    wanted = beside(offered, given, known)
    # a file is the whole network, and an activation belongs to the widths it was chosen for
    if networks or any(given.get(name) is not None for name in entry.models):
        left_out = {'net', 'activation'}
    else:
        left_out = {'activation', *entry.models} if 'net' in given else set()
    wanted = {name: value for name, value in wanted.items() if name not in left_out}
    return {**given, **wanted}, shlex.join(flags_of(wanted))


def tuned(agent_id: str, given: Mapping[str, Any]) -> tuple[dict[str, Any], str]:
    """Complete options by the tuned settings that ship for the agent and the environment, and by their steps.

    Args:
        agent_id: as `xagents.agents` names it.
        given: options by name; without `env`, `weights` whose saved state names it.

    Returns:
        All options, and one line that says what was taken.

    Raises:
        OptionError: where there is no environment, or the agent has no settings for it.
        ValueError: for weights that cannot be read.
    """
    from xagents.presets import find_preset

    record = _record(find_agent(agent_id), given)
    env = given.get('env') or record.get('options', {}).get('env')
    if env is None:
        raise OptionError('env', "got nothing, admits an id of Gymnasium's that there are tuned settings for")
    preset = find_preset(agent_id, env)
    offered = {**preset.options, 'max_steps': preset.max_steps}
    options, flags = complete(find_agent(agent_id), given, offered, networks=bool(record.get('networks')))
    return options, f'Tuned settings ({preset.origin}): {flags or "nothing, all was given"}'


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
    from xagents import studies
    from xagents.storages import open_storage

    studies.hush_optuna()
    trial, offered = studies.load_best(name, open_storage(url, create=False), agent_id)
    options, flags = complete(find_agent(agent_id), given, offered)
    said = flags or 'nothing, all was given'
    return options, f'Trial {trial.number} of study {name} ({trial.value:.6g}): {said}'


def _record(entry: Entry, given: Mapping[str, Any]) -> dict[str, Any]:
    """What was saved beside the weights that a run starts from; empty without them."""
    if not given.get('weights'):
        return {}
    from xagents import checkpoints

    checkpoints.check_paths('weights', given['weights'], entry.labels)
    checkpoints.check_exist(given['weights'])
    return checkpoints.read_state(given['weights'][0])[1]
