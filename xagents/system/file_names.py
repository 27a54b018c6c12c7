"""What files and folders of a run are called."""

from __future__ import annotations

import os
from pathlib import Path

CONFIG, GROUP, STATUS, LOCK, CHECKPOINTS = 'config.yaml', 'group.yaml', 'status.json', '.lock', 'checkpoints'
STATE_FILE = 'state.json'  # of a checkpoint
CONFIG_MISSING = f'holds checkpoints of a run whose {CONFIG} is missing: put that back'


def has_checkpoints(folder: str | os.PathLike[str]) -> bool:
    """Return whether a folder holds checkpoints of a run, whatever else of it is there."""
    return any((Path(folder) / CHECKPOINTS).glob(f'*/{STATE_FILE}'))
