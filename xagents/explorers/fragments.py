"""Fragments of rollouts, checked before they are used, and the state of environments in the form of a message."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from xagents.collecting.rollouts import ROW_STATES, RowState
from xagents.envs.snapshots.write import Snapshot
from xagents.explorers.messages import Message, WireError
from xagents.pipeline.context import EpisodeEnd
from xagents.system.arrays import add_prefix, strip_prefix

# prefixes of a message's arrays: statistics, exploration noise, state of the environments
STATISTICS, EXPLORATION, ENV_STATE = 'statistics', 'exploration', 'env_state'
NOISE_STATE = f'{EXPLORATION}/x'
# names of numbers in infos that a message may contain
MAX_SEEN_INFOS = 1000
# shape [T or T + 1, N, …] and dtype of each array of a whole rollout, by name
ArraySpecs = Mapping[str, tuple[np.dtype, tuple[int, ...]]]
MessagePart = tuple[dict[str, Any], dict[str, np.ndarray]]
"""The header and the arrays of a message, or a part of these."""


class Fragment(NamedTuple):
    """The result of an assignment: the part of a rollout that one worker collected.

    Attributes:
        columns: arrays [T or T + 1, n, …] of the rollouts of all policies, as the environments returned them. The name
            of the policy is a prefix.
        episodes: finished episodes; `env` is the index among all rows, `step` the row of the fragment.
        seconds: the seconds for `env` and `act`, and the seconds for which the worker was `busy`.
        env_state: the state of the environments after the fragment; None if they cannot be copied.
        noise_states: [n, A] or [0, 0], the state of temporally correlated noise of each policy that has such noise.
        snapshot_problem: the reason why the environments cannot be copied; empty if they can.
        seen_infos: the names of all numbers in infos so far, if some are selected.
    """

    columns: dict[str, np.ndarray]
    episodes: list[EpisodeEnd]
    seconds: dict[str, float]
    env_state: MessagePart | None
    noise_states: dict[str, np.ndarray]
    snapshot_problem: str
    seen_infos: list[str]


def pack_env_state(copies: Sequence[Snapshot], row_states: Mapping[str, RowState] | None = None) -> MessagePart:
    """Return the state of environments as a part of a message.

    Args:
        copies: n snapshots of environments.
        row_states: the current observations and memory of each policy; omitted from the message if None.
    """
    held = {str(i): copy.arrays['bytes'] for i, copy in enumerate(copies)}
    for name, own in (row_states or {}).items():
        held |= add_prefix(name, own)
    return {ENV_STATE: [copy.record for copy in copies]}, add_prefix(ENV_STATE, held)


def unpack_env_state(part: MessagePart, policies: Iterable[str]) -> tuple[list[Snapshot], list[RowState]]:
    """Return n snapshots, and the observations and memory of each policy.

    Args:
        part: a part that `pack_env_state` made with the states of rows.
        policies: the names of the policies.
    """
    held = strip_prefix(ENV_STATE, part[1])
    copies = [Snapshot({'bytes': held[str(i)]}, record) for i, record in enumerate(part[0][ENV_STATE])]
    return copies, [_row_state(strip_prefix(name, held)) for name in policies]


def _row_state(arrays: Mapping[str, np.ndarray]) -> RowState:
    return {name: np.array(arrays[name]) for name in ROW_STATES if name in arrays}


def last_row_state(rollout: Mapping[str, np.ndarray]) -> RowState:
    """Return the observations and the memory after the last step of a rollout."""
    return {name: rollout[name][-1] for name in ROW_STATES if name in rollout}


class FragmentSpec(NamedTuple):
    """The form of the fragments of a shard.

    Attributes:
        arrays: the shapes and dtypes of the rollouts of all policies, by name with the name of the policy as a prefix.
        columns: the columns of the shard in the rollout of each policy.
        rows: the rows of the shard among all rows.
        n_envs: the number of environments n of the shard.
        noisy: the policies whose noise is temporally correlated.
    """

    arrays: ArraySpecs
    columns: Mapping[str, slice]
    rows: range
    n_envs: int
    noisy: Sequence[str]


def parse_fragment(message: Message, spec: FragmentSpec) -> Fragment:
    """Return the fragment of a message of a worker, which is not trusted.

    Raises:
        WireError: If the message does not contain a fragment of this form.
    """
    header, arrays = message.header, message.arrays
    for policy, columns in spec.columns.items():
        for name, (dtype, shape) in strip_prefix(policy, spec.arrays).items():
            array = strip_prefix(policy, arrays).get(name)
            expected = (shape[0], columns.stop - columns.start, *shape[2:])
            if array is None or (array.dtype, array.shape) != (dtype, expected):
                raise WireError(f'{name} has a wrong shape or dtype')
    n_steps = next(shape[0] for name, (_, shape) in spec.arrays.items() if name.endswith('valid'))
    try:
        episodes = [_parse_episode(record, spec.rows, n_steps) for record in header['episodes']]
        seconds = {name: _parse_seconds(header['seconds'][name]) for name in ('env', 'act', 'busy')}
        env_state = _parse_env_state(header.get(ENV_STATE), arrays, spec)
        noise_states = _parse_noise_states(arrays, spec)
        seen_infos = [_printable(name) for name in header.get('seen_infos', [])[:MAX_SEEN_INFOS]]
    except (KeyError, TypeError, ValueError, IndexError, OverflowError, AttributeError) as error:
        raise WireError('the header of a fragment is invalid') from error
    held = {name: arrays[name] for name in spec.arrays}
    snapshot_problem = _printable(header.get('uncopied', ''))
    return Fragment(held, episodes, seconds, env_state, noise_states, snapshot_problem, seen_infos)


def _printable(text: Any) -> str:
    return ''.join(c if c.isprintable() else ' ' for c in str(text)[:300])


def _parse_episode(record: Any, rows: range, n_steps: int) -> EpisodeEnd:
    reward, length, success, row, step, seconds, team, opponent, info = record
    whole = all(type(n) is int for n in (length, row, step)) and 0 <= row < len(rows) and 0 <= step < n_steps
    earned = type(reward) in (int, float) and type(team) in (int, float, type(None))
    whole = whole and type(opponent) in (int, type(None))
    summed = info is None or all(type(x) in (int, float) for x in info.values())
    if not whole or success not in (None, True, False) or not earned or not summed:
        raise ValueError('an episode is invalid')
    ended = float(reward), length, rows[row], success, team, step, _parse_seconds(seconds), opponent
    return EpisodeEnd(*ended, None if info is None else {name: float(x) for name, x in info.items()})


def _parse_seconds(value: Any) -> float:
    seconds = float(value)
    if not 0 <= seconds < float('inf'):
        raise ValueError('a time is negative or not finite')
    return seconds


def _parse_env_state(records: Any, arrays: Mapping[str, np.ndarray], spec: FragmentSpec) -> MessagePart | None:
    if records is None:
        return None
    held, n_envs = strip_prefix(ENV_STATE, arrays), spec.n_envs
    whole = [type(record) for record in records] == [dict] * n_envs and held.keys() == {str(i) for i in range(n_envs)}
    if not whole or any(array.dtype != np.uint8 or array.ndim != 1 for array in held.values()):
        raise ValueError('the state of the environments is invalid')
    for policy in spec.columns:
        held |= add_prefix(policy, last_row_state(strip_prefix(policy, arrays)))
    return {ENV_STATE: records}, add_prefix(ENV_STATE, held)


def _parse_noise_states(arrays: Mapping[str, np.ndarray], spec: FragmentSpec) -> dict[str, np.ndarray]:
    found: dict[str, np.ndarray] = {}
    for policy, columns in spec.columns.items():
        state = strip_prefix(policy, arrays).get(NOISE_STATE)
        if state is not None:
            found[policy] = state
            if state.dtype != np.float32 or state.ndim != 2 or len(state) not in (0, columns.stop - columns.start):
                raise ValueError('the state of the noise has a wrong shape or dtype')
    if found.keys() != {*spec.noisy}:
        raise ValueError('the state of the noise is missing or unexpected')
    return found
