"""What W&B keeps of a run that is logged offline, cut at a step.

It is a log in LevelDB's format: after a header of 7 bytes, blocks of 32 KiB whose first holds the header; in them
fragments of records, each behind 4 bytes of checksum, 2 of length and 1 of kind (1 whole, 2 first, 3 middle, 4 last);
fewer than 7 bytes at a block's end are padding. A record is one of W&B's protobuf messages.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from xagents.system.files import replacing

HEADER, BLOCK, FRAGMENT = 7, 32768, 7
WHOLE, FIRST, LAST = 1, 2, 4


def cut_offline_log(path: str | os.PathLike[str], step: int) -> int:
    """Drop from a log what was logged beyond a step; one that was synced stays, and so does one of an online run.

    Args:
        path: of W&B's `run-<id>.wandb`; it may be gone.
        step: the last one that stays.

    Returns:
        The last step that the log holds now; -1 where it holds none, or W&B's server knows better.
    """
    path = Path(path)
    if not path.parent.name.startswith('offline-') or not path.exists():
        return -1
    synced = path.with_name(path.name + '.synced').exists()
    last = -1
    for start, record in _records(path.read_bytes()):
        if not record.HasField('history'):
            continue
        at = record.history.step.num
        if at > step and not synced:
            _keep(path, start)
            break
        last = max(last, at)
    return last


def _records(data: bytes) -> Iterator[tuple[int, Any]]:
    """Give records and where they start, up to the first that is torn."""
    from wandb.proto import wandb_internal_pb2

    messages: Any = wandb_internal_pb2
    position, start, content = HEADER, HEADER, b''
    while position + FRAGMENT <= len(data):
        left = BLOCK - position % BLOCK
        if left < FRAGMENT:
            position += left
            continue
        length, kind = int.from_bytes(data[position + 4 : position + 6], 'little'), data[position + 6]
        if kind in (WHOLE, FIRST):
            start, content = position, b''
        position += FRAGMENT + length
        if not WHOLE <= kind <= LAST or position > len(data):
            return
        content += data[position - length : position]
        if kind in (WHOLE, LAST):
            yield start, messages.Record.FromString(content)


def _keep(path: Path, size: int) -> None:
    # a file of its own: a W&B process that outlived a kill may still be writing to the old one
    with open(path, 'rb') as source, replacing(path) as temporary:
        temporary.write_bytes(source.read(size))
