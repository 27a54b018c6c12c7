"""Where parts of other packages are found: registered in this process, or named by an installed package's entry points.

Nothing is read before a name is looked up that is not ours, or all names are asked for: the reading takes some 0.1 s,
most of it the import of `importlib.metadata`.
"""

from __future__ import annotations

import functools
import importlib
import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from xagents.options.errors import OptionError, nearest, shown, told

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

NAME = re.compile(r'[a-z][a-z0-9]*(-[a-z0-9]+)*')
NAMES = 'lowercase letters and digits, with single dashes between them'
# in which modules a process has registered parts: what it starts, such as the workers of tune, imports them there
HANDED_DOWN = 'XAGENTS_REGISTERED'
FILE = 'file:'
Part = TypeVar('Part')


class Parts(Generic[Part]):
    """The parts of one kind that are not ours.

    Args:
        kind: of the entry points' group, `xagents.<kind>`.
        word: what messages call one.
        adopt: makes a part of a name, what was found under it, and the package that it is of; raises ValueError where
            it is none.
        taken: names that are ours.
    """

    def __init__(self, kind: str, word: str, adopt: Callable[[str, Any, str], Part], taken: Iterable[str] = ()):
        self.kind, self.word, self.adopt, self.taken = kind, word, adopt, frozenset(taken)
        self.known: dict[str, Part] = {}
        self._objects: dict[str, Any] = {}

    def register(self, name: str, thing: Any, part: Part | None = None) -> None:
        """Register something under a name, in this process and in those that it starts.

        The same definition may be registered again, as a cell of a notebook is run again.

        Raises:
            OptionError: for a name that is taken or none, or a thing that is no such part.
        """
        self._check_name(name)
        known = self._objects.get(name)
        if known is not None and _place(known) != _place(thing):
            raise self._wrong(name, f'is taken by {_shown_place(known)}')
        module = _place(thing)[0]
        others = [p for p in self._points().get(name, []) if p.module.split('.')[0] != module.split('.')[0]]
        if others:
            raise self._wrong(name, f'is taken by {_package(others[0])}, which is installed')
        try:
            self.known[name] = self.adopt(name, thing, module.split('.')[0]) if part is None else part
        except ValueError as error:
            raise self._wrong(name, getattr(error, 'problem', str(error))) from error
        self._objects[name] = thing
        if name not in self._points():  # other processes find by themselves what is installed
            # a file has no module, but a path that other processes can open, wherever they run
            _hand_down(self.kind, name, module or FILE + os.path.abspath(thing))

    def add(self, name: str, thing: Any = None) -> Any:
        """Register a thing, which is returned; without one, return the decorator that does."""
        self._check_name(name)

        def decorate(thing: Any) -> Any:
            self.register(name, thing)
            return thing

        return decorate if thing is None else decorate(thing)

    def find(self, name: str, option: str = '') -> Part | None:
        """Return the part of a name, loading it where a package has it; None where there is none.

        Args:
            name: what was typed.
            option: what messages call the place where it was.

        Raises:
            OptionError: in one line that names the package, where it is broken or shares the name with another one.
        """
        if name in self.known:
            return self.known[name]
        points = self._points().get(name, [])
        module = _handed_down(self.kind).get(name)
        if not points and module is None:
            return None
        try:
            return self._loaded(name, points) if points else self._imported(name, str(module))
        except OptionError as error:
            raise OptionError(option or self.word, error.problem) from error.__cause__

    def names(self) -> list[str]:
        """Return every name in order; loads no part."""
        mine = (name for name in self._points() if NAME.fullmatch(name) and name not in self.taken)
        return sorted({*self.known, *mine, *_handed_down(self.kind)})

    def unknown(self, name: str, option: str = '') -> OptionError:
        """Return the error for a name that nobody has."""
        known = self.names()
        admits = (
            f'admits one of {", ".join(known)}' if known else f'admits names of registered {self.kind}, and has none'
        )
        return OptionError(option or self.word, f'got {shown(name)}, {admits}{nearest(name, known)}')

    def packages(self) -> dict[str, list[tuple[str, str, str]]]:
        """Return package, its summary and `module:name` of all entry points by name, also of those that are refused."""
        return {
            name: [(_package(p), _summary(p), p.value) for p in points]
            for name, points in sorted(self._points().items())
        }

    def refused(self, name: str) -> str:
        """Return why the entry points of a name are refused without a look at them; empty where they are not."""
        points = self._points().get(name, [])
        packages = ' and '.join(dict.fromkeys(map(_package, points)))
        if name in self.taken:
            return f'{name} of {packages} is a name of xagents itself: its package has to choose another one'
        if not NAME.fullmatch(name):
            return f'{shown(name)} of {packages} is no name, admits {NAMES}'
        if len({p.value for p in points}) > 1:
            return f'{name} is of {packages}, admits one of them: uninstall the other one'
        return ''

    def _loaded(self, name: str, points: list[EntryPoint]) -> Part:
        refusal = self.refused(name)
        if refusal:
            raise OptionError(self.word, refusal)
        package = _package(points[0])
        try:
            thing = points[0].load()
            # what a decorator registers while its module is loaded is already known
            if self._objects.get(name) is not thing or name not in self.known:
                self.known[name] = self.adopt(name, thing, package)
                self._objects[name] = thing
        except ValueError as error:
            problem = getattr(error, 'problem', str(error))
            raise OptionError(self.word, f'{name} of {package} is refused: {" ".join(problem.split())}') from error
        except (Exception, SystemExit) as error:  # whatever somebody's module raises when it is imported
            raise OptionError(self.word, f'{name} of {package} cannot be loaded: {told(error)}') from error
        return self.known[name]

    def _imported(self, name: str, module: str) -> Part:
        """The part that the process which started this one had registered."""
        if module.startswith(FILE):
            return self.adopt(name, module.removeprefix(FILE), '')
        where = f'{name} is registered in {module}'
        if module == '__main__':
            raise OptionError(self.word, f'{where}, which other processes cannot import: put it into a module')
        try:
            importlib.import_module(module)
        except (Exception, SystemExit) as error:
            raise OptionError(self.word, f'{where}, which cannot be imported: {told(error)}') from error
        if name not in self.known:
            raise OptionError(self.word, f'{where}, but not when that is imported')
        return self.known[name]

    def _points(self) -> dict[str, list[EntryPoint]]:
        return _read(f'xagents.{self.kind}', tuple(sys.path))

    def _check_name(self, name: Any) -> None:
        if not isinstance(name, str):
            raise OptionError(self.word, f'got {shown(name)} in place of a name; write it as in @register("my-name")')
        if not NAME.fullmatch(name):
            raise OptionError(self.word, f'got {shown(name)}, admits {NAMES}')
        if name in self.taken:
            raise self._wrong(name, 'is a name of xagents itself, choose another one')

    def _wrong(self, name: str, problem: str) -> OptionError:
        return OptionError(self.word, f'{name} {problem}')


@functools.lru_cache(maxsize=32)
def _read(group: str, path: tuple[str, ...]) -> dict[str, list[EntryPoint]]:
    """The entry points of a group by name, for a present `sys.path`."""
    from importlib.metadata import entry_points

    found: dict[str, list[EntryPoint]] = {}
    for point in entry_points(group=group):
        found.setdefault(point.name, []).append(point)
    return found


def _package(point: EntryPoint) -> str:
    return point.dist.name if point.dist is not None else point.module.split('.')[0]


def _summary(point: EntryPoint) -> str:
    # without a summary, metadata written by hand has None here
    return (point.dist.metadata['Summary'] if point.dist is not None else '') or ''


def _place(thing: Any) -> tuple[str, str]:
    """Where something is defined; two of the same place are two versions of one definition."""
    name = getattr(thing, '__qualname__', None)
    return (getattr(thing, '__module__', ''), name) if name else ('', str(thing))


def _shown_place(thing: Any) -> str:
    return '.'.join(filter(None, _place(thing)))


def _hand_down(kind: str, name: str, module: str) -> None:
    registered = json.loads(os.environ.get(HANDED_DOWN) or '{}')
    registered.setdefault(kind, {})[name] = module
    os.environ[HANDED_DOWN] = json.dumps(registered)


def _handed_down(kind: str) -> Mapping[str, str]:
    text = os.environ.get(HANDED_DOWN)
    return json.loads(text).get(kind, {}) if text else {}
