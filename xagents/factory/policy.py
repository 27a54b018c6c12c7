"""A trained policy by the place where it lies; loads little, and neither TensorFlow nor an environment."""

from __future__ import annotations

import os
from pathlib import Path

from xagents.collecting.trained import TrainedPolicy, read_policy
from xagents.options.errors import nearest
from xagents.runs import weight_files
from xagents.runs.checkpoints import checkpoint_of, is_checkpoint, policy_files
from xagents.runs.status import check_run, is_group, is_run


def policy(path: str | os.PathLike[str], checkpoint: str | None = None) -> TrainedPolicy:
    """Return what acts as a trained agent does, without TensorFlow.

    Args:
        path: a run's folder, one of its checkpoints, or the first path of `--checkpoints`.
        checkpoint: which one of a run's folder: best (when not given), last, or the name of one.

    Raises:
        ValueError: in one line, where nothing was saved, or what was saved has no plan or is damaged.
    """
    place = Path(path)
    if is_run(place) or is_group(place):
        check_run('run_dir', place)
        place = checkpoint_of(place, checkpoint or 'best') or place
    elif checkpoint is not None:
        raise ValueError(f'checkpoint: got {checkpoint} for {path}, which is no folder of a run')
    files = policy_files(place) if place.is_dir() else weight_files.policy_files(str(place))
    if files is not None:
        return read_policy(*files)
    if is_run(path) or is_checkpoint(place) or weight_files.is_there(str(place)):
        raise ValueError(f'{path} has no policy that acts by itself: xagents.load or xagents.make act with TensorFlow')
    names = [other.name for other in place.parent.glob('*')] if place.parent.is_dir() else []
    what = 'it holds no run and no checkpoint' if place.is_dir() else 'nothing is there'
    raise ValueError(f'path: got {str(path)!r}, but {what}{nearest(place.name, names)}')
