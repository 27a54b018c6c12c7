"""The history of a run: one row an episode, in one parquet file that is whole at any moment (see `xagents.logs.tailed`).

A record of its tail has 52 bytes, little-endian: the row's number (uint64), mean_reward, best_reward, episode_reward
(float64), step (int64), time (float64), and a CRC-32 of these 48 bytes.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from xagents.logs.tailed import TailedWriter, check_goes_on, read_both, write_parquet
from xagents.options.errors import OptionError
from xagents.system.paths import check_parent

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

__all__ = ['COLUMNS', 'HistoryWriter', 'check_history_path', 'read_history', 'write_from_dict']

COLUMNS = ('mean_reward', 'best_reward', 'episode_reward', 'step', 'time')

_BODY = struct.Struct('<Qdddqd')
_RECORD = np.dtype(
    [
        ('row', '<u8'),
        ('mean_reward', '<f8'),
        ('best_reward', '<f8'),
        ('episode_reward', '<f8'),
        ('step', '<i8'),
        ('time', '<f8'),
        ('checksum', '<u4'),
    ]
)


def check_history_path(path: str | os.PathLike[str], resume: bool = False, option: str = 'history_checkpoint') -> Path:
    """Check that a history can be written to `path`, without writing anything.

    Args:
        path: The parquet file that is meant.
        resume: Whether an existing file is to be continued; then it must be a readable history.
        option: What was given, for messages.

    Returns:
        The path.

    Raises:
        ValueError: If it does not end in `.parquet`, its folder is missing or not writable, or it cannot be resumed.
    """
    path = Path(path)
    if path.suffix != '.parquet' or path.stem == '':
        raise OptionError(option, f'got {path}, admits a path that ends in .parquet')
    if not path.is_dir():  # 1.0's history was a folder
        check_parent(option, path)
    if resume:
        check_goes_on(option, path, lambda path: _check_columns(_read_table(path)[0], path))
    return path


class HistoryWriter(TailedWriter):
    """Appends the rows of a run to its history, so that killing the process at any instant loses next to nothing.

    Rows reach the disk within about `TAIL_SECONDS`; `flush` makes them durable at once. Appending costs about a
    microsecond a row, and a row takes 52 bytes of memory.

    Attributes:
        path: The parquet file.
        renamed: Where an older history of the same name was moved to, or None.
        n_rows: Number of rows, those of a continued history included.
        last_step: `step` of the last row; 0 when there is none.
        last_time: `time` of the last row in seconds; 0.0 when there is none.
    """

    def __init__(self, path: str | os.PathLike[str], resume: bool = False) -> None:
        """Open a history.

        Args:
            path: The parquet file; its folder must exist.
            resume: Continue an existing file. Otherwise one that has rows is renamed to `<stem>.1.parquet` (or the
                next free number), where `renamed` points.

        Raises:
            ValueError: As `check_history_path`.
        """
        self._packed = bytearray()  # all rows, as in the tail; their numbers and checksums matter only there
        self.last_step = 0
        self.last_time = 0.0
        super().__init__(check_history_path(path, resume), resume)

    @property
    def n_rows(self) -> int:
        """Number of rows, those of a continued history included."""
        return len(self._packed) // _RECORD.itemsize

    def append(self, rows: Iterable[tuple[float, float, float, int, float]]) -> None:
        """Append rows.

        Args:
            rows: (mean_reward, best_reward, episode_reward, step, time) each; a mean or best may be NaN.
        """
        if self._closed:
            raise ValueError(f"the history '{self.path}' is closed")
        packed = bytearray()
        number, key = self.n_rows, self._key
        step, seconds = self.last_step, self.last_time
        for mean_reward, best_reward, episode_reward, step, seconds in rows:
            body = _BODY.pack(number, mean_reward, best_reward, episode_reward, int(step), seconds)
            packed += body
            packed += zlib.crc32(body, key).to_bytes(4, 'little')
            number += 1
        if not packed:
            return
        self._packed += packed
        self.last_step, self.last_time = int(step), float(seconds)
        self._save()

    def cut(self, step: int) -> None:
        """Drop the rows beyond `step`, for a run that resumes at an earlier checkpoint."""
        columns = self._columns()
        keep = columns['step'] <= step
        if keep.all():
            return
        self._adopt({name: column[keep] for name, column in columns.items()})
        self._rewrite()

    def _read(self) -> dict[str, np.ndarray]:
        return _read_columns(self.path)

    def _adopt(self, columns: Mapping[str, np.ndarray]) -> None:
        records = np.zeros(len(columns['step']), _RECORD)
        for name in COLUMNS:
            records[name] = columns[name]
        self._packed = bytearray(records.tobytes())
        last = _BODY.unpack(self._packed[-_RECORD.itemsize : -4]) if self._packed else (0, 0.0)
        self.last_step, self.last_time = last[-2:]

    def _columns(self) -> dict[str, np.ndarray]:
        # Copies, because a view of the records would forbid appending to them.
        records = np.frombuffer(self._packed, _RECORD)
        return {name: records[name].copy() for name in COLUMNS}

    def _records(self, start: int) -> bytes:
        return bytes(self._packed[start * _RECORD.itemsize :])


def read_history(path: str | os.PathLike[str]) -> pd.DataFrame:
    """Read a history, also one that a run is writing at this moment, or that a killed run left behind.

    Args:
        path: The parquet file, or the folder of small ones that xagents 1.0 wrote.

    Returns:
        One row an episode with the columns mean_reward, best_reward, episode_reward, step and time (seconds), or
        whatever columns another program's file has.

    Raises:
        ValueError: If there is no such file, or it is no parquet file.
    """
    import pandas as pd

    table, tail = _read_table(Path(path))
    frame: pd.DataFrame = table.to_pandas()
    if len(tail):
        rows = pd.DataFrame({name: tail[name] for name in COLUMNS})
        frame = pd.concat([frame, rows], ignore_index=True) if len(frame) else rows
    return frame


def write_from_dict(history: Mapping[str, Any], path: str | os.PathLike[str]) -> None:
    """Write a dictionary of equally long columns (or of single values: one row) to a parquet file, atomically.

    Raises:
        ValueError: If `path` does not end in `.parquet`, its folder does not exist, or the lengths differ.
    """
    path = check_history_path(path)
    columns = {name: np.atleast_1d(np.asarray(values)) for name, values in history.items()}
    lengths = {name: len(column) for name, column in columns.items()}
    if len(set(lengths.values())) > 1:
        raise ValueError(f'the columns of a history must be equally long, got {lengths}')
    write_parquet(columns, path, {})


def _read_table(path: Path) -> tuple[pa.Table, np.ndarray]:
    """Read the parquet file and the records of its tail that continue it."""
    table, tail, key = read_both(path, 'history')
    if path.is_dir() and 'step' in table.column_names:
        table = table.sort_by('step')
    return table, _valid_records(tail, key, table.num_rows)


def _valid_records(tail: bytes, key: int, n_rows: int) -> np.ndarray:
    """The records of a tail up to the first that is torn, of another file, or does not continue the rows."""
    size, valid = _RECORD.itemsize, 0
    for start in range(0, len(tail) - size + 1, size):
        body = tail[start : start + size - 4]
        checksum = int.from_bytes(tail[start + size - 4 : start + size], 'little')
        if zlib.crc32(body, key) != checksum or _BODY.unpack(body)[0] != n_rows + valid:
            break
        valid += 1
    return np.frombuffer(tail, _RECORD, count=valid)


def _read_columns(path: Path) -> dict[str, np.ndarray]:
    """All rows of a history, tail included, as arrays."""
    table, tail = _read_table(path)
    _check_columns(table, path)
    return {name: np.concatenate([table[name].to_numpy().astype(_RECORD[name]), tail[name]]) for name in COLUMNS}


def _check_columns(table: pa.Table, path: Path) -> None:
    missing = [name for name in COLUMNS if name not in table.column_names]
    if missing:
        raise ValueError(
            f"'{path}' is no history: it has no column {', '.join(missing)}; "
            f'its columns are {", ".join(table.column_names) or "none"}'
        )
