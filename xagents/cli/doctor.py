"""The command `xagents doctor`."""

from __future__ import annotations

from pathlib import Path

from xagents.options.declaration import declared_options
from xagents.options.environment import EnvironmentOptions
from xagents.options.errors import GivenOptions, as_input_errors, one_line


def doctor(words: list[str], given: GivenOptions, line: str) -> str:
    """Return the page of an environment, or of runs."""
    as_json = given.get('json', False)
    if 'run_dir' in given:
        return _runs(given['run_dir'], as_json)
    from xagents.doctor.environment import check_environment
    from xagents.doctor.page import environment_page
    from xagents.envs.env_factory import EnvFactory

    options = {name: value for name, value in given.items() if name in declared_options(EnvironmentOptions)}
    env = str([*words, options.get('env')][0])
    options['env'] = env
    names = {'episodes': 'episodes', 'max_time': 'seconds', 'seed': 'seed'}
    others = {argument: given[name] for name, argument in names.items() if name in given}
    with as_input_errors():
        factory = EnvFactory(**EnvironmentOptions(**options).asdict())
        return environment_page(env, check_environment(factory, options=options, **others), as_json)


def _runs(folders: list[str], as_json: bool) -> str:
    """Return the pages of all runs in some folders."""
    from xagents.doctor.page import runs_pages
    from xagents.doctor.run import RunData, read_run_data
    from xagents.reports.search import find_runs

    with as_input_errors():
        found = [run for group in find_runs(folders) for run in group.runs]
    read: list[tuple[Path, RunData | str]] = []
    for run in found:
        try:
            read.append((run, read_run_data(run)))
        except ValueError as error:
            read.append((run, one_line(error)))
    return runs_pages(read, as_json)
