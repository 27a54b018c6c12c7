"""`xagents train`: start or resume a run or a grid of runs."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

from xagents.checkpoints.status import check_new_run_directory, is_group
from xagents.cli import grid
from xagents.cli.checks import check_complete, check_run
from xagents.cli.resolve import ResolvedOptions, resolve
from xagents.config.configuration import COMMAND_LINE_ONLY, default_line, read_config_file, settings_file, to_yaml
from xagents.factory.defaults import resolve_with_record as resolved_options
from xagents.factory.load import resume
from xagents.factory.make import AgentPlan, plan_agent
from xagents.options.declaration import declared_options
from xagents.options.errors import GivenOptions, OptionError, as_input_errors, format_value
from xagents.options.runs import SessionOptions, TrainOptions
from xagents.registry.agents import find_agent
from xagents.runs import training
from xagents.system.threads import set_threads

# options of the command or its process, not of its runs
COMMAND_OPTIONS = ('print_config', 'grid_jobs', *declared_options(SessionOptions))


def train(agent_id: str, given: GivenOptions, line: str) -> str | None:
    """Train, or return the command line as a file for `--config`."""
    if 'resume' in given:
        _resume(agent_id, given, line)
        return None
    with as_input_errors():
        resolved = resolve(agent_id, {name: value for name, value in given.items() if name != 'print_config'})
        if given.get('print_config'):
            for options in _points(agent_id, resolved):
                resolved_options(find_agent(agent_id), _of_run(options))
            return config_page(agent_id, resolved)
        plans = [_plan(agent_id, options) for options in _points(agent_id, resolved)]
        folder = _folder(resolved)
    jobs = _jobs(resolved.options, bool(resolved.grid))
    if resolved.grid and resolved.options.get('record_dataset') is not None:
        name = resolved.options['record_dataset']
        raise OptionError('record_dataset', f'got {name} for several runs, expected one run')
    if not resolved.options.get('quiet'):
        for message in resolved.messages:
            print(message, flush=True)
    if resolved.grid:
        assert folder is not None
        grid.start_group(grid.RunGroup(folder, agent_id, resolved.options, resolved.grid), jobs, line)
        return None
    with as_input_errors():
        if resolved.options.get('threads') is not None:
            set_threads(resolved.options['threads'])
        agent = plans[0].build()
    _fit(agent, line)
    return None


def _points(agent_id: str, resolved: ResolvedOptions) -> list[dict[str, Any]]:
    """Return the options of every run of a grid, or of the only run."""
    if not resolved.grid:
        return [resolved.options]
    folder = resolved.options.get('run_dir')
    runs = grid.RunGroup('', agent_id, resolved.options, resolved.grid).runs().values()
    return [{**options, 'run_dir': folder} for options in runs]


def _of_run(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a run and its agent, without the initial weights."""
    others = {*declared_options(TrainOptions), *declared_options(SessionOptions)}
    return {name: value for name, value in options.items() if name not in others}


def _plan(agent_id: str, options: Mapping[str, Any]) -> AgentPlan:
    """Return the plan of a run's agent. Raise OptionError or InputError for incomplete or conflicting options."""
    check_complete(agent_id, options)
    return plan_agent(agent_id, _of_run(options), options.get('weights'))


def _folder(resolved: ResolvedOptions) -> str | None:
    """Return the directory of the run or the group, or None. Raise OptionError if it is in use."""
    folder = resolved.options.get('run_dir')
    if resolved.grid and folder is None:
        varies = ' and '.join('--' + name.replace('_', '-') for name in resolved.grid)
        raise OptionError('run_dir', f'got nothing, expected a directory for the runs of a grid over {varies}')
    if folder is not None:
        check_new_run_directory(folder)
    return folder


def _jobs(options: Mapping[str, Any], several: bool) -> int:
    jobs = options.get('grid_jobs', 1)
    if jobs > 1 and not several:
        expected = 'expected several runs, by --seeds or lists in --config'
        raise OptionError('grid_jobs', f'got {jobs} for one run, {expected}')
    return jobs


def _fit(agent: Any, line: str) -> None:
    """Train an agent and close it. An interrupted run prints the command that resumes it."""
    with contextlib.closing(agent):
        with as_input_errors():
            run = agent.begin(command=line)
        training.fit(run, agent.recipe())


def _resume(agent_id: str, given: GivenOptions, line: str) -> None:
    """Resume a run or a group of runs."""
    folder = given['resume']
    options = {name: value for name, value in given.items() if name not in ('resume', *COMMAND_OPTIONS)}
    with as_input_errors():
        check_run('resume', folder)
        saved = read_config_file(settings_file(folder), agent_id)  # refuses a run of another agent
        env = saved.options.get('env')
        if 'env' in given and given['env'] != env and 'env' not in saved.grid:
            raise OptionError('env', f'got {format_value(given["env"])}, but {folder} was trained on {env}')
        several = is_group(folder)
        jobs = _jobs(given, several)
    if several:
        options |= {name: given[name] for name in declared_options(SessionOptions) if name in given}
        with as_input_errors():
            group = grid.RunGroup.read(folder)
            for name in options.keys() & group.grid.keys():
                raise OptionError(name, f'got {format_value(options[name])}, but it varies among the runs of {folder}')
        return grid.resume_group(group, options, jobs)
    with as_input_errors():
        options.pop('env', None)
        if (threads := given.get('threads', saved.options.get('threads'))) is not None:
            set_threads(threads)
        agent = resume(folder, **options)
    _fit(agent, line)


def config_page(agent_id: str, resolved: ResolvedOptions) -> str:
    """Return options as a file for `--config`. Comments show the defaults of all other options."""
    entry = find_agent(agent_id)
    given = {**resolved.options, **resolved.grid}
    ordered = {name: given[name] for name in entry.options_in() if name in given and name not in COMMAND_LINE_ONLY}
    page = [to_yaml(agent_id, ordered)]
    groups = {'Environment': ['environment'], 'Run': ['run', 'train'], 'Network': ['network'], agent_id: ['agent']}
    for title, names in {**groups, 'Session': ['session']}.items():
        options = entry.options_in(*names)
        lines = [default_line(o) for name, o in options.items() if name not in (*ordered, *COMMAND_LINE_ONLY)]
        page += [f'\n# {title}\n', *lines] if lines else []
    return ''.join(page).rstrip('\n')
