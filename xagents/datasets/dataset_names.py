"""Names, folders and metadata of data sets. Loads neither Minari nor HDF5."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from xagents.options.errors import OptionError, did_you_mean, format_value, one_line

# the environment variable with the folder of all data sets, which Minari uses, too
ROOT = 'MINARI_DATASETS_PATH'
DATA, METADATA = 'data', 'metadata.json'
NAME = re.compile(r'([-\w]+/)*[-\w]+-v\d+')
NAME_HINT = 'a name with a version, such as pendulum/medium-v0'
# maximal number of characters between two slashes of a name
MAX_PART_LENGTH = 200
# the key of the metadata that this package adds
XAGENTS_KEY = 'xagents'


def root() -> Path:
    """Return the absolute path of the folder of all data sets."""
    # an absolute path, because HDF5 resolves relative links from the folder of the file
    return Path(os.environ.get(ROOT) or Path.home() / '.minari' / 'datasets').absolute()


def data_folder(name: str) -> Path:
    """Return the folder of a data set's files."""
    return root() / name / DATA


def check_name(option: str, name: str) -> None:
    """Check that a text is a valid name of a data set.

    Args:
        option: the option that was given the name, for messages.
        name: the name.

    Raises:
        OptionError: if the name is invalid.
    """
    if not NAME.fullmatch(name):
        raise OptionError(option, f'got {format_value(name)}, expected {NAME_HINT}')
    if max(map(len, name.split('/'))) > MAX_PART_LENGTH:
        got = f'got a name of {len(name)} characters'
        raise OptionError(option, f'{got}, expected {MAX_PART_LENGTH} between two slashes')


def check_new(option: str, name: str) -> None:
    """Check that a name is valid, that no data set has it, and that its folder can be created.

    Args:
        option: the option that was given the name, for messages.
        name: the name.

    Raises:
        OptionError: if one of these checks fails.
    """
    check_name(option, name)
    if dataset_exists(name):
        stem, _, version = name.rpartition('-v')
        new = f'{stem}-v{int(version) + 1}'
        raise OptionError(option, f'got {name}, which exists already, expected a new name, such as {new}')
    for parent in Path(name).parents:
        if dataset_exists(parent.as_posix()) or parent.name == DATA:
            raise OptionError(option, f'got {name}, expected a name outside the data set {parent.as_posix()}')
    folder = data_folder(name)
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    if not folder.is_dir() or not os.access(folder, os.W_OK | os.X_OK):
        raise OptionError(option, f'got {name}, but {folder} is not writable (see {ROOT})')


def dataset_exists(name: str) -> bool:
    """Return whether a data set with this name exists, intact or damaged."""
    return (data_folder(name) / METADATA).exists()


def check_known(option: str, name: str) -> None:
    """Check that a data set exists on this machine.

    Args:
        option: the option that was given the name, for messages.
        name: the name.

    Raises:
        OptionError: if there is no such data set. The message lists names that exist, and the nearest one.
    """
    check_name(option, name)
    if not dataset_exists(name):
        names = list(list_names())
        shown = ', '.join(names[:8]) + (' …' if len(names) > 8 else '')
        expected = f'expected one of {shown}{did_you_mean(name, names)}, or' if names else 'expected'
        raise OptionError(option, f"no data set {name} in {root()}, {expected} --download, from Minari's server")


def list_names() -> Iterator[str]:
    """Yield the names of all data sets on this machine, sorted."""
    found = root().glob(f'**/{DATA}/{METADATA}') if root().is_dir() else ()
    for path in sorted(found):
        name = path.parent.parent.relative_to(root()).as_posix()
        if NAME.fullmatch(name):
            yield name


def read_metadata(name: str) -> dict[str, Any]:
    """Read the metadata of a data set.

    Raises:
        ValueError: in one line, if the metadata cannot be read.
    """
    try:
        metadata = json.loads((data_folder(name) / METADATA).read_text())
        counts = metadata['total_episodes'], metadata['total_steps']
        if not all(isinstance(count, int) and count >= 0 for count in counts):
            raise ValueError('total_episodes and total_steps must be integers that are not negative')
        return metadata
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f'{data_folder(name) / METADATA}: {one_line(error)}') from error
