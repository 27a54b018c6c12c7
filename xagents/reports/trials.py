"""The trials of a study of `xagents tune`, read from the files of its `--out` directory or given by `tuning`."""

from __future__ import annotations

import itertools
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from xagents.config.configuration import read_plain_config
from xagents.reports.plotting import style_axes

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

TRIALS, BEST = 'trials.parquet', 'best.yaml'
PARAMETER = 'params_'  # prefix of the columns of searched options
COLUMNS = ('number', 'state', 'value')
BLUE, ORANGE, GREY = '#0072B2', '#D55E00', '0.6'


class StudyTrials(NamedTuple):
    """The trials of a study.

    Attributes:
        name: name of the study, or the directory of its files.
        frame: one row per trial, with the columns number, state, value, duration (s) and params_NAME.
        best: all options of the best trial by name; empty if no trial is complete.
        objective: name of the values of the trials.
        importances: importance of each searched option in percent, the most important first; empty if unknown.
    """

    name: str
    frame: pd.DataFrame
    best: Mapping[str, Any]
    objective: str = 'value'
    importances: Mapping[str, float] = {}

    @property
    def parameters(self) -> list[str]:
        """The names of the searched options."""
        return [name.removeprefix(PARAMETER) for name in map(str, self.frame.columns) if name.startswith(PARAMETER)]

    def ranked(self) -> list[dict[str, Any]]:
        """Return the rows of the trials, complete ones first, the best value first."""
        rows: Any = self.frame.astype(object).where(self.frame.notna(), None).to_dict('records')
        return sorted(rows, key=_rank)


def _rank(row: Mapping[str, Any]) -> tuple[bool, float, int]:
    value = row['value']
    return row['state'] != 'complete', np.inf if value is None else -value, row['number']


def has_trials(folder: str | os.PathLike[str]) -> bool:
    """Return whether a directory contains the files of `xagents tune --out`."""
    return (Path(folder) / TRIALS).is_file()


def read_trials(folder: str | os.PathLike[str]) -> StudyTrials:
    """Return the study whose files a directory contains; raise ValueError if they cannot be read."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = Path(folder) / TRIALS
    try:
        frame = pq.read_table(pa.BufferReader(path.read_bytes())).to_pandas()
    except (OSError, pa.ArrowException) as error:
        raise ValueError(f"'{path}' is not a readable parquet file ({' '.join(str(error).split())})") from error
    missing = [name for name in COLUMNS if name not in frame.columns]
    if missing:
        raise ValueError(f"'{path}' contains no trials: the column {missing[0]} is missing")
    best = read_plain_config(Path(folder) / BEST) if (Path(folder) / BEST).is_file() else {}
    return StudyTrials(str(folder), frame, best)


def draw_trials(axes: Axes, values: Mapping[int, float], pruned: Mapping[int, float], last: int, label: str) -> None:
    """Draw the values of trials by their number, and the best value so far.

    Args:
        axes: axes to draw on.
        values: value of each complete trial, at least one, by its number.
        pruned: last value of each pruned trial that has one.
        last: number of the last ended trial, up to which the line of the best value extends.
        label: label of the vertical axis.
    """
    from matplotlib.ticker import MaxNLocator

    numbers, so_far = list(values), list(itertools.accumulate(values.values(), max))
    axes.step([*numbers, last], [*so_far, so_far[-1]], where='post', color=ORANGE, label='best so far')
    if pruned:
        axes.scatter(list(pruned), list(pruned.values()), s=20, marker='x', color=GREY, label='pruned')
    axes.scatter(numbers, list(values.values()), s=24, color=BLUE, label='complete', zorder=3)
    axes.set_xlabel('trial')
    axes.set_ylabel(label)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    style_axes(axes)


def finite_values(rows: Sequence[Mapping[str, Any]], state: str) -> dict[int, float]:
    """Return the finite values of the trials in a state, by number."""
    known = {row['number']: row['value'] for row in rows if row['state'] == state and row['value'] is not None}
    return {number: float(value) for number, value in sorted(known.items()) if np.isfinite(value)}
