"""Modules that a person names."""

from __future__ import annotations

import importlib
import os
import sys
from types import ModuleType

from xagents.options.errors import OptionError, one_line


def import_module(name: str, option: str) -> ModuleType:
    """Imports a module that a person named, from the working directory too, as `python -m` would."""
    try:
        if os.getcwd() not in sys.path and '' not in sys.path:
            sys.path.append(os.getcwd())
        return importlib.import_module(name)
    except Exception as error:  # whatever a module of somebody's raises when it is imported
        raise OptionError(option, f'cannot import {name!r}: {type(error).__name__}: {one_line(error)}') from error
