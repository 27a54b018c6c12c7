"""`xagents train`: one run, a grid of them, or going on with what is there."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

from xagents.cli.actions import made
from xagents.cli.checks import check_run, check_together
from xagents.cli.settle import Settled, settle
from xagents.config.configuration import (
    ONLY_TYPED,
    default_line,
    known_options,
    read_config_file,
    settings_file,
    to_yaml,
)
from xagents.options.declaration import describe
from xagents.options.environment import EnvironmentOptions, NetworkOptions
from xagents.options.errors import Given, OptionError, shown, wrong_input
from xagents.options.runs import RunOptions, SessionOptions, TrainOptions
from xagents.registry.agents import find_agent
from xagents.runs.status import check_new

# about the command, not about a run of it
COMMAND = ('print_config', 'grid_jobs')


def train(agent_id: str, given: Given, line: str) -> str | None:
    """Train, or return the file for `--config` that the line stands for."""
    if 'resume' in given:
        _resume(agent_id, given, line)
        return None
    with wrong_input():
        settled = settle(agent_id, {name: value for name, value in given.items() if name != 'print_config'})
        if given.get('print_config'):
            _check_points(agent_id, settled, check_together)
            return config_page(agent_id, settled)
        _check_points(agent_id, settled, check_run)
        folder = settled.options.get('run_dir')
        if settled.grid and folder is None:
            varies = ' and '.join('--' + name.replace('_', '-') for name in settled.grid)
            raise OptionError(
                'run_dir', f'got nothing, admits a folder for the runs of a grid, which differ by {varies}'
            )
        if folder is not None:
            check_new(folder)
    jobs = _jobs(settled.options, bool(settled.grid))
    if not settled.options.get('quiet'):
        for said in settled.said:
            print(said, flush=True)
    if settled.grid:
        from xagents.cli import grid

        assert folder is not None
        grid.start(grid.Group(folder, agent_id, settled.options, settled.grid), jobs, line)
        return None
    with made(agent_id, {n: v for n, v in settled.options.items() if n not in COMMAND}) as agent:
        _fit(agent, line)
    return None


def _check_points(agent_id: str, settled: Settled, check: Any) -> None:
    """Check the options of every run of a grid; those of the only one where there is none."""
    from xagents.cli.grid import Group

    for options in Group('', agent_id, settled.options, settled.grid).runs().values() if settled.grid else ():
        check(agent_id, {**options, 'run_dir': settled.options.get('run_dir')})
    if not settled.grid:
        check(agent_id, settled.options)


def _jobs(options: Mapping[str, Any], several: bool) -> int:
    jobs = options.get('grid_jobs', 1)
    if jobs > 1 and not several:
        raise OptionError('grid_jobs', f'got {jobs}, but this is one run: --seeds or a list in --config make several')
    return jobs


def _fit(agent: Any, line: str) -> None:
    agent.command = line  # an interrupted run says how to go on
    with wrong_input():
        agent.prepare_run()
    agent.fit()


def _resume(agent_id: str, given: Given, line: str) -> None:
    """Go on with a run, or with a group of them."""
    folder = given['resume']
    options = {name: value for name, value in given.items() if name not in ('resume', *COMMAND)}
    with wrong_input():
        from xagents.factory import load as runs

        saved = read_config_file(settings_file(folder), agent_id)  # it must be of this agent
        env = saved.options.get('env')
        if 'env' in given and given['env'] != env and 'env' not in saved.grid:
            raise OptionError('env', f'got {shown(given["env"])}, but {folder} was trained on {env}')
        several = runs.is_group(folder)
        jobs = _jobs(given, several)
    if several:
        return _go_on(folder, options, jobs)
    with wrong_input():
        options.pop('env', None)
        options.pop('debug', None)
        threads = options.pop('threads', saved.options.get('threads'))
        if threads is not None:
            from xagents.system.threads import set_threads

            set_threads(threads)
        agent = runs.resume(folder, command=line, **options)
    with contextlib.closing(agent):
        _fit(agent, line)
    return None


def _go_on(folder: str, options: Given, jobs: int) -> None:
    """Go on with a group of runs."""
    from xagents.cli import grid

    with wrong_input():
        group = grid.Group.read(folder)
        for name in options.keys() & group.grid.keys():
            raise OptionError(name, f'got {shown(options[name])}, but the runs of {folder} differ by it')
    grid.go_on(group, options, jobs)


def config_page(agent_id: str, settled: Settled) -> str:
    """Return the file for `--config` that options stand for; what was not given stands at its default in a comment."""
    known = known_options(agent_id)
    given = {**settled.options, **settled.grid}
    ordered = {name: given[name] for name in known if name in given and name not in ONLY_TYPED}
    page = [to_yaml(agent_id, ordered)]
    seen = {*ordered, *ONLY_TYPED}
    sections = {
        'Environment': describe(EnvironmentOptions),
        'Run': {**describe(RunOptions), **describe(TrainOptions)},
        'Network': describe(NetworkOptions),
        agent_id: describe(find_agent(agent_id).options),
        'Session': describe(SessionOptions),
    }
    for title, options in sections.items():
        lines = [default_line(option) for name, option in options.items() if name not in seen]
        page += [f'\n# {title}\n', *lines] if lines else []
    return ''.join(page).rstrip('\n')
