"""The two files of a table that grows during a run: a complete parquet file, and a file with the newest rows.

A parquet file cannot be appended to, and rewriting it for every row would cost more than training. So there are two:

* `<path>`, the parquet file, which is replaced by a longer one now and then.
* `<path>.tail`, the rows since then, as Arrow IPC streams one behind the other. A later stream may have more columns.

Each parquet file has a key of its own in its metadata. A stream's metadata holds a tag: this key, the number of the
stream's first row, and a checksum of its rows. So a stream counts only behind the very file that it was written after,
only where it continues the rows, and only whole: whatever instant a process is killed at, no row is read twice, torn,
or left over from another file. A reader takes the tail first and the parquet file second. If the file is replaced in
between, the tail no longer fits, and the new file has its rows already.
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
    """Replace a parquet file by one with the rows of `table`, in one step; returns its key."""
    import pyarrow.parquet as pq

    key = os.urandom(8).hex()
    with atomic_write(path) as temporary:
        # Numbers that hardly repeat: dictionaries of them would cost four times the time and much memory for nothing.
        pq.write_table(table.replace_schema_metadata({KEY: key}), temporary, compression='zstd', use_dictionary=False)
    return key


def tail_stream(rows: pa.Table, key: str, row: int) -> bytes:
    """Return rows as they are appended to the tail of the file of that key; `row` is the number of the first one."""
    import pyarrow as pa

    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, rows.schema.with_metadata({TAG: _tag(key, row, rows)})) as writer:
        writer.write_table(rows)
    return sink.getvalue()


def read_table(path: Path, noun: str) -> pa.Table:
    """Read a parquet file, the rows of its tail included, or a folder of them; `noun` says in messages what it is.

    Raises:
        ValueError: If there is no such file, or it is no parquet file.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    if not path.exists():
        similar = did_you_mean(path.name, [entry.name for entry in path.parent.glob('*.parquet')])
        raise ValueError(f"the {noun} '{path}' does not exist{similar}")
    tail = b''
    try:
        if path.is_dir():
            return pq.read_table(path)
        with contextlib.suppress(FileNotFoundError):
            tail = tail_path(path).read_bytes()  # before the parquet file, see the module's docstring
        table = pq.read_table(pa.BufferReader(path.read_bytes()))
    except pa.ArrowInvalid as error:
        raise ValueError(f"the {noun} '{path}' is not a readable parquet file ({one_line(error)})") from error
    metadata = table.schema.metadata or {}
    rows = _tail_rows(tail, metadata[KEY].decode(), len(table)) if KEY in metadata else []
    return pa.concat_tables([table, *rows], promote_options='default') if rows else table


def check_can_continue(option: str, path: str | os.PathLike[str], read: Callable[[Path], object]) -> None:
    """Check that a file of an earlier run can be continued, where there is one; OptionError where `read` refuses it."""
    path = Path(path)
    try:
        if path.exists():
            read(path)
    except ValueError as error:
        problem = f'got {path}, which cannot be continued: {error}; without that file the run goes on, and its'
        raise OptionError(option, f'{problem} rows are lost') from error


def tail_path(path: Path) -> Path:
    """Return where the newest rows of a parquet file stand."""
    return path.with_name(path.name + '.tail')


def free_path(path: Path) -> Path:
    """Return the first of `<stem>.1.parquet`, `<stem>.2.parquet` and so on that does not exist."""
    names = (path.with_name(f'{path.stem}.{number}.parquet') for number in itertools.count(1))
    return next(name for name in names if not name.exists())


def _tag(key: str, row: int, rows: pa.Table) -> bytes:
    values = b''.join([column.to_numpy().tobytes() for column in rows.columns])
    columns = str(rows.schema.remove_metadata())
    return f'{key} {row} {zlib.crc32(values, zlib.crc32(columns.encode()))}'.encode()


def _tail_rows(tail: bytes, key: str, n_rows: int) -> list[pa.Table]:
    """Read the streams of a tail up to the first that is torn, of another file, or does not continue the rows."""
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
