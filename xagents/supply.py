"""What stands in for options that were not given: tuned settings that ship. Loads no TensorFlow.

What was given always wins, also over an option that stands instead of it.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

from xagents.options import Option, OptionError, describe, flags_of
from xagents.registry import Entry, find_agent
from xagents.settings import EnvironmentOptions, NetworkOptions


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
        left_out = {'activation'} if 'net' in given else set()
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
