"""The files of `--out`: the best settings of a study, its trials as a table, and plots."""

from __future__ import annotations

import contextlib
import json
import logging
import math
import os
import shlex
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xagents.config.configuration import to_yaml
from xagents.options.declaration import declared_options, to_flags
from xagents.options.errors import format_value
from xagents.registry.agents import find_agent
from xagents.system.files import atomic_write
from xagents.tuning.plots import PLOTS, DrawFunction, NoPlotError, objective_name, unique_names

if TYPE_CHECKING:
    import optuna
    import pandas as pd
    from optuna.trial import FrozenTrial


PIXELS_PER_INCH = 130


def train_command(agent_id: str, options: Mapping[str, Any]) -> str:
    """Return the shell command that trains an agent with some options."""
    declared, typed = declared_options(find_agent(agent_id).options), dict(options)
    for name, option in declared.items():
        if name in typed and typed[name] is None and option.default is not None:
            typed[name] = option.none_word  # None is omitted, which would mean the default
    return shlex.join(['xagents', 'train', agent_id, *to_flags(_ordered(typed))])


def write_report(
    folder: str | os.PathLike[str], study: optuna.Study, best_options: Mapping[str, Any] | None, command: str
) -> list[str]:
    """Write `best.yaml`, `trials.parquet` and the plots of a study, each atomically.

    Args:
        folder: folder of the files; it is created if it does not exist.
        study: a study whose attributes name the agent, the environment and the objective.
        best_options: all options of the best trial by name; None if no trial is complete.
        command: the command that trains with these options.

    Returns:
        Lines for the user: which files were written, which were left out, and why.
    """
    folder = Path(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        return [f'Nothing is written to {folder} ({error.strerror})']
    trials = study.get_trials(deepcopy=False)

    def picture(draw: DrawFunction) -> Callable[[Path], Any]:
        return lambda path: draw(study, trials).savefig(path, format='png', dpi=PIXELS_PER_INCH)

    writers: dict[str, Callable[[Path], Any]] = {
        'best.yaml': lambda path: path.write_text(_best_text(study, best_options, command), encoding='utf-8'),
        'trials.parquet': lambda path: trials_frame(trials).to_parquet(path, index=False),
        **{name: picture(draw) for name, draw in PLOTS.items()},
    }
    written, left_out = [], []
    with _warnings_off():
        for name, write in writers.items():
            try:
                with atomic_write(folder / name) as temporary:
                    write(temporary)
                written.append(name)
                continue
            except NoPlotError as reason:
                problem = str(reason)
            except Exception as error:  # a failed plot must not stop the call after hours of trials
                problem = format_value(getattr(error, 'strerror', None) or str(error) or type(error).__name__)
            older = '; the one there is older' if (folder / name).exists() else ''
            left_out.append(f'{name} ({problem}{older})')
    lines = [f'Written to {folder}: {", ".join(written)}'] if written else []
    return lines + ([f'Left out: {", ".join(left_out)}'] if left_out else [])


def trials_frame(trials: Sequence[FrozenTrial]) -> pd.DataFrame:
    """Return the trials of a study, one per row, in columns of types that a parquet file supports.

    The columns are number, state (complete, pruned, failed, running, waiting), value, params_<name>, datetime_start,
    datetime_complete, duration (s), and the user attributes of the trials. Columns of mixed types become text.
    """
    import pandas as pd

    states = [trial.state.name.lower().replace('fail', 'failed') for trial in trials]
    seconds = [None if trial.duration is None else trial.duration.total_seconds() for trial in trials]
    columns: dict[str, Any] = {
        'number': pd.array([trial.number for trial in trials], dtype='int64'),
        'state': pd.array(states, dtype='string'),
        'value': pd.Series([trial.value for trial in trials], dtype='float64'),
    }
    for name in unique_names(trial.params for trial in trials):
        columns[f'params_{name}'] = _column([trial.params.get(name) for trial in trials])
    for name in ('datetime_start', 'datetime_complete'):
        columns[name] = pd.Series([getattr(trial, name) for trial in trials], dtype='datetime64[us]')
    columns['duration'] = pd.Series(seconds, dtype='float64')
    for name in unique_names(trial.user_attrs for trial in trials):
        column = f'user_{name}' if name in columns else name
        columns[column] = _column([trial.user_attrs.get(name) for trial in trials])
    return pd.DataFrame(columns)


def _column(values: list[Any]) -> Any:
    """Return a column of the type of all values except None, or of text if the types differ."""
    import pandas as pd

    kinds = {type(value) for value in values if value is not None}
    if kinds == {bool}:
        return pd.array(values, dtype='boolean')
    if kinds == {int} and all(value is None or -(2**63) <= value < 2**63 for value in values):
        return pd.array(values, dtype='Int64' if None in values else 'int64')
    if float in kinds and kinds <= {int, float}:
        return pd.array([math.nan if value is None else float(value) for value in values], dtype='float64')
    texts = [json.dumps(value) if isinstance(value, (dict, list)) else value for value in values]
    return pd.array([None if text is None else str(text) for text in texts], dtype='string')


def _best_text(study: optuna.Study, options: Mapping[str, Any] | None, command: str) -> str:
    if options is None:
        raise NoPlotError('no trial is complete')
    trial = study.best_trial
    date = f', {trial.datetime_complete:%Y-%m-%d}' if trial.datetime_complete else ''
    name, value = format_value(study.study_name), f'{objective_name(study)} {trial.value!r}'
    what = f'trial {trial.number} of study {name}: {value}{date}'
    typed = ''.join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in command)
    return f'# {what}\n# {typed}\n' + to_yaml(study.user_attrs['agent'], _ordered(options))


def _ordered(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that are not None, with env and max_steps first."""
    names = [name for name in dict.fromkeys(['env', 'max_steps', *options]) if name != 'agent']
    return {name: options[name] for name in names if options.get(name) is not None}


@contextlib.contextmanager
def _warnings_off() -> Iterator[None]:
    """Hide the warnings of Optuna and matplotlib, which the user cannot act on."""
    before = logging.root.manager.disable
    with warnings.catch_warnings(action='ignore'):
        logging.disable()
        try:
            yield
        finally:
            logging.disable(before)
