"""The first line of a call of `xagents tune`, its output and files at the end, and its trials for a report."""

from __future__ import annotations

import contextlib
import shlex
from collections import Counter

import optuna

from xagents.options.declaration import to_flags
from xagents.reports.trials import StudyTrials
from xagents.tuning.plan import TuningError, TuningPlan
from xagents.tuning.plots import NoPlotError, importances, objective_name
from xagents.tuning.report import train_command, trials_frame, write_report
from xagents.tuning.storages import mask_password
from xagents.tuning.studies import best_trial, trial_options
from xagents.tuning.trial_runner import TrialRunner


def opening_line(planned: TuningPlan, study: optuna.Study) -> str:
    """Return the first line of a call: the study, its storage and the number of ended trials."""
    ended = sum(trial.state.is_finished() for trial in study.get_trials(deepcopy=False))
    where = f' in {mask_password(planned.tune.storage)}' if planned.tune.storage else ', in memory'
    begun = f'continued after {ended} trial{"s" * (ended != 1)}' if ended else 'new'
    return f'Study {study.study_name}{where}: {begun}'


def print_summary(call: TrialRunner, command: str) -> None:
    """Print the results of a call, write its files, and print the command that continues an interrupted call.

    Raises:
        TuningError: if the call finished and no trial is complete.
    """
    planned, settings, study = call.plan, call.plan.tune, call.study
    best = best_trial(study)
    options = {} if best is None else trial_options(study, best)
    line = '' if best is None else train_command(planned.entry.id, options)
    lines = [count_trials(call)]
    if settings.out:
        lines += write_report(settings.out, study, options or None, line)
    if best is not None:
        of_seeds = f', the mean of {settings.trial_seeds} seeds' if settings.trial_seeds > 1 else ''
        lines += [f'Best: trial {best.number}, {best.value:.6g}{of_seeds}. To train with it:', line]
    if settings.storage is None:
        name = planned.study_name
        words = to_flags({'study': name, 'storage': f'sqlite:///{name.replace("/", "-")}.db'})
        lines.append(f'The study was in memory only. To save the next one: {" ".join(words)}')
    elif call.ending == 'Interrupted' and command:
        lines.append(f'To resume: {resume_command(command, call)}')
    print('\n'.join([line] if planned.process_options.get('quiet') and line else lines))
    if best is None and call.ending == 'Finished':
        said = [trial.user_attrs.get('reason') or trial.user_attrs.get('killed') for trial in study.trials]
        reasons = [*filter(None, said)] or ['nothing']
        raise TuningError(f'no trial was completed; the reason of the last one: {reasons[-1]}')


def study_trials(study: optuna.Study) -> StudyTrials:
    """Return the trials of a study for a page of `xagents report`."""
    trials, best = study.get_trials(deepcopy=False), best_trial(study)
    shares: dict[str, float] = {}
    with contextlib.suppress(NoPlotError):
        shares = importances(study, trials)
    options = {} if best is None else {'agent': study.user_attrs.get('agent'), **trial_options(study, best)}
    return StudyTrials(study.study_name, trials_frame(trials), options, objective_name(study), shares)


def count_trials(call: TrialRunner) -> str:
    """Return a line on how the call ended, and the number of trials of the study in each state."""
    words = {'COMPLETE': 'complete', 'PRUNED': 'pruned', 'FAIL': 'interrupted'}
    counts = Counter({'complete': 0, 'pruned': 0, 'failed': 0})
    for trial in call.study.get_trials(deepcopy=False):
        if trial.state.name in words:
            counts['failed' if 'reason' in trial.user_attrs else words[trial.state.name]] += 1
    said = ', '.join(f'{count} {word}' for word, count in counts.items())
    plural = 's' * (call.finished != 1)
    return f'{call.ending}: {call.finished} trial{plural} in this call; the study has {said}'


def resume_command(command: str, call: TrialRunner) -> str:
    """Return the command that runs the remaining trials of an interrupted call."""
    words = shlex.split(command)
    for index, word in enumerate(words[:-1]):
        if word == '--n-trials' and call.total is not None:
            words[index + 1] = str(call.total - call.finished)
    return shlex.join(words)
