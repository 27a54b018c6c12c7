"""Atomic and durable writes: if the process ends during a write, the file has either its old or its new content."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

# a disk that is full, read-only or broken
DISK_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO)


def fsync(path: str | os.PathLike[str]) -> None:
    """Flush a file, or the names in a folder, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def digest(path: Path) -> str:
    """Return the SHA-256 of the content of a file as hexadecimal digits."""
    with path.open('rb') as file:
        return hashlib.file_digest(file, 'sha256').hexdigest()


@contextlib.contextmanager
def name_file_in_errors(path: str | os.PathLike[str]) -> Iterator[None]:
    """Add the name of the file to an OSError of the `with` block: errors of a full disk do not contain one."""
    try:
        yield
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else (str(error).splitlines() or [''])[0]
        raise OSError(error.errno or errno.EIO, reason, str(path)) from error


def write_problem(error: OSError, path: str | os.PathLike[str]) -> str:
    """Return the file that cannot be written and the reason; the file is `path` if the error names none."""
    name = error.filename if isinstance(error.filename, str) else path
    return f'{name}: cannot be written ({error.strerror or error})'


@contextlib.contextmanager
def atomic_write(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Write a file atomically inside a `with` block.

    Yields:
        A temporary path. It is renamed to `path` if the block succeeds, and removed otherwise.
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
    if os.name == 'posix':  # makes the rename durable; some file systems do not support this
        with contextlib.suppress(OSError):
            fsync(path.parent)


def replace_link(link: str | os.PathLike[str], target: str | os.PathLike[str]) -> None:
    """Create or replace a symbolic link atomically; `target` is absolute, or relative to the folder of the link."""
    link = Path(link)
    temporary = link.with_name(f'.{link.name}')
    temporary.unlink(missing_ok=True)
    temporary.symlink_to(target, target_is_directory=True)
    os.replace(temporary, link)
    fsync(link.parent)
