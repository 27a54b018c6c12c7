"""A replay buffer on disk: each save writes one new file with the rows that were added since the last save.

After a row of a ring was added, it does not change, except for the newest row (see `xagents.replay.ring`). A segment,
`<number>.npz`, therefore contains the rows from the newest one at the last save to the newest one now. The checkpoint
contains the rest: the list of segments, their checksums, and the arrays that can change in any row. If a process is
killed after it wrote a segment and before the checkpoint, no checkpoint refers to the segment. The next save uses a
higher number.
"""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from xagents.options.errors import one_line
from xagents.replay.buffer import Buffer
from xagents.replay.ring import Ring
from xagents.system.files import atomic_write

# Up to this size in bytes, a new segment absorbs the previous segments that are no larger. Otherwise a slow run would
# write thousands of segments. The number of segments, and of writes of a row, grows with the logarithm of the saves.
MERGED_BYTES = 4_000_000
# Zstandard's fastest level. It compresses 3000 Atari frames to 1/60 of their size in 10 to 16 ms, which is faster than
# writing them uncompressed. The compression of zip takes 60 to 100 ms.
LEVEL = 1


class Segment(NamedTuple):
    """The number of a file, the numbers of its rows (`first` to `stop` - 1), and its checksum."""

    number: int
    first: int
    stop: int
    checksum: int


class SegmentStore:
    """The segments of one replay buffer in a directory, which the first save creates."""

    def __init__(self, folder: str | Path):
        self.folder = Path(folder)
        self._segments: list[Segment] = []  # the buffer at the last save or load
        self._last_number = 0
        self._others: dict[str, SegmentStore] = {}

    def substore(self, name: str) -> SegmentStore:
        """Return the store of one of several buffers, in a subdirectory, or this store if `name` is empty."""
        if name and name not in self._others:
            self._others[name] = SegmentStore(self.folder / name)
        return self._others[name] if name else self

    def save(self, buffer: Buffer) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Write the rows added since the last save or load, if any, as one new segment, and flush it to the disk.

        Returns:
            The content for a checkpoint: arrays, which are copies (one byte per transition, eight more with
            priorities), and a record of JSON values.

        Raises:
            OSError: if the segment cannot be written; the next save then writes the same rows.
        """
        ring = buffer.ring
        if ring is None or not ring.position:
            return {}, {'segments': []}
        # the last row of a segment is the first of the next one
        segments = [segment for segment in self._segments if segment.stop - 1 > ring.oldest]
        first = segments[-1].stop - 1 if segments else ring.oldest
        if first < ring.position:
            while segments and _should_merge(ring, first, segments[-1]):
                first = max(segments.pop().first, ring.oldest)
            segments.append(self._write(ring, first))
        self._segments = segments
        arrays, counters = ring.state()
        record = {'kind': buffer.storage_options(), 'rows': ring.rows, 'like': ring.batch_columns(), **counters}
        return arrays, {**record, 'segments': [list(segment) for segment in segments]}

    def load(self, buffer: Buffer, arrays: Mapping[str, np.ndarray], record: Mapping[str, Any]) -> None:
        """Fill an empty buffer from the arrays and the record that `save` returned, and from the segments.

        The next save writes only the rows added later.

        Raises:
            ValueError: with a message of one line, for a missing, damaged or different file, a buffer with another size
                or other options, or a buffer that is not empty. The buffer does not change then.
        """
        segments = [Segment(*segment) for segment in record['segments']]
        if segments:
            ring = self._make_ring(buffer, record)
            ring.load(arrays, record)
            ends = [*(segment.first for segment in segments[1:]), segments[-1].stop]
            for segment, end in zip(segments, ends, strict=True):
                first = max(segment.first, ring.oldest)
                part = slice(first - segment.first, end - segment.first)
                rows = self._read(segment, ring)
                ring.write_rows(first, {name: array[part] for name, array in rows.items()})
            buffer.adopt_ring(ring)
        self._segments = segments

    def prune(self, records: Iterable[Mapping[str, Any]]) -> None:
        """Delete unused segments and temporary files of killed processes.

        Segments in `records` and segments of the last save or load are in use.
        """
        needed = {segment.number for segment in self._segments}
        needed |= {Segment(*segment).number for record in records for segment in record['segments']}
        numbers = self._numbers()
        self._last_number = max(self._last_number, *numbers, 0)  # numbers are not reused
        for number in set(numbers) - needed:
            self._path(number).unlink(missing_ok=True)
        for temporary in self.folder.glob('.*.npz.tmp'):
            temporary.unlink(missing_ok=True)

    def _path(self, number: int) -> Path:
        return self.folder / f'{number}.npz'

    def _numbers(self) -> list[int]:
        return [int(path.stem) for path in self.folder.glob('*.npz') if path.stem.isdecimal()]

    def _write(self, ring: Ring, first: int) -> Segment:
        self.folder.mkdir(parents=True, exist_ok=True)
        self._last_number = max(self._last_number, *self._numbers(), 0) + 1
        rows = ring.read_rows(first, ring.position + 1)
        with atomic_write(self._path(self._last_number)) as temporary, zipfile.ZipFile(temporary, 'w') as file:
            for name, array in rows.items():
                with file.open(f'{name}.npy', 'w', force_zip64=True) as member:
                    np.lib.format.write_array(member, _compress(array), allow_pickle=False)
            checksum = _checksum(file)
        return Segment(self._last_number, first, ring.position + 1, checksum)

    def _read(self, segment: Segment, ring: Ring) -> dict[str, np.ndarray]:
        """Return the rows of a segment, in the form of `Ring.read_rows`."""
        path = self._path(segment.number)
        try:
            with zipfile.ZipFile(path) as file:
                same = _checksum(file) == segment.checksum
            if same:
                with np.load(path, allow_pickle=False) as arrays:
                    length = segment.stop - segment.first
                    return {name: _decompress(arrays[name], length, ring.arrays[name]) for name in arrays.files}
        except FileNotFoundError as error:
            raise ValueError(f'{path}: the saved replay buffer needs this file, but it does not exist') from error
        except Exception as error:  # of zipfile, NumPy or Arrow, depending on the damage
            problem = f'the saved replay buffer needs this file, but it is not readable ({one_line(error)})'
            raise ValueError(f'{path}: {problem}') from error
        raise ValueError(f'{path}: not the file that the replay buffer was saved to')

    def _make_ring(self, buffer: Buffer, record: Mapping[str, Any]) -> Ring:
        """Return an empty ring like the saved one; raise a ValueError if size or options of `buffer` differ."""
        saved, own = record['kind'], buffer.storage_options()
        for name in sorted({*saved, *own}):
            if saved.get(name) != own.get(name):
                problem = f'has {name} {saved.get(name)}, this buffer has {own.get(name)}'
                raise ValueError(f'{self.folder}: the saved replay buffer {problem}')
        template = {name: np.empty((0, *shape), dtype) for name, (shape, dtype) in record['like'].items()}
        ring = buffer.make_ring(template)
        if ring.rows != record['rows']:
            sizes = [(rows - 1) * ring.n_envs for rows in (record['rows'], ring.rows)]
            problem = f'has a capacity of {sizes[0]} transitions, this buffer of {sizes[1]} (buffer_max_size)'
            raise ValueError(f'{self.folder}: the saved replay buffer {problem}')
        return ring


def _should_merge(ring: Ring, first: int, before: Segment) -> bool:
    """Return whether a new segment from `first` to the newest row should absorb the previous segment."""
    added = ring.position - first
    most = MERGED_BYTES * ring.rows // sum(array.nbytes for array in ring.arrays.values())
    return first - before.first <= min(added, most - added)


def _checksum(file: zipfile.ZipFile) -> int:
    """Return one checksum of the checksums of all arrays in a file. Reading an array verifies its own checksum."""
    members = [(member.filename, member.file_size, member.CRC) for member in file.infolist()]
    return zlib.crc32(repr(members).encode())


def _compress(array: np.ndarray) -> np.ndarray:
    import pyarrow as pa

    data = pa.py_buffer(array.reshape(-1).view(np.uint8))
    return np.frombuffer(pa.Codec('zstd', LEVEL).compress(data), np.uint8)


def _decompress(data: np.ndarray, length: int, template: np.ndarray) -> np.ndarray:
    """Undo `_compress` for `length` rows with the shape and the dtype of the rows of `template`."""
    import pyarrow as pa

    size = length * template[0].nbytes
    rows = pa.Codec('zstd').decompress(pa.py_buffer(data), size)
    return np.frombuffer(rows, template.dtype).reshape(length, *template.shape[1:])
