"""`xagents train`: start or resume a run or a grid of runs."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any

from xagents.checkpoints.status import check_new_run_directory, is_group
from xagents.cli import grid
from xagents.cli.checks import check_end, check_run, check_source
from xagents.cli.default_directory import NOTHING, PARENT, SAVING_OPTIONS, needs_directory, new_directory
from xagents.cli.resolve import ResolvedOptions, resolve
from xagents.config.configuration import COMMAND_LINE_ONLY, default_line, read_config_file, settings_file, to_yaml
from xagents.factory.defaults import resolve_with_record as resolved_options
from xagents.factory.load import plan_resume
from xagents.factory.make import AgentPlan, plan_agent
from xagents.factory.presets import find_preset, find_score
from xagents.logs.console import format_number
from xagents.options.declaration import declared_options
from xagents.options.errors import GivenOptions, OptionError, as_input_errors, format_value
from xagents.options.runs import SessionOptions, TrainOptions
from xagents.processes.launch import check_launch
from xagents.registry.agents import find_agent
from xagents.runs import training
from xagents.runs.header import header_lines
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
        options = resolved.options
        is_new = needs_directory(options)
        if is_new:
            options['run_dir'] = PARENT  # options such as --keep require a directory, which is created after the checks
        elif options.get('run_dir') == NOTHING:
            del options['run_dir']
        plans = _plans(agent_id, resolved)
    with contextlib.ExitStack() as stack:
        with as_input_errors():
            if is_new:
                name = '-'.join(map(str, resolved.grid.get('env', [_env_of(plans[0])])))
                options['run_dir'] = stack.enter_context(new_directory(agent_id, name))
                plans = _plans(agent_id, resolved)
            folder = _folder(resolved)
        _start(agent_id, resolved, plans, folder, line)
    return None


def _start(agent_id: str, resolved: ResolvedOptions, plans: list[AgentPlan], folder: str | None, line: str) -> None:
    """Start a run or the runs of a grid."""
    options = resolved.options
    jobs = _jobs(options, bool(resolved.grid))
    if resolved.grid and options.get('record_dataset') is not None:
        name = options['record_dataset']
        raise OptionError('record_dataset', f'got {name} for several runs, expected one run')
    if not options.get('quiet'):
        for message in resolved.messages:
            print(message, flush=True)
    if resolved.grid:
        assert folder is not None
        check_launch(grid.cluster_of(options))
        if not options.get('quiet') and options.get('log_format') != 'json':
            print(f'Run directories: {folder}/…', flush=True)
        return grid.start_group(grid.RunGroup(folder, agent_id, options, resolved.grid), jobs, line)
    _run(plans[0], options.get('threads'), line, preset_hint(agent_id, resolved))


def preset_hint(agent_id: str, resolved: ResolvedOptions) -> list[str]:
    """Return a line that names `--tuned` if a preset exists and the user has set none of its options."""
    options, env = resolved.options, resolved.options.get('env')
    if resolved.messages or env is None or 'weights' in options:
        return []
    try:
        preset = find_preset(agent_id, env, options)
    except OptionError:
        return []
    if (preset.options.keys() - {'n_envs'}) & {*options, *resolved.grid}:
        return []
    found = f'uses settings for {env}'
    for one in filter(None, (preset.after_early_steps(), preset)):
        if score := find_score(one):
            found = f'reached {format_number(score.median, 2)} on {env} in {one.max_steps} steps'
    return [f'Default settings; --tuned {found}']


def _plans(agent_id: str, resolved: ResolvedOptions) -> list[AgentPlan]:
    """Return the plan of each run. Raise OptionError or InputError for incomplete or conflicting options."""
    return [_plan(agent_id, point) for point in _points(agent_id, resolved)]


def _env_of(plan: AgentPlan) -> str:
    """Return the id of a plan's environment, or the name of its data set."""
    return plan.settings.environment.env or plan.settings.run.dataset or ''


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
    check_source(agent_id, options)
    plan = plan_agent(agent_id, _of_run(options), options.get('weights'))
    check_end(options)  # last, because a typing error in another option is the more likely surprise
    return plan


def _folder(resolved: ResolvedOptions) -> str | None:
    """Return the directory of the run or the group, or None. Raise OptionError if it is in use."""
    folder = resolved.options.get('run_dir')
    if resolved.grid and folder is None:
        varies = ' and '.join('--' + name.replace('_', '-') for name in resolved.grid)
        given = next((f'--{name.replace("_", "-")}' for name in SAVING_OPTIONS if resolved.options.get(name)), NOTHING)
        raise OptionError('run_dir', f'got {given}, expected a directory for the runs of a grid over {varies}')
    if folder is not None:
        check_new_run_directory(folder)
    return folder


def _jobs(options: Mapping[str, Any], several: bool) -> int:
    jobs = options.get('grid_jobs', 1)
    if jobs > 1 and not several:
        expected = 'expected several runs, by --seeds or lists in --config'
        raise OptionError('grid_jobs', f'got {jobs} for one run, {expected}')
    return jobs


def _run(plan: AgentPlan, threads: int | None, line: str, notes: Sequence[str] = ()) -> None:
    """Print the header of a run, make its agent, train it and close it."""
    with as_input_errors():
        if threads is not None:
            set_threads(threads)
        settings, run = plan.settings, plan.settings.run
        if not run.quiet and run.log_format == 'text':
            seed, n_envs = settings.agent.drawn_seed, settings.environment.n_envs
            print(*header_lines(plan.entry.id, _env_of(plan), n_envs, seed, run), *notes, sep='\n', flush=True)
        agent = plan.build()
    with contextlib.closing(agent):
        with as_input_errors():
            begun = agent.begin(command=line)
        training.fit(begun, agent.recipe())


def _resume(agent_id: str, given: GivenOptions, line: str) -> None:
    """Resume a run or a group of runs."""
    folder = given['resume']
    options = {name: value for name, value in given.items() if name not in ('resume', *COMMAND_OPTIONS)}
    with as_input_errors():
        check_run('resume', folder)
        saved = read_config_file(settings_file(folder), agent_id)  # refuses a run of another agent
        env = saved.options.get('env')
        renamed = given.get('env') != env and not str(given.get('env')).endswith(f':{env}')
        if 'env' in given and renamed and 'env' not in saved.grid:
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
        plan = plan_resume(folder, **options)
    _run(plan, given.get('threads', saved.options.get('threads')), line)


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
