"""Scores of the checkpoints of a run that trains elsewhere. The run is not modified and does not wait."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from xagents.checkpoints.state_files import BEST_PREFIX, steps_in_name
from xagents.checkpoints.status import check_run, read_status
from xagents.collecting.random_streams import RandomStreams
from xagents.config.configuration import read_config
from xagents.factory.load import load
from xagents.factory.players import load_player
from xagents.logs.table_files import read_table, write_parquet
from xagents.options.errors import OptionError
from xagents.system.file_names import CHECKPOINTS
from xagents.system.interruption import Interruption

# how often it is looked for new ones
POLL_SECONDS = 1.0
SCORES_FILE = 'evaluations.parquet'


def score_checkpoints(
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
    streams = RandomStreams(int(options.get('seed') or read_config(folder).get('seed') or 0))
    path = Path(out) if out is not None else Path(folder) / SCORES_FILE
    rows = _read_rows(path)
    scored_steps = {row['steps'] for row in rows}
    while True:
        ended = _has_ended(folder)  # before looking: what is saved at the very end is found, too
        for name in _unscored_checkpoints(folder, scored_steps):
            if Interruption.requested():
                return
            steps = steps_in_name(name)
            seed = streams.derive_seed('evaluate', steps)
            result = _score_checkpoint(folder, name, options, {'seed': seed, **evaluation})
            if result is None:
                continue
            row = {'steps': steps, 'checkpoint': name, 'time': datetime.now(UTC).isoformat(timespec='seconds')}
            rows.append({**row, **result})
            scored_steps.add(steps)
            _write_rows(path, sorted(rows, key=lambda row: row['steps']))
            yield rows[-1]
        if ended or Interruption.requested():
            return
        time.sleep(POLL_SECONDS)


def _has_ended(folder: str | os.PathLike[str]) -> bool:
    try:
        return read_status(folder)['state'] != 'running'
    except ValueError:  # it has just begun, or never did
        return not (Path(folder) / CHECKPOINTS).is_dir()


def _unscored_checkpoints(folder: str | os.PathLike[str], scored_steps: set[int]) -> list[str]:
    """Return the names of checkpoints of other steps than those that were seen, the oldest first."""
    found = {
        path.name: steps_in_name(path.name)
        for path in (Path(folder) / CHECKPOINTS).glob('[!.]*-*')
        if path.is_dir() and not path.is_symlink() and not path.name.startswith(BEST_PREFIX)
    }
    first = {steps: name for name, steps in sorted(found.items(), reverse=True)}  # one of the same steps
    return [first[steps] for steps in sorted(first) if steps not in scored_steps]


def _score_checkpoint(
    folder: str | os.PathLike[str], name: str, options: Mapping[str, Any], evaluation: Mapping[str, Any]
) -> dict[str, float] | None:
    """Return what a checkpoint is worth; None where the run has replaced it meanwhile."""
    try:
        player: Any = load_player(folder, name, options) or load(folder, name, **options)
    except ValueError:
        if (Path(folder) / CHECKPOINTS / name).is_dir():
            raise
        return None
    with contextlib.closing(player):
        return player.evaluate(**evaluation)


def _read_rows(path: Path) -> list[dict[str, Any]]:
    """Return the rows of a file, none where there is none."""
    if not path.exists():
        return []
    rows = read_table(path, 'table').to_pylist()
    if rows and 'checkpoint' not in rows[0]:
        raise OptionError('out', f'got {path}, which is no table of evaluations')
    return [{name: value for name, value in row.items() if value is not None} for row in rows]


def _write_rows(path: Path, rows: list[dict[str, Any]]) -> None:
    import pyarrow as pa

    names = dict.fromkeys(name for row in rows for name in row)
    write_parquet(pa.table({name: [row.get(name) for row in rows] for name in names}), path)
