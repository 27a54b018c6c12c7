"""The commands that print or plot: runs, curves, comparisons, data sets, presets, the completion script of a shell.

Each function imports what it needs, so that a command runs in an environment with only the packages that it uses.
"""

from __future__ import annotations

import os

from xagents.cli.default_directory import PARENT
from xagents.options.errors import GivenOptions, OptionError, as_input_errors


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


def datasets(wanted: list[str], given: GivenOptions, line: str) -> str:
    """Return the page of data sets."""
    from xagents.cli.datasets_page import datasets_page

    return datasets_page(wanted, given.get('json', False), given.get('download', False))


def presets(names: list[str], given: GivenOptions, line: str) -> str:
    """Return the page of presets."""
    from xagents.cli.presets_page import presets_page

    return presets_page(names[0] if names else None)


def completion(names: list[str], given: GivenOptions, line: str) -> str:
    """Return the completion script of a shell."""
    from xagents.cli.commands import commands
    from xagents.cli.completion import completion_script

    return completion_script(names[0], commands)
