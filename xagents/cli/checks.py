"""Checks of each command before it starts. This module loads neither TensorFlow nor environments.

The checks raise OptionError or InputError.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from xagents.checkpoints.status import check_checkpoint, is_group, is_run
from xagents.cli.default_directory import PARENT
from xagents.datasets.dataset_names import NAME_HINT, check_name, check_new
from xagents.explorers.addresses import parse_address
from xagents.explorers.keys import read_key
from xagents.factory.pretrained import find_pretrained
from xagents.options.commands import CompareOptions, DoctorOptions, ReportOptions
from xagents.options.declaration import declared_options
from xagents.options.environment import EnvironmentOptions, no_environment
from xagents.options.errors import (
    GivenOptions,
    InputError,
    OptionError,
    as_input_errors,
    did_you_mean,
    format_value,
    requires,
)
from xagents.options.runs import NO_DATASET, PRESET_OPTIONS
from xagents.registry.agents import find_agent
from xagents.system.file_names import CONFIG_MISSING, GROUP, LOCK, has_checkpoints
from xagents.system.paths import check_parent

NO_AGENT = 'got nothing, expected the paths of --checkpoints of a training run, or --run-dir'
SHELLS = ('bash', 'zsh', 'fish')
# options for a new run, which cannot be used with --resume
NEW_RUN_OPTIONS = ('run_dir', 'config', 'weights', *PRESET_OPTIONS, 'from_study', 'storage', 'seeds', 'print_config')
# options that complete a command line; `--print-config` does not need a complete one
COMPLETING_OPTIONS = ('config', 'tuned', 'from_study', 'storage', 'print_config')


def check_train(agent_id: str, given: GivenOptions) -> None:
    """Refuse options that conflict with `--resume`, and a command line that is not complete."""
    if 'resume' not in given:
        if not any(given.get(name) for name in COMPLETING_OPTIONS):
            check_source(agent_id, given)
        return
    for name in NEW_RUN_OPTIONS:
        if value := given.get(name):
            got = 'cannot be used' if value is True else f'got {_typed(value)}'
            raise OptionError(name, f'{got} with --resume, which uses the settings of its run directory')


def _typed(value: Any) -> str:
    """Return a value as users type it, for messages."""
    return format_value(' '.join(map(str, value)) if isinstance(value, list) else str(value))


def check_source(agent_id: str, options: Mapping[str, Any]) -> None:
    """Refuse the options of a run without an environment or data set."""
    if find_agent(agent_id).options.datasets == 'only' and 'dataset' not in options:
        raise OptionError('dataset', NO_DATASET.format(agent_id))
    if not {'env', 'weights', 'dataset'} & options.keys():
        raise no_environment()


def check_end(options: Mapping[str, Any]) -> None:
    """Refuse the options of a run without an end."""
    if not {'target_reward', 'max_steps', 'max_time'} & options.keys():
        raise InputError('got none of --target-reward, --max-steps and --max-time, expected one or more of them')


def check_single_run(name: str, folder: str) -> None:
    """Refuse a directory without a run. `name` is the option of the directory."""
    if is_group(folder):
        held = sorted(entry.name for entry in os.scandir(folder) if is_run(entry.path))
        example = f', such as {os.path.join(folder, held[0])}' if held else ''
        raise OptionError(name, f'{folder} is a group of runs ({GROUP}), expected one of them{example}')
    check_run(name, folder)


def check_run(name: str, folder: str) -> None:
    """Refuse a directory with neither a run nor a group of runs. `name` is the option of the directory."""
    if not (is_run(folder) or is_group(folder)):
        raise OptionError(name, _why_no_run(folder))


def _why_no_run(folder: str) -> str:
    shown = format_value(folder)
    if has_checkpoints(folder):
        return f'{shown} {CONFIG_MISSING}'
    if os.path.exists(os.path.join(folder, LOCK)):
        return f'{shown} contains no run yet: it was killed before it began; repeat the first command'
    if inside := sorted(one.path for one in os.scandir(folder) if is_run(one.path)) if os.path.isdir(folder) else []:
        return f'{shown} contains several runs, expected one of them, such as {inside[-1]}'
    if os.path.exists(folder):
        what = 'contains no run' if os.path.isdir(folder) else 'is a file'
        return f'{shown} {what}, expected the --run-dir of a training run'
    parent = os.path.dirname(os.path.normpath(folder))
    siblings = os.scandir(parent or '.') if os.path.isdir(parent or '.') else ()
    folders = [os.path.join(parent, entry.name) for entry in siblings if entry.is_dir()]
    return f'there is no directory {shown}{did_you_mean(folder, folders)}'


def check_agent_source(agent_id: str, given: GivenOptions) -> None:
    """Refuse a command line that does not locate the trained agent, or locates it twice."""
    if {'weights', 'run_dir'} <= given.keys():
        raise OptionError('run_dir', f'got {given["run_dir"]} with --weights, expected one of the two')
    if 'run_dir' in given:
        with as_input_errors():
            check_single_run('run_dir', given['run_dir'])
            return check_checkpoint(given['run_dir'], given.get('checkpoint', 'best'))
    if 'weights' not in given:
        raise OptionError('weights', NO_AGENT)
    if 'checkpoint' in given:
        raise requires('checkpoint', given['checkpoint'], '--run-dir')


def check_policy_source(agent_id: str, given: GivenOptions) -> None:
    """Refuse an unknown `--pretrained` policy. Without `--pretrained`, refuse what `check_agent_source` refuses."""
    if 'pretrained' not in given:
        if not {'weights', 'run_dir'} & given.keys():
            raise OptionError('weights', f"{NO_AGENT}, or --pretrained an environment's id")
        return check_agent_source(agent_id, given)
    for name in ('weights', 'run_dir', 'checkpoint', 'action_idx'):
        if name in given:
            raise OptionError(name, f'got {_typed(given[name])} with --pretrained, expected one of the two')
    find_pretrained(agent_id, given['pretrained'])


def check_evaluate(agent_id: str, given: GivenOptions) -> None:
    """Refuse options that conflict with `--follow`. Without it, refuse what `check_policy_source` refuses."""
    if 'follow' not in given:
        if 'out' in given:
            raise requires('out', given['out'], '--follow')
        return check_policy_source(agent_id, given)
    for name in ('weights', 'run_dir', 'pretrained', 'checkpoint', 'action_idx'):
        if name in given:
            raise OptionError(name, 'cannot be used with --follow, which evaluates each checkpoint of a run')
    with as_input_errors():
        check_single_run('follow', given['follow'])
        check_parent('out', given.get('out', 'evaluations.parquet'))


def check_record(agent_id: str, given: GivenOptions) -> None:
    """Refuse a recording without an agent, or without a new name for the data set."""
    check_policy_source(agent_id, given)
    if 'dataset' not in given:
        raise OptionError('dataset', f'got nothing, expected {NAME_HINT}')
    check_new('dataset', given['dataset'])


def check_datasets(wanted: list[str], given: GivenOptions) -> None:
    """Refuse invalid names, and a download without names."""
    for name in wanted:
        check_name('name', name)
    if given.get('download') and not wanted:
        raise OptionError('download', 'got no name, expected names of data sets after the command')


def check_export(agent_id: str, given: GivenOptions) -> None:
    """Refuse an export without an agent or an output directory."""
    check_agent_source(agent_id, given)
    if 'out' not in given:
        raise OptionError('out', 'got nothing, expected a directory for the policy')


def check_tune(agent_id: str, given: GivenOptions) -> None:
    """Refuse a search without an environment or a data set."""
    if not ({'env', 'dataset', 'print_search'} & given.keys()):
        raise no_environment()


def check_plot(paths: list[str], given: GivenOptions) -> None:
    """Refuse a plot without histories, or with another number of labels than curves."""
    folders = given.get('run_dir', [])
    if not (paths or folders):
        raise InputError('got no history, expected .parquet files that --history-checkpoint wrote, or --run-dir')
    count = len(paths) + len(folders)
    if 'labels' in given and len(given['labels']) != count:
        raise OptionError('labels', f'got {len(given["labels"])}, expected {count}, one for each history')


def check_report(folders: list[str], given: GivenOptions) -> None:
    """Refuse a report on nothing, and a page that cannot be written."""
    if not folders and 'storage' not in given:
        expected = 'expected directories of runs, of groups of runs, of populations or of xagents tune --out'
        raise InputError(f'got no directory, {expected}, or --storage')
    if 'study' in given and 'storage' not in given:
        raise requires('study', given['study'], '--storage')
    out = given.get('out', declared_options(ReportOptions)['out'].default)
    if os.path.splitext(out)[1].lower() != '.html':
        raise OptionError('out', f'got {format_value(out)}, expected a path that ends in .html')
    check_parent('out', out)


def check_runs_command(folders: list[str], given: GivenOptions) -> None:
    """Refuse a list without directories, unless there are runs in the default directory."""
    if not folders and not os.path.isdir(PARENT):
        expected = 'expected directories of runs, of groups of runs, or above them'
        raise InputError(f'got no directory, and there is no {PARENT} here; {expected}')


def check_compare(folders: list[str], given: GivenOptions) -> None:
    """Refuse a comparison without groups, with another number of labels, or with a picture that cannot be written."""
    if not folders:
        raise InputError('got no group, expected directories of groups of runs')
    if 'labels' in given and len(given['labels']) != len(folders):
        raise OptionError('labels', f'got {len(given["labels"])}, expected {len(folders)}, one for each group')
    CompareOptions.resolve(given)


def check_doctor(words: list[str], given: GivenOptions) -> None:
    """Refuse a command line with neither an environment nor runs, or with both."""
    envs = [*words, *([given['env']] if 'env' in given else [])]
    if len(envs) > 1:
        raise InputError(f'got {format_value(envs[0])} and {format_value(envs[1])}, expected one environment')
    if not envs and 'run_dir' not in given:
        raise InputError('got nothing, expected an environment, such as CartPole-v1, or --run-dir and a run directory')
    if 'run_dir' not in given:
        if os.path.isdir(envs[0]):
            got = f'got {format_value(envs[0])}, a directory'
            raise OptionError('env', f'{got}, expected an environment, or --run-dir {format_value(envs[0])}')
        return
    if envs:
        raise OptionError('run_dir', f'got {given["run_dir"][0]} with {envs[0]}, expected one of the two')
    with as_input_errors():
        DoctorOptions.resolve({name: value for name, value in given.items() if name in declared_options(DoctorOptions)})
    if others := [name for name in given if name in declared_options(EnvironmentOptions)]:
        raise OptionError(others[0], 'cannot be used with --run-dir, whose environments have their own options')


def check_presets(names: list[str], given: GivenOptions) -> None:
    """Refuse an unknown agent, or more than one."""
    _check_one(names, 'one agent or none')
    for name in names:
        find_agent(name)


def check_completion(names: list[str], given: GivenOptions) -> None:
    """Refuse an unknown shell, or any number of shells but one."""
    _check_one(names, 'one of them')
    if not set(names) & set(SHELLS):
        got, hint = (format_value(names[0]), did_you_mean(names[0], SHELLS)) if names else ('nothing', '')
        raise OptionError('shell', f'got {got}, expected one of {", ".join(SHELLS)}{hint}')


def _check_one(names: list[str], admitted: str) -> None:
    if len(names) > 1:
        raise InputError(f'got {format_value(names[0])} and {format_value(names[1])}, expected {admitted}')


def check_explore(paths: list[str], given: GivenOptions) -> None:
    """Refuse a command line without exactly one address of a learner, or without its key."""
    if len(paths) != 1:
        got = ' and '.join(map(format_value, paths)) or 'no address'
        raise InputError(f'got {got}, expected one HOST:PORT, the address of a training run with --cluster')
    parse_address('address', paths[0])
    if 'cluster_key' not in given:
        raise OptionError('cluster_key', 'got nothing, expected a copy of the file that the training run has written')
    read_key(given['cluster_key'])
