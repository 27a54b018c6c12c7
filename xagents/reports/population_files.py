"""The folder of a population: what it is made of, a file for each round that is over, and its members' runs.

population.json    what all rounds share
rounds/0003.json   settings, parents and scores of a round; it is written when all of its members are done
round-0003/member-05/   the run of a member, as the round left it; those of earlier rounds are removed
best               a link to the best member of the last round
"""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from xagents.options.errors import OptionError, one_line
from xagents.system.file_names import LOCK
from xagents.system.files import atomic_write, replace_link
from xagents.system.locks import lock_file

POPULATION_FILE = 'population.json'
ROUNDS_FOLDER = 'rounds'
MEMBER_FILE = 'member.json'  # of a member's run: what the round made of it


@dataclass(frozen=True)
class Member:
    """One of a population in one round.

    Attributes:
        settings: the searched options by name.
        parent: whose state after the round before it goes on from; None in the first round.
        score: what it was worth at the end of the round; None where it has none, as after a failure.
        reason: why it has none.
        seconds: that the round took.
    """

    settings: Mapping[str, Any]
    parent: int | None = None
    score: float | None = None
    reason: str = ''
    seconds: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        """Return it for JSON."""
        return dataclasses.asdict(self)


@dataclass
class Population:
    """A population in its folder: the rounds that are over.

    Attributes:
        path: of the folder.
        shared: what all rounds share.
        rounds: the members of each finished round.
    """

    path: Path
    shared: dict[str, Any]
    rounds: list[list[Member]] = field(default_factory=list)

    def add_round(self, members: list[Member]) -> None:
        """Write a round that is over, and forget the runs of the one before."""
        number = len(self.rounds) + 1
        (self.path / ROUNDS_FOLDER).mkdir(exist_ok=True)
        _write(self.path / ROUNDS_FOLDER / f'{number:04}.json', {'members': [member.to_dict() for member in members]})
        self.rounds.append(members)
        self.remove_old_runs()

    def remove_old_runs(self) -> None:
        """Remove the runs of rounds that nothing goes on from."""
        for folder in self.path.glob('round-[0-9]*'):
            if int(folder.name.partition('-')[2]) < len(self.rounds):
                shutil.rmtree(folder)

    def folder(self, number: int, member: int) -> Path:
        """Return where the run of a member is after a round, the first of which is 1."""
        return self.path / f'round-{number:04}' / f'member-{member:02}'

    def member_result(self, number: int, member: int) -> dict[str, Any] | None:
        """Return score and seconds of a member that was done in a round; None where it was not."""
        path = self.folder(number, member) / MEMBER_FILE
        return json.loads(path.read_text()) if path.is_file() else None

    def steps(self) -> list[int]:
        """Return how many steps each member has taken when a round is over."""
        return [(number + 1) * self.shared['free']['exploit_steps'] for number in range(len(self.rounds))]

    def best(self) -> int:
        """Return who is best after the last round that is over."""
        last = self.rounds[-1]
        return max(range(len(last)), key=lambda i: (last[i].score is not None, last[i].score or 0.0, -i))

    def ancestors(self) -> list[int]:
        """Return whom the best member descends from, one of each round."""
        line = [self.best()]
        for members in reversed(self.rounds[1:]):
            parent = members[line[0]].parent
            line.insert(0, line[0] if parent is None else parent)
        return line

    def link_best(self) -> Path:
        """Let `best` be the best member of the last round, and return its run's folder."""
        folder = self.folder(len(self.rounds), self.best())
        replace_link(self.path / 'best', folder.relative_to(self.path))
        return folder


def is_population(folder: str | os.PathLike[str]) -> bool:
    """Return whether a folder is that of a population."""
    return (Path(folder) / POPULATION_FILE).is_file()


def read_population(folder: str | os.PathLike[str]) -> Population:
    """Return the population of a folder; raises ValueError in one line for a damaged file."""
    path = Path(folder)
    try:
        shared = dict(json.loads((path / POPULATION_FILE).read_text()))
        if not isinstance(shared['free'], dict):
            raise ValueError('it says nothing of a seed')
        files = sorted((path / ROUNDS_FOLDER).glob('*.json'))
        rounds = [[Member(**member) for member in json.loads(file.read_text())['members']] for file in files]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ValueError(f'{path}: its files of a population cannot be read ({one_line(error)})') from error
    return Population(path, shared, rounds)


def lock_population(folder: str | os.PathLike[str]) -> IO[bytes] | None:
    """Return what keeps other calls out of a population's folder until it is closed, or the process is gone.

    Raises:
        OptionError: where another one is at it, or it is of something else.
    """
    foreign = Path(folder).is_dir() and any(not name.startswith('.') for name in os.listdir(folder))
    if foreign and not is_population(folder):
        raise OptionError('out', f'got {folder}, which is not empty and no population, expected a new folder')
    Path(folder).mkdir(parents=True, exist_ok=True)
    try:
        return lock_file(Path(folder) / LOCK)
    except BlockingIOError as error:
        raise OptionError('out', f'got {folder}, where another call is at work') from error


def open_population(folder: str | os.PathLike[str], shared: Mapping[str, Any]) -> Population:
    """Return the population of a folder that was taken, which begins where there is none.

    `shared` must be equal where it goes on, but for `free`, which is taken from the folder.

    Raises:
        OptionError: where the folder is of another population, or of something else.
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
            raise OptionError('out', f'{path} holds another population ({got}): give a new folder')
    population.remove_old_runs()
    return population


def _write(path: Path, content: Mapping[str, Any]) -> None:
    with atomic_write(path) as temporary:
        temporary.write_text(json.dumps(content, indent=1))
