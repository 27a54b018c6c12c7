"""What each command runs but `train`: from what was typed to the functions behind it."""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Mapping

from xagents.config.configuration import read_config_file, settings_file
from xagents.options.commands import EvaluateOptions, ExportOptions, PlayOptions
from xagents.options.declaration import describe
from xagents.options.errors import Given, InputError, wrong_input
from xagents.options.runs import RunOptions

__all__ = ['evaluate', 'evaluation_line', 'export', 'json_line', 'list_runs', 'made', 'play', 'plot']


def made(agent_id: str, given: Given, *own: type) -> contextlib.closing:
    """Return an agent that is closed at the end.

    Args:
        agent_id: as `xagents.agents` names it.
        given: options by name; with `run_dir` and without `own`'s other options, where that is the agent's.
        own: groups of options that belong to the command and not to the agent.
    """
    command_only = {name for group in own for name in describe(group)} - {'weights'}
    options = {name: value for name, value in given.items() if name not in command_only}
    threads = options.pop('threads', None)
    options.pop('debug', None)
    with wrong_input():
        if own and 'run_dir' in given:
            read_config_file(settings_file(given['run_dir']), agent_id)  # it must be of this agent
        if threads is not None:
            from xagents.system.threads import set_threads

            set_threads(threads)
        if own and 'run_dir' in given:
            from xagents.factory.load import load

            agent = load(given['run_dir'], given.get('checkpoint', 'best'), **options)
        else:
            from xagents.factory.make import make

            agent = make(agent_id, options.pop('env', None), **options)
    return contextlib.closing(agent)


def _only(given: Given, group: type) -> Given:
    """Return the options of a group, but for those that say where the agent is."""
    place = ('weights', 'run_dir', 'checkpoint')
    return {name: value for name, value in given.items() if name in describe(group) and name not in place}


def play(agent_id: str, given: Given, line: str) -> None:
    """Play an episode."""
    with made(agent_id, given, PlayOptions, RunOptions) as agent:
        agent.play(**_only(given, PlayOptions))


def evaluate(agent_id: str, given: Given, line: str) -> None:
    """Play episodes, and print what they were worth."""
    arguments = {'episodes': describe(EvaluateOptions)['episodes'].default, **_only(given, EvaluateOptions)}
    as_json = arguments.pop('json', False)
    with made(agent_id, given, EvaluateOptions, RunOptions) as agent:
        result = agent.evaluate(**arguments)
    if as_json:
        print(json_line(result))
    else:
        print(evaluation_line(result, arguments['episodes'], given.get('display_precision', 2)))


def json_line(result: Mapping[str, float]) -> str:
    """Return the result of an evaluation as one JSON object on one line; what is not finite becomes null."""
    numbers = {name: float(value) for name, value in result.items()}
    return json.dumps({name: number if math.isfinite(number) else None for name, number in numbers.items()})


def evaluation_line(result: Mapping[str, float], episodes: int, precision: int = 2) -> str:
    """Return the result of an evaluation for people."""
    n = {name: f'{value:.{precision}f}' for name, value in result.items()}
    plural = 's' if episodes != 1 else ''
    return (
        f'Reward {n["mean"]} ± {n["std"]}, min {n["min"]}, max {n["max"]}, '
        f'length {n["length"]}, {episodes} episode{plural}'
    )


def export(agent_id: str, given: Given, line: str) -> None:
    """Write the policy; it says itself what it wrote."""
    arguments = {'format': describe(ExportOptions)['format'].default, **_only(given, ExportOptions)}
    with wrong_input():
        from xagents.export import write as exporting
        from xagents.export.formats import find_format

        find_format(arguments['format'])
        exporting.check_out(arguments['out'])
    with made(agent_id, given, ExportOptions) as agent, wrong_input():
        exporting.export(agent, **arguments)


def tune(agent_id: str, given: Given, line: str) -> str | None:
    """Search settings, or return the page that says what would be searched."""
    from xagents.tuning.plan import plan, search_page

    given = {name: value for name, value in given.items() if name != 'debug'}
    with wrong_input():
        if given.pop('print_search', False):
            return search_page(agent_id, given)
        planned = plan(agent_id, given)
    from xagents.tuning.tune import SettingsError, run

    try:
        run(planned, line)
    except SettingsError as error:
        raise InputError(str(error)) from error
    return None


def plot(paths: list[str], given: Given, line: str) -> None:
    """Draw histories."""
    names = {'column': 'plot', 'title': 'env', 'run_dir': 'run_dirs'}
    arguments = {names.get(name, name): value for name, value in given.items() if name != 'debug'}
    with wrong_input():
        from xagents.reports.plotting import save_plot

        print(f'Plot saved to {save_plot(paths, **arguments)}')


def list_runs(folders: list[str], given: Given, line: str) -> str:
    """Return the page that says how runs stand."""
    with wrong_input():
        from xagents.reports.runs_page import runs_page

        return runs_page(folders, given.get('json', False))


def presets(names: list[str], given: Given, line: str) -> str:
    """Return the page of tuned settings."""
    from xagents.cli.presets_page import presets_page

    return presets_page(names[0] if names else None)
