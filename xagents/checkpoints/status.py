"""What stands in a folder: whether it is a run's, how that stands, and the lock of the process that is at it."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import time
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import IO, Any

from xagents.options.errors import OptionError, did_you_mean, format_value
from xagents.system.file_names import CHECKPOINTS, CONFIG, CONFIG_MISSING, GROUP, LOCK, STATUS, has_checkpoints
from xagents.system.locks import lock_file
from xagents.system.paths import check_folder

LOCK_ATTEMPTS = 10
# a run on another machine that has said nothing for so long is gone
ELSEWHERE = timedelta(minutes=10)


class SaveError(RuntimeError):
    """A run folder cannot be written."""


def is_run(folder: str | os.PathLike[str]) -> bool:
    """Return whether a folder holds a run."""
    return (Path(folder) / CONFIG).is_file()


def is_group(folder: str | os.PathLike[str]) -> bool:
    """Return whether a folder holds a group of runs."""
    return (Path(folder) / GROUP).is_file()


def check_run(name: str, folder: str | os.PathLike[str]) -> None:
    """Check that a folder holds a run; raises OptionError naming the option `name`."""
    if not is_run(folder):
        what = 'a group of runs: name one of them' if is_group(folder) else 'no run in it'
        raise OptionError(name, f'got {folder}, which has {what}' if Path(folder).is_dir() else f'there is no {folder}')


def check_checkpoint(folder: str | os.PathLike[str], name: str) -> None:
    """Check that a run has a checkpoint of that name, or will: `best` and `last` mean whatever there is.

    Raises:
        OptionError: naming `checkpoint`.
    """
    names = sorted(path.name for path in (Path(folder) / CHECKPOINTS).glob('[!.]*') if path.is_dir())
    known = list(dict.fromkeys(('best', 'last', *names)))
    if name not in known:
        raise OptionError(
            'checkpoint', f'got {format_value(name)}, expected one of {", ".join(known)}{did_you_mean(name, known)}'
        )


def check_new_run_directory(folder: str | os.PathLike[str]) -> None:
    """Check that a folder can be that of a new run, or of a new group of them, without writing anything.

    Raises:
        OptionError: naming `run_dir`, where it holds something of another one, stands in one, or cannot be written.
    """
    holds = 'a run' if is_run(folder) else 'a group of runs' if is_group(folder) else ''
    if holds:
        go_on = f'go on with xagents train --resume {folder}'
        raise OptionError('run_dir', f'{folder} holds {holds} already: {go_on}, or choose another folder')
    if has_checkpoints(folder):
        raise OptionError('run_dir', f'{folder} {CONFIG_MISSING}, or choose another folder')
    for parent in Path(folder).absolute().parents:
        if is_run(parent) and (parent / STATUS).is_file():  # other projects have a config.yaml, too
            raise OptionError('run_dir', f'{folder} is within the folder of a run, {parent}: choose another folder')
    check_folder('run_dir', folder)


def read_status(folder: str | os.PathLike[str]) -> dict[str, Any]:
    """Return how a run stands: state, why, steps, games, seconds, mean_reward, best_reward, pid, host, updated.

    One that says it is running, on this machine, and that no process holds, was killed.

    Raises:
        ValueError: in one line, for a file that is missing or torn.
    """
    path = Path(folder) / STATUS
    try:
        status = json.loads(path.read_text())
        if status['state'] == 'running' and not _runs(folder, status):
            status['state'] = 'killed'
        return status
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ValueError(' '.join(f'{path} is not readable ({error})'.split())) from error


def _runs(folder: str | os.PathLike[str], status: Mapping[str, Any]) -> bool:
    """Return whether a process is at work in a folder: it holds a lock that dies with it."""
    # another machine's lock may not be seen here
    updated = datetime.fromisoformat(status['updated'])
    age = datetime.now(UTC) - (updated if updated.tzinfo else updated.replace(tzinfo=UTC))
    return is_locked(folder) or (status['host'] != socket.gethostname() and age < ELSEWHERE)


def take_lock(folder: Path) -> IO[bytes] | None:
    """Return what keeps other processes out of a folder until it is closed, or the process is gone.

    Raises:
        SaveError: where another one has it.
    """
    for attempt in range(LOCK_ATTEMPTS):
        with contextlib.suppress(BlockingIOError):
            return lock_file(folder / LOCK)
        time.sleep(0.01 * attempt)  # `is_locked` of another process holds it for an instant
    raise SaveError(f'{folder}: another process is running in this folder')


def is_locked(folder: str | os.PathLike[str]) -> bool:
    """Return whether a process is running in a folder."""
    try:
        import fcntl

        with open(Path(folder) / LOCK, 'rb') as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except (ImportError, OSError):  # not on this system, or nobody ever was
        return False
    return False
