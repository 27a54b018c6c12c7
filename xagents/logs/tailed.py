"""Rows that are kept while a run goes on, in one parquet file that is whole at any moment.

A parquet file cannot be appended to, and rewriting it for every row would cost more than the training. So the rows
stand in two places while a run goes on:

* `<path>` is the parquet file. It is rewritten whole (temporary file, fsync, rename), seldom enough to cost less than
  a hundredth of the run's time; between two rewritings it is complete, and slightly older.
* `<path>.tail` holds the rows since then, as records that begin with the row's number and end with a checksum.

Each rewriting draws a new number, the tail's key, stores it in the parquet file's metadata, and starts the CRC of the
records that follow with it. Hence a record counts only behind the very file it was written after, and only if its
number continues that file's rows: whatever instant a process is killed at, no row is read twice and no torn or left
over record is read at all. A reader takes the tail first and the parquet file second; if the file is replaced in
between, the tail no longer matches and the new file has its rows already.
"""

from __future__ import annotations

import contextlib
import difflib
import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from xagents.options.errors import OptionError
from xagents.system.files import naming, replacing

if TYPE_CHECKING:
    import pyarrow as pa

_KEY = b'xagents.tail_key'

TAIL_SECONDS = 0.25
"""Longest time between an appended row and its writing to the tail, as long as rows keep coming."""
REWRITE_SECONDS = 5.0
"""Shortest time between two rewritings of the parquet file."""
REWRITE_COST_FACTOR = 120
"""A rewriting waits for at least this many times what the last one cost: under 1 % of a run, though costs grow."""


class TailedWriter(ABC):
    """Keeps the rows of a run in a parquet file and the newest in a tail beside it, as this module's docstring says.

    A subclass holds the rows, and says what the columns and the tail's records look like.

    Attributes:
        path: The parquet file.
        renamed: Where an older file of the same name was moved to, or None.
    """

    def __init__(self, path: Path, resume: bool) -> None:
        self.path = path
        self.renamed: Path | None = None
        self._tail_path = _tail_path(path)
        self._tail: Any = None
        self._tail_size = 0  # bytes of the tail that count
        self._closed = False
        self._synced = True
        self._key = 0
        self._saved = 0  # rows that the parquet file holds
        self._written = 0  # rows that the parquet file and the tail hold together
        with naming(path):
            if path.exists():
                if resume:
                    self._adopt(self._read())
                if not resume or path.is_dir():
                    self.renamed = self._set_aside()
            self._rewrite()
            self._tail_path.unlink(missing_ok=True)  # nothing in it is valid behind the file just written
        self._next_rewrite = self._next_tail = 0.0  # the first rows show in the parquet file at once

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    @abstractmethod
    def n_rows(self) -> int:
        """Number of rows, those of a continued file included."""

    @abstractmethod
    def _columns(self) -> Mapping[str, Any]:
        """All rows by column, as pyarrow takes them."""

    @abstractmethod
    def _records(self, start: int) -> bytes:
        """The tail's records of the rows from number `start` on."""

    @abstractmethod
    def _read(self) -> Mapping[str, np.ndarray]:
        """Read all rows of an older file, tail included; raises ValueError for another kind of file."""

    @abstractmethod
    def _adopt(self, columns: Mapping[str, np.ndarray]) -> None:
        """Make `columns` all the rows there are, without writing them."""

    def flush(self) -> None:
        """Make all rows durable now, in the small append-only file: cheap, and safe against a power cut too."""
        if self._closed:
            return
        self._write_tail()
        if not self._synced:
            with naming(self._tail_path):
                os.fsync(self._tail.fileno())
            self._synced = True

    def close(self) -> None:
        """Write everything to the parquet file and remove the tail. Closing again does nothing."""
        if self._closed:
            return
        if self._saved != self.n_rows:
            self._rewrite()
        if self._tail is not None:
            self._tail.close()
            self._tail = None
        self._tail_path.unlink(missing_ok=True)
        self._closed = True

    def _save(self) -> None:
        """Write what is due after new rows."""
        now = time.monotonic()
        if now >= self._next_rewrite:
            self._rewrite()
        elif now >= self._next_tail:
            self._write_tail()

    def _rewrite(self) -> None:
        """Replace the parquet file by one with all rows, and start an empty tail."""
        started = time.monotonic()
        key = int.from_bytes(os.urandom(4), 'little')
        with naming(self.path):
            write_parquet(self._columns(), self.path, {_KEY: str(key).encode()})
        # From here on no record of the old tail counts any more, emptied or not.
        self._key = key
        self._saved = self._written = self.n_rows
        self._tail_size = 0
        if self._tail is not None:
            with naming(self._tail_path):
                self._tail.truncate(0)
            self._synced = True
        ended = time.monotonic()
        self._next_rewrite = ended + max(REWRITE_SECONDS, REWRITE_COST_FACTOR * (ended - started))

    def _write_tail(self) -> None:
        """Write the rows that are in neither file yet to the tail."""
        self._next_tail = time.monotonic() + TAIL_SECONDS
        rest = memoryview(self._records(self._written))
        if not rest:
            return
        size = len(rest)
        with naming(self._tail_path):
            if self._tail is None:
                self._tail = open(self._tail_path, 'wb', buffering=0)  # noqa: SIM115 (kept open between writes)
            # Positioned, not appended: what a failed write left behind (a full disk) is overwritten by the next one.
            self._tail.seek(self._tail_size)
            self._synced = False
            while rest:
                rest = rest[self._tail.write(rest) :]
        self._tail_size += size
        self._written = self.n_rows

    def _set_aside(self) -> Path | None:
        """Rename an older file to the next free numbered name; one without a row is not worth keeping."""
        path = self.path
        with contextlib.suppress(ValueError):  # unreadable or another program's: kept as it is
            n_rows = len(next(iter(self._read().values())))
            if n_rows == 0 and path.is_file():
                return None
            if path.is_file() and self._tail_path.exists():  # made whole first: one rename then moves all of it
                type(self)(path, resume=True).close()
        number = 1
        while (target := path.with_name(f'{path.stem}.{number}.parquet')).exists():
            number += 1
        os.rename(path, target)
        return target


def _tail_path(path: Path) -> Path:
    return path.with_name(path.name + '.tail')


def write_parquet(columns: Mapping[str, np.ndarray], path: Path, metadata: Mapping[bytes, bytes]) -> None:
    """Write columns by name, equally long ones, to a parquet file in one step."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.table(dict(columns)).replace_schema_metadata(dict(metadata) or None)
    with replacing(path) as temporary:
        # Numbers that hardly repeat: dictionaries of them would cost four times the time and much memory for nothing.
        pq.write_table(table, temporary, compression='zstd', use_dictionary=False)


def check_goes_on(option: str, path: str | os.PathLike[str], read: Callable[[Path], object]) -> None:
    """Check that a file of an earlier run can be continued, where there is one.

    Args:
        option: what was given, for the message.
        path: the parquet file.
        read: raises ValueError where it cannot be read.

    Raises:
        OptionError: in one line that says what to do.
    """
    path = Path(path)
    try:
        if path.exists():
            read(path)
    except ValueError as error:
        problem = f'got {path}, which cannot be continued: {error}; without that file the run goes on, and its'
        raise OptionError(option, f'{problem} rows are lost') from error


def read_both(path: Path, noun: str) -> tuple[pa.Table, bytes, int]:
    """Read a parquet file and the tail beside it.

    Args:
        path: The parquet file, or a folder of them.
        noun: What it is, for messages.

    Returns:
        The table, the tail's bytes (none, where no tail can belong to the file) and the tail's key.

    Raises:
        ValueError: If there is no such file, or it is no parquet file.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    if not path.exists():
        raise ValueError(f"the {noun} '{path}' does not exist{_similar_file(path)}")
    try:
        if path.is_dir():
            return pq.read_table(path), b'', 0
        try:
            tail = _tail_path(path).read_bytes()  # before the parquet file, see the module's docstring
        except FileNotFoundError:
            tail = b''
        table = pq.read_table(pa.BufferReader(path.read_bytes()))
    except pa.ArrowInvalid as error:
        raise ValueError(f"the {noun} '{path}' is not a readable parquet file ({_first_line(error)})") from error
    key = (table.schema.metadata or {}).get(_KEY)
    return table, tail if key else b'', int(key or 0)


def _similar_file(path: Path) -> str:
    try:
        names = [entry.name for entry in path.parent.iterdir() if entry.suffix == '.parquet']
    except OSError:
        return ''
    nearest = difflib.get_close_matches(path.name, names, n=1)
    return f" (did you mean '{path.with_name(nearest[0])}'?)" if nearest else ''


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [''])[0]
