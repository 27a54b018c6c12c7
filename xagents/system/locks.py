"""Exclusive locks of files and of temporary folders. The system releases a lock when its process ends."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO


def lock_file(path: str | os.PathLike[str], wait: bool = False) -> IO[bytes] | None:
    """Lock a file until the returned file object is closed or the process ends.

    Args:
        path: the file; it is created, or emptied.
        wait: whether to wait while another process has locked the file.

    Returns:
        The open file; None if the system has no such locks.

    Raises:
        BlockingIOError: If another process has locked the file, without `wait`.
    """
    try:
        import fcntl
    except ImportError:
        return None
    file = open(path, 'wb')  # noqa: SIM115 (the caller closes it)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        return file
    except OSError as error:
        file.close()
        raise BlockingIOError(error.errno, f'{path} is locked by another process') from error


@contextlib.contextmanager
def locked_folder(prefix: str, parent: str | None = None) -> Iterator[Path]:
    """Create a locked temporary folder inside a `with` block, which only this user can access.

    If this process is killed, the folder remains, and `remove_abandoned_folders` removes it.

    Args:
        prefix: the beginning of the folder's name.
        parent: the folder in which to create it; the system's folder for temporary files if None.

    Yields:
        The folder.
    """
    folder, lock = Path(tempfile.mkdtemp(prefix=prefix, dir=parent)), None
    while lock is None:
        try:
            lock = _lock_folder(folder)
        except (BlockingIOError, FileNotFoundError):  # another process has removed the folder before it was locked
            folder = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
        except (ImportError, OSError):  # no such locks
            break
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        if lock is not None:
            os.close(lock)


def remove_abandoned_folders(prefix: str, parent: str) -> None:
    """Remove the folders of `locked_folder` whose processes have ended, if they belong to this user."""
    for folder in Path(parent).glob(f'{prefix}*'):
        if not re.fullmatch('[a-z0-9_]{8}', folder.name.removeprefix(prefix)):
            continue  # not named by mkdtemp
        with contextlib.suppress(ImportError, OSError):  # in use, or removed by its owner
            if folder.lstat().st_uid != os.getuid():
                continue
            lock = _lock_folder(folder)
            shutil.rmtree(folder, ignore_errors=True)
            os.close(lock)


def _lock_folder(folder: Path) -> int:
    """Lock a folder until the returned descriptor is closed or the process ends.

    Raises:
        BlockingIOError: If another process has locked the folder.
        FileNotFoundError: If the folder does not exist.
    """
    import fcntl

    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        folder.lstat()  # another process may have removed the folder since it was opened
    except OSError:
        os.close(descriptor)
        raise
    return descriptor
