"""The curves of run directories and of groups of runs, and their labels, for `xagents plot --run-dir`."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from xagents.config.configuration import read_plain_config
from xagents.logs.history import COLUMNS, read_history
from xagents.logs.metrics import STEPS, read_metrics
from xagents.options.errors import OptionError, did_you_mean, format_value, one_line
from xagents.reports.search import FoundRuns, find_runs
from xagents.reports.statistics import setting_label, varying_options
from xagents.system.file_names import CONFIG

if TYPE_CHECKING:
    import pandas as pd

EVALUATED = 'evaluate/mean'
HISTORY, METRICS = 'history.parquet', 'metrics.parquet'


class RunCurves(NamedTuple):
    """The curves of several runs.

    Attributes:
        frames: one frame per run, with the columns step and time and the column to draw.
        labels: one label per run. Runs with equal labels are averaged.
        envs: the environment of each run.
        has_group: whether at least one folder is a group of runs.
    """

    frames: list[pd.DataFrame]
    labels: list[str]
    envs: list[str]
    has_group: bool

    @property
    def env(self) -> str | None:
        """The environment of all runs; None if they differ."""
        return self.envs[0] if len(set(self.envs)) == 1 else None


class CurveData(NamedTuple):
    """The curve of one run.

    Attributes:
        config: options of the run.
        frame: the columns to draw; None if the run has no such column.
        rows: number of finite values.
        columns: names of all columns of the run.
    """

    config: Mapping[str, Any]
    frame: pd.DataFrame | None
    rows: int
    columns: list[str]


def run_curves(
    run_dirs: Sequence[str | os.PathLike[str]],
    column: str,
    labels: Sequence[str] | None = None,
    on_problem: Callable[[Path, str], object] | None = None,
) -> RunCurves:
    """Read one column of the history or the metrics of all runs in some folders.

    By default the label of a run is its agent, and its environment if the environments differ. If two folders would
    have the same label, the name of the folder is added. A group of runs has one label for each setting that differs
    between its runs, except the seed. Runs of a group with fewer than two rows are left out.

    Args:
        run_dirs: run directories, groups of runs, or folders that contain them.
        column: name of the column.
        labels: one label per folder. Folders with equal labels give one curve.
        on_problem: function that receives the folder and the problem of each run without a curve, which is then left
            out. By default it is an error.

    Raises:
        ValueError: if there is no run, or a run has no such column or no number in that column.
    """
    found = [(one, index) for index, folder in enumerate(run_dirs) for one in find_runs([folder])]
    drawable = [(one, index, _drawable(one, column, on_problem)) for one, index in found]
    envs = {str(run.config.get('env')) for _, _, runs in drawable for run in runs}
    names = ['agent', 'env'] if len(envs) > 1 else ['agent']

    frames, bases, settings, folders, env_ids = [], [], [], [], []
    for one, index, runs in drawable:
        varied = [name for name in varying_options([run.config for run in runs]) if name not in names]
        for run in runs:
            frames.append(run.frame)
            bases.append(setting_label(run.config, names) if labels is None else labels[index])
            settings.append(setting_label(run.config, varied))
            folders.append(one.folder)
            env_ids.append(str(run.config.get('env')))
    bases = _make_unique(bases, folders) if labels is None else bases
    drawn = [', '.join(filter(None, parts)) for parts in zip(bases, settings, strict=True)]
    return RunCurves([f for f in frames if f is not None], drawn, env_ids, any(one.is_group for one, _ in found))


def _drawable(
    found: FoundRuns, column: str, on_problem: Callable[[Path, str], object] | None = None
) -> list[CurveData]:
    """Return the curves that have enough rows: two in a group of runs, one otherwise."""
    if on_problem is None:
        return _check_drawable(found, column, [read_curve(run, column) for run in found.runs])
    runs = []
    for run in found.runs:
        try:
            runs.append(read_curve(run, column))
        except (OSError, ValueError) as error:
            on_problem(run, one_line(error))
    try:
        return _check_drawable(found, column, runs) if runs else []
    except ValueError as error:
        on_problem(found.folder, one_line(error))
        return []


def _check_drawable(found: FoundRuns, column: str, runs: list[CurveData]) -> list[CurveData]:
    """Return the curves that have enough rows; raise ValueError if there is none."""
    drawable = [run for run in runs if run.rows > found.is_group] or [run for run in runs if run.rows]
    if drawable:
        return drawable
    known = list(dict.fromkeys(name for run in runs for name in run.columns))
    if known and column not in known:
        names = ', '.join(known)
        problem = f'got {format_value(column)}, but {found.folder} has the columns {names}{did_you_mean(column, known)}'
        raise OptionError('column', problem)
    if not any((run / file).exists() for run in found.runs for file in (HISTORY, METRICS)):
        expected = 'expected the run directory of a training (agent.save stores an agent without its curve)'
        raise ValueError(f"'{found.folder}' contains no history, {expected}")
    raise ValueError(f"'{found.folder}' has no number in the column {column} yet")


def read_curve(run: Path, column: str) -> CurveData:
    """Return one column of the history or the metrics of a run, over the columns `step` and `time`."""
    config, frame, columns = read_plain_config(run / CONFIG), None, list(COLUMNS)
    history = read_history(run / HISTORY) if (run / HISTORY).exists() else None
    # a run on a data set has no episodes; its metrics contain the mean rewards of evaluations
    if column in COLUMNS and (history is None or len(history) or not (run / METRICS).exists()):
        frame = history
    elif (run / METRICS).exists():
        metrics = read_metrics(run / METRICS)
        columns = list(dict.fromkeys([*COLUMNS, *map(str, metrics.columns)]))
        if column == 'mean_reward' and EVALUATED in metrics.columns:
            # the mean stays the same until the next evaluation: draw each evaluation at its step
            metrics = metrics[metrics[EVALUATED].notna()]
        if column in metrics.columns:
            frame = metrics[list(dict.fromkeys([STEPS, column]))].assign(step=metrics[STEPS], time=np.nan)
            if history is not None and len(history):
                # only the history has times: interpolate the time of a step between episodes
                frame['time'] = np.interp(metrics[STEPS], history['step'], history['time'])
    rows = 0 if frame is None else int(np.isfinite(frame[column]).sum())
    return CurveData(config, frame, rows, columns)


def _make_unique(labels: list[str], folders: list[Path]) -> list[str]:
    """Add the name or the path of the folder to labels that occur in several folders."""
    pairs = list(zip(labels, folders, strict=True))
    names = {folder: folder.absolute().name for folder in folders}
    unique = len(set(names.values())) == len(names)
    return [
        f'{label} ({names[folder] if unique else folder})'
        if any(other == label and place != folder for other, place in pairs)
        else label
        for label, folder in pairs
    ]
