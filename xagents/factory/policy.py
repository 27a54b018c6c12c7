"""A trained policy by the place where it lies; loads little, and neither TensorFlow nor an environment."""

from __future__ import annotations

import os
from pathlib import Path

from xagents.checkpoints import weight_files
from xagents.checkpoints.state_files import checkpoint_policy_files, find_checkpoint, is_checkpoint
from xagents.checkpoints.status import check_run, is_group, is_run
from xagents.collecting.trained_policy import TrainedPolicy, read_policy
from xagents.options.errors import did_you_mean


def policy(path: str | os.PathLike[str], checkpoint: str | None = None) -> TrainedPolicy:
    """Return what acts as a trained agent does, without TensorFlow.

    Args:
        path: a run's folder, one of its checkpoints, or the first path of `--checkpoints`.
        checkpoint: which one of a run's folder: best (when not given), last, or the name of one.

    Raises:
        ValueError: in one line, where nothing was saved, or what was saved has no plan or is damaged.
    """
    location = Path(path)
    if is_run(location) or is_group(location):
        check_run('run_dir', location)
        location = find_checkpoint(location, checkpoint or 'best') or location
    elif checkpoint is not None:
        raise ValueError(f'checkpoint: got {checkpoint} for {path}, which is no folder of a run')
    files = checkpoint_policy_files(location) if location.is_dir() else weight_files.saved_policy_files(str(location))
    if files is not None:
        return read_policy(*files)
    if is_run(path) or is_checkpoint(location) or weight_files.weights_exist(str(location)):
        raise ValueError(f'{path} has no policy that acts by itself: xagents.load or xagents.make act with TensorFlow')
    names = [other.name for other in location.parent.glob('*')] if location.parent.is_dir() else []
    what = 'it holds no run and no checkpoint' if location.is_dir() else 'nothing is there'
    raise ValueError(f'path: got {str(path)!r}, but {what}{did_you_mean(location.name, names)}')
