"""Names of the files and folders in a run directory."""

from __future__ import annotations

import os
from pathlib import Path

CONFIG, GROUP, STATUS, LOCK, CHECKPOINTS = 'config.yaml', 'group.yaml', 'status.json', '.lock', 'checkpoints'
STATE_FILE = 'state.json'  # in the folder of a checkpoint
CONFIG_MISSING = f'holds checkpoints of a run whose {CONFIG} is missing: restore this file'


def has_checkpoints(folder: str | os.PathLike[str]) -> bool:
    """Return whether a folder contains checkpoints of a run, even if other files of the run are missing."""
    return any((Path(folder) / CHECKPOINTS).glob(f'*/{STATE_FILE}'))
