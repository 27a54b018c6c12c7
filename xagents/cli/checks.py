"""What each command refuses before it does anything; loads nothing heavy."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from xagents.checkpoints.status import check_checkpoint, is_group, is_run
from xagents.datasets.dataset_names import NAME_HINT, check_name, check_new
from xagents.explorers.addresses import parse_address
from xagents.explorers.keys import read_key
from xagents.factory.pretrained import find_pretrained
from xagents.options.environment import NO_ENVIRONMENT
from xagents.options.errors import GivenOptions, InputError, OptionError, as_input_errors, did_you_mean, format_value
from xagents.options.runs import NO_DATASET
from xagents.registry.agents import find_agent
from xagents.system.file_names import CONFIG_MISSING, GROUP, LOCK, has_checkpoints
from xagents.system.paths import check_parent

NO_AGENT = 'got nothing, expected what --checkpoints of a training was, or --run-dir its folder'
SHELLS = ('bash', 'zsh', 'fish')
# what makes a new run, which --resume does not
NEW_RUN_OPTIONS = ('run_dir', 'config', 'weights', 'tuned', 'from_study', 'storage', 'seeds', 'print_config')
# what may complete a line; `--print-config` does not need a complete one
COMPLETING_OPTIONS = ('config', 'tuned', 'from_study', 'storage', 'print_config')


def check_train(agent_id: str, given: GivenOptions) -> None:
    """Refuse what contradicts `--resume`, and a line that is not complete and that nothing completes."""
    if 'resume' not in given:
        if not any(given.get(name) for name in COMPLETING_OPTIONS):
            check_complete(agent_id, given)
        return
    for name in NEW_RUN_OPTIONS:
        value = given.get(name)
        if value:
            typed = ' '.join(map(str, value)) if isinstance(value, list) else str(value)
            got = 'it' if value is True else format_value(typed)
            raise OptionError(name, f'got {got} with --resume, which uses the settings of its run directory')


def check_complete(agent_id: str, options: Mapping[str, Any]) -> None:
    """Refuse complete options of a run that say neither where it learns, nor from what, or no end."""
    if find_agent(agent_id).options.datasets == 'only' and 'dataset' not in options:
        raise OptionError('dataset', NO_DATASET.format(agent_id))
    if not {'env', 'weights', 'dataset'} & options.keys():
        raise OptionError('env', NO_ENVIRONMENT)
    if not {'target_reward', 'max_steps', 'max_time'} & options.keys():
        raise InputError('got none of --target-reward, --max-steps and --max-time, expected one or more of them')


def check_single_run(name: str, folder: str) -> None:
    """Refuse a folder that holds no run; `name` is the option that it was given by."""
    if is_group(folder):
        held = sorted(entry.name for entry in os.scandir(folder) if is_run(entry.path))
        example = f', such as {os.path.join(folder, held[0])}' if held else ''
        raise OptionError(name, f'{folder} is a group of runs ({GROUP}), expected one of them{example}')
    check_run(name, folder)


def check_run(name: str, folder: str) -> None:
    """Refuse a folder that holds neither a run nor a group of them; `name` is the option that it was given by."""
    if not (is_run(folder) or is_group(folder)):
        raise OptionError(name, _why_no_run(folder))


def _why_no_run(folder: str) -> str:
    if has_checkpoints(folder):
        return f'{format_value(folder)} {CONFIG_MISSING}'
    if os.path.exists(os.path.join(folder, LOCK)):
        return (
            f'{format_value(folder)} holds no run yet: it was killed before it began, so begin it again as it was begun'
        )
    if os.path.isdir(folder):
        return f'{format_value(folder)} holds no run, expected what --run-dir of a training was'
    if os.path.exists(folder):
        return f'{format_value(folder)} is a file, expected the folder that --run-dir of a training was'
    parent = os.path.dirname(os.path.normpath(folder))
    siblings = os.scandir(parent or '.') if os.path.isdir(parent or '.') else ()
    folders = [os.path.join(parent, entry.name) for entry in siblings if entry.is_dir()]
    return f'there is no folder {format_value(folder)}{did_you_mean(folder, folders)}'


def check_agent_source(agent_id: str, given: GivenOptions) -> None:
    """Refuse a line that does not say where the trained agent is, or says it twice."""
    if {'weights', 'run_dir'} <= given.keys():
        raise OptionError('run_dir', f'got {given["run_dir"]} with --weights, expected one of the two')
    if 'run_dir' in given:
        with as_input_errors():
            check_single_run('run_dir', given['run_dir'])
            return check_checkpoint(given['run_dir'], given.get('checkpoint', 'best'))
    if 'weights' not in given:
        raise OptionError('weights', NO_AGENT)
    if 'checkpoint' in given:
        raise OptionError('checkpoint', f'got {given["checkpoint"]} without --run-dir, whose checkpoints it is about')


def check_policy_source(agent_id: str, given: GivenOptions) -> None:
    """Refuse what `check_agent_source` does, where no policy that ships is to act; and one that does not ship."""
    if 'pretrained' not in given:
        if not {'weights', 'run_dir'} & given.keys():
            raise OptionError('weights', f"{NO_AGENT}, or --pretrained an environment's id")
        return check_agent_source(agent_id, given)
    for name in ('weights', 'run_dir', 'checkpoint', 'action_idx'):
        if name in given:
            value = given[name]
            typed = format_value(' '.join(map(str, value)) if isinstance(value, list) else str(value))
            raise OptionError(name, f'got {typed} with --pretrained, expected one of the two')
    find_pretrained(agent_id, given['pretrained'])


def check_evaluate(agent_id: str, given: GivenOptions) -> None:
    """Refuse what `check_policy_source` does, where no run is followed; and what does not go with that."""
    if 'follow' not in given:
        if 'out' in given:
            raise OptionError('out', f'got {given["out"]} without --follow, whose table it is')
        return check_policy_source(agent_id, given)
    for name in ('weights', 'run_dir', 'pretrained', 'checkpoint', 'action_idx'):
        if name in given:
            raise OptionError(name, 'cannot be used with --follow, which evaluates each checkpoint of a run')
    with as_input_errors():
        check_single_run('follow', given['follow'])
        check_parent('out', given.get('out', 'evaluations.parquet'))


def check_record(agent_id: str, given: GivenOptions) -> None:
    """Refuse a recording without an agent, or without a new name."""
    check_policy_source(agent_id, given)
    if 'dataset' not in given:
        raise OptionError('dataset', f'got nothing, expected {NAME_HINT}')
    check_new('dataset', given['dataset'])


def check_datasets(wanted: list[str], given: GivenOptions) -> None:
    """Refuse names that are none, and a download of nothing."""
    for name in wanted:
        check_name('name', name)
    if given.get('download') and not wanted:
        raise OptionError('download', 'got no name, expected those of data sets behind the command')


def check_export(agent_id: str, given: GivenOptions) -> None:
    """Refuse an export without an agent, or without a place."""
    check_agent_source(agent_id, given)
    if 'out' not in given:
        raise OptionError('out', 'got nothing, expected a folder for the policy')


def check_tune(agent_id: str, given: GivenOptions) -> None:
    """Refuse a search without an environment."""
    if not ({'env', 'dataset', 'print_search'} & given.keys()):
        raise OptionError('env', NO_ENVIRONMENT)


def check_plot(paths: list[str], given: GivenOptions) -> None:
    """Refuse a picture of nothing, or labels that are not as many as curves."""
    folders = given.get('run_dir', [])
    if not (paths or folders):
        raise InputError('got no history, expected .parquet files that --history-checkpoint wrote, or --run-dir')
    count = len(paths) + len(folders)
    if 'labels' in given and len(given['labels']) != count:
        raise OptionError('labels', f'got {len(given["labels"])}, expected as many as there are histories: {count}')


def check_runs_command(folders: list[str], given: GivenOptions) -> None:
    """Refuse a list of nothing."""
    if not folders:
        raise InputError('got no folder, expected those of runs, of groups of them, or above them')


def check_presets(names: list[str], given: GivenOptions) -> None:
    """Refuse what is no agent, or more than one."""
    _check_one(names, 'one agent or none')
    for name in names:
        find_agent(name)


def check_completion(names: list[str], given: GivenOptions) -> None:
    """Refuse what is no shell, or not one."""
    _check_one(names, 'one of them')
    if not set(names) & set(SHELLS):
        got, hint = (format_value(names[0]), did_you_mean(names[0], SHELLS)) if names else ('nothing', '')
        raise OptionError('shell', f'got {got}, expected one of {", ".join(SHELLS)}{hint}')


def _check_one(names: list[str], admitted: str) -> None:
    if len(names) > 1:
        raise InputError(f'{format_value(names[1])}: stands behind {format_value(names[0])}, expected {admitted}')


def check_explore(paths: list[str], given: GivenOptions) -> None:
    """Refuse a line without the one address of a learner, or without its key."""
    if len(paths) != 1:
        got = ' and '.join(map(format_value, paths)) or 'no address'
        raise InputError(f'got {got}, expected one HOST:PORT, where a training with --cluster listens')
    parse_address('address', paths[0])
    if 'cluster_key' not in given:
        raise OptionError('cluster_key', 'is required: the file that the training has made, copied to this machine')
    read_key(given['cluster_key'])
