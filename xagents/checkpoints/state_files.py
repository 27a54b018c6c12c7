"""Checkpoints in a run directory. Each is a directory with arrays and a record, and is complete or absent."""

from __future__ import annotations

import json
import os
import shutil
import zipfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from xagents.checkpoints.status import check_checkpoint
from xagents.collecting.policy_files import POLICY_ARRAYS, POLICY_PLAN, PolicyData, write_policy
from xagents.system.file_names import CHECKPOINTS, STATE_FILE
from xagents.system.files import fsync, name_file_in_errors

STATE_ARRAYS = 'state.npz'
# prefixes of checkpoint names: permanent ones (`--checkpoint-frequency`), the best weights, the last state
STEP_PREFIX, BEST_PREFIX, LAST_PREFIX = 'step', 'best', 'last'
# errors from reading a record that is missing, truncated or from another program
READ_ERRORS = (OSError, ValueError, AttributeError)


@dataclass
class AgentState:
    """The state of an agent: arrays, which are equal for equal seeds, and a JSON record, which also has times.

    Attributes:
        weights: for each model, its weights followed by its optimiser's variables.
        arrays: arrays of the agent's parts; in a whole state also of the environments and the iteration in flight.
        record: counters, recent rewards, options and random streams, as JSON values.
        policy: policy data that act without the agent, if the policy has a plan. `read_state` does not read them.
    """

    weights: list[list[np.ndarray]] = field(default_factory=list)
    arrays: dict[str, np.ndarray] = field(default_factory=dict)
    record: dict[str, Any] = field(default_factory=dict)
    policy: PolicyData | None = None


def state_to_arrays(state: AgentState) -> dict[str, np.ndarray]:
    """Return every array of a state by a unique name."""
    weights = {f'weights/{i}/{j}': array for i, model in enumerate(state.weights) for j, array in enumerate(model)}
    return {**weights, **state.arrays}


def state_from_arrays(arrays: dict[str, np.ndarray], record: dict[str, Any]) -> AgentState:
    """Return the state from the arrays of `state_to_arrays` and its record."""
    weights: list[list[np.ndarray]] = []
    while f'weights/{len(weights)}/0' in arrays:
        own = f'weights/{len(weights)}/'
        n = sum(name.startswith(own) for name in arrays)
        weights.append([arrays.pop(f'{own}{j}') for j in range(n)])
    return AgentState(weights, arrays, record)


def write_state(folder: Path, state: AgentState) -> None:
    """Write a state as a directory that is complete or absent."""
    new = folder.with_name(f'.{folder.name}.new')
    shutil.rmtree(new, ignore_errors=True)
    for name, array in state.arrays.items():
        if array.dtype.hasobject:
            raise TypeError(f'{name}: got an array of objects, expected an array of numbers for a checkpoint')
    arrays: dict[str, Any] = state_to_arrays(state)
    try:
        new.mkdir()
        with name_file_in_errors(folder / STATE_ARRAYS):
            np.savez(new / STATE_ARRAYS, **arrays)
        with name_file_in_errors(folder / STATE_FILE):
            (new / STATE_FILE).write_text(json.dumps(state.record, default=_to_scalar))
        if state.policy is not None:
            write_policy(state.policy, new / POLICY_PLAN, new / POLICY_ARRAYS)
        for path in (*new.iterdir(), new):
            fsync(path)
        os.rename(new, folder)
    except Exception:
        shutil.rmtree(new, ignore_errors=True)  # frees space on a full disk
        raise
    fsync(folder.parent)


def read_state(folder: Path, complete: bool = False) -> AgentState:
    """Read a state that `write_state` wrote.

    Args:
        folder: directory of the checkpoint.
        complete: whether the state must be one that a run can resume from, and not only weights.

    Raises:
        ValueError: if a file is missing, damaged or from another program.
    """
    record = read_record(folder)
    if complete and 'in_flight' not in record:
        raise ValueError(_damaged_message(folder / STATE_FILE, ValueError('it contains only weights')))
    path = folder / STATE_ARRAYS
    try:
        with np.load(path, allow_pickle=False) as file:
            return state_from_arrays(dict(file), record)
    except Exception as error:  # NumPy and zipfile raise many types for damaged files
        raise ValueError(_damaged_message(path, error)) from error


def is_checkpoint(folder: Path) -> bool:
    """Return whether a directory is a checkpoint of a run."""
    return (folder / STATE_FILE).is_file()


def checkpoint_policy_files(folder: Path) -> tuple[Path, Path] | None:
    """Return the plan and the arrays of a checkpoint's policy, or None without a policy."""
    return (folder / POLICY_PLAN, folder / POLICY_ARRAYS) if (folder / POLICY_PLAN).is_file() else None


def read_record(folder: Path) -> dict[str, Any]:
    """Read the record of a checkpoint, without its arrays.

    Raises:
        ValueError: if the file is missing, damaged or from another program.
    """
    try:
        return _record(folder)
    except READ_ERRORS as error:
        raise ValueError(_damaged_message(folder / STATE_FILE, error)) from error


def _record(folder: Path) -> dict[str, Any]:
    record = json.loads((folder / STATE_FILE).read_text())
    known = record.get('agent'), record.get('options'), record.get('counters')
    if tuple(map(type, known)) != (str, dict, dict):
        raise ValueError('it is no checkpoint of xagents')
    return record


def read_record_or_empty(folder: Path) -> dict[str, Any]:
    """Return the record of a checkpoint, or an empty one if the file is missing, damaged or from another program."""
    try:
        return _record(folder)
    except READ_ERRORS:
        return {}


def _damaged_message(path: Path, error: Exception) -> str:
    return ' '.join(f'{path} is damaged or not a checkpoint ({error}): {recovery_advice(path.parent)}'.split())


def recovery_advice(checkpoint: Path) -> str:
    """Return advice for an error: what to do about a checkpoint that cannot be read."""
    checkpoints, name = checkpoint.parent, checkpoint.resolve().name
    others = [p.name for p in _complete_checkpoints(checkpoints) if p.name != name and _looks_valid(p)]
    if name.startswith(BEST_PREFIX):
        return f'use another one (--checkpoint {others[-1]})' if others else 'train anew'
    if others:
        return f'link checkpoints/last to another one ({", ".join(others)})'
    return 'train anew; the best weights are whole' if _looks_valid(checkpoints / 'best') else 'train anew'


def _looks_valid(checkpoint: Path) -> bool:
    """Return whether a checkpoint has a valid record and a zip file of arrays. The arrays are not read."""
    return bool(read_record_or_empty(checkpoint)) and zipfile.is_zipfile(checkpoint / STATE_ARRAYS)


def find_checkpoint(folder: str | os.PathLike[str], name: str) -> Path | None:
    """Return the directory of a checkpoint. `best` falls back to `last`. Return None if the run has no checkpoint."""
    check_checkpoint(folder, name)
    checkpoints = Path(folder) / CHECKPOINTS
    for candidate in (name, 'last') if name == 'best' else (name,):
        path = checkpoints / candidate
        if path.is_dir():
            return checkpoints / os.readlink(path) if path.is_symlink() else path
    return newest_complete(checkpoints)  # the process was killed before it made a link


def newest_complete(checkpoints: Path) -> Path | None:
    """Return the newest checkpoint that a run can resume from, or None."""
    return next(reversed(_complete_checkpoints(checkpoints)), None)


def _complete_checkpoints(checkpoints: Path) -> list[Path]:
    found = [path for kind in (STEP_PREFIX, LAST_PREFIX) for path in checkpoints.glob(f'{kind}-*') if path.is_dir()]
    return sorted(found, key=lambda path: (steps_in_name(path.name), path.name))


def steps_in_name(name: str) -> int:
    """Return the steps in a checkpoint's name, or 0 for a name that users gave."""
    number = name.split('-')[1]
    return int(number) if number.isdecimal() else 0


def remove_checkpoint(checkpoint: Path) -> None:
    """Remove a checkpoint so that a kill leaves no incomplete checkpoint."""
    gone = checkpoint.with_name(f'.{checkpoint.name}')  # a hidden name: readers ignore it
    os.rename(checkpoint, gone)
    shutil.rmtree(gone)


def _to_scalar(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f'got {type(value).__name__}, expected numbers and texts for a checkpoint')
