"""What is written of a study: its best settings, its trials as a table, and pictures."""

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

from xagents.options.declaration import flags_of
from xagents.options.errors import shown
from xagents.system.files import replacing
from xagents.system.paths import check_folder
from xagents.tuning.pictures import PICTURES, PIXELS_PER_INCH, CannotDrawError, names_in, objective_name

if TYPE_CHECKING:
    import optuna
    import pandas as pd
    from matplotlib.figure import Figure
    from optuna.trial import FrozenTrial

__all__ = ['check_out', 'train_command', 'trials_frame', 'write_report']


def check_out(path: str | os.PathLike[str]) -> None:
    """Check that a report can be written to the folder `path`, without writing anything.

    Raises:
        OptionError: naming `out`, where it is a file, or cannot be written to.
    """
    check_folder('out', path)


def train_command(agent_id: str, options: Mapping[str, Any]) -> str:
    """Return the command that trains `agent_id` with `options` by name, as one types it in a shell."""
    return shlex.join(['xagents', 'train', agent_id, *flags_of(_ordered(options))])


def write_report(
    folder: str | os.PathLike[str], study: optuna.Study, best_options: Mapping[str, Any] | None, command: str
) -> list[str]:
    """Write `best.yaml`, `trials.parquet` and the pictures of a study, each of them atomically.

    What cannot be drawn yet is left out; a file that cannot be written takes no other one with it.

    Args:
        folder: where to; made when it does not exist.
        study: of one objective; its user attributes name the agent, the environment and the objective.
        best_options: every option of its best trial by name, env and max_steps included; None where no trial is
            complete.
        command: the command that trains with them.

    Returns:
        The lines that say what was written, and what was not and why.
    """
    folder = Path(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        return [f'Nothing is written to {folder} ({error.strerror})']
    trials = study.get_trials(deepcopy=False)
    writers: dict[str, Callable[[Path], None]] = {
        'best.yaml': lambda path: _write_best(path, study, best_options, command),
        'trials.parquet': lambda path: _write_trials(path, trials),
    }
    for name, draw in PICTURES.items():
        writers[name] = lambda path, draw=draw: _write_picture(path, draw(study, trials))  # type: ignore[misc]
    written, left_out = [], []
    with _quietly():
        for name, write in writers.items():
            try:
                write(folder / name)
                written.append(name)
                continue
            except CannotDrawError as reason:
                problem = str(reason)
            except Exception as error:  # hours of trials are not lost to a picture
                problem = shown(getattr(error, 'strerror', None) or str(error) or type(error).__name__)
            older = '; the one there is older' if (folder / name).exists() else ''
            left_out.append(f'{name} ({problem}{older})')
    lines = [f'Written to {folder}: {", ".join(written)}'] if written else []
    return lines + ([f'Left out: {", ".join(left_out)}'] if left_out else [])


def trials_frame(trials: Sequence[FrozenTrial]) -> pd.DataFrame:
    """Return the trials of a study, one a row, in columns that a parquet file can hold.

    The columns are number, state (complete, pruned, failed, running, waiting), value, params_<name>, datetime_start,
    datetime_complete, duration (s), and the trials' user attributes under their own names. A parameter or attribute
    whose values are of several kinds becomes text.
    """
    import pandas as pd

    columns: dict[str, Any] = {
        'number': pd.array([trial.number for trial in trials], dtype='int64'),
        'state': pd.array([_state(trial) for trial in trials], dtype='string'),
        'value': pd.array([math.nan if trial.value is None else trial.value for trial in trials], dtype='float64'),
    }
    for name in names_in(trial.params for trial in trials):
        columns[f'params_{name}'] = _column([trial.params.get(name) for trial in trials])
    columns['datetime_start'] = pd.Series([trial.datetime_start for trial in trials], dtype='datetime64[us]')
    columns['datetime_complete'] = pd.Series([trial.datetime_complete for trial in trials], dtype='datetime64[us]')
    seconds = [math.nan if trial.duration is None else trial.duration.total_seconds() for trial in trials]
    columns['duration'] = pd.array(seconds, dtype='float64')
    for name in names_in(trial.user_attrs for trial in trials):
        attribute = f'user_{name}' if name in columns else name
        columns[attribute] = _column([trial.user_attrs.get(name) for trial in trials])
    return pd.DataFrame(columns)


def _state(trial: FrozenTrial) -> str:
    return 'failed' if trial.state.name == 'FAIL' else trial.state.name.lower()


def _column(values: list[Any]) -> Any:
    """Return one column of the kind that all of `values` but None have, else as text."""
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


def _write_trials(path: Path, trials: Sequence[FrozenTrial]) -> None:
    with replacing(path) as temporary:
        trials_frame(trials).to_parquet(temporary, index=False)


def _write_best(path: Path, study: optuna.Study, options: Mapping[str, Any] | None, command: str) -> None:
    if options is None:
        raise CannotDrawError('no trial is complete')
    text = _best_text(study, options, command)
    with replacing(path) as temporary:
        temporary.write_text(text, encoding='utf-8')


def _best_text(study: optuna.Study, options: Mapping[str, Any], command: str) -> str:
    from xagents.config.configuration import to_yaml

    trial = study.best_trial
    date = f', {trial.datetime_complete:%Y-%m-%d}' if trial.datetime_complete else ''
    comments = [
        f'trial {trial.number} of study {shown(study.study_name)}: {objective_name(study)} {trial.value!r}{date}',
        ''.join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in command),
    ]
    text = to_yaml(study.user_attrs['agent'], _ordered(options))
    return ''.join(f'# {comment}\n' for comment in comments) + text


def _ordered(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that were given, the environment and the budget first, as one types them."""
    first = {name: options[name] for name in ('env', 'max_steps') if name in options}
    others = {name: value for name, value in options.items() if name not in (*first, 'agent')}
    return {name: value for name, value in {**first, **others}.items() if value is not None}


@contextlib.contextmanager
def _quietly() -> Iterator[None]:
    """Keep what Optuna and matplotlib warn of from the user, who can do nothing about it."""
    loggers = [logging.getLogger(name) for name in ('optuna', 'matplotlib')]
    levels = [logger.level for logger in loggers]
    with warnings.catch_warnings():
        warnings.simplefilter('ignore')
        try:
            for logger in loggers:
                logger.setLevel(logging.CRITICAL)
            yield
        finally:
            for logger, level in zip(loggers, levels, strict=True):
                logger.setLevel(level)


def _write_picture(path: Path, figure: Figure) -> None:
    with replacing(path) as temporary:
        figure.savefig(temporary, format='png', dpi=PIXELS_PER_INCH)
