"""Import of Minari, an optional dependency."""

from __future__ import annotations

import importlib
import warnings
from typing import Any

from xagents.options.errors import OptionError


def minari_module(name: str, option: str) -> Any:
    """Import a module of Minari.

    Args:
        name: the name of the module in the package `minari`.
        option: the option that needs Minari, for messages.

    Raises:
        OptionError: if Minari is not installed.
    """
    try:
        with warnings.catch_warnings(action='ignore'):
            importlib.import_module('minari.dataset._storages.hdf5_storage')
            return importlib.import_module(f'minari.{name}')
    except ImportError as error:
        raise OptionError(option, "data sets need an extra: pip install '.[datasets]'") from error
