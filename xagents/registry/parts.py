"""Parts of other packages: registered in this process, or named by the entry points of an installed package.

No package is asked before a name is looked up that is not ours, or all names are listed: that takes some 0.1 s, most of
it the import of `importlib.metadata`.
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

from xagents.options.errors import OptionError, did_you_mean, error_line, format_value, one_line

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

NAME_PATTERN = re.compile(r'[a-z][a-z0-9]*(-[a-z0-9]+)*')
NAME_RULE = 'lowercase letters and digits, with single dashes between them'
# the modules that registered parts in this process: the processes that it starts, such as tune's workers, import them
REGISTERED_MODULES = 'XAGENTS_REGISTERED'
FILE_PREFIX = 'file:'
Part = TypeVar('Part')


class PartRegistry(Generic[Part]):
    """The parts of one kind that are not ours.

    `part_type` is that of the entry points' group, `xagents.<kind>`; messages call a part `noun`; `reserved` are names
    that are
    ours. `convert` makes a part of a name, what was found under it, and its package, or raises ValueError.
    """

    def __init__(
        self, part_type: str, noun: str, convert: Callable[[str, Any, str], Part], reserved: Iterable[str] = ()
    ):
        self.part_type, self.noun, self.convert, self.reserved = part_type, noun, convert, frozenset(reserved)
        self.registered: dict[str, Part] = {}
        self._objects: dict[str, Any] = {}

    def register(self, name: str, thing: Any, part: Part | None = None) -> None:
        """Register something under a name, in this process and in those that it starts.

        A definition may be registered twice, for example when a notebook's cell is rerun.

        Raises:
            OptionError: for a name that is taken or none, or a thing that is no such part.
        """
        self._check_name(name)
        module, _ = definition = _definition_of(thing)
        known = _definition_of(self._objects.get(name, thing))
        if known != definition:
            raise self._error(f'{name} is taken by {".".join(filter(None, known))}')
        package = module.split('.')[0]
        points = self._entry_points().get(name, [])
        for point in points:
            if point.module.split('.')[0] != package:
                raise self._error(f'{name} is taken by {_package(point)}, which is installed')
        try:
            self.registered[name] = self.convert(name, thing, package) if part is None else part
        except ValueError as error:
            raise self._error(f'{name} {_problem(error)}') from error
        self._objects[name] = thing
        if not points:  # other processes find by themselves what is installed
            # a file has no module, but a path, which other processes open from wherever they run
            registered = _registered_modules()
            registered.setdefault(self.part_type, {})[name] = module or FILE_PREFIX + os.path.abspath(thing)
            os.environ[REGISTERED_MODULES] = json.dumps(registered)

    def add(self, name: str, thing: Any = None) -> Any:
        """Register a thing, which is returned; without one, return the decorator that does."""
        self._check_name(name)

        def decorate(thing: Any) -> Any:
            self.register(name, thing)
            return thing

        return decorate if thing is None else decorate(thing)

    def find(self, name: str, option: str = '') -> Part | None:
        """Return the part of a name, loading it where a package has it; None where there is none.

        `option` is what messages call the place where the name was typed.

        Raises:
            OptionError: in one line that names the package, where it is broken or shares the name with another one.
        """
        if name not in self.registered:
            points, module = self._entry_points().get(name), _registered_modules().get(self.part_type, {}).get(name)
            if points:
                self._load(name, points, option)
            elif module is not None:
                self._import(name, module, option)
        return self.registered.get(name)

    def names(self) -> list[str]:
        """Return every name in order; loads no part."""
        installed = (
            name for name in self._entry_points() if NAME_PATTERN.fullmatch(name) and name not in self.reserved
        )
        return sorted({*self.registered, *installed, *_registered_modules().get(self.part_type, {})})

    def unknown_error(self, name: str, option: str = '') -> OptionError:
        """Return the error for a name that nobody has."""
        known = self.names()
        admitted = f'one of {", ".join(known)}' if known else f'names of registered {self.part_type}, and has none'
        return self._error(f'got {format_value(name)}, expected {admitted}{did_you_mean(name, known)}', option)

    def entry_point_table(self) -> Mapping[str, list[tuple[str, str, str]]]:
        """Return package, its summary and `module:name` of all entry points by name, also of those that are refused."""
        return {
            name: [(_package(p), _summary(p), p.value) for p in points]
            for name, points in sorted(self._entry_points().items())
        }

    def refusal_reason(self, name: str) -> str:
        """Return why the entry points of a name are refused without loading them; empty where they are not."""
        points = self._entry_points().get(name, [])
        entry_point_table = ' and '.join(dict.fromkeys(map(_package, points)))
        if name in self.reserved:
            return f'{name} of {entry_point_table} is a name of xagents itself: its package has to choose another one'
        if not NAME_PATTERN.fullmatch(name):
            return f'{format_value(name)} of {entry_point_table} is no name, expected {NAME_RULE}'
        if len({p.value for p in points}) > 1:
            return f'{name} is of {entry_point_table}, expected one of them: uninstall the other one'
        return ''

    def _load(self, name: str, points: list[EntryPoint], option: str) -> None:
        if refusal := self.refusal_reason(name):
            raise self._error(refusal, option)
        where = f'{name} of {_package(points[0])}'
        try:
            thing = points[0].load()
            if name not in self.registered:  # unless a decorator registered it while its module was loaded
                self.registered[name] = self.convert(name, thing, _package(points[0]))
                self._objects[name] = thing
        except ValueError as error:
            raise self._error(f'{where} is refused: {_problem(error)}', option) from error
        except (Exception, SystemExit) as error:  # whatever somebody's module raises when it is imported
            raise self._error(f'{where} cannot be loaded: {error_line(error)}', option) from error

    def _import(self, name: str, module: str, option: str) -> None:
        """Register the entries that the parent process had registered."""
        if module.startswith(FILE_PREFIX):
            self.registered[name] = self.convert(name, module.removeprefix(FILE_PREFIX), '')
            return
        where = f'{name} is registered in {module}'
        if module == '__main__':
            raise self._error(f'{where}, which other processes cannot import: put it into a module', option)
        try:
            importlib.import_module(module)
        except (Exception, SystemExit) as error:
            raise self._error(f'{where}, which cannot be imported: {error_line(error)}', option) from error
        if name not in self.registered:
            raise self._error(f'{where}, but not when that is imported', option)

    def _entry_points(self) -> dict[str, list[EntryPoint]]:
        return _read_entry_points(f'xagents.{self.part_type}', tuple(sys.path))

    def _check_name(self, name: Any) -> None:
        if not isinstance(name, str):
            raise self._error(f'got {format_value(name)} in place of a name; write it as in @register("my-name")')
        if not NAME_PATTERN.fullmatch(name):
            raise self._error(f'got {format_value(name)}, expected {NAME_RULE}')
        if name in self.reserved:
            raise self._error(f'{name} is a name of xagents itself, choose another one')

    def _error(self, problem: str, option: str = '') -> OptionError:
        return OptionError(option or self.noun, problem)


@functools.lru_cache(maxsize=32)
def _read_entry_points(group: str, path: tuple[str, ...]) -> dict[str, list[EntryPoint]]:
    """Return a group's entry points by name; `path` is the `sys.path` that they are of."""
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


def _problem(error: ValueError) -> str:
    return error.problem if isinstance(error, OptionError) else one_line(error)


def _definition_of(thing: Any) -> tuple[str, str]:
    """Return where something is defined; two things of one place are versions of one definition."""
    name = getattr(thing, '__qualname__', None)
    return (getattr(thing, '__module__', ''), name) if name else ('', str(thing))


def _registered_modules() -> dict[str, dict[str, str]]:
    """Return the modules, or files, of registered parts by kind and name."""
    return json.loads(os.environ.get(REGISTERED_MODULES) or '{}')
