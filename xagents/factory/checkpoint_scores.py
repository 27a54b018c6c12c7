"""Scores of the checkpoints of a run that another process may be training. The run is not modified or delayed."""

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

# interval between two searches for new checkpoints
POLL_SECONDS = 1.0
SCORES_FILE = 'evaluations.parquet'


def score_checkpoints(
    folder: str | os.PathLike[str], out: str | os.PathLike[str] | None, options: Mapping[str, Any], **evaluation: Any
) -> Iterator[dict[str, Any]]:
    """Evaluate each checkpoint of a run that has no score yet, until the run ends, and yield each score.

    Args:
        folder: the run directory; another process may be training the run.
        out: the path of a parquet file with one row for each checkpoint. New rows are added to an existing file.
            When not given, `evaluations.parquet` in the run directory.
        options: options of the environment and the agent, which override the options of the run.
        evaluation: keyword arguments of `BaseAgent.evaluate`.

    Yields:
        A row with `steps`, `checkpoint`, `time` (UTC, ISO 8601) and the values that `evaluate` returns.

    Raises:
        OptionError: if the run does not exist, or `out` is not a file of evaluations.
    """
    check_run('follow', folder)
    # the seed of each evaluation is the seed that the run would use at the same step
    streams = RandomStreams(int(options.get('seed') or read_config(folder).get('seed') or 0))
    path = Path(out) if out is not None else Path(folder) / SCORES_FILE
    rows = _read_rows(path)
    scored_steps = {row['steps'] for row in rows}
    while True:
        ended = _has_ended(folder)  # checked before the search, so that the last checkpoint is found
        for name in _unscored_checkpoints(folder, scored_steps):
            if Interruption.requested():
                return
            steps = steps_in_name(name)
            seed = streams.derive_seed('evaluate', steps)
            if (result := _score_checkpoint(folder, name, options, {'seed': seed, **evaluation})) is None:
                continue
            time_text = datetime.now(UTC).isoformat(timespec='seconds')
            rows.append({'steps': steps, 'checkpoint': name, 'time': time_text, **result})
            scored_steps.add(steps)
            _write_rows(path, sorted(rows, key=lambda row: row['steps']))
            yield rows[-1]
        if ended or Interruption.requested():
            return
        time.sleep(POLL_SECONDS)


def _has_ended(folder: str | os.PathLike[str]) -> bool:
    try:
        return read_status(folder)['state'] != 'running'
    except ValueError:  # the run has no status yet: it has just started, or was never started
        return not (Path(folder) / CHECKPOINTS).is_dir()


def _unscored_checkpoints(folder: str | os.PathLike[str], scored_steps: set[int]) -> list[str]:
    """Return the names of checkpoints whose steps are not in `scored_steps`, the oldest first."""
    paths = (path for path in (Path(folder) / CHECKPOINTS).glob('[!.]*-*') if path.is_dir() and not path.is_symlink())
    names = sorted((path.name for path in paths if not path.name.startswith(BEST_PREFIX)), reverse=True)
    first = {steps_in_name(name): name for name in names}  # one checkpoint for each number of steps
    return [first[steps] for steps in sorted(first) if steps not in scored_steps]


def _score_checkpoint(
    folder: str | os.PathLike[str], name: str, options: Mapping[str, Any], evaluation: Mapping[str, Any]
) -> dict[str, float] | None:
    """Return the evaluation of a checkpoint, or None if the run has deleted the checkpoint in the meantime."""
    try:
        player: Any = load_player(folder, name, options) or load(folder, name, **options)
    except ValueError:
        if (Path(folder) / CHECKPOINTS / name).is_dir():
            raise
        return None
    with contextlib.closing(player):
        return player.evaluate(**evaluation)


def _read_rows(path: Path) -> list[dict[str, Any]]:
    """Return the rows of a file, or an empty list if the file does not exist."""
    if not path.exists():
        return []
    rows = read_table(path, 'table').to_pylist()
    if rows and 'checkpoint' not in rows[0]:
        raise OptionError('out', f'got {path}, expected a table of evaluations')
    return [{name: value for name, value in row.items() if value is not None} for row in rows]


def _write_rows(path: Path, rows: list[dict[str, Any]]) -> None:
    import pyarrow as pa

    names = dict.fromkeys(name for row in rows for name in row)
    write_parquet(pa.table({name: [row.get(name) for row in rows] for name in names}), path)
