"""A policy as data, and its two files: a plan in JSON, and arrays. Does not load TensorFlow or Gymnasium."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from xagents.system.files import name_file_in_errors

POLICY_PLAN, POLICY_ARRAYS = 'plan.json', 'policy.npz'
FORMAT = 1


class PolicyData(NamedTuple):
    """A policy as data: a plan that JSON can represent, and arrays by name."""

    plan: dict[str, Any]
    arrays: dict[str, np.ndarray]


def write_policy(data: PolicyData, plan: Path, arrays: Path) -> None:
    """Write a policy; the caller makes sure that both files appear at once."""
    with name_file_in_errors(plan):
        plan.write_text(json.dumps(data.plan, allow_nan=False))
    held: dict[str, Any] = data.arrays
    with name_file_in_errors(arrays):
        np.savez(arrays, **held)


def read_policy_data(plan: Path, arrays: Path) -> PolicyData:
    """Read the files of `write_policy`.

    Raises:
        ValueError: if a file is missing, damaged or of another version; the one-line message names the file.
    """
    try:
        record = json.loads(plan.read_text())
        if not isinstance(record, dict) or 'format' not in record:
            raise ValueError('it is no plan of a policy')
        if record['format'] != FORMAT:
            raise ValueError(f'it has the format {record["format"]}, this xagents reads {FORMAT}')
    except (OSError, ValueError, RecursionError) as error:
        raise ValueError(damaged_policy(plan, plan, error)) from error
    try:
        with np.load(arrays, allow_pickle=False) as file:
            return PolicyData(record, dict(file))
    except Exception as error:  # NumPy and zipfile raise many types of errors
        raise ValueError(damaged_policy(arrays, plan, error)) from error


def damaged_policy(path: Path, plan: Path, error: Exception) -> str:
    """Return the error message about a damaged file of a policy."""
    return ' '.join(f'{path} is damaged or not a policy ({error}); remove {plan} to act by the agent'.split())
