"""Fragments of rollouts, checked before they are used, and the state of environments in the form of a message."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from xagents.envs.snapshots.write import Snapshot
from xagents.explorers.messages import Message, WireError
from xagents.pipeline.context import EpisodeEnd
from xagents.system.arrays import add_prefix, strip_prefix

# prefixes of a message's arrays: statistics, exploration noise, state of the environments
STATISTICS, EXPLORATION, ENV_STATE = 'statistics', 'exploration', 'env_state'
NOISE_STATE = f'{EXPLORATION}/x'
# shape [T or T + 1, N, …] and dtype of each array of a whole rollout, by name
ArraySpecs = Mapping[str, tuple[np.dtype, tuple[int, ...]]]
MessagePart = tuple[dict[str, Any], dict[str, np.ndarray]]
"""The header and the arrays of a message, or a part of these."""


class Fragment(NamedTuple):
    """The result of an assignment: the part of a rollout that one worker collected.

    Attributes:
        columns: arrays [T or T + 1, n, …] by name, as the environments returned them.
        episodes: finished episodes; `env` is the index among all environments, `step` the row of the fragment.
        seconds: the seconds for `env` and `act`, and the seconds for which the worker was `busy`.
        env_state: the state of the environments after the fragment; None if they cannot be copied.
        noise_state: [n, A] or [0, 0], the state of temporally correlated noise; None for other noise.
        snapshot_problem: the reason why the environments cannot be copied; empty if they can.
    """

    columns: dict[str, np.ndarray]
    episodes: list[EpisodeEnd]
    seconds: dict[str, float]
    env_state: MessagePart | None
    noise_state: np.ndarray | None
    snapshot_problem: str


def pack_env_state(copies: Sequence[Snapshot], observations: np.ndarray | None = None) -> MessagePart:
    """Return the state of environments as a part of a message.

    Args:
        copies: n snapshots of environments.
        observations: [n, *D], the current observations; omitted from the message if None.
    """
    held = {str(i): copy.arrays['bytes'] for i, copy in enumerate(copies)}
    seen = {} if observations is None else {'observations': observations}
    return {ENV_STATE: [copy.record for copy in copies]}, add_prefix(ENV_STATE, {**held, **seen})


def unpack_env_state(part: MessagePart) -> tuple[list[Snapshot], np.ndarray]:
    """Return n snapshots and observations [n, *D] of a part that `pack_env_state` made with observations."""
    held = strip_prefix(ENV_STATE, part[1])
    copies = [Snapshot({'bytes': held[str(i)]}, record) for i, record in enumerate(part[0][ENV_STATE])]
    return copies, np.array(held['observations'])


def parse_fragment(
    message: Message, array_specs: ArraySpecs, columns: range, n_envs: int, has_noise_state: bool
) -> Fragment:
    """Return the fragment of a message, after checking the message.

    Args:
        message: a message of a worker, which is not trusted.
        array_specs: the shapes and dtypes of the whole rollout.
        columns: the columns of the rollout that the fragment fills.
        n_envs: the number of environments n of these columns.
        has_noise_state: whether the policy's noise is temporally correlated.

    Raises:
        WireError: If the message does not contain such a fragment.
    """
    header, arrays = message.header, message.arrays
    for name, (dtype, shape) in array_specs.items():
        array = arrays.get(name)
        if array is None or (array.dtype, array.shape) != (dtype, (shape[0], len(columns), *shape[2:])):
            raise WireError(f'{name} has a wrong shape or dtype')
    rows, noise_state = array_specs['valid'][1][0], arrays.get(NOISE_STATE)
    try:
        episodes = [_parse_episode(record, columns, rows) for record in header['episodes']]
        seconds = {name: _parse_seconds(header['seconds'][name]) for name in ('env', 'act', 'busy')}
        env_state = _parse_env_state(header.get(ENV_STATE), arrays, n_envs)
        valid = _is_noise_state(noise_state, len(columns)) if has_noise_state else noise_state is None
        if not valid:
            raise ValueError('the state of the noise is missing, unexpected or has a wrong shape or dtype')
    except (KeyError, TypeError, ValueError, IndexError, OverflowError, AttributeError) as error:
        raise WireError('the header of a fragment is invalid') from error
    held = {name: arrays[name] for name in array_specs}
    snapshot_problem = ''.join(c if c.isprintable() else ' ' for c in str(header.get('uncopied', ''))[:300])
    return Fragment(held, episodes, seconds, env_state, noise_state, snapshot_problem)


def _parse_episode(record: Any, columns: range, rows: int) -> EpisodeEnd:
    reward, length, success, env, row, seconds, team = record
    whole = all(type(n) is int for n in (length, env, row)) and 0 <= env < len(columns) and 0 <= row < rows
    earned = type(reward) in (int, float) and type(team) in (int, float, type(None))
    if not whole or success not in (None, True, False) or not earned:
        raise ValueError('an episode is invalid')
    return EpisodeEnd(float(reward), length, columns[env], success, team, row, _parse_seconds(seconds))


def _parse_seconds(value: Any) -> float:
    seconds = float(value)
    if not 0 <= seconds < float('inf'):
        raise ValueError('a time is negative or not finite')
    return seconds


def _parse_env_state(records: Any, arrays: Mapping[str, np.ndarray], n_envs: int) -> MessagePart | None:
    if records is None:
        return None
    held = strip_prefix(ENV_STATE, arrays)
    whole = [type(record) for record in records] == [dict] * n_envs and held.keys() == {str(i) for i in range(n_envs)}
    if not whole or any(array.dtype != np.uint8 or array.ndim != 1 for array in held.values()):
        raise ValueError('the state of the environments is invalid')
    return {ENV_STATE: records}, add_prefix(ENV_STATE, {**held, 'observations': arrays['observations'][-1]})


def _is_noise_state(state: np.ndarray | None, n_envs: int) -> bool:
    return state is not None and state.dtype == np.float32 and state.ndim == 2 and len(state) in (0, n_envs)
