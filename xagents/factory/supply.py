"""What stands in for options that were not given: a file, tuned settings that ship, a study. Loads no TensorFlow.

What was given always wins, also over an option that stands instead of it: the line over the file, the file over tuned
settings and studies.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

from xagents.options.declaration import beside, describe, flags_of
from xagents.options.environment import EnvironmentOptions, NetworkOptions
from xagents.options.errors import OptionError
from xagents.registry.agents import Entry, find_agent


def settle_point(agent_id: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of one run of a grid, with the tuned settings that waited for its environment."""
    options = dict(options)
    return tuned(agent_id, options)[0] if options.pop('tuned', False) else options


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
    from xagents.factory.presets import find_preset

    record = _record(find_agent(agent_id), given)
    env = given.get('env') or record.get('options', {}).get('env')
    if env is None:
        raise OptionError('env', "got nothing, admits an id of Gymnasium's that there are tuned settings for")
    preset = find_preset(agent_id, env)
    offered = {**preset.options, 'max_steps': preset.max_steps}
    options, flags = complete(find_agent(agent_id), given, offered, networks=bool(record.get('networks')))
    return options, f'Tuned settings ({preset.origin}): {flags or "nothing, all was given"}'


def _record(entry: Entry, given: Mapping[str, Any]) -> dict[str, Any]:
    """What was saved beside the weights that a run starts from; empty without them."""
    if not given.get('weights'):
        return {}
    from xagents.runs import weight_files as checkpoints

    checkpoints.check_paths('weights', given['weights'], entry.labels)
    checkpoints.check_exist(given['weights'])
    return checkpoints.read_state(given['weights'][0])[1]
