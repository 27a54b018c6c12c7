"""Copies of run directories."""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path

from xagents.checkpoints.run_directory import REPLAY_DIRECTORY


def copy_run(source: str | os.PathLike[str], target: str | os.PathLike[str]) -> None:
    """Copy a run directory that no process uses. A resumed copy continues exactly as the original run would.

    Segments of replay buffers are written once, so they are hard-linked if possible; other files are copied.

    Args:
        source: the run directory.
        target: the new directory; an existing one, from a copy that was killed, is replaced.
    """
    shutil.rmtree(target, ignore_errors=True)

    def copy(file: str, to: str) -> None:
        if Path(file).parent.name == REPLAY_DIRECTORY:
            with contextlib.suppress(OSError):  # another file system, or one without links
                return os.link(file, to)
        shutil.copy2(file, to)

    shutil.copytree(source, target, symlinks=True, copy_function=copy)
