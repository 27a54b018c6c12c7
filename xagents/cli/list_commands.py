"""The commands that print or plot: runs, curves, comparisons, checks, data sets, presets, completion.

Each function imports what it needs, so that a command runs in an environment with only the packages that it uses.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from xagents.cli.default_directory import PARENT
from xagents.options.declaration import declared_options
from xagents.options.environment import EnvironmentOptions
from xagents.options.errors import GivenOptions, OptionError, as_input_errors, one_line

if TYPE_CHECKING:
    from xagents.doctor.run_data import RunData


def plot(paths: list[str], given: GivenOptions, line: str) -> None:
    """Plot histories, or the lineage of a population."""
    from xagents.reports.plotting import save_plot
    from xagents.reports.population_files import is_population

    folders = [path for path in paths if os.path.isdir(path)]
    if folders:
        paths = [path for path in paths if path not in folders]
        given = {**given, 'run_dir': [*folders, *given.get('run_dir', ())]}
    if any(map(is_population, given.get('run_dir', ()))):
        return _plot_population(paths, given)
    names = {'column': 'plot', 'title': 'env', 'run_dir': 'run_dirs'}
    arguments = {names.get(name, name): value for name, value in given.items() if name != 'debug'}
    with as_input_errors():
        print(f'Plot saved to {save_plot(paths, **arguments)}')


def _plot_population(paths: list[str], given: GivenOptions) -> None:
    from xagents.reports.lineage import save_lineage

    with as_input_errors():
        if len(paths) + len(given['run_dir']) > 1:
            raise OptionError('run_dir', 'got a population and other histories, expected only its directory')
        for name in given.keys() - {'run_dir', 'out', 'title', 'debug'}:
            raise OptionError(name, 'cannot be used with a population, expected histories')
        out = save_lineage(given['run_dir'][0], given.get('out', 'plot.png'), given.get('title'))
        print(f'Plot saved to {out}')


def compare(folders: list[str], given: GivenOptions, line: str) -> str:
    """Compare groups of runs; write the picture and return the page or the JSON."""
    from xagents.reports.comparison import RESAMPLES, compare_selection, select_runs
    from xagents.reports.comparison_page import comparison_json, comparison_page
    from xagents.reports.comparison_picture import save_comparison
    from xagents.reports.plotting import check_picture

    out = given.get('out')
    with as_input_errors():
        if out is not None:
            check_picture(out)
        own = {name: value for name, value in given.items() if name not in ('resamples', 'json', 'out', 'debug')}
        selection = select_runs(folders, **own)
    comparison = compare_selection(selection, given.get('resamples', RESAMPLES))
    if out is not None:
        save_comparison(comparison, out)
    if given.get('json'):
        return comparison_json(comparison)
    page = comparison_page(comparison)
    return page if out is None else f'{page}\n\nPicture saved to {out}'


def list_runs(folders: list[str], given: GivenOptions, line: str) -> str:
    """Return the page with the status of runs, by default of those in `runs`."""
    from xagents.reports.runs_page import runs_page

    with as_input_errors():
        return runs_page(folders or [PARENT], given.get('json', False))


def doctor(words: list[str], given: GivenOptions, line: str) -> str:
    """Return the page of an environment, or of runs."""
    as_json = given.get('json', False)
    if 'run_dir' in given:
        return _doctor_runs(given['run_dir'], as_json)
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


def _doctor_runs(folders: list[str], as_json: bool) -> str:
    """Return the pages of all runs in some folders."""
    from xagents.doctor.page import runs_pages
    from xagents.doctor.run_data import read_run_data
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


def datasets(wanted: list[str], given: GivenOptions, line: str) -> str:
    """Return the page of data sets."""
    from xagents.cli.datasets_page import datasets_page

    return datasets_page(wanted, given.get('json', False), given.get('download', False))


def presets(names: list[str], given: GivenOptions, line: str) -> str:
    """Return the page of presets."""
    from xagents.cli.presets_page import presets_page

    return presets_page(names[0] if names else None, as_json=given.get('json', False))


def completion(names: list[str], given: GivenOptions, line: str) -> str:
    """Return the completion script of a shell."""
    from xagents.cli.commands import commands
    from xagents.cli.completion import completion_script

    return completion_script(names[0], commands)
