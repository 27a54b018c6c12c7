"""What a fragment tells, checked before it is used, and where environments stand, as a message holds it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from xagents.envs.snapshots.write import Snapshot
from xagents.explorers.messages import Message, WireError
from xagents.pipeline.context import EndedEpisode
from xagents.system.arrays import add_prefix, strip_prefix

# parts of a message's arrays: of the statistics, of the exploration, of where the environments stand
STATISTICS, EXPLORATION, ENV_STATE = 'statistics', 'exploration', 'stand'
NOISE_STATE = f'{EXPLORATION}/x'
# shape [T or T + 1, N, …] and dtype of each array of a whole rollout, by name
ArraySpecs = Mapping[str, tuple[np.dtype, tuple[int, ...]]]
MessagePart = tuple[dict[str, Any], dict[str, np.ndarray]]
"""The header and the arrays of a message, or a part of them."""


class Fragment(NamedTuple):
    """What an order has made.

    Attributes:
        columns: [T or T + 1, n, …] by name, as the environments gave them.
        episodes: that ended; `env` is that among all environments, `step` the row of the fragment.
        seconds: that environments and acting took, and that the explorer was busy.
        env_state: where the environments stand now; None where they cannot be copied.
        noise_state: [n, A] or [0, 0], the state of noise with a memory; None where there is none.
        snapshot_problem: why they cannot be copied.
    """

    columns: dict[str, np.ndarray]
    episodes: list[EndedEpisode]
    seconds: dict[str, float]
    env_state: MessagePart | None
    noise_state: np.ndarray | None
    snapshot_problem: str


def pack_env_state(copies: Sequence[Snapshot], observations: np.ndarray | None = None) -> MessagePart:
    """Return where environments stand, as a message holds it: copies of them, and their observations [n, *D]."""
    held = {str(i): copy.arrays['bytes'] for i, copy in enumerate(copies)}
    seen = {} if observations is None else {'observations': observations}
    return {'stand': [copy.record for copy in copies]}, add_prefix(ENV_STATE, {**held, **seen})


def unpack_env_state(part: MessagePart) -> tuple[list[Snapshot], np.ndarray]:
    """Undo `pack_env_state`, with observations."""
    held = strip_prefix(ENV_STATE, part[1])
    copies = [Snapshot({'bytes': held[str(i)]}, record) for i, record in enumerate(part[0]['stand'])]
    return copies, np.array(held['observations'])


def parse_fragment(
    message: Message, array_specs: ArraySpecs, columns: range, n_envs: int, has_noise_state: bool
) -> Fragment:
    """Return the fragment of a message.

    Args:
        message: of an explorer, which may say what it likes.
        array_specs: the arrays of the whole rollout.
        columns: of the rollout that are its own.
        n_envs: of how many environments they are.
        has_noise_state: whether the policy's noise has a memory.

    Raises:
        WireError: where it is of another kind.
    """
    header, arrays = message.header, message.arrays
    for name, (dtype, shape) in array_specs.items():
        array = arrays.get(name)
        if array is None or (array.dtype, array.shape) != (dtype, (shape[0], len(columns), *shape[2:])):
            raise WireError(f'its {name} are of another kind')
    rows, noise_state = array_specs['valid'][1][0], arrays.get(NOISE_STATE)
    try:
        episodes = [_parse_episode(record, columns, rows) for record in header['episodes']]
        seconds = {name: _parse_seconds(header['seconds'][name]) for name in ('env', 'act', 'busy')}
        env_state = _parse_env_state(header.get('stand'), arrays, n_envs)
        if has_noise_state != (noise_state is not None) or (
            noise_state is not None and not _is_noise_state(noise_state, len(columns))
        ):
            raise ValueError('its exploration is of another kind')
    except (KeyError, TypeError, ValueError, IndexError, OverflowError, AttributeError) as error:
        raise WireError('its header is of another kind') from error
    held = {name: arrays[name] for name in array_specs}
    snapshot_problem = ''.join(c if c.isprintable() else ' ' for c in str(header.get('uncopied', ''))[:300])
    return Fragment(held, episodes, seconds, env_state, noise_state, snapshot_problem)


def _parse_episode(record: Any, columns: range, rows: int) -> EndedEpisode:
    reward, length, success, env, row, seconds, team = record
    whole = all(type(n) is int for n in (length, env, row)) and 0 <= env < len(columns) and 0 <= row < rows
    earned = type(reward) in (int, float) and type(team) in (int, float, type(None))
    if not whole or success not in (None, True, False) or not earned:
        raise ValueError('it is no episode')
    return EndedEpisode(float(reward), length, success, row, _parse_seconds(seconds), columns[env], team)


def _parse_seconds(value: Any) -> float:
    seconds = float(value)
    if not 0 <= seconds < float('inf'):
        raise ValueError('it is no time')
    return seconds


def _parse_env_state(records: Any, arrays: Mapping[str, np.ndarray], n_envs: int) -> MessagePart | None:
    if records is None:
        return None
    held = strip_prefix(ENV_STATE, arrays)
    whole = [type(record) for record in records] == [dict] * n_envs and held.keys() == {str(i) for i in range(n_envs)}
    if not whole or any(array.dtype != np.uint8 or array.ndim != 1 for array in held.values()):
        raise ValueError('it is no copy of environments')
    return {'stand': records}, add_prefix(ENV_STATE, {**held, 'observations': arrays['observations'][-1]})


def _is_noise_state(noise_state: np.ndarray, n_envs: int) -> bool:
    return noise_state.dtype == np.float32 and noise_state.ndim == 2 and len(noise_state) in (0, n_envs)
