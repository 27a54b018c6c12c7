"""Search for runs in folders: single runs, and groups of runs from a grid or several seeds."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from xagents.checkpoints.status import is_group, is_run
from xagents.options.errors import did_you_mean, format_value

# maximal depth of the search below a folder
MAX_DEPTH = 4


class FoundRuns(NamedTuple):
    """A group of runs, or a single run, whose `runs` contains only its own folder."""

    folder: Path
    runs: tuple[Path, ...]
    is_group: bool


def find_runs(folders: Sequence[str | os.PathLike[str]]) -> list[FoundRuns]:
    """Return the runs and groups in some folders, without duplicates; raise ValueError if a folder has none."""
    found: dict[Path, FoundRuns] = {}
    for folder in map(Path, folders):
        here = list(_search_folder(folder, MAX_DEPTH))
        if not here:
            raise ValueError(_why_none(folder))
        for one in here:
            found.setdefault(one.folder.absolute(), one)
    return list(found.values())


def _natural_key(name: str) -> list[tuple[int, float, str]]:
    """Return a sort key that orders numbers in names by value: `seed=2` before `seed=10`."""
    pieces = re.split(r'(\d+(?:\.\d+)?(?:e[+-]?\d+)?)', name)
    return [(1, float(piece), '') if index % 2 else (0, 0.0, piece) for index, piece in enumerate(pieces)]


def _why_none(folder: Path) -> str:
    shown = format_value(str(folder))
    if folder.is_dir():
        return f'{shown} contains no run, expected the --run-dir of a training run'
    if folder.exists():
        return f'{shown} is a file, expected a directory'
    return f'there is no directory {shown}{did_you_mean(folder.name, [one.name for one in _subfolders(folder.parent)])}'


def _search_folder(folder: Path, depth: int) -> Iterator[FoundRuns]:
    if is_run(folder):
        yield FoundRuns(folder, (folder,), False)
        return
    below = _subfolders(folder)
    if is_group(folder):
        yield FoundRuns(folder, tuple(run for run in below if is_run(run)), True)
    elif depth:
        for one in below:
            yield from _search_folder(one, depth - 1)


def _subfolders(folder: Path) -> list[Path]:
    # skip links, which could form a cycle
    try:
        with os.scandir(folder) as entries:
            names = [e.name for e in entries if e.is_dir(follow_symlinks=False) and not e.name.startswith('.')]
    except OSError:  # no permission to read it
        return []
    return [folder / name for name in sorted(names, key=_natural_key)]
