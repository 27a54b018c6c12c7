"""Exclusive locks of files."""

from __future__ import annotations

import os
from typing import IO


def lock_file(path: str | os.PathLike[str]) -> IO[bytes] | None:
    """Lock a file until the returned file object is closed or the process ends.

    Returns:
        The open file; None if the system has no such locks.

    Raises:
        BlockingIOError: If another process has locked the file.
    """
    try:
        import fcntl
    except ImportError:
        return None
    file = open(path, 'wb')  # noqa: SIM115 (the caller closes it)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return file
    except OSError as error:
        file.close()
        raise BlockingIOError(error.errno, f'{path} is locked by another process') from error
