"""Registries of parts that are not built in: registered in this process, or entry points of installed packages.

Entry points are read only when an unknown name is looked up or all names are listed. Reading takes about 0.1 s, mostly
to import `importlib.metadata`.
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
from xagents.system.modules import LOCATION, load_object

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

NAME_PATTERN = re.compile(r'[a-z][a-z0-9]*(-[a-z0-9]+)*')
NAME_RULE = 'lowercase letters and digits, with single dashes between them'
# variable with the modules that registered parts: child processes, such as the workers of tune, import them
REGISTERED_MODULES = 'XAGENTS_REGISTERED'
FILE_PREFIX = 'file:'
Part = TypeVar('Part')


class PartRegistry(Generic[Part]):
    """A registry of the parts of one type that are not built in.

    Args:
        kind: last word of the entry points' group, `xagents.<kind>`.
        noun: name of a part in messages.
        convert: function of a name, the registered object and its package. It returns the part or raises ValueError.
        reserved: names of built-in parts.

    Attributes:
        registered: registered and loaded parts by name.
        located: parts that were found at `module:name`, by this location.
    """

    def __init__(self, kind: str, noun: str, convert: Callable[[str, Any, str], Part], reserved: Iterable[str] = ()):
        self.kind, self.noun, self.convert, self.reserved = kind, noun, convert, frozenset(reserved)
        self.registered: dict[str, Part] = {}
        self.located: dict[str, Part] = {}
        self._objects: dict[str, Any] = {}

    def register(self, name: str, thing: Any, part: Part | None = None) -> None:
        """Register an object under a name, in this process and in its child processes.

        A definition may be registered twice, for example when a notebook's cell is rerun.

        Args:
            name: name of the part.
            thing: object that `convert` turns into the part.
            part: the part, if the caller has already made it.

        Raises:
            OptionError: if the name is invalid or in use, or the object is no such part.
        """
        self._check_name(name)
        module, _ = definition = _definition_of(thing)
        known = _definition_of(self._objects.get(name, thing))
        if known != definition:
            raise self._error(f'{name} is in use by {".".join(filter(None, known))}')
        package = module.split('.')[0]
        points = self._entry_points().get(name, [])
        for point in points:
            if point.module.split('.')[0] != package:
                raise self._error(f'{name} is in use by the installed package {_package(point)}')
        try:
            self.registered[name] = self.convert(name, thing, package) if part is None else part
        except ValueError as error:
            raise self._error(f'{name} {_problem(error)}') from error
        self._objects[name] = thing
        if not points:  # other processes find the entry points of installed packages
            # a file has no module: other processes open its absolute path
            registered = _registered_modules()
            registered.setdefault(self.kind, {})[name] = module or FILE_PREFIX + os.path.abspath(thing)
            os.environ[REGISTERED_MODULES] = json.dumps(registered)

    def add(self, name: str, thing: Any = None) -> Any:
        """Register an object and return it. Without an object, return a decorator that does so."""
        self._check_name(name)

        def decorate(thing: Any) -> Any:
            self.register(name, thing)
            return thing

        return decorate if thing is None else decorate(thing)

    def find(self, name: str, option: str = '') -> Part | None:
        """Return the part with a name, or None. Load the part if an installed package provides it.

        Args:
            name: name of the part, or `module:name` of its class or function.
            option: option in which the name was given, for messages. The default is the noun.

        Raises:
            OptionError: if the package cannot be loaded, or two packages use the name. The message names the package.
        """
        if LOCATION.fullmatch(name):
            return self._locate(name, option)
        if name not in self.registered:
            points, module = self._entry_points().get(name), _registered_modules().get(self.kind, {}).get(name)
            if points:
                self._load(name, points, option)
            elif module is not None:
                self._import(name, module, option)
        return self.registered.get(name)

    def names(self) -> list[str]:
        """Return every name in alphabetical order. Load no part."""
        installed = filter(NAME_PATTERN.fullmatch, self._entry_points().keys() - self.reserved)
        return sorted({*self.registered, *installed, *_registered_modules().get(self.kind, {})})

    def unknown_error(self, name: str, option: str = '') -> OptionError:
        """Return the error for an unknown name."""
        known = self.names()
        nothing = f'a name of registered {self.kind}, of which there are none'
        admitted = f'one of {", ".join(known)}' if known else nothing
        return self._error(f'got {format_value(name)}, expected {admitted}{did_you_mean(name, known)}', option)

    def entry_point_table(self) -> Mapping[str, list[tuple[str, str, str]]]:
        """Return package, summary and `module:name` of all entry points by name, including refused ones."""
        table = sorted(self._entry_points().items())
        return {name: [(_package(p), _summary(p), p.value) for p in points] for name, points in table}

    def refusal_reason(self, name: str) -> str:
        """Return why the entry points of a name are refused, or an empty text. Load nothing."""
        points = self._entry_points().get(name, [])
        packages = ' and '.join(dict.fromkeys(map(_package, points)))
        if name in self.reserved:
            return f'{name} of {packages} is a name of xagents itself, expected another name'
        if not NAME_PATTERN.fullmatch(name):
            return f'{format_value(name)} of {packages} is no name, expected {NAME_RULE}'
        if len({p.value for p in points}) > 1:
            return f'{name} is a name of {packages}, expected one of them: uninstall the others'
        return ''

    def _locate(self, location: str, option: str) -> Part:
        """Return the part at `module:name`, which need not be registered."""
        if location not in self.located:
            thing = load_object(location, option or self.noun)
            try:
                self.located[location] = self.convert(location, thing, location.partition('.')[0].partition(':')[0])
            except ValueError as error:
                raise self._error(f'{location}: {_problem(error)}', option) from error
        return self.located[location]

    def _load(self, name: str, points: list[EntryPoint], option: str) -> None:
        if refusal := self.refusal_reason(name):
            raise self._error(refusal, option)
        where = f'{name} of {_package(points[0])}'
        try:
            thing = points[0].load()
            if name not in self.registered:  # a decorator may have registered it while its module was loaded
                self.registered[name] = self.convert(name, thing, _package(points[0]))
                self._objects[name] = thing
        except ValueError as error:
            raise self._error(f'{where} is refused: {_problem(error)}', option) from error
        except (Exception, SystemExit) as error:  # an imported module may raise anything
            raise self._error(f'{where} cannot be loaded: {error_line(error)}', option) from error

    def _import(self, name: str, module: str, option: str) -> None:
        """Register a part that the parent process has registered, by importing its module."""
        if module.startswith(FILE_PREFIX):
            self.registered[name] = self.convert(name, module.removeprefix(FILE_PREFIX), '')
            return
        where = f'{name} is registered in {module}'
        if module == '__main__':
            raise self._error(f'{where}, which other processes cannot import, expected a module', option)
        try:
            importlib.import_module(module)
        except (Exception, SystemExit) as error:
            raise self._error(f'{where}, which cannot be imported: {error_line(error)}', option) from error
        if name not in self.registered:
            raise self._error(f'{where}, but importing this module does not register it', option)

    def _entry_points(self) -> dict[str, list[EntryPoint]]:
        return _read_entry_points(f'xagents.{self.kind}', tuple(sys.path))

    def _check_name(self, name: Any) -> None:
        if not isinstance(name, str):
            raise self._error(f'got {format_value(name)}, expected a name, as in @register("my-name")')
        if not NAME_PATTERN.fullmatch(name):
            raise self._error(f'got {format_value(name)}, expected {NAME_RULE}')
        if name in self.reserved:
            raise self._error(f'{name} is a name of xagents itself, expected another name')

    def _error(self, problem: str, option: str = '') -> OptionError:
        return OptionError(option or self.noun, problem)


@functools.lru_cache(maxsize=32)
def _read_entry_points(group: str, path: tuple[str, ...]) -> dict[str, list[EntryPoint]]:
    """Return the entry points of a group by name. `path` is the present `sys.path`, the key of the cache."""
    from importlib.metadata import entry_points

    found: dict[str, list[EntryPoint]] = {}
    for point in entry_points(group=group):
        found.setdefault(point.name, []).append(point)
    return found


def _package(point: EntryPoint) -> str:
    return point.dist.name if point.dist is not None else point.module.split('.')[0]


def _summary(point: EntryPoint) -> str:
    # metadata without a summary has None here
    return (point.dist.metadata['Summary'] if point.dist is not None else '') or ''


def _problem(error: ValueError) -> str:
    return error.problem if isinstance(error, OptionError) else one_line(error)


def _definition_of(thing: Any) -> tuple[str, str]:
    """Return module and name of a definition. Objects with equal results are versions of one definition."""
    name = getattr(thing, '__qualname__', None)
    return (getattr(thing, '__module__', ''), name) if name else ('', str(thing))


def modules_of(names: Iterable[str]) -> list[str]:
    """Return the modules that registered parts of these names, in this process or in its parent.

    Left out are the main script, which other processes cannot import, and files.
    """
    wanted = {*names}
    found = [module for parts in _registered_modules().values() for name, module in parts.items() if name in wanted]
    return [one for one in dict.fromkeys(found) if one != '__main__' and not one.startswith(FILE_PREFIX)]


def _registered_modules() -> dict[str, dict[str, str]]:
    """Return the modules or files of registered parts by part type and name."""
    return json.loads(os.environ.get(REGISTERED_MODULES) or '{}')
