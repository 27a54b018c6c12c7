"""The commands that show something: runs, their curves, tuned settings, the script for a shell."""

from __future__ import annotations

from xagents.cli.commands import commands
from xagents.cli.completion import completion_script
from xagents.cli.datasets_page import datasets_page
from xagents.cli.presets_page import presets_page
from xagents.options.errors import Given, wrong_input
from xagents.reports.runs_page import runs_page


def plot(paths: list[str], given: Given, line: str) -> None:
    """Draw histories."""
    from xagents.reports.plotting import save_plot  # loads matplotlib and pandas

    names = {'column': 'plot', 'title': 'env', 'run_dir': 'run_dirs'}
    arguments = {names.get(name, name): value for name, value in given.items() if name != 'debug'}
    with wrong_input():
        print(f'Plot saved to {save_plot(paths, **arguments)}')


def list_runs(folders: list[str], given: Given, line: str) -> str:
    """Return the page that says how runs stand."""
    with wrong_input():
        return runs_page(folders, given.get('json', False))


def datasets(wanted: list[str], given: Given, line: str) -> str:
    """Return the page of data sets."""
    return datasets_page(wanted, given.get('json', False), given.get('download', False))


def presets(names: list[str], given: Given, line: str) -> str:
    """Return the page of tuned settings."""
    return presets_page(names[0] if names else None)


def completion(names: list[str], given: Given, line: str) -> str:
    """Return the script that a shell reads."""
    return completion_script(names[0], commands)
