"""Trained policies by path. Neither TensorFlow nor an environment is loaded."""

from __future__ import annotations

import os
from pathlib import Path

from xagents.checkpoints import weight_files
from xagents.checkpoints.state_files import checkpoint_policy_files, find_checkpoint, is_checkpoint
from xagents.checkpoints.status import check_run, is_export, is_group, is_run
from xagents.collecting.trained_policy import TrainedPolicy, read_policy
from xagents.options.errors import did_you_mean


def policy(path: str | os.PathLike[str], checkpoint: str | None = None) -> TrainedPolicy:
    """Load the policy of a trained agent, which acts without TensorFlow.

    Args:
        path: a run directory, one of its checkpoints, or the first path of `--checkpoints`.
        checkpoint: the checkpoint in a run directory: 'best' (default), 'last', or the name of one.

    Returns:
        The policy, which maps raw observations to actions.

    Raises:
        ValueError: in one line, if nothing was saved at `path`, if the agent cannot act without TensorFlow, or if
            the files are damaged.
    """
    location = Path(path)
    if is_run(location) or is_group(location):
        check_run('run_dir', location)
        location = find_checkpoint(location, checkpoint or 'best') or location
    elif checkpoint is not None:
        raise ValueError(f'checkpoint: got {checkpoint} for {path}, expected a run directory as path')
    if is_export(location):
        problem = f'{path} is an exported policy, which its own runtime runs (docs/export.md)'
        raise ValueError(f'{problem}, expected the run directory that it was exported from')
    files = checkpoint_policy_files(location) if location.is_dir() else weight_files.saved_policy_files(str(location))
    if files is not None:
        return read_policy(*files)
    if is_run(path) or is_checkpoint(location) or weight_files.weights_exist(str(location)):
        raise ValueError(f'{path} has no policy that acts without TensorFlow: use xagents.load or xagents.make')
    names = [other.name for other in location.parent.glob('*')] if location.parent.is_dir() else []
    hint = did_you_mean(location.name, names)
    if location.is_dir():
        raise ValueError(f'path: got {path}, but it contains no run and no checkpoint{hint}')
    raise ValueError(f'path: there is no directory or weight file {path}{hint}')
