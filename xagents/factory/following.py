"""Scores of a run's checkpoints, made beside it while it goes on: nothing of the run is touched, and nothing waits."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from xagents.collecting.streams import Streams
from xagents.config.configuration import read_config
from xagents.factory.load import load
from xagents.factory.players import loaded
from xagents.logs.table_files import read_table, write_parquet
from xagents.options.errors import OptionError
from xagents.runs.checkpoints import BEST, steps_of
from xagents.runs.status import check_run, read_status
from xagents.system.interruption import Interruption
from xagents.system.names import CHECKPOINTS

# how often it is looked for new ones
SECONDS = 1.0
FILE = 'evaluations.parquet'


def follow(
    folder: str | os.PathLike[str], out: str | os.PathLike[str] | None, options: Mapping[str, Any], **evaluation: Any
) -> Iterator[dict[str, Any]]:
    """Score each checkpoint of a run that has no score yet, until the run has ended; yield each score.

    Args:
        folder: of the run, which may go on elsewhere.
        out: a parquet file with a row for each checkpoint, to which rows are added; in the run's folder when not given.
        options: of the environment and the agent, that win over those of the run.
        evaluation: what `BaseAgent.evaluate` takes.

    Yields:
        `steps`, `checkpoint`, `time` (UTC, ISO 8601) and what `evaluate` returns.

    Raises:
        OptionError: where there is no such run, or `out` is no file of this kind.
    """
    check_run('follow', folder)
    # as the run itself would evaluate at that step
    streams = Streams(int(options.get('seed') or read_config(folder).get('seed') or 0))
    path = Path(out) if out is not None else Path(folder) / FILE
    rows = _rows(path)
    seen = {row['steps'] for row in rows}
    while True:
        ended = _has_ended(folder)  # before looking: what is saved at the very end is found, too
        for name in _unseen(folder, seen):
            if Interruption.requested():
                return
            steps = steps_of(name)
            seed = streams.seed_of('evaluate', steps)
            result = _score(folder, name, options, {'seed': seed, **evaluation})
            if result is None:
                continue
            row = {'steps': steps, 'checkpoint': name, 'time': datetime.now(UTC).isoformat(timespec='seconds')}
            rows.append({**row, **result})
            seen.add(steps)
            _write(path, sorted(rows, key=lambda row: row['steps']))
            yield rows[-1]
        if ended or Interruption.requested():
            return
        time.sleep(SECONDS)


def _has_ended(folder: str | os.PathLike[str]) -> bool:
    try:
        return read_status(folder)['state'] != 'running'
    except ValueError:  # it has just begun, or never did
        return not (Path(folder) / CHECKPOINTS).is_dir()


def _unseen(folder: str | os.PathLike[str], seen: set[int]) -> list[str]:
    """Return the names of checkpoints of other steps than those that were seen, the oldest first."""
    found = {
        path.name: steps_of(path.name)
        for path in (Path(folder) / CHECKPOINTS).glob('[!.]*-*')
        if path.is_dir() and not path.is_symlink() and not path.name.startswith(BEST)
    }
    first = {steps: name for name, steps in sorted(found.items(), reverse=True)}  # one of the same steps
    return [first[steps] for steps in sorted(first) if steps not in seen]


def _score(
    folder: str | os.PathLike[str], name: str, options: Mapping[str, Any], evaluation: Mapping[str, Any]
) -> dict[str, float] | None:
    """Return what a checkpoint is worth; None where the run has replaced it meanwhile."""
    try:
        player: Any = loaded(folder, name, options) or load(folder, name, **options)
    except ValueError:
        if (Path(folder) / CHECKPOINTS / name).is_dir():
            raise
        return None
    with contextlib.closing(player):
        return player.evaluate(**evaluation)


def _rows(path: Path) -> list[dict[str, Any]]:
    """Return the rows of a file, none where there is none."""
    if not path.exists():
        return []
    rows = read_table(path, 'table').to_pylist()
    if rows and 'checkpoint' not in rows[0]:
        raise OptionError('out', f'got {path}, which is no table of evaluations')
    return [{name: value for name, value in row.items() if value is not None} for row in rows]


def _write(path: Path, rows: list[dict[str, Any]]) -> None:
    import pyarrow as pa

    names = dict.fromkeys(name for row in rows for name in row)
    write_parquet(pa.table({name: [row.get(name) for row in rows] for name in names}), path)
