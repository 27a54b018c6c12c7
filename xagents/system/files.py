"""Files that are old or new at every instant, whatever ends the process."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path


def fsync(path: str | os.PathLike[str]) -> None:
    """Let a file, or the names in a folder, be on the disk when this returns."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def digest(path: Path) -> str:
    """Return the SHA-256 of a file's content, in hexadecimal digits."""
    with path.open('rb') as file:
        return hashlib.file_digest(file, 'sha256').hexdigest()


@contextlib.contextmanager
def name_file_in_errors(path: str | os.PathLike[str]) -> Iterator[None]:
    """Give an OSError of the block the name of the file that it is about: a full disk knows none."""
    try:
        yield
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else (str(error).splitlines() or [''])[0]
        raise OSError(error.errno or errno.EIO, reason, str(path)) from error


@contextlib.contextmanager
def atomic_write(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Write a file atomically: yields a temporary path that becomes `path` when the block succeeds, else is removed."""
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
            fsync(path.parent)


def replace_link(link: str | os.PathLike[str], target: str | os.PathLike[str]) -> None:
    """Let a link lead to a folder, in one step; `target` is relative to the folder of the link, or absolute."""
    link = Path(link)
    temporary = link.with_name(f'.{link.name}')
    temporary.unlink(missing_ok=True)
    temporary.symlink_to(target, target_is_directory=True)
    os.replace(temporary, link)
    fsync(link.parent)
