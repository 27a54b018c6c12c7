"""The history of a run: a table with one row per episode (see `xagents.logs.table`)."""

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
    """A writer that appends rows to the history of a run. A row takes about 2 µs and 40 bytes of memory.

    Rows are written to disk within about `TAIL_SECONDS`; `flush` makes them durable at once.
    """

    COLUMNS = COLUMNS
    STEP = 'step'

    def __init__(self, path: str | os.PathLike[str], resume: bool = False) -> None:
        super().__init__(check_history_path(path, resume), resume)

    @property
    def last_time(self) -> float:
        """The time of the last row in seconds; 0.0 if there is no row."""
        return float(self._last('time'))

    def append(self, rows: Iterable[tuple[float, float, float, int, float]]) -> None:
        """Append rows of (mean_reward, best_reward, episode_reward, step, time).

        Args:
            rows: the rows; `mean_reward` and `best_reward` may be NaN.

        Raises:
            OSError: if the disk is full or the folder is missing. The error names the file; the next call writes the
                rows.
        """
        values = ((float(mean), float(best), float(last), int(step), float(t)) for mean, best, last, step, t in rows)
        self._add([dict(zip(COLUMNS, row, strict=True)) for row in values])

    @staticmethod
    def _read(path: Path) -> pa.Table:
        table = _read_table(path)
        missing = [name for name in COLUMNS if name not in table.column_names]
        if missing:
            has = f'no column {", ".join(missing)}; its columns are {", ".join(table.column_names) or "none"}'
            raise ValueError(f"'{path}' is not a history: {has}")
        return table.select(COLUMNS)


def check_history_path(path: str | os.PathLike[str], resume: bool = False, option: str = 'history_checkpoint') -> Path:
    """Check the path of a history without writing anything, and return it.

    Args:
        path: a path that ends in `.parquet`, in a writable folder.
        resume: whether rows will be appended to an existing file, which must then be a readable history.
        option: name of the option, for the message of the error.

    Raises:
        OptionError: if the path cannot be used.
    """
    path = Path(path)
    if path.suffix != '.parquet' or path.stem == '':
        raise OptionError(option, f'got {path}, expected a path that ends in .parquet')
    if not path.is_dir():  # xagents 1.0 wrote a folder of files
        check_parent(option, path)
    if resume:
        check_can_continue(option, path, HistoryWriter._read)
    return path


def read_history(path: str | os.PathLike[str]) -> pd.DataFrame:
    """Read a history. The run may still write to it, or may have been killed.

    Args:
        path: a parquet file, or a folder of parquet files as written by xagents 1.0.

    Returns:
        A frame with one row per episode and the columns mean_reward, best_reward, episode_reward, step and time (s),
        or with the columns of another parquet file.

    Raises:
        ValueError: if the file does not exist or is not a parquet file.
    """
    frame: pd.DataFrame = _read_table(Path(path)).to_pandas()
    return frame


def write_from_dict(history: Mapping[str, Any], path: str | os.PathLike[str]) -> None:
    """Append rows to a parquet file, atomically. The file is created if it does not exist.

    If `path` is a folder of files as written by xagents 1.0, it is replaced by one file with all rows. The folder is
    renamed as a run renames an older history.

    Args:
        history: columns of equal length, or single values, by name.
        path: the parquet file.

    Raises:
        ValueError: if `path` does not end in `.parquet`, its folder does not exist, the lengths differ, or the columns
            do not match the columns of the file.
    """
    import pyarrow as pa

    path = check_history_path(path)
    columns = {name: np.atleast_1d(np.asarray(values)) for name, values in history.items()}
    lengths = {name: len(column) for name, column in columns.items()}
    if len(set(lengths.values())) > 1:
        raise ValueError(f'history: got columns of the lengths {lengths}, expected equal lengths')
    table = pa.table(columns)
    if path.exists():
        try:
            table = pa.concat_tables([_read_table(path), table], promote_options='permissive')
        except pa.ArrowException as error:
            raise ValueError(f"the columns do not match the columns of '{path}': {one_line(error)}") from error
    if path.is_dir():
        os.rename(path, free_path(path))
    write_parquet(table, path)
    tail_path(path).unlink(missing_ok=True)  # a killed run left a tail, whose rows the file now contains


def _read_table(path: Path) -> pa.Table:
    table = read_table(path, 'history')
    return table.sort_by('step') if path.is_dir() and 'step' in table.column_names else table
