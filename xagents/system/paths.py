"""Checks of the paths that a run will write to, before it writes any file."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from xagents.options.errors import OptionError


def check_parent(name: str, path: str | os.PathLike[str]) -> None:
    """Check that a file can be created at `path`.

    Raises:
        OptionError: If it cannot; the error names the option `name`.
    """
    path = Path(path)
    if path.is_dir():
        raise OptionError(name, f'got {path}, which is a directory, expected the path of a file')
    folder = path.absolute().parent
    if not folder.is_dir():
        raise OptionError(name, f'there is no directory {folder} (create it with mkdir -p)')
    _check_writable(name, folder)


def check_folder(name: str, path: str | os.PathLike[str]) -> None:
    """Check that `path` is a writable folder or that such a folder can be created.

    Raises:
        OptionError: If neither is true; the error names the option `name`.
    """
    folder = Path(path).absolute()
    while not folder.exists():
        if folder.is_symlink():
            raise OptionError(name, f'got {path}, but {folder} is a link to a missing file, expected a directory')
        folder = folder.parent
    if not folder.is_dir():
        raise OptionError(name, f'got {path}, but {folder} is a file, expected a directory')
    _check_writable(name, folder)


def _check_writable(name: str, folder: Path) -> None:
    # permissions are not sufficient: the superuser has all of them, and a file system may be read-only
    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        # /proc reports a missing file, which would mislead
        reason = '' if isinstance(error, FileNotFoundError) else f' ({error.strerror})'
        raise OptionError(name, f'the directory {folder} is not writable{reason}') from error
