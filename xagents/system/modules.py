"""Imports of modules that a user, a file of settings or a run directory names."""

from __future__ import annotations

import importlib
import os
import re
import sys
from types import ModuleType
from typing import Any

from xagents.options.errors import OptionError, did_you_mean, error_line

LOCATION = re.compile(r'[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*')


def import_module(name: str, option: str) -> ModuleType:
    """Import a module that a user named; as with `python -m`, it may be in the working directory.

    Raises:
        OptionError: if the import fails.
    """
    try:
        if os.getcwd() not in sys.path and '' not in sys.path:
            sys.path.append(os.getcwd())
        return importlib.import_module(name)
    except (Exception, SystemExit) as error:  # a user's module may raise any exception
        if name.endswith('.py'):
            path = os.path.relpath(name[:-3])
            module = os.path.basename(path) if path.startswith('..') else path.replace(os.sep, '.')
            raise OptionError(option, f'got {name}, expected the name of a module, such as {module}') from error
        if os.sep in name or name.startswith('.'):
            raise OptionError(option, f'got {name}, expected the name of a module, without a path') from error
        missing = isinstance(error, ModuleNotFoundError) and error.name == name.partition('.')[0]
        hint = ' (a module must be installed, or in the working directory)' if missing else ''
        raise OptionError(option, f'cannot import {name!r}: {error_line(error)}{hint}') from error


def import_modules(names: Any) -> None:
    """Import the modules of the option `imports`: a name, several names or None."""
    for name in [names] if isinstance(names, str) else names or ():
        import_module(name, 'imports')


def load_object(location: str, option: str) -> Any:
    """Return the object at `module:name`.

    Raises:
        OptionError: if the module cannot be imported, or has no such object.
    """
    module, _, name = location.partition(':')
    loaded = import_module(module, option)
    if not hasattr(loaded, name):
        raise OptionError(option, f'got {location}, but {module} has no {name}{did_you_mean(name, dir(loaded))}')
    return getattr(loaded, name)
