"""What `xagents plot --run-dir` draws: the curves of run folders and groups of them, and how they are labelled."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from xagents.logs.history import COLUMNS, read_history
from xagents.logs.metrics import STEPS, read_metrics
from xagents.options.errors import OptionError, nearest, shown
from xagents.reports.found import Found, find_runs
from xagents.reports.statistics import setting, varying

if TYPE_CHECKING:
    import pandas as pd

HISTORY, METRICS = 'history.parquet', 'metrics.parquet'


class RunCurves(NamedTuple):
    """Frames with step, time and the drawn column, the label of each, the one environment, whether groups are there.

    What is under one label is to be drawn as one.
    """

    frames: list[pd.DataFrame]
    labels: list[str]
    env: str | None
    grouped: bool


class _Run(NamedTuple):
    """A run's options, its frame (None without the column) and the names of all its columns."""

    config: Mapping[str, Any]
    frame: pd.DataFrame | None
    columns: list[str]

    def rows(self, column: str) -> int:
        """Number of rows that can be drawn."""
        return 0 if self.frame is None else int(np.isfinite(self.frame[column]).sum())


def run_curves(
    run_dirs: Sequence[str | os.PathLike[str]], column: str, labels: Sequence[str] | None = None
) -> RunCurves:
    """Read one column of runs.

    A run's label is its agent, and its environment where environments differ; what would have the same one is told
    apart by its folder. A group has a curve for each setting that it varies besides the seed, and its runs with less
    than two rows are left out: they have only just begun.

    Args:
        run_dirs: Run folders, groups of them, or folders above some.
        column: A column of the history or of the metrics.
        labels: One for each of `run_dirs`, instead of agent and environment; the same one twice means one curve.

    Raises:
        ValueError: If there is no run, or one has no such column, or nothing in it.
    """
    found: list[tuple[Found, str | None]] = []
    for index, folder in enumerate(run_dirs):
        found += [(one, None if labels is None else labels[index]) for one in find_runs([folder])]
    entries = [(one, label, _drawable(one, column)) for one, label in found]
    envs = {run.config.get('env') for _, _, runs in entries for run in runs}
    wanted = ['agent', 'env'] if len(envs) > 1 else ['agent']

    frames, bases, varied, folders = [], [], [], []
    for one, label, runs in entries:
        names = [name for name in varying([run.config for run in runs]) if name not in wanted]
        for run in runs:
            frames.append(run.frame)
            bases.append(setting(run.config, wanted) if label is None else label)
            varied.append(setting(run.config, names))
            folders.append(one.folder)
    if labels is None:
        bases = _told_apart(bases, folders)
    drawn = [', '.join(filter(None, [base, values])) for base, values in zip(bases, varied, strict=True)]
    env = str(envs.pop()) if len(envs) == 1 else None
    return RunCurves([f for f in frames if f is not None], drawn, env, any(one.is_group for one, _ in found))


def _drawable(found: Found, column: str) -> list[_Run]:
    """The runs that have enough to be drawn."""
    runs = [_read(run, column) for run in found.runs]
    drawable = [run for run in runs if run.rows(column) > found.is_group] or [run for run in runs if run.rows(column)]
    if drawable:
        return drawable
    known = list(dict.fromkeys(name for run in runs for name in run.columns))
    if known and column not in known:
        problem = f'got {shown(column)}, but {found.folder} has the columns {", ".join(known)}{nearest(column, known)}'
        raise OptionError('column', problem)
    raise ValueError(f"'{found.folder}' has no number to draw in {column} yet")


def _read(run: Path, column: str) -> _Run:
    from xagents.factory.load import read_config

    config = read_config(run)
    columns = list(COLUMNS)
    history = read_history(run / HISTORY) if (run / HISTORY).exists() else None
    if column in COLUMNS:
        return _Run(config, history, columns)
    if not (run / METRICS).exists():
        return _Run(config, None, columns)
    metrics = read_metrics(run / METRICS)
    columns += [str(name) for name in metrics.columns if name not in columns]
    if column not in metrics.columns:
        return _Run(config, None, columns)
    frame = metrics[list(dict.fromkeys([STEPS, column]))].assign(step=metrics[STEPS], time=np.nan)
    if history is not None and len(history):
        # the history has the clock: a step's time is that of the episodes around it
        frame['time'] = np.interp(metrics[STEPS], history['step'], history['time'])
    return _Run(config, frame, columns)


def _told_apart(labels: list[str], folders: list[Path]) -> list[str]:
    """Add the folder's name, or all of its path, to labels that several runs or groups have."""
    owners: dict[str, set[Path]] = {}
    for label, folder in zip(labels, folders, strict=True):
        owners.setdefault(label, set()).add(folder)
    names = {folder: folder.absolute().name for folder in folders}
    unique = len(set(names.values())) == len(names)
    return [
        f'{label} ({names[folder] if unique else folder})' if len(owners[label]) > 1 else label
        for label, folder in zip(labels, folders, strict=True)
    ]
