"""The directory of a run or a grid for which neither `--run-dir` nor other files are given."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from xagents.options.errors import OptionError
from xagents.options.runs import NO_RUN_DIR as NOTHING

PARENT = 'runs'
# options whose files keep a run or its weights
SAVING_OPTIONS = ('run_dir', 'checkpoints', 'history_checkpoint')
# bytes of a directory's name; names of temporary files next to it are longer
LONGEST_NAME = 150
UNSAFE = re.compile(r'[^\w.+=,@-]+')


def needs_directory(options: Mapping[str, Any]) -> bool:
    """Return whether no option says where a run is saved."""
    return not any(options.get(name) for name in SAVING_OPTIONS)


@contextlib.contextmanager
def new_directory(agent_id: str, envs: str) -> Iterator[str]:
    """Create and yield `runs/<envs>/<agent>-<number>`. Remove it at the end of the block if it is still empty.

    Creating the directory reserves its number, so that commands that start at the same time use different ones.

    Args:
        agent_id: id of the agent.
        envs: id of the environment or data set; several are joined.
    """
    parent = Path(PARENT) / (UNSAFE.sub('-', envs)[:LONGEST_NAME].strip('-.') or 'env')
    missing = [folder for folder in (parent, parent.parent) if not folder.exists()]
    try:
        parent.mkdir(parents=True, exist_ok=True)
        folder = _create_next(parent, agent_id)
    except OSError as error:
        problem = f'got nothing, and {parent} cannot be created here ({error.strerror})'
        raise OptionError('run_dir', f'{problem}, expected a directory, or {NOTHING} to save nothing') from error
    try:
        yield str(folder)
    finally:
        for made in (folder, *missing):
            with contextlib.suppress(OSError):  # not empty
                os.rmdir(made)


def _create_next(parent: Path, agent_id: str) -> Path:
    """Create the directory of `agent_id` with the next free number."""
    agent_id = UNSAFE.sub('-', agent_id)  # of module:Class
    used = [path.name.removeprefix(f'{agent_id}-') for path in parent.glob(f'{agent_id}-*')]
    number = max((int(n) for n in used if n.isdecimal()), default=0)
    while True:
        number += 1
        with contextlib.suppress(FileExistsError):  # another command has taken the number
            (folder := parent / f'{agent_id}-{number}').mkdir()
            return folder
