"""What each command refuses before it does anything; loads nothing heavy."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from xagents.cli.completion_scripts import SHELLS
from xagents.options.declaration import Options, describe
from xagents.options.environment import EnvironmentOptions, NetworkOptions
from xagents.options.errors import Given, InputError, OptionError, nearest, shown, wrong_input
from xagents.options.runs import RunOptions
from xagents.registry.agents import find_agent
from xagents.runs.status import check_checkpoint, is_group, is_run
from xagents.system.names import GROUP, LOCK, ORPHANED, has_checkpoints

# what begins a run, beside --resume, which goes on with one
BEGINNINGS = ('run_dir', 'config', 'weights', 'tuned', 'from_study', 'storage', 'seeds', 'print_config')


def check_train(agent_id: str, given: Given) -> None:
    """Refuse what contradicts `--resume`; the rest is known when everything that completes the line is."""
    if 'resume' not in given:
        return
    for name in BEGINNINGS:
        if given.get(name):
            got = 'it' if given[name] is True else shown(_typed(given[name]))
            raise OptionError(name, f'got {got} beside --resume, which goes on with what its folder holds')


def _typed(value: Any) -> str:
    return ' '.join(map(str, value)) if isinstance(value, list) else str(value)


def check_run(agent_id: str, options: Mapping[str, Any]) -> None:
    """Refuse options of a run, everything that completes them included, that miss something or do not go together."""
    check_together(agent_id, options)
    # the state saved with the weights names the environment, where there is one
    if not ({'env', 'weights'} & options.keys()):
        raise OptionError('env', "got nothing, admits an id of Gymnasium's, such as CartPole-v1")
    if not {'target_reward', 'max_steps', 'max_time'} & options.keys():
        raise InputError('got none of --target-reward, --max-steps and --max-time, admits one or more of them')


def check_together(agent_id: str, options: Mapping[str, Any]) -> None:
    """Refuse options that do not go together."""
    groups: tuple[type[Options], ...] = (EnvironmentOptions, NetworkOptions, RunOptions, find_agent(agent_id).options)
    for group in groups:
        known = describe(group)
        group.resolve({name: value for name, value in options.items() if name in known})


def check_folder_of_run(name: str, folder: str) -> None:
    """Refuse a folder that holds no run; `name` is the option that it was given by."""
    if is_group(folder):
        held = sorted(entry.name for entry in os.scandir(folder) if is_run(entry.path))
        example = f', such as {os.path.join(folder, held[0])}' if held else ''
        raise OptionError(name, f'{folder} is a group of runs ({GROUP}), admits one of them{example}')
    check_runs(name, [folder])


def check_runs(name: str, folders: list[str]) -> None:
    """Refuse folders that hold neither a run nor a group of them; `name` is the option that they were given by."""
    for folder in folders:
        if not (is_run(folder) or is_group(folder)):
            raise OptionError(name, why_no_run(folder))


def why_no_run(folder: str) -> str:
    """Return why a path is no folder of a run, and the nearest one that is there."""
    if has_checkpoints(folder):
        return f'{shown(folder)} {ORPHANED}'
    if os.path.exists(os.path.join(folder, LOCK)):
        return f'{shown(folder)} holds no run yet: it was killed before it began, so begin it again as it was begun'
    if os.path.isdir(folder):
        return f'{shown(folder)} holds no run, admits what --run-dir of a training was'
    if os.path.exists(folder):
        return f'{shown(folder)} is a file, admits the folder that --run-dir of a training was'
    parent = os.path.dirname(os.path.normpath(folder))
    beside = (
        [entry.name for entry in os.scandir(parent or '.') if entry.is_dir()] if os.path.isdir(parent or '.') else []
    )
    return f'there is no folder {shown(folder)}{nearest(folder, [os.path.join(parent, one) for one in beside])}'


def check_trained(agent_id: str, given: Given) -> None:
    """Refuse a line that does not say where the trained agent is, or says it twice."""
    if {'weights', 'run_dir'} <= given.keys():
        raise OptionError('run_dir', f'got {given["run_dir"]} beside --weights, admits one of the two')
    if 'run_dir' in given:
        with wrong_input():
            check_folder_of_run('run_dir', given['run_dir'])
            return check_checkpoint(given['run_dir'], given.get('checkpoint', 'best'))
    if 'weights' not in given:
        raise OptionError(
            'weights', 'got nothing, admits what --checkpoints of a training was, or --run-dir its folder'
        )
    if 'checkpoint' in given:
        raise OptionError('checkpoint', f'got {given["checkpoint"]} without --run-dir, whose checkpoints it is about')


def check_export(agent_id: str, given: Given) -> None:
    """Refuse an export without an agent, or without a place."""
    check_trained(agent_id, given)
    if 'out' not in given:
        raise OptionError('out', 'got nothing, admits a folder for the policy')


def check_tune(agent_id: str, given: Given) -> None:
    """Refuse a search without an environment."""
    if not ({'env', 'print_search'} & given.keys()):
        raise OptionError('env', "got nothing, admits an id of Gymnasium's, such as CartPole-v1")


def check_plot(paths: list[str], given: Given) -> None:
    """Refuse a picture of nothing, or labels that are not as many as curves."""
    folders = given.get('run_dir', [])
    if not (paths or folders):
        raise InputError('got no history, admits .parquet files that --history-checkpoint wrote, or --run-dir')
    count = len(paths) + len(folders)
    if 'labels' in given and len(given['labels']) != count:
        raise OptionError('labels', f'got {len(given["labels"])}, admits as many as there are histories: {count}')


def check_runs_command(folders: list[str], given: Given) -> None:
    """Refuse a list of nothing."""
    if not folders:
        raise InputError('got no folder, admits those of runs, of groups of them, or above them')


def check_presets(names: list[str], given: Given) -> None:
    """Refuse what is no agent, or more than one."""
    _check_one(names, 'one agent or none')
    for name in names:
        find_agent(name)


def check_completion(names: list[str], given: Given) -> None:
    """Refuse what is no shell, or more than one."""
    _check_one(names, 'one of them')
    for name in names:
        if name not in SHELLS:
            admits = f'admits one of {", ".join(SHELLS)}{nearest(name, SHELLS)}'
            raise OptionError('shell', f'got {shown(name)}, {admits}')
    if not names:
        raise OptionError('shell', f'got nothing, admits one of {", ".join(SHELLS)}')


def _check_one(names: list[str], admitted: str) -> None:
    if len(names) > 1:
        raise InputError(f'{shown(names[1])}: stands behind {shown(names[0])}, admits {admitted}')
