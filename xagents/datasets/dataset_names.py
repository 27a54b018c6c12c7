"""What data sets are called, where they lie, and what each says of itself. Loads neither Minari nor HDF5."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from xagents.options.errors import OptionError, did_you_mean, format_value, one_line

# where they lie, and where Minari looks for them, too
ROOT = 'MINARI_DATASETS_PATH'
DATA, METADATA = 'data', 'metadata.json'
NAME = re.compile(r'([-\w]+/)*[-\w]+-v\d+')
NAME_HINT = 'a name with a version, such as pendulum/medium-v0'
# characters of a part of a name
MAX_PART_LENGTH = 200
# what of a metadata file is ours
XAGENTS_KEY = 'xagents'


def root() -> Path:
    """Return the folder of all data sets."""
    # HDF5 follows links from where they stand
    return Path(os.environ.get(ROOT) or Path.home() / '.minari' / 'datasets').absolute()


def data_folder(name: str) -> Path:
    """Return the folder of a data set's files."""
    return root() / name / DATA


def check_name(option: str, name: str) -> None:
    """Refuse what is no data set's name; `option` is where it was typed."""
    if not NAME.fullmatch(name):
        raise OptionError(option, f'got {format_value(name)}, expected {NAME_HINT}')
    if max(map(len, name.split('/'))) > MAX_PART_LENGTH:
        raise OptionError(
            option, f'got a name of {len(name)} characters, expected {MAX_PART_LENGTH} between two slashes'
        )


def check_new(option: str, name: str) -> None:
    """Refuse a name that is none, that a data set has already, or whose folder cannot be made."""
    check_name(option, name)
    if dataset_exists(name):
        stem, _, version = name.rpartition('-v')
        raise OptionError(option, f'{name} is there already, expected a new name, such as {stem}-v{int(version) + 1}')
    for parent in Path(name).parents:
        if dataset_exists(parent.as_posix()) or parent.name == DATA:
            raise OptionError(option, f'got {name}, which lies in the data set {parent.as_posix()}')
    folder = data_folder(name)
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    if not folder.is_dir() or not os.access(folder, os.W_OK | os.X_OK):
        raise OptionError(option, f'got {name}, for which nothing can be written in {folder} (see {ROOT})')


def dataset_exists(name: str) -> bool:
    """Return whether there is a data set of that name, whole or damaged."""
    return (data_folder(name) / METADATA).exists()


def check_known(option: str, name: str) -> None:
    """Refuse a name that no data set here has, with the nearest one."""
    check_name(option, name)
    if not dataset_exists(name):
        there = list(list_names())
        admits = f'expected one of {", ".join(there[:8])}{" …" if len(there) > 8 else ""}' if there else 'there is none'
        raise OptionError(option, f'no data set {name} in {root()}, {admits}{did_you_mean(name, there)}')


def list_names() -> Iterator[str]:
    """Return the names of the data sets here, in order."""
    found = root().glob(f'**/{DATA}/{METADATA}') if root().is_dir() else ()
    for path in sorted(found):
        name = path.parent.parent.relative_to(root()).as_posix()
        if NAME.fullmatch(name):
            yield name


def read_metadata(name: str) -> dict[str, Any]:
    """Return what a data set says of itself.

    Raises:
        ValueError: where it cannot be read.
    """
    try:
        metadata = json.loads((data_folder(name) / METADATA).read_text())
        counts = metadata['total_episodes'], metadata['total_steps']
        if not all(isinstance(count, int) and count >= 0 for count in counts):
            raise ValueError('its episodes and steps are no numbers')
        return metadata
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f'{data_folder(name) / METADATA}: {one_line(error)}') from error
