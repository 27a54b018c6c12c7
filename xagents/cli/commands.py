"""The commands. Parsing, help and errors derive from the entries of `commands`."""

from __future__ import annotations

from xagents.cli import checks
from xagents.cli.command import Command as Command
from xagents.options import commands as options
from xagents.options.environment import EnvironmentOptions, NetworkOptions
from xagents.options.errors import OptionError, did_you_mean, format_value
from xagents.options.runs import DatasetOptions, ExplorerOptions, LoggingOptions, RunOptions, TrainOptions

# commands that people expect under other names
OTHER_NAMES = {'resume': 'train --resume', 'learn': 'train', 'eval': 'evaluate', 'test': 'evaluate', 'enjoy': 'play'}
ENVIRONMENT, NETWORK = ('Environment', EnvironmentOptions), ('Network', NetworkOptions)

_COMMANDS = (
    Command(
        'train',
        'Train given an agent and environment',
        (
            '<agent> --env ID --max-steps STEPS [options]',
            '<agent> --dataset NAME --max-steps STEPS [options]',
            '--config FILE [options]',
            '--resume DIR [options]',
        ),
        (ENVIRONMENT, ('Run', RunOptions), ('Run', TrainOptions), NETWORK),
        'train:train',
        checks.check_train,
        agent_sources=('resume', 'config'),
        trains=True,
    ),
    Command(
        'play',
        'Play a game given a trained agent and environment',
        ('<agent> --env ID --weights PATH [options]', '<agent> --pretrained ID [options]', '--run-dir DIR [options]'),
        (('Play', options.PlayOptions), ENVIRONMENT, NETWORK),
        'agent_commands:play',
        checks.check_policy_source,
        agent_sources=('run_dir',),
        hidden=LoggingOptions,
    ),
    Command(
        'tune',
        'Tune hyperparameters given an agent, hyperparameter specs, and environment',
        ('<agent> --env ID --n-trials N --lr 1e-5 1e-2 [options]',),
        (
            *(('Tune', options.TuneOptions), ENVIRONMENT, ('Trial', LoggingOptions), ('Trial', DatasetOptions)),
            *(('Trial', ExplorerOptions), NETWORK),
        ),
        'tune:tune',
        checks.check_tune,
        accepts_ranges=True,
        trains=True,
    ),
    Command(
        'evaluate',
        'Measure the mean return of a trained agent',
        (
            '<agent> --env ID --weights PATH [options]',
            '<agent> --pretrained ID [options]',
            '--run-dir DIR [options]',
            '--follow DIR [options]',
        ),
        (('Evaluate', options.EvaluateOptions), ENVIRONMENT, NETWORK),
        'agent_commands:evaluate',
        checks.check_evaluate,
        agent_sources=('run_dir', 'follow'),
        hidden=LoggingOptions,
    ),
    Command(
        'record',
        'Record a data set of a trained agent',
        ('<agent> --env ID --weights PATH --dataset NAME [options]', '--run-dir DIR --dataset NAME [options]'),
        (('Record', options.DatasetRecordingOptions), ENVIRONMENT, NETWORK),
        'agent_commands:record',
        checks.check_record,
        agent_sources=('run_dir',),
    ),
    Command(
        'datasets',
        'List data sets to learn from',
        ('[NAME ...] [options]',),
        (('Data sets', options.DatasetsOptions),),
        'list_commands:datasets',
        checks.check_datasets,
        takes_agent=False,
        runs_without_arguments=True,
    ),
    Command(
        'explore',
        'Run environments on this machine for a training run on another machine',
        ('HOST:PORT --explorers N --cluster-key FILE [options]',),
        (('Explore', options.ExploreOptions),),
        'explore:explore',
        checks.check_explore,
        takes_agent=False,
    ),
    Command(
        'export',
        'Export the policy of a trained agent for other runtimes',
        ('<agent> --weights PATH --out DIR [options]', '--run-dir DIR --out DIR [options]'),
        (('Export', options.ExportOptions), ENVIRONMENT, NETWORK),
        'agent_commands:export',
        checks.check_export,
        agent_sources=('run_dir',),
    ),
    Command(
        'runs',
        'List runs, groups of runs and their states',
        ('[DIR ...] [options]',),
        (('Runs', options.RunsOptions),),
        'list_commands:list_runs',
        checks.check_runs_command,
        takes_agent=False,
        runs_without_arguments=True,
    ),
    Command(
        'plot',
        'Plot the histories of runs',
        ('HISTORY.parquet ... [options]', '--run-dir DIR ... [options]'),
        (('Plot', options.PlotOptions),),
        'list_commands:plot',
        checks.check_plot,
        takes_agent=False,
    ),
    Command(
        'report',
        'Write a page about runs, groups of runs, populations and studies',
        ('DIR ... [options]', '--storage URL [options]'),
        (('Report', options.ReportOptions),),
        'report:report',
        checks.check_report,
        takes_agent=False,
    ),
    Command(
        'compare',
        'Compare groups of runs over environments and seeds',
        ('GROUP GROUP ... [options]', 'GROUP GROUP --versus GROUP --out compare.png [options]'),
        (('Compare', options.CompareOptions),),
        'list_commands:compare',
        checks.check_compare,
        takes_agent=False,
    ),
    Command(
        'doctor',
        'Check an environment, or find out why a run did not learn',
        ('ENV [options]', '--run-dir DIR ... [options]'),
        (('Doctor', options.DoctorOptions), ENVIRONMENT),
        'list_commands:doctor',
        checks.check_doctor,
        takes_agent=False,
    ),
    Command(
        'presets',
        'List presets with their scores, and trained policies',
        ('[<agent>] [options]',),
        (('Presets', options.PresetsOptions),),
        'list_commands:presets',
        checks.check_presets,
        takes_agent=False,
        runs_without_arguments=True,
    ),
    Command(
        'completion',
        'Print a completion script for a shell',
        ('bash|zsh|fish',),
        (('Session', options.CompletionOptions),),
        'list_commands:completion',
        checks.check_completion,
        takes_agent=False,
    ),
)
commands: dict[str, Command] = {command.name: command for command in _COMMANDS}


def find_command(name: str) -> Command:
    """Return a command. Raise OptionError, with the nearest name, if it is unknown."""
    if name not in commands:
        hint = f' (did you mean {OTHER_NAMES[name]}?)' if name in OTHER_NAMES else did_you_mean(name, commands)
        expected = f'one of {", ".join(commands)}{hint}'
        raise OptionError('command', f'got {format_value(name)}, expected {expected}')
    return commands[name]
