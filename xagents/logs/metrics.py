"""The metrics of a run: one row an iteration or less, in one parquet file that is whole at any moment.

The file is kept as a history is (see `xagents.logs.tailed`). What differs is that columns come later in a run, so records
of the tail have no common length. One is, little-endian: the length of the body (uint32), the CRC-32 of the body,
started with the tail's key (uint32), and the body: the row's number (uint64), its step (int64), the length of the new
names (uint32), these as a JSON list (nothing where there is none), and a float64 for each column but `steps`: those of
the parquet file in its order, then the new ones of this and the earlier records.
"""

from __future__ import annotations

import bisect
import json
import os
import struct
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from xagents.logs.tailed import TailedWriter, read_both

if TYPE_CHECKING:
    import pandas as pd

__all__ = ['MetricsWriter', 'read_metrics']

STEPS = 'steps'
BLOCK_ROWS = 1024
_HEAD = struct.Struct('<II')
_BODY = struct.Struct('<QqI')
# what a column holds in the rows before it came; one array stands for all those blocks
_MISSING = np.full(BLOCK_ROWS, np.nan)


class MetricsWriter(TailedWriter):
    """Writes the metrics of a run, so that killing the process at any instant loses next to nothing.

    Every row is in the operating system's hands when `write` returns; `flush` makes them durable against a power cut.
    A row of 25 columns costs 200 bytes of memory and some 40 microseconds.

    Attributes:
        path: The parquet file.
        renamed: Where an older file of the same name was moved to, or None.
        n_rows: Number of rows, those of a continued file included.
        last_step: `steps` of the last row; 0 when there is none.
    """

    def __init__(self, path: str | os.PathLike[str], resume: bool = False, steps: int | None = None) -> None:
        """Open a file of metrics.

        Args:
            path: The parquet file; its folder must exist.
            resume: Continue an existing file. Otherwise one that has rows is renamed to `<stem>.1.parquet` (or the
                next free number), where `renamed` points.
            steps: Where the run resumes: rows beyond that step are dropped. None keeps all.

        Raises:
            ValueError: If an existing file is to be continued and holds no metrics; it stays as it is.
            OSError: If the file cannot be written; names it.
        """
        self._n_rows = 0
        self._names: dict[str, int] = {}  # the columns but `steps`, and where each stands
        self._births: list[int] = []  # the row that each of them came with
        # Blocks of BLOCK_ROWS rows, the last partly filled: rows never move, so memory never doubles.
        self._steps: list[np.ndarray] = []  # [BLOCK_ROWS] each
        self._blocks: list[np.ndarray] = []  # [columns known then, BLOCK_ROWS] each
        super().__init__(Path(path), resume)
        if resume and steps is not None:
            self.cut(steps)

    @property
    def n_rows(self) -> int:
        """Number of rows, those of a continued file included."""
        return self._n_rows

    @property
    def last_step(self) -> int:
        """`steps` of the last row; 0 when there is none."""
        return int(self._steps[-1][(self._n_rows - 1) % BLOCK_ROWS]) if self._n_rows else 0

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        """Write a row.

        Args:
            step: Environment steps of the run so far.
            metrics: Numbers by name. A name may be new, and one that is missing is NaN in this row. `steps` is passed
                over, because `step` says it.

        Raises:
            OSError: If the disk is full or the folder is gone; names the file. The row is kept for the next attempt.
        """
        if self._closed:
            raise ValueError(f"the metrics '{self.path}' are closed")
        values = {name: float(value) for name, value in metrics.items() if name != STEPS}
        if not values.keys() <= self._names.keys():
            self._add_columns([name for name in values if name not in self._names])
        block, place = divmod(self._n_rows, BLOCK_ROWS)
        if place == 0 and block == len(self._blocks):
            self._steps.append(np.zeros(BLOCK_ROWS, np.int64))
            self._blocks.append(np.full((len(self._names), BLOCK_ROWS), np.nan))
        self._steps[block][place] = int(step)
        self._blocks[block][:, place] = [values.get(name, np.nan) for name in self._names]
        self._n_rows += 1
        self._next_tail = 0.0  # rows are seldom, and the next one may be long in coming
        self._save()

    def cut(self, step: int) -> None:
        """Drop the rows beyond `step`, for a run that resumes at an earlier checkpoint."""
        columns = {name: np.concatenate([np.zeros(0, np.int64), *self._pieces(name)]) for name in (STEPS, *self._names)}
        keep = columns[STEPS] <= step
        if not keep.all():
            self._adopt({name: column[keep] for name, column in columns.items()})
            self._rewrite()

    def _add_columns(self, names: list[str]) -> None:
        for name in names:
            self._names[name] = len(self._names)
            self._births.append(self._n_rows)
        if self._n_rows % BLOCK_ROWS:  # the last block is not full and takes the new columns in
            missing = np.full((len(names), BLOCK_ROWS), np.nan)
            self._blocks[-1] = np.concatenate([self._blocks[-1], missing])

    def _pieces(self, name: str) -> list[np.ndarray]:
        """The blocks of a column without what is not filled yet."""
        if name == STEPS:
            pieces = list(self._steps)
        else:
            index = self._names[name]
            pieces = [block[index] if index < len(block) else _MISSING for block in self._blocks]
        if self._n_rows % BLOCK_ROWS:
            pieces[-1] = pieces[-1][: self._n_rows % BLOCK_ROWS]
        return pieces

    def _columns(self) -> dict[str, Any]:
        import pyarrow as pa

        # The blocks themselves, not a copy of everything at each rewriting.
        kinds = {STEPS: pa.int64(), **dict.fromkeys(self._names, pa.float64())}
        return {
            name: pa.chunked_array([pa.array(piece) for piece in self._pieces(name)], type=kind)
            for name, kind in kinds.items()
        }

    def _records(self, start: int) -> bytes:
        return b''.join(self._record(row) for row in range(start, self._n_rows))

    def _record(self, row: int) -> bytes:
        block, place = divmod(row, BLOCK_ROWS)
        before, width = bisect.bisect_left(self._births, row), bisect.bisect_right(self._births, row)
        names = json.dumps(list(self._names)[before:width]).encode() if before < width else b''
        values = self._blocks[block][:width, place].astype('<f8').tobytes()
        body = _BODY.pack(row, int(self._steps[block][place]), len(names)) + names + values
        return _HEAD.pack(len(body), zlib.crc32(body, self._key)) + body

    def _read(self) -> dict[str, np.ndarray]:
        frame = read_metrics(self.path)
        return {str(name): frame[name].to_numpy(np.int64 if name == STEPS else np.float64) for name in frame.columns}

    def _adopt(self, columns: Mapping[str, np.ndarray]) -> None:
        self._n_rows = len(columns[STEPS])
        names = [name for name in columns if name != STEPS]
        self._names = {name: index for index, name in enumerate(names)}
        self._births = [-1] * len(names)
        self._steps, self._blocks = [], []
        for start in range(0, self._n_rows, BLOCK_ROWS):
            size = min(BLOCK_ROWS, self._n_rows - start)
            self._steps.append(np.zeros(BLOCK_ROWS, np.int64))
            self._steps[-1][:size] = columns[STEPS][start : start + size]
            self._blocks.append(np.full((len(names), BLOCK_ROWS), np.nan))
            for index, name in enumerate(names):
                self._blocks[-1][index, :size] = columns[name][start : start + size]


def read_metrics(path: str | os.PathLike[str]) -> pd.DataFrame:
    """Read the metrics of a run, also of one that is writing at this moment, or that was killed.

    Args:
        path: The parquet file.

    Returns:
        One row a written iteration: `steps` first, then the metrics in the order in which they first came, NaN where
        a row has none.

    Raises:
        ValueError: If there is no such file, or it holds no metrics.
    """
    import pandas as pd

    path = Path(path)
    table, tail, key = read_both(path, 'metrics')
    if STEPS not in table.column_names:
        raise ValueError(f"'{path}' holds no metrics: it has no column {STEPS}")
    if not all(field.type in ('int64', 'double') for field in table.schema):
        raise ValueError(f"'{path}' holds no metrics: it has columns that are no numbers")
    frame: pd.DataFrame = table.to_pandas()
    names = [name for name in table.column_names if name != STEPS]
    rows = list(_valid_rows(tail, key, len(frame), names))
    values = np.full((len(rows), len(names)), np.nan)
    for place, (_, row) in enumerate(rows):
        values[place, : len(row)] = row
    newer = pd.DataFrame(values, columns=names)
    newer.insert(0, STEPS, np.array([step for step, _ in rows], np.int64))
    older = frame.reindex(columns=[STEPS, *names])
    # pandas makes no promise for the types of an empty frame's columns, and half of the time one of the two is
    return pd.concat([older, newer], ignore_index=True) if len(older) and rows else older if len(older) else newer


def _valid_rows(tail: bytes, key: int, n_rows: int, names: list[str]) -> Iterator[tuple[int, np.ndarray]]:
    """The rows of a tail up to the first that is torn, of another file, or does not continue the rows.

    Adds the columns that they bring to `names`; an earlier row is the shorter.
    """
    start = 0
    while len(tail) - start >= _HEAD.size + _BODY.size:
        length, checksum = _HEAD.unpack_from(tail, start)
        body = tail[start + _HEAD.size : start + _HEAD.size + length]
        if len(body) < length or length < _BODY.size or zlib.crc32(body, key) != checksum:
            return
        row, step, declared = _BODY.unpack_from(body)
        if row != n_rows:
            return
        values_start = _BODY.size + declared
        names += json.loads(body[_BODY.size : values_start] or b'[]')
        yield step, np.frombuffer(body, '<f8', offset=values_start)
        start += _HEAD.size + length
        n_rows += 1
