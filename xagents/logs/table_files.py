"""The two files of a table that grows during a run: a parquet file, and a tail file with the newest rows.

Rows cannot be appended to a parquet file, and rewriting it for every row would cost more than training. So there are
two files:

* `<path>`, the parquet file, is replaced by a longer one from time to time.
* `<path>.tail`, the tail file, contains the rows since then, as consecutive Arrow IPC streams. A later stream may have
  more columns.

The metadata of each parquet file contains a unique key. The metadata of each stream contains a tag: the key of the
parquet file, the number of the first row of the stream, and a checksum of its rows. A reader uses a stream only if its
key matches, its rows follow the rows before, and its checksum is right. So a process can be killed at any instant, and
no row is read twice, damaged, or from another file.

A reader reads the tail file first and the parquet file second. If the parquet file is replaced in between, the tail no
longer matches, but the new parquet file already contains its rows.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import os
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from xagents.options.errors import OptionError, did_you_mean, one_line
from xagents.system.files import atomic_write

if TYPE_CHECKING:
    import pyarrow as pa

KEY, TAG = b'xagents.key', b'xagents.tag'


def write_parquet(table: pa.Table, path: Path) -> str:
    """Replace a parquet file, atomically, by one with the rows of `table`; return its key."""
    import pyarrow.parquet as pq

    key = os.urandom(8).hex()
    with atomic_write(path) as temporary:
        # the numbers rarely repeat, so dictionaries would take four times the time and much memory without benefit
        pq.write_table(table.replace_schema_metadata({KEY: key}), temporary, compression='zstd', use_dictionary=False)
    return key


def tail_stream(rows: pa.Table, key: str, row: int) -> bytes:
    """Return rows as bytes for the tail file.

    Args:
        rows: the rows.
        key: key of the parquet file.
        row: number of the first row in the table.
    """
    import pyarrow as pa

    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, rows.schema.with_metadata({TAG: _tag(key, row, rows)})) as writer:
        writer.write_table(rows)
    return sink.getvalue()


def read_table(path: Path, noun: str) -> pa.Table:
    """Read a parquet file and its tail file, or a folder of parquet files.

    Args:
        path: the parquet file or the folder.
        noun: name of the kind of file, for the messages of errors.

    Raises:
        ValueError: if the file does not exist or is not a parquet file.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    if not path.exists():
        similar = did_you_mean(path.name, [entry.name for entry in path.parent.glob('*.parquet')])
        raise ValueError(f'there is no file {path}{similar}')
    tail = b''
    try:
        if path.is_dir():
            return pq.read_table(path)
        with contextlib.suppress(FileNotFoundError):
            tail = tail_path(path).read_bytes()  # before the parquet file, see the docstring of this module
        table = pq.read_table(pa.BufferReader(path.read_bytes()))
    except pa.ArrowInvalid as error:
        raise ValueError(f"the {noun} '{path}' is not a readable parquet file ({one_line(error)})") from error
    metadata = table.schema.metadata or {}
    rows = _tail_rows(tail, metadata[KEY].decode(), len(table)) if KEY in metadata else []
    return pa.concat_tables([table, *rows], promote_options='default') if rows else table


def check_can_continue(option: str, path: str | os.PathLike[str], read: Callable[[Path], object]) -> None:
    """Raise OptionError if the file of an earlier run exists and `read` raises ValueError for it."""
    path = Path(path)
    try:
        if path.exists():
            read(path)
    except ValueError as error:
        problem = f'got {path}, which cannot be continued: {error}; without that file'
        raise OptionError(option, f'{problem} the run resumes, and its rows are lost') from error


def tail_path(path: Path) -> Path:
    """Return the path of the tail file of a parquet file."""
    return path.with_name(path.name + '.tail')


def free_path(path: Path) -> Path:
    """Return the first path of `<stem>.1.parquet`, `<stem>.2.parquet` and so on that does not exist."""
    names = (path.with_name(f'{path.stem}.{number}.parquet') for number in itertools.count(1))
    return next(name for name in names if not name.exists())


def _tag(key: str, row: int, rows: pa.Table) -> bytes:
    values = b''.join([column.to_numpy().tobytes() for column in rows.columns])
    columns = str(rows.schema.remove_metadata())
    return f'{key} {row} {zlib.crc32(values, zlib.crc32(columns.encode()))}'.encode()


def _tail_rows(tail: bytes, key: str, n_rows: int) -> list[pa.Table]:
    """Read the streams of a tail up to the first one that is damaged, has another key or does not follow the rows."""
    import pyarrow as pa

    found: list[pa.Table] = []
    source = pa.BufferReader(tail)
    with contextlib.suppress(pa.ArrowException, OSError, ValueError):
        while source.tell() < len(tail):
            reader = pa.ipc.open_stream(source)
            rows = reader.read_all()
            rows.validate()
            if (reader.schema.metadata or {}).get(TAG) != _tag(key, n_rows, rows):
                break
            found.append(rows)
            n_rows += len(rows)
    return found
