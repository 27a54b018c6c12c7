"""A writer of tables that grow during a run, row by row."""

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

# minimal seconds between two writes of the tail file, and between two rewrites of the parquet file
TAIL_SECONDS, REWRITE_SECONDS = 0.25, 5.0
# a rewrite waits at least this many times the duration of the last one, so that rewrites take under 1 % of a run
REWRITE_COST_FACTOR = 120


class TableWriter(ABC):
    """A writer of rows that loses almost nothing if the process is killed.

    The rows are stored in a parquet file and a tail file (see `xagents.logs.table_files`). A subclass defines
    the initial columns and adds later columns to `_names`; earlier rows contain null there. The column of steps
    holds int64, all others float64.
    """

    COLUMNS: ClassVar[tuple[str, ...]]
    STEP: ClassVar[str]

    def __init__(self, path: str | os.PathLike[str], resume: bool = False) -> None:
        """Open a table in an existing folder.

        If a file with rows exists and `resume` is false, it is renamed to `<stem>.1.parquet`, or with the next free
        number. `renamed_to` is its new path.

        Args:
            path: the parquet file.
            resume: append to an existing file.

        Raises:
            ValueError: if `resume` is true and the existing file is of another kind; the file does not change.
            OSError: if the file cannot be written. The error names the file.
        """
        self.path = Path(path)
        self.renamed_to: Path | None = None
        self._names = dict.fromkeys(self.COLUMNS)  # of the columns, in the order of their first appearance
        self._table = self._schema().empty_table()  # the rows of the parquet file
        self._new_rows: list[dict[str, float]] = []  # the rows after them
        self._n_in_tail = 0  # number of new rows in the tail file
        self._tail_path = tail_path(self.path)
        self._tail: Any = None
        self._tail_size = 0  # valid bytes of the tail file
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
            self._tail_path.unlink(missing_ok=True)  # its rows do not follow the new parquet file
        self._next_rewrite = self._next_tail = 0.0  # write the first rows to the parquet file at once

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    @staticmethod
    @abstractmethod
    def _read(path: Path) -> pa.Table:
        """Return all rows of a file; raise ValueError if the file is of another kind."""

    @property
    def n_rows(self) -> int:
        """Number of rows, including the rows of a continued file."""
        return len(self._table) + len(self._new_rows)

    @property
    def last_step(self) -> int:
        """Environment steps of the last row; 0 if there is no row."""
        return int(self._last(self.STEP))

    def truncate_after(self, step: int) -> None:
        """Delete the rows after `step`, for a run that resumes at an earlier checkpoint."""
        import pyarrow.compute as pc

        rows = self._rows()
        kept_rows = rows.filter(pc.less_equal(rows[self.STEP], step))
        if len(kept_rows) < len(rows):
            self._rewrite(kept_rows)

    def flush(self) -> None:
        """Write all rows to the tail file, durably: a power cut does not lose them."""
        self._write_tail()
        if self._tail_size:
            with name_file_in_errors(self._tail_path):
                os.fsync(self._tail.fileno())

    def close(self) -> None:
        """Write all rows to the parquet file and remove the tail file. Later calls have no effect."""
        if self._closed:
            return
        if self._new_rows:
            self._rewrite()
        if self._tail is not None:
            self._tail.close()
        self._tail_path.unlink(missing_ok=True)
        self._closed = True

    def _add(self, rows: list[dict[str, float]]) -> None:
        """Add rows and write to a file if a write is due. If it fails, the next call writes the rows."""
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
        """Return the new rows from number `start` on, with all columns."""
        import pyarrow as pa

        return pa.Table.from_pylist(self._new_rows[start:], schema=self._schema())

    def _rows(self) -> pa.Table:
        """Return all rows as one table."""
        import pyarrow as pa

        return pa.concat_tables([self._table, self._new_rows_table()], promote_options='default').combine_chunks()

    def _rewrite(self, rows: pa.Table | None = None) -> None:
        """Replace the parquet file by one with these rows, by default all rows. The tail file becomes invalid."""
        started = time.monotonic()
        rows = self._rows() if rows is None else rows
        with name_file_in_errors(self.path):
            self._key = write_parquet(rows, self.path)
        self._table, self._new_rows, self._n_in_tail, self._tail_size = rows, [], 0, 0
        ended = time.monotonic()
        self._next_rewrite = ended + max(REWRITE_SECONDS, REWRITE_COST_FACTOR * (ended - started))

    def _write_tail(self) -> None:
        """Append to the tail file the rows that are in neither file."""
        self._next_tail = time.monotonic() + TAIL_SECONDS
        if self._n_in_tail == len(self._new_rows):
            return
        rows = self._new_rows_table(self._n_in_tail)
        rest = memoryview(tail_stream(rows, self._key, len(self._table) + self._n_in_tail))
        size = self._tail_size + len(rest)
        with name_file_in_errors(self._tail_path):
            if self._tail is None:
                self._tail = open(self._tail_path, 'wb', buffering=0)  # noqa: SIM115 (kept open between writes)
            # remove invalid bytes: older streams, and the rest of a failed write (full disk)
            self._tail.seek(self._tail_size)
            self._tail.truncate()
            while rest:
                rest = rest[self._tail.write(rest) :]
        self._tail_size, self._n_in_tail = size, len(self._new_rows)

    def _rename_existing(self) -> Path | None:
        """Rename an older file to the next free numbered name and return it; return None for a file without rows."""
        with contextlib.suppress(ValueError):  # unreadable, or written by another program: rename the files unchanged
            if self.path.is_file():
                if not len(self._read(self.path)):
                    return None
                if self._tail_path.exists():  # merge the tail first, so that one rename moves all rows
                    type(self)(self.path, resume=True).close()
        target = free_path(self.path)
        if self._tail_path.exists():
            os.rename(self._tail_path, tail_path(target))
        os.rename(self.path, target)
        return target
