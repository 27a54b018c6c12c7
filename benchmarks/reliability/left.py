"""Examine a run directory after a kill: whether every file can be read, and what is lost."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.processes import Process


@dataclass
class Kill:
    """One kill and its consequences.

    Args:
        agent: id of the agent.
        moment: one of `kills.MOMENTS`.
        reported: steps that the run had reported in console, history or metrics.
        saved: steps of the last checkpoint; 0 without one.
        seconds: of training since the last checkpoint.
        shown: of these, until the last status line, that is without the iteration in flight.
        silence: longest time between two status lines, or from the last one to the kill: no iteration was longer.
        unreadable: one line for each file that could not be read.
        files: number of files and checkpoints that were read.
        resumed: step at which a later call resumed; None without one.
    """

    agent: str
    moment: str
    reported: int = 0
    saved: int = 0
    seconds: float = 0.0
    shown: float = 0.0
    silence: float = 0.0
    unreadable: list[str] = field(default_factory=list)
    files: int = 0
    resumed: int | None = None

    @property
    def lost(self) -> int:
        """Steps that were reported and are lost."""
        return max(self.reported - self.saved, 0)

    def beyond(self, save_seconds: float) -> float:
        """Return the lost seconds beyond the promise, which is `save_seconds` and one iteration."""
        return max(self.seconds - save_seconds - self.silence, 0.0) if self.lost else 0.0


def link(run_dir: Path) -> str:
    """Return the name of the last checkpoint; empty without one."""
    try:
        return os.readlink(run_dir / 'checkpoints' / 'last')
    except OSError:
        return ''


def being_written(run_dir: Path) -> bool:
    """Return whether a checkpoint is being written."""
    try:
        return any(name.endswith('.new') for name in os.listdir(run_dir / 'checkpoints'))
    except OSError:
        return False


def last_steps(run_dir: Path) -> int:
    """Return the steps of the last checkpoint; 0 without one."""
    from xagents.runs.checkpoints import read_record

    last = newest(run_dir)
    return 0 if last is None else read_record(last)['counters']['steps']


def newest(run_dir: Path) -> Path | None:
    """Return the newest whole checkpoint, also if a kill came before `last` was linked to it; None without one."""
    from xagents.runs.checkpoints import newest_whole

    return run_dir / 'checkpoints' / 'last' if link(run_dir) else newest_whole(run_dir / 'checkpoints')


def examine(run_dir: Path, kill: Kill) -> None:
    """Read every file after a kill, and add those that cannot be read."""
    from xagents.factory.load import read_config
    from xagents.logs.history import read_history
    from xagents.logs.metrics import read_metrics
    from xagents.runs.checkpoints import read_state
    from xagents.runs.status import read_status

    files: list[tuple[str, Callable[[Path], Any], Path]] = [
        ('config.yaml', lambda path: read_config(path.parent), run_dir),
        ('status.json', lambda path: read_status(path.parent), run_dir),
        ('history.parquet', read_history, run_dir),
        ('metrics.parquet', read_metrics, run_dir),
    ]
    checkpoints = run_dir / 'checkpoints'
    if checkpoints.is_dir():
        files += [(path.name, read_state, checkpoints) for path in checkpoints.iterdir() if path.name[0] != '.']
    for name, read, place in files:
        path = place / name
        if not (path.exists() or path.is_symlink()):
            continue
        kill.files += 1
        try:
            content = read(path)
        except Exception as error:  # any error means that the file cannot be read
            kill.unreadable.append(f'{name}: {type(error).__name__}: {error}')
            continue
        for column in ('step', 'steps'):
            if name.endswith('.parquet') and column in content and len(content):
                kill.reported = max(kill.reported, int(content[column].iloc[-1]))
                if column == 'steps' and not content[column].is_unique:
                    kill.unreadable.append(f'{name}: duplicate step')
    for name in ('best', 'last'):
        if (checkpoints / name).is_symlink() and not (checkpoints / name).is_dir():
            kill.unreadable.append(f'{name}: broken link')


def measure_loss(run_dir: Path, kill: Kill, run: Process, began: float | None, when: float) -> None:
    """Compute the loss: the difference between the reports of the run and its last whole checkpoint.

    Args:
        run_dir: the run directory.
        kill: gets the result.
        run: the killed process.
        began: start of the training; None if it had not started.
        when: time of the kill.
    """
    kill.saved = last_steps(run_dir)
    status = [moment for moment, _ in run.events('status') if moment <= when]
    kill.reported = max(kill.reported, run.steps)
    if began is None:  # without training nothing can be lost
        kill.reported = kill.saved
        return
    last = newest(run_dir)
    written = 0.0 if last is None else (last / 'state.npz').stat().st_mtime
    kill.seconds = when - max(written, began)
    kill.shown = max((status or [began])[-1] - max(written, began), 0.0)
    # the first iteration, which compiles, counts if this call has saved nothing
    moments = [*([began] if written < began or not status else []), *status, when]
    kill.silence = max(b - a for a, b in itertools.pairwise(moments))
