"""Writes a table that grows during a run, row by row."""

from __future__ import annotations

import contextlib
import os
import time
from abc import ABC, abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

from xagents.logs.table_files import free_path, tail_path, tail_stream, write_parquet
from xagents.system.files import name_file_in_errors

if TYPE_CHECKING:
    import pyarrow as pa

# the longest that a row waits for the tail, as long as rows keep coming, and the shortest between two rewritings
TAIL_SECONDS, REWRITE_SECONDS = 0.25, 5.0
# a rewriting waits for at least this many times what the last one cost: under 1 % of a run, though costs grow
REWRITE_COST_FACTOR = 120


class TableWriter(ABC):
    """Writes rows as they come, so that killing the process at any instant loses next to nothing.

    The rows are stored in a parquet file and a tail file (see `xagents.logs.table_files`). A subclass defines
    the initial columns and adds later columns to `_names`; earlier rows contain null there. The column of steps
    holds int64, all others float64.
    """

    COLUMNS: ClassVar[tuple[str, ...]]
    STEP: ClassVar[str]

    def __init__(self, path: str | os.PathLike[str], resume: bool = False) -> None:
        """Open a table in a folder that exists, to continue a file or to begin a new one.

        An older file that has rows and is not continued is renamed to `<stem>.1.parquet`, or the next free number,
        which `renamed` says.

        Raises:
            ValueError: If an existing file is to be continued and has no such rows; it stays as it is.
            OSError: If the file cannot be written; names it.
        """
        self.path = Path(path)
        self.renamed_to: Path | None = None
        self._names = dict.fromkeys(self.COLUMNS)  # of the columns, in the order in which they came
        self._table = self._schema().empty_table()  # the rows of the parquet file
        self._new_rows: list[dict[str, float]] = []  # those behind them
        self._n_in_tail = 0  # how many of these the tail holds
        self._tail_path = tail_path(self.path)
        self._tail: Any = None
        self._tail_size = 0  # bytes of the tail that count
        self._closed = False
        with name_file_in_errors(self.path):
            rows = self._table
            if self.path.exists():
                if resume:
                    rows = self._read(self.path)
                    self._names = dict.fromkeys(rows.column_names)
                    rows = rows.cast(self._schema(), safe=False)
                if not resume or self.path.is_dir():
                    self.renamed_to = self._rename_existing()
            self._rewrite(rows)
            self._tail_path.unlink(missing_ok=True)  # nothing in it fits behind the file just written
        self._next_rewrite = self._next_tail = 0.0  # the first rows show in the parquet file at once

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    @staticmethod
    @abstractmethod
    def _read(path: Path) -> pa.Table:
        """Return all rows of a file that can be continued; raises ValueError for another kind of file."""

    @property
    def n_rows(self) -> int:
        """Number of rows, those of a continued file included."""
        return len(self._table) + len(self._new_rows)

    @property
    def last_step(self) -> int:
        """Steps of the last row; 0 when there is none."""
        return int(self._last(self.STEP))

    def truncate_after(self, step: int) -> None:
        """Drop the rows beyond `step`, for a run that resumes at an earlier checkpoint."""
        import pyarrow.compute as pc

        rows = self._rows()
        kept_rows = rows.filter(pc.less_equal(rows[self.STEP], step))
        if len(kept_rows) < len(rows):
            self._rewrite(kept_rows)

    def flush(self) -> None:
        """Make all rows durable now, in the tail: cheap, and safe against a power cut too."""
        self._write_tail()
        if self._tail_size:
            with name_file_in_errors(self._tail_path):
                os.fsync(self._tail.fileno())

    def close(self) -> None:
        """Write everything to the parquet file and remove the tail. Closing again does nothing."""
        if self._closed:
            return
        if self._new_rows:
            self._rewrite()
        if self._tail is not None:
            self._tail.close()
        self._tail_path.unlink(missing_ok=True)
        self._closed = True

    def _add(self, rows: list[dict[str, float]]) -> None:
        """Take rows, and write what is due; where that fails they are kept for the next attempt."""
        if self._closed:
            raise ValueError(f"'{self.path}' is closed")
        if not rows:
            return
        self._new_rows += rows
        now = time.monotonic()
        if now >= self._next_rewrite:
            self._rewrite()
        elif now >= self._next_tail:
            self._write_tail()

    def _last(self, name: str) -> float:
        if self._new_rows:
            return self._new_rows[-1][name]
        return self._table[name][-1].as_py() if len(self._table) else 0

    def _schema(self) -> pa.Schema:
        import pyarrow as pa

        return pa.schema([(name, pa.int64() if name == self.STEP else pa.float64()) for name in self._names])

    def _new_rows_table(self, start: int = 0) -> pa.Table:
        """Return the newer rows from number `start` on, with all columns known by now."""
        import pyarrow as pa

        return pa.Table.from_pylist(self._new_rows[start:], schema=self._schema())

    def _rows(self) -> pa.Table:
        """Return all rows, in one piece."""
        import pyarrow as pa

        return pa.concat_tables([self._table, self._new_rows_table()], promote_options='default').combine_chunks()

    def _rewrite(self, rows: pa.Table | None = None) -> None:
        """Let the parquet file hold exactly these rows, or all there are; what the tail holds fits no more."""
        started = time.monotonic()
        rows = self._rows() if rows is None else rows
        with name_file_in_errors(self.path):
            self._key = write_parquet(rows, self.path)
        self._table, self._new_rows, self._n_in_tail, self._tail_size = rows, [], 0, 0
        ended = time.monotonic()
        self._next_rewrite = ended + max(REWRITE_SECONDS, REWRITE_COST_FACTOR * (ended - started))

    def _write_tail(self) -> None:
        """Append the rows that are in neither file to the tail."""
        self._next_tail = time.monotonic() + TAIL_SECONDS
        if self._n_in_tail == len(self._new_rows):
            return
        rows = self._new_rows_table(self._n_in_tail)
        rest = memoryview(tail_stream(rows, self._key, len(self._table) + self._n_in_tail))
        size = self._tail_size + len(rest)
        with name_file_in_errors(self._tail_path):
            if self._tail is None:
                self._tail = open(self._tail_path, 'wb', buffering=0)  # noqa: SIM115 (kept open between writes)
            # what does not count goes: older streams, and what a failed write left behind (a full disk)
            self._tail.seek(self._tail_size)
            self._tail.truncate()
            while rest:
                rest = rest[self._tail.write(rest) :]
        self._tail_size, self._n_in_tail = size, len(self._new_rows)

    def _rename_existing(self) -> Path | None:
        """Rename an older file to the next free numbered name; one without a row is not worth keeping."""
        with contextlib.suppress(ValueError):  # unreadable or another program's: kept as it is
            if self.path.is_file():
                if not len(self._read(self.path)):
                    return None
                if self._tail_path.exists():  # made whole first: one rename then moves all of it
                    type(self)(self.path, resume=True).close()
        target = free_path(self.path)
        if self._tail_path.exists():
            os.rename(self._tail_path, tail_path(target))
        os.rename(self.path, target)
        return target
