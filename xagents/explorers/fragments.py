"""What a fragment tells, checked before it is used, and where environments stand, as a message holds it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from xagents.envs.snapshots.write import Snapshot
from xagents.explorers.messages import Message, WireError
from xagents.pipeline.context import EndedEpisode
from xagents.system.arrays import prefixed, without_prefix

# parts of a message's arrays: of the statistics, of the exploration, of where the environments stand
STATISTICS, EXPLORATION, STAND = 'statistics', 'exploration', 'stand'
DRIFT = f'{EXPLORATION}/x'
# shape [T or T + 1, N, …] and dtype of each array of a whole rollout, by name
Columns = Mapping[str, tuple[np.dtype, tuple[int, ...]]]
Told = tuple[dict[str, Any], dict[str, np.ndarray]]
"""The header and the arrays of a message, or a part of them."""


class Fragment(NamedTuple):
    """What an order has made.

    Attributes:
        columns: [T or T + 1, n, …] by name, as the environments gave them.
        episodes: that ended; `env` is that among all environments, `step` the row of the fragment.
        seconds: that environments and acting took, and that the explorer was busy.
        stand: where the environments stand now; None where they cannot be copied.
        drift: [n, A] or [0, 0], the state of noise with a memory; None where there is none.
        uncopied: why they cannot be copied.
    """

    columns: dict[str, np.ndarray]
    episodes: list[EndedEpisode]
    seconds: dict[str, float]
    stand: Told | None
    drift: np.ndarray | None
    uncopied: str


def told_stand(copies: Sequence[Snapshot], observations: np.ndarray | None = None) -> Told:
    """Return where environments stand, as a message holds it: copies of them, and their observations [n, *D]."""
    held = {str(i): copy.arrays['bytes'] for i, copy in enumerate(copies)}
    seen = {} if observations is None else {'observations': observations}
    return {'stand': [copy.record for copy in copies]}, prefixed(STAND, {**held, **seen})


def stand_of(told: Told) -> tuple[list[Snapshot], np.ndarray]:
    """Undo `told_stand`, with observations."""
    held = without_prefix(STAND, told[1])
    copies = [Snapshot({'bytes': held[str(i)]}, record) for i, record in enumerate(told[0]['stand'])]
    return copies, np.array(held['observations'])


def fragment_of(message: Message, wanted: Columns, columns: range, n_envs: int, drifts: bool) -> Fragment:
    """Return the fragment of a message.

    Args:
        message: of an explorer, which may say what it likes.
        wanted: the arrays of the whole rollout.
        columns: of the rollout that are its own.
        n_envs: of how many environments they are.
        drifts: whether the policy's noise has a memory.

    Raises:
        WireError: where it is of another kind.
    """
    header, arrays = message.header, message.arrays
    for name, (dtype, shape) in wanted.items():
        array = arrays.get(name)
        if array is None or (array.dtype, array.shape) != (dtype, (shape[0], len(columns), *shape[2:])):
            raise WireError(f'its {name} are of another kind')
    rows, drift = wanted['valid'][1][0], arrays.get(DRIFT)
    try:
        episodes = [_episode(told, columns, rows) for told in header['episodes']]
        seconds = {name: _seconds(header['seconds'][name]) for name in ('env', 'act', 'busy')}
        stand = _stand(header.get('stand'), arrays, n_envs)
        if drifts != (drift is not None) or (drift is not None and not _is_drift(drift, len(columns))):
            raise ValueError('its exploration is of another kind')
    except (KeyError, TypeError, ValueError, IndexError, OverflowError, AttributeError) as error:
        raise WireError('its header is of another kind') from error
    held = {name: arrays[name] for name in wanted}
    uncopied = ''.join(c if c.isprintable() else ' ' for c in str(header.get('uncopied', ''))[:300])
    return Fragment(held, episodes, seconds, stand, drift, uncopied)


def _episode(told: Any, columns: range, rows: int) -> EndedEpisode:
    reward, length, success, env, row, seconds, team = told
    whole = all(type(n) is int for n in (length, env, row)) and 0 <= env < len(columns) and 0 <= row < rows
    earned = type(reward) in (int, float) and type(team) in (int, float, type(None))
    if not whole or success not in (None, True, False) or not earned:
        raise ValueError('it is no episode')
    return EndedEpisode(float(reward), length, success, row, _seconds(seconds), columns[env], team)


def _seconds(told: Any) -> float:
    seconds = float(told)
    if not 0 <= seconds < float('inf'):
        raise ValueError('it is no time')
    return seconds


def _stand(records: Any, arrays: Mapping[str, np.ndarray], n_envs: int) -> Told | None:
    if records is None:
        return None
    held = without_prefix(STAND, arrays)
    whole = [type(record) for record in records] == [dict] * n_envs and held.keys() == {str(i) for i in range(n_envs)}
    if not whole or any(array.dtype != np.uint8 or array.ndim != 1 for array in held.values()):
        raise ValueError('it is no copy of environments')
    return {'stand': records}, prefixed(STAND, {**held, 'observations': arrays['observations'][-1]})


def _is_drift(drift: np.ndarray, n_envs: int) -> bool:
    return drift.dtype == np.float32 and drift.ndim == 2 and len(drift) in (0, n_envs)
