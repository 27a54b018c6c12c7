"""Finds the runs in folders: runs by themselves, and groups of runs that a grid or several seeds made."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from xagents.options.errors import shown

DEPTH = 4
"""Levels below a folder at which runs are looked for."""


class Found(NamedTuple):
    """A run, whose `runs` is itself alone, or a group of runs."""

    folder: Path
    runs: tuple[Path, ...]
    is_group: bool


def find_runs(folders: Sequence[str | os.PathLike[str]]) -> list[Found]:
    """Return the runs and groups at or below folders, each once, in the order of their names.

    Raises:
        ValueError: If a folder is missing, or there is no run in it.
    """
    found: dict[Path, Found] = {}
    for folder in map(Path, folders):
        if not folder.is_dir():
            problem = 'is a file, admits a folder' if folder.exists() else f'does not exist{_similar(folder)}'
            raise ValueError(f"the folder '{shown(str(folder))}' {problem}")
        here = list(_search(folder, DEPTH))
        if not here:
            raise ValueError(f"the folder '{shown(str(folder))}' holds no run, admits what --run-dir of a training was")
        for one in here:
            found.setdefault(one.folder.absolute(), one)
    return list(found.values())


def natural(name: str) -> list[tuple[int, float, str]]:
    """Return a key that sorts names as people do: `seed=2` before `seed=10`."""
    pieces = re.split(r'(\d+(?:\.\d+)?(?:e[+-]?\d+)?)', name)
    return [(1, float(piece), '') if index % 2 else (0, 0.0, piece) for index, piece in enumerate(pieces)]


def _search(folder: Path, depth: int) -> Iterator[Found]:
    from xagents.runs.status import is_group, is_run

    if is_run(folder):
        yield Found(folder, (folder,), False)
        return
    below = _folders(folder)
    if is_group(folder):
        yield Found(folder, tuple(run for run in below if is_run(run)), True)
    elif depth:
        for one in below:
            yield from _search(one, depth - 1)


def _folders(folder: Path) -> list[Path]:
    # a folder that may not be read is as good as empty; links are left out, they could lead in a circle
    try:
        with os.scandir(folder) as entries:
            names = [e.name for e in entries if e.is_dir(follow_symlinks=False) and not e.name.startswith('.')]
    except OSError:
        return []
    return [folder / name for name in sorted(names, key=natural)]


def _similar(folder: Path) -> str:
    parent = folder.parent
    matches = difflib.get_close_matches(folder.name, [one.name for one in _folders(parent)], n=1)
    return f" (did you mean '{parent / matches[0]}'?)" if matches else ''
