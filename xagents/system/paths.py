"""Checks of the places a run will write to, before it writes anything."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from xagents.options.errors import OptionError


def check_parent(name: str, path: str | os.PathLike[str]) -> None:
    """Check that a file can be made at `path`; an error names the option `name`."""
    path = Path(path)
    if path.is_dir():
        raise OptionError(name, f'got {path}, which is a folder, expected the path of a file')
    folder = path.absolute().parent
    if not folder.is_dir():
        raise OptionError(name, f'the folder of {path} does not exist: mkdir -p {folder}')
    _check_writable(name, folder)


def check_folder(name: str, path: str | os.PathLike[str]) -> None:
    """Check that `path` is a folder that can be written to, or could be made; an error names the option `name`."""
    folder = Path(path).absolute()
    while not folder.exists():
        if folder.is_symlink():
            raise OptionError(name, f'got {path}, but {folder} is a link to what is not there, expected a folder')
        folder = folder.parent
    if not folder.is_dir():
        raise OptionError(name, f'got {path}, but {folder} is a file, expected a folder')
    _check_writable(name, folder)


def _check_writable(name: str, folder: Path) -> None:
    # permissions alone do not tell: the superuser has all of them, and a file system may admit no file
    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise OptionError(name, f'the folder {folder} is not writable ({error.strerror})') from error
