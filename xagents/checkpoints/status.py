"""Run directories: detection, status, and the lock of the process that uses one."""

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
# the file that describes an exported policy
EXPORT_DESCRIPTION = 'policy.json'
# a run on another machine counts as killed if its status is older
REMOTE_TIMEOUT = timedelta(minutes=10)


class SaveError(RuntimeError):
    """A run directory cannot be written."""


def is_run(folder: str | os.PathLike[str]) -> bool:
    """Return whether a directory contains a run."""
    return (Path(folder) / CONFIG).is_file()


def is_group(folder: str | os.PathLike[str]) -> bool:
    """Return whether a directory contains a group of runs."""
    return (Path(folder) / GROUP).is_file()


def is_export(folder: str | os.PathLike[str]) -> bool:
    """Return whether a directory is the result of `xagents export`."""
    return (Path(folder) / EXPORT_DESCRIPTION).is_file()


def check_run(name: str, folder: str | os.PathLike[str]) -> None:
    """Raise OptionError for the option `name` if a directory contains no run."""
    if is_run(folder):
        return
    if not Path(folder).is_dir():
        raise OptionError(name, f'there is no directory {folder}')
    if is_export(folder):
        problem = f'{folder} is an exported policy, expected the run directory that it was exported from'
        raise OptionError(name, problem)
    example = next((str(path) for path in sorted(Path(folder).iterdir()) if is_run(path)), '')
    expected = f'a run directory, such as {example}' if example else 'a run directory'
    what = 'a group of runs' if is_group(folder) else 'without a run'
    raise OptionError(name, f'got {folder}, {what}, expected {expected}')


def check_checkpoint(folder: str | os.PathLike[str], name: str) -> None:
    """Check that a run has a checkpoint with the given name. `best` and `last` are always valid.

    Raises:
        OptionError: if the run has no such checkpoint.
    """
    names = sorted(path.name for path in (Path(folder) / CHECKPOINTS).glob('[!.]*') if path.is_dir())
    known = list(dict.fromkeys(('best', 'last', *names)))
    if name not in known:
        expected = f'one of {", ".join(known)}{did_you_mean(name, known)}'
        raise OptionError('checkpoint', f'got {format_value(name)}, expected {expected}')


def check_new_run_directory(folder: str | os.PathLike[str]) -> None:
    """Check that a directory can be used for a new run or group of runs. Write nothing.

    Raises:
        OptionError: if the directory contains or lies within another run, or cannot be written.
    """
    holds = 'a run' if is_run(folder) else 'a group of runs' if is_group(folder) else ''
    if holds:
        resume = f'resume with xagents train --resume {folder}'
        raise OptionError('run_dir', f'{folder} already contains {holds}: {resume}, or choose another directory')
    if has_checkpoints(folder):
        raise OptionError('run_dir', f'{folder} {CONFIG_MISSING}, or choose another directory')
    for parent in Path(folder).absolute().parents:
        if is_run(parent) and (parent / STATUS).is_file():  # other projects have a config.yaml, too
            raise OptionError('run_dir', f'{folder} is within a run directory, {parent}: choose another directory')
    check_folder('run_dir', folder)


def read_status(folder: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the status of a run: state, why, steps, games, seconds, mean_reward, best_reward, pid, host, updated.

    The state is `killed` if the file says `running` but no process has the lock.

    Raises:
        ValueError: if the file is missing or damaged.
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
    """Return whether a process uses a run directory. The process holds a lock, which ends with it."""
    # locks of other machines may not be visible here
    updated = datetime.fromisoformat(status['updated'])
    age = datetime.now(UTC) - (updated if updated.tzinfo else updated.replace(tzinfo=UTC))
    return is_locked(folder) or (status['host'] != socket.gethostname() and age < REMOTE_TIMEOUT)


def take_lock(folder: Path) -> IO[bytes] | None:
    """Lock a run directory for this process.

    Returns:
        The lock file. The lock ends when the file is closed or the process ends. None on systems without locks.

    Raises:
        SaveError: if another process has the lock.
    """
    for attempt in range(LOCK_ATTEMPTS):
        with contextlib.suppress(BlockingIOError):
            return lock_file(folder / LOCK)
        time.sleep(0.01 * attempt)  # `is_locked` in another process takes the lock for an instant
    raise SaveError(f'{folder}: another process is running in this directory')


def is_locked(folder: str | os.PathLike[str]) -> bool:
    """Return whether a process has the lock of a run directory."""
    try:
        import fcntl

        with open(Path(folder) / LOCK, 'rb') as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except (ImportError, OSError):  # a system without locks, or no lock file
        return False
    return False
