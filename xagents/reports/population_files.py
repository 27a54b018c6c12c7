"""The files in the folder of a population.

population.json         options that all rounds share
rounds/0003.json        settings, parents and scores of a round, written when all its members are complete
round-0003/member-05/   run directory of a member at the end of a round; older rounds are deleted
best                    link to the best member of the last round
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Any

from xagents.options.errors import OptionError, one_line
from xagents.system.file_names import LOCK
from xagents.system.files import atomic_write, name_file_in_errors, replace_link
from xagents.system.locks import lock_file

POPULATION_FILE = 'population.json'
ROUNDS_FOLDER = 'rounds'
MEMBER_FILE = 'member.json'  # score and duration of a member in a round, in its run directory


@dataclass(frozen=True)
class Member:
    """A member of a population in one round.

    Attributes:
        settings: values of the searched options by name.
        parent: number of the member of the previous round whose run this member resumes; None in the first round.
        score: score at the end of the round; None if there is none, for example after a failure.
        final_mean: mean reward of greedy episodes after the last round; None if there were none.
        reason: why there is no score.
        seconds: duration of the round for this member.
    """

    settings: Mapping[str, Any]
    parent: int | None = None
    score: float | None = None
    final_mean: float | None = None
    reason: str = ''
    seconds: float = 0.0


@dataclass
class Population:
    """A population and its complete rounds.

    Attributes:
        path: folder of the population.
        shared: options that all rounds share.
        rounds: members of each complete round.
    """

    path: Path
    shared: dict[str, Any]
    rounds: list[list[Member]] = field(default_factory=list)

    def add_round(self, members: list[Member]) -> None:
        """Write a complete round and delete the runs of the round before it."""
        number = len(self.rounds) + 1
        (self.path / ROUNDS_FOLDER).mkdir(exist_ok=True)
        _write(self.path / ROUNDS_FOLDER / f'{number:04}.json', {'members': list(map(asdict, members))})
        self.rounds.append(members)
        self.remove_old_runs()

    def remove_old_runs(self) -> None:
        """Delete the runs of all rounds before the last one."""
        for folder in self.path.glob('round-[0-9]*'):
            if int(folder.name.partition('-')[2]) < len(self.rounds):
                shutil.rmtree(folder)

    def folder(self, number: int, member: int) -> Path:
        """Return the run directory of a member after a round. The number of the first round is 1."""
        return self.path / f'round-{number:04}' / f'member-{member:02}'

    def member_result(self, number: int, member: int) -> dict[str, Any] | None:
        """Return score and seconds of a member that completed a round, or None if it did not complete it."""
        path = self.folder(number, member) / MEMBER_FILE
        return json.loads(path.read_text()) if path.is_file() else None

    def steps(self) -> list[int]:
        """Return, for each round, the number of environment steps of a member at its end."""
        return [(number + 1) * self.shared['free']['exploit_steps'] for number in range(len(self.rounds))]

    def best(self) -> int:
        """Return the number of the member with the best final mean; with the best score if one has no final mean."""
        scored = {i: member for i, member in enumerate(self.rounds[-1]) if member.score is not None}
        values = {i: member.final_mean for i, member in scored.items()}
        if None in values.values():
            values = {i: member.score for i, member in scored.items()}
        return max(values, key=lambda i: (values[i], -i), default=0)

    def ancestors(self) -> list[int]:
        """Return the number of the ancestor of the best member in each round, including itself."""
        line = [self.best()]
        for members in reversed(self.rounds[1:]):
            parent = members[line[0]].parent
            line.insert(0, line[0] if parent is None else parent)
        return line

    def link_best(self) -> Path:
        """Link `best` to the best member of the last round, and return its run directory."""
        folder = self.folder(len(self.rounds), self.best())
        replace_link(self.path / 'best', folder.relative_to(self.path))
        return folder


def is_population(folder: str | os.PathLike[str]) -> bool:
    """Return whether a folder contains a population."""
    return (Path(folder) / POPULATION_FILE).is_file()


def read_population(folder: str | os.PathLike[str]) -> Population:
    """Return the population of a folder; raise ValueError with a one-line message if a file is damaged."""
    path = Path(folder)
    try:
        shared = dict(json.loads((path / POPULATION_FILE).read_text()))
        if not isinstance(shared['free'], dict):
            raise ValueError('the seed is missing')
        files = sorted((path / ROUNDS_FOLDER).glob('*.json'))
        rounds = [[Member(**member) for member in json.loads(file.read_text())['members']] for file in files]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ValueError(f'{path}: the files of the population cannot be read ({one_line(error)})') from error
    return Population(path, shared, rounds)


def lock_population(folder: str | os.PathLike[str]) -> IO[bytes] | None:
    """Lock the folder of a population until the returned file is closed or the process ends.

    Raises:
        OptionError: if another call holds the lock, or the folder contains other files.
    """
    foreign = Path(folder).is_dir() and any(not name.startswith('.') for name in os.listdir(folder))
    if foreign and not is_population(folder):
        raise OptionError('out', f'got {folder}, which contains other files, expected a new directory or a population')
    Path(folder).mkdir(parents=True, exist_ok=True)
    try:
        return lock_file(Path(folder) / LOCK)
    except BlockingIOError as error:
        raise OptionError('out', f'got {folder}, which another call is using') from error


def open_population(folder: str | os.PathLike[str], shared: Mapping[str, Any]) -> Population:
    """Return the population of a locked folder; create the population if the folder has none.

    Args:
        folder: folder of the population.
        shared: options that all rounds share. They must be equal to those of an existing population, except `free`,
            which is read from the folder.

    Raises:
        OptionError: if the folder contains another population, or its files are damaged.
    """
    path = Path(folder)
    if not is_population(path):
        _write(path / POPULATION_FILE, dict(shared))
        return Population(path, dict(shared))
    try:
        population = read_population(path)
    except ValueError as error:
        raise OptionError('out', str(error)) from error
    expected = json.loads(json.dumps(shared))
    for name in [name for name in expected if name != 'free']:
        if expected[name] != population.shared.get(name):
            got = f'{name} {expected[name]}, was {population.shared.get(name)}'
            raise OptionError('out', f'{path} contains another population ({got}), expected a new directory')
    population.remove_old_runs()
    return population


def _write(path: Path, content: Mapping[str, Any]) -> None:
    with name_file_in_errors(path), atomic_write(path) as temporary:
        temporary.write_text(json.dumps(content, indent=1))
