"""Files that one process at a time may hold."""

from __future__ import annotations

import os
from typing import IO


def lock_file(path: str | os.PathLike[str]) -> IO[bytes] | None:
    """Return what keeps other processes from holding a file until it is closed, or the process is gone.

    None on systems that have no such locks.

    Raises:
        BlockingIOError: where another one holds it.
    """
    try:
        import fcntl
    except ImportError:
        return None
    file = open(path, 'wb')  # noqa: SIM115 (held as long as the caller wants)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return file
    except OSError as error:
        file.close()
        raise BlockingIOError(error.errno, f'{path} is held by another process') from error
