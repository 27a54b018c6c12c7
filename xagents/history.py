"""The history of a run: one row an episode, in one parquet file that is whole at any moment.

A parquet file cannot be appended to, and rewriting it for every episode would cost more than the training. So the rows
stand in two places while a run goes on:

* `<path>` is the parquet file. It is rewritten whole (temporary file, fsync, rename), seldom enough to cost less than
  a hundredth of the run's time; between two rewritings it is a complete, slightly older history.
* `<path>.tail` holds the rows since then as records of 52 bytes, little-endian: the row's number (uint64), mean_reward,
  best_reward, episode_reward (float64), step (int64), time (float64), and a CRC-32 of these 48 bytes.

Each rewriting draws a new number, the tail's key, stores it in the parquet file's metadata, and starts the CRC of the
records that follow with it. Hence a record counts only behind the very file it was written after, and only if its
number continues that file's rows: whatever instant a process is killed at, no row is read twice and no torn or left
over record is read at all. A reader takes the tail first and the parquet file second; if the file is replaced in
between, the tail no longer matches and the new file has its rows already.

The metrics of a run (`xagents.metrics_file`) are kept in the same manner by the same `TailedWriter`, with records of
their own.
"""

from __future__ import annotations

import contextlib
import difflib
import errno
import os
import struct
import time
import zlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from xagents.options import OptionError
from xagents.paths import check_parent

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

    from xagents.plotting import plot_history

__all__ = ['COLUMNS', 'HistoryWriter', 'check_history_path', 'plot_history', 'read_history', 'write_from_dict']

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
_KEY = b'xagents.tail_key'

TAIL_SECONDS = 0.25
"""Longest time between an appended row and its writing to the tail, as long as rows keep coming."""
REWRITE_SECONDS = 5.0
"""Shortest time between two rewritings of the parquet file."""
REWRITE_COST_FACTOR = 120
"""A rewriting waits for at least this many times what the last one cost: under 1 % of a run, though costs grow."""


def __getattr__(name: str) -> Any:
    # Drawing needs this module's reader, so its public name can only be passed on lazily.
    if name == 'plot_history':
        from xagents.plotting import plot_history

        return plot_history
    raise AttributeError(f'module {__name__!r} has no attribute {name!r}')


@contextlib.contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Write a file atomically: yields a temporary path beside `path` that becomes `path` when the block succeeds.

    The temporary file is flushed to the disk before it is renamed, and removed when the block raises.
    """
    path = Path(path)
    temporary = path.with_name(f'.{path.name}.tmp')
    try:
        yield temporary
        with open(temporary, 'rb+') as file:
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise
    if os.name == 'posix':  # the rename itself is durable once the folder is; not every file system can say so
        with contextlib.suppress(OSError):
            folder = os.open(path.parent, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)


def check_history_path(path: str | os.PathLike[str], resume: bool = False) -> Path:
    """Check that a history can be written to `path`, without writing anything.

    Args:
        path: The parquet file that is meant.
        resume: Whether an existing file is to be continued; then it must be a readable history.

    Returns:
        The path.

    Raises:
        ValueError: If it does not end in `.parquet`, its folder is missing or not writable, or it cannot be resumed.
    """
    path = Path(path)
    if path.suffix != '.parquet' or path.stem == '':
        raise OptionError('history_checkpoint', f'got {path}, admits a path that ends in .parquet')
    if not path.is_dir():  # 1.0's history was a folder
        check_parent('history_checkpoint', path)
    if resume and path.exists():
        try:
            _check_columns(_read_table(path)[0], path)
        except ValueError as error:
            raise OptionError('history_checkpoint', f'got {path}, which cannot be continued: {error}') from error
    return path


class TailedWriter:
    """Keeps the rows of a run in a parquet file and the newest in a tail beside it, as the module's docstring says.

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
        with _naming(path):
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
    def n_rows(self) -> int:
        """Number of rows, those of a continued file included."""
        raise NotImplementedError

    def _columns(self) -> Mapping[str, Any]:
        """All rows by column, as pyarrow takes them."""
        raise NotImplementedError

    def _records(self, start: int) -> bytes:
        """The tail's records of the rows from number `start` on."""
        raise NotImplementedError

    def _read(self) -> Mapping[str, np.ndarray]:
        """Read all rows of an older file, tail included; raises ValueError for another kind of file."""
        raise NotImplementedError

    def _adopt(self, columns: Mapping[str, np.ndarray]) -> None:
        """Make `columns` all the rows there are, without writing them."""
        raise NotImplementedError

    def flush(self) -> None:
        """Make all rows durable now, in the small append-only file: cheap, and safe against a power cut too."""
        if self._closed:
            return
        self._write_tail()
        if not self._synced:
            with _naming(self._tail_path):
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
        with _naming(self.path):
            _write_parquet(self._columns(), self.path, {_KEY: str(key).encode()})
        # From here on no record of the old tail counts any more, emptied or not.
        self._key = key
        self._saved = self._written = self.n_rows
        self._tail_size = 0
        if self._tail is not None:
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
        with _naming(self._tail_path):
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
    _write_parquet(columns, path, {})


def _tail_path(path: Path) -> Path:
    return path.with_name(path.name + '.tail')


def _write_parquet(columns: Mapping[str, np.ndarray], path: Path, metadata: dict[bytes, bytes]) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.table(dict(columns)).replace_schema_metadata(metadata or None)
    with replacing(path) as temporary:
        # Numbers that hardly repeat: dictionaries of them would cost four times the time and much memory for nothing.
        pq.write_table(table, temporary, compression='zstd', use_dictionary=False)


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


@contextlib.contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Give an OSError of the block the name of the file that it is about: a full disk knows none."""
    try:
        yield
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else _first_line(error)
        raise OSError(error.errno or errno.EIO, reason, str(path)) from error


def _similar_file(path: Path) -> str:
    try:
        names = [entry.name for entry in path.parent.iterdir() if entry.suffix == '.parquet']
    except OSError:
        return ''
    nearest = difflib.get_close_matches(path.name, names, n=1)
    return f" (did you mean '{path.with_name(nearest[0])}'?)" if nearest else ''


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [''])[0]
