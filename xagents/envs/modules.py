"""Imports of modules that a user names."""

from __future__ import annotations

import importlib
import os
import sys
from types import ModuleType

from xagents.options.errors import OptionError, one_line


def import_module(name: str, option: str) -> ModuleType:
    """Import a module that a user named; as with `python -m`, it may be in the working directory.

    Raises:
        OptionError: if the import fails.
    """
    try:
        if os.getcwd() not in sys.path and '' not in sys.path:
            sys.path.append(os.getcwd())
        return importlib.import_module(name)
    except Exception as error:  # a user's module may raise any exception
        raise OptionError(option, f'cannot import {name!r}: {type(error).__name__}: {one_line(error)}') from error
