"""The commands: which options each takes, what it requires, and what it runs.

A command is one entry of `commands`; parsing, help and errors derive from it. Nothing heavy is loaded before a command
runs.
"""

from __future__ import annotations

from xagents.cli import actions as runs
from xagents.cli import checks as checks
from xagents.cli.command import Command as Command
from xagents.cli.train import train
from xagents.options.commands import (
    EvaluateOptions,
    ExportOptions,
    PlayOptions,
    PlotOptions,
    PresetsOptions,
    RunsOptions,
    TuneOptions,
)
from xagents.options.environment import EnvironmentOptions, NetworkOptions
from xagents.options.errors import Given, OptionError, nearest, shown
from xagents.options.runs import RecordOptions, RunOptions, TrainOptions


def completion(names: list[str], given: Given, line: str) -> str:
    """Return the script that a shell reads."""
    from xagents.cli.completion import completion_script

    return completion_script(names[0], commands)


commands: dict[str, Command] = {
    command.name: command
    for command in (
        Command(
            'train',
            'Train given an agent and environment',
            ('<agent> --env ID --target-reward REWARD [options]', '--config FILE [options]', '--resume DIR [options]'),
            (
                ('Environment', EnvironmentOptions),
                ('Run', RunOptions),
                ('Run', TrainOptions),
                ('Network', NetworkOptions),
            ),
            train,
            checks.check_train,
            named_by=('resume', 'config'),
        ),
        Command(
            'play',
            'Play a game given a trained agent and environment',
            ('<agent> --env ID --weights PATH [options]', '--run-dir DIR [options]'),
            (('Play', PlayOptions), ('Environment', EnvironmentOptions), ('Network', NetworkOptions)),
            runs.play,
            checks.check_trained,
            named_by=('run_dir',),
            hidden=RecordOptions,
        ),
        Command(
            'tune',
            'Tune hyperparameters given an agent, hyperparameter specs, and environment',
            ('<agent> --env ID --n-trials N --lr 1e-5 1e-2 [options]',),
            (
                ('Tune', TuneOptions),
                ('Environment', EnvironmentOptions),
                ('Trial', RecordOptions),
                ('Network', NetworkOptions),
            ),
            runs.tune,
            checks.check_tune,
            searches=True,
        ),
        Command(
            'evaluate',
            'Evaluate a trained agent given its weights and environment',
            ('<agent> --env ID --weights PATH [options]', '--run-dir DIR [options]'),
            (('Evaluate', EvaluateOptions), ('Environment', EnvironmentOptions), ('Network', NetworkOptions)),
            runs.evaluate,
            checks.check_trained,
            named_by=('run_dir',),
            hidden=RecordOptions,
        ),
        Command(
            'export',
            'Export a trained agent as one file for other runtimes',
            ('<agent> --weights PATH --out DIR [options]', '--run-dir DIR --out DIR [options]'),
            (('Export', ExportOptions), ('Environment', EnvironmentOptions), ('Network', NetworkOptions)),
            runs.export,
            checks.check_export,
            named_by=('run_dir',),
        ),
        Command(
            'runs',
            'List runs and groups of them, and how they stand',
            ('DIR ... [options]',),
            (('Runs', RunsOptions),),
            runs.list_runs,
            checks.check_runs_command,
            takes_agent=False,
        ),
        Command(
            'plot',
            'Plot the histories of trainings',
            ('HISTORY.parquet ... [options]', '--run-dir DIR ... [options]'),
            (('Plot', PlotOptions),),
            runs.plot,
            checks.check_plot,
            takes_agent=False,
        ),
        Command(
            'presets',
            'List tuned settings, with the scores that they reach',
            ('[<agent>]',),
            (('Session', PresetsOptions),),
            runs.presets,
            checks.check_presets,
            takes_agent=False,
            bare=True,
        ),
        Command(
            'completion',
            'Print the script that completes lines in a shell',
            ('bash|zsh|fish',),
            (('Session', PresetsOptions),),
            completion,
            checks.check_completion,
            takes_agent=False,
        ),
    )
}


def find_command(name: str) -> Command:
    """Return a command.

    Raises:
        OptionError: where there is no such command; names the nearest one.
    """
    if name not in commands:
        raise OptionError('command', f'got {shown(name)}, admits one of {", ".join(commands)}{nearest(name, commands)}')
    return commands[name]
