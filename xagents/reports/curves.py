"""What `xagents plot --run-dir` draws: the curves of run folders and of groups of them, and their labels."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from xagents.config.configuration import read_config
from xagents.logs.history import COLUMNS, read_history
from xagents.logs.metrics import STEPS, read_metrics
from xagents.options.errors import OptionError, did_you_mean, format_value
from xagents.reports.search import FoundRuns, find_runs
from xagents.reports.statistics import setting_label, varying_options

if TYPE_CHECKING:
    import pandas as pd

HISTORY, METRICS = 'history.parquet', 'metrics.parquet'


class RunCurves(NamedTuple):
    """Frames with step, time and the drawn column, one a run; those under one label are averaged.

    `env` is the environment of all runs, None where they differ; `has_group` says whether a group is among the folders.
    """

    frames: list[pd.DataFrame]
    labels: list[str]
    env: str | None
    has_group: bool


class _CurveData(NamedTuple):
    """A run's options, its frame (None without the column), how many rows can be drawn, and all its columns."""

    config: Mapping[str, Any]
    frame: pd.DataFrame | None
    rows: int
    columns: list[str]


def run_curves(
    run_dirs: Sequence[str | os.PathLike[str]], column: str, labels: Sequence[str] | None = None
) -> RunCurves:
    """Read one column, of the history or of the metrics, of the runs and groups of runs at or below folders.

    A run's label is its agent, and its environment where environments differ; or that of its folder in `labels`, where
    the same one twice means one curve. The folder is added where two would have the same label. A group has a label for
    each setting that it varies besides the seed; its runs with fewer than two rows, just begun, are left out.

    Raises:
        ValueError: If there is no run, or one has no such column, or nothing in it.
    """
    found = [(one, index) for index, folder in enumerate(run_dirs) for one in find_runs([folder])]
    drawable = [(one, index, _drawable(one, column)) for one, index in found]
    envs = {run.config.get('env') for _, _, runs in drawable for run in runs}
    names = ['agent', 'env'] if len(envs) > 1 else ['agent']

    frames, bases, settings, folders = [], [], [], []
    for one, index, runs in drawable:
        varied = [name for name in varying_options([run.config for run in runs]) if name not in names]
        for run in runs:
            frames.append(run.frame)
            bases.append(setting_label(run.config, names) if labels is None else labels[index])
            settings.append(setting_label(run.config, varied))
            folders.append(one.folder)
    bases = _make_unique(bases, folders) if labels is None else bases
    drawn = [', '.join(filter(None, parts)) for parts in zip(bases, settings, strict=True)]
    env = str(envs.pop()) if len(envs) == 1 else None
    return RunCurves([f for f in frames if f is not None], drawn, env, any(one.is_group for one, _ in found))


def _drawable(found: FoundRuns, column: str) -> list[_CurveData]:
    """Return the runs that have enough to be drawn."""
    runs = [_read_curve(run, column) for run in found.runs]
    drawable = [run for run in runs if run.rows > found.is_group] or [run for run in runs if run.rows]
    if drawable:
        return drawable
    known = list(dict.fromkeys(name for run in runs for name in run.columns))
    if known and column not in known:
        names = ', '.join(known)
        problem = f'got {format_value(column)}, but {found.folder} has the columns {names}{did_you_mean(column, known)}'
        raise OptionError('column', problem)
    raise ValueError(f"'{found.folder}' has no number to draw in {column} yet")


def _read_curve(run: Path, column: str) -> _CurveData:
    config, frame, columns = read_config(run), None, list(COLUMNS)
    history = read_history(run / HISTORY) if (run / HISTORY).exists() else None
    # a run that learns from a data set has no episodes, but means of evaluations
    if column in COLUMNS and (history is None or len(history) or not (run / METRICS).exists()):
        frame = history
    elif (run / METRICS).exists():
        metrics = read_metrics(run / METRICS)
        columns = list(dict.fromkeys([*COLUMNS, *map(str, metrics.columns)]))
        if column in metrics.columns:
            frame = metrics[list(dict.fromkeys([STEPS, column]))].assign(step=metrics[STEPS], time=np.nan)
            if history is not None and len(history):
                # only the history has times: that of a step is interpolated between the episodes around it
                frame['time'] = np.interp(metrics[STEPS], history['step'], history['time'])
    rows = 0 if frame is None else int(np.isfinite(frame[column]).sum())
    return _CurveData(config, frame, rows, columns)


def _make_unique(labels: list[str], folders: list[Path]) -> list[str]:
    """Add the folder's name, or its whole path, to labels that several runs or groups have."""
    pairs = list(zip(labels, folders, strict=True))
    names = {folder: folder.absolute().name for folder in folders}
    unique = len(set(names.values())) == len(names)
    return [
        f'{label} ({names[folder] if unique else folder})'
        if any(other == label and place != folder for other, place in pairs)
        else label
        for label, folder in pairs
    ]
