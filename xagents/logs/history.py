"""The history of a run: one row an episode, in a table that a run keeps (see `xagents.logs.table`)."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from xagents.logs.table import TableWriter
from xagents.logs.table_files import check_can_continue, free_path, read_table, tail_path, write_parquet
from xagents.options.errors import OptionError, one_line
from xagents.system.paths import check_parent

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

COLUMNS = ('mean_reward', 'best_reward', 'episode_reward', 'step', 'time')


class HistoryWriter(TableWriter):
    """Appends the rows of a run to its history: about 2 µs and 40 bytes of memory each.

    Rows reach the disk within about `TAIL_SECONDS`; `flush` makes them durable at once.
    """

    COLUMNS = COLUMNS
    STEP = 'step'

    def __init__(self, path: str | os.PathLike[str], resume: bool = False) -> None:
        super().__init__(check_history_path(path, resume), resume)

    @property
    def last_time(self) -> float:
        """Seconds of the last row; 0.0 when there is none."""
        return float(self._last('time'))

    def append(self, rows: Iterable[tuple[float, float, float, int, float]]) -> None:
        """Append rows of (mean_reward, best_reward, episode_reward, step, time); a mean or best may be NaN.

        OSError, which names the file, if the disk is full or the folder gone; they are kept for the next attempt.
        """
        values = ((float(mean), float(best), float(last), int(step), float(t)) for mean, best, last, step, t in rows)
        self._add([dict(zip(COLUMNS, row, strict=True)) for row in values])

    @staticmethod
    def _read(path: Path) -> pa.Table:
        table = _read_table(path)
        missing = [name for name in COLUMNS if name not in table.column_names]
        if missing:
            has = f'it has no column {", ".join(missing)}; its columns are {", ".join(table.column_names) or "none"}'
            raise ValueError(f"'{path}' is no history: {has}")
        return table.select(COLUMNS)


def check_history_path(path: str | os.PathLike[str], resume: bool = False, option: str = 'history_checkpoint') -> Path:
    """Return the path of a history, checked without writing anything.

    Args:
        path: Ends in `.parquet`, in a writable folder.
        resume: Whether an existing file is to be continued; then it must be a readable history.
        option: What was given, for the OptionError where it is not so.
    """
    path = Path(path)
    if path.suffix != '.parquet' or path.stem == '':
        raise OptionError(option, f'got {path}, expected a path that ends in .parquet')
    if not path.is_dir():  # 1.0's history was a folder
        check_parent(option, path)
    if resume:
        check_can_continue(option, path, HistoryWriter._read)
    return path


def read_history(path: str | os.PathLike[str]) -> pd.DataFrame:
    """Read a history, also one that a run is writing at this moment, or that a killed run left behind.

    Args:
        path: The parquet file, or the folder of small ones that xagents 1.0 wrote.

    Returns:
        One row an episode: mean_reward, best_reward, episode_reward, step and time (s), or another file's columns.

    Raises:
        ValueError: If there is no such file, or it is no parquet file.
    """
    frame: pd.DataFrame = _read_table(Path(path)).to_pandas()
    return frame


def write_from_dict(history: Mapping[str, Any], path: str | os.PathLike[str]) -> None:
    """Append columns of one length, or single values, to a parquet file, atomically; made where there is none.

    A folder of small files, as xagents 1.0 wrote, becomes one file, and is renamed as a run renames an older history.

    Raises:
        ValueError: If `path` does not end in `.parquet`, its folder does not exist, the lengths differ, or the columns
            do not go with those that the file has.
    """
    import pyarrow as pa

    path = check_history_path(path)
    columns = {name: np.atleast_1d(np.asarray(values)) for name, values in history.items()}
    lengths = {name: len(column) for name, column in columns.items()}
    if len(set(lengths.values())) > 1:
        raise ValueError(f'the columns of a history must be equally long, got {lengths}')
    table = pa.table(columns)
    if path.exists():
        try:
            table = pa.concat_tables([_read_table(path), table], promote_options='permissive')
        except pa.ArrowException as error:
            raise ValueError(f"the columns do not go with those of '{path}': {one_line(error)}") from error
    if path.is_dir():
        os.rename(path, free_path(path))
    write_parquet(table, path)
    tail_path(path).unlink(missing_ok=True)  # that of a killed run: its rows are in the file now


def _read_table(path: Path) -> pa.Table:
    table = read_table(path, 'history')
    return table.sort_by('step') if path.is_dir() and 'step' in table.column_names else table
