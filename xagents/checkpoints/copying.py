"""A copy of a run, to go on with elsewhere."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from xagents.checkpoints.run_directory import REPLAY_DIRECTORY


def copy_run(source: str | os.PathLike[str], target: str | os.PathLike[str]) -> None:
    """Copy the folder of a run that nobody is at: whoever resumes the copy goes on as the run itself would.

    Segments of replay buffers, which are written once, are shared where the file system can; the rest is copied.

    Args:
        source: the folder of a run.
        target: a folder that is not there; one that is there from a copy that was killed is replaced.
    """
    shutil.rmtree(target, ignore_errors=True)

    def copy(file: str, to: str) -> None:
        if Path(file).parent.name == REPLAY_DIRECTORY:
            try:
                os.link(file, to)
                return
            except OSError:  # another file system, or one without links
                pass
        shutil.copy2(file, to)

    shutil.copytree(source, target, symlinks=True, copy_function=copy)
