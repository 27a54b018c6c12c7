"""The ring that stores the content of a replay buffer: each observation once, and each frame of a stack once.

A ring has `rows` rows x N environments and is time-major. Row t contains an observation, the action taken on it, its
reward and its flags. The next observation of row t is the observation of row t + 1. The last observation of an episode
therefore has its own row, in which the environment was only reset. The newest observation is in the head: the row in
which the next addition begins. A flat row is row * N + environment. All flags of a row that cannot be sampled are 0.

Row numbers also count from the start: row number k is in row k % rows until row number k + rows overwrites it. After a
row was added, only its flags change. An exception is the newest observation: if its environment is reset between two
additions, the first observation of the new episode replaces it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from xagents.options.errors import OptionError
from xagents.replay.frames import ByteImage, StackedFrames
from xagents.replay.sum_tree import SumTree

VALID, TERMINATED, TRUNCATED = 1, 2, 4

Arrays = dict[str, np.ndarray]  # by name
# shape and dtype for one row of one environment; these by array name
ArraySpec = tuple[tuple[int, ...], Any]
RingColumns = Mapping[str, ArraySpec]
NO_COLUMNS: RingColumns = MappingProxyType({})


class Ring:
    """The newest transitions of N environments.

    Attributes:
        arrays: arrays [rows, N, …] by name: `observations` (only the newest frame of a stack), `actions`, `rewards`,
            `flags`, and `columns`. If observations are stacks, also `ages`: the number of rows back to the first frame
            of the stack, at most stack - 1.
        flat: the same arrays with shape [rows * N, …].
        rows: number of rows, one more than the capacity in transitions of one environment.
        n_envs: N.
        shape: shape [N, *D] of the observations in a batch.
        columns: names of further arrays [T, N, …] or [T + 1, N, …] of a batch, which are stored unchanged.
        stored: number of valid transitions added since the start.
        count: number of transitions that can be sampled.
        position: number of rows added since the start, which is the row number of the newest observation.
        priorities: sum tree of the priorities, or None. A new transition gets `new_priority`, the largest priority so
            far; a removed transition gets 0.

    Args:
        max_size: capacity, in transitions over all environments, rounded down to a multiple of N.
        batch: the first batch, which determines the shapes.
        stack: number of frames in an observation; above 1, only the newest frame is stored.
        images: the stacks among the bytes of an observation; empty if observations are images.
        prioritized: whether transitions have priorities.
        columns: see the attributes.

    Raises:
        ValueError: if the observations are not stacks of `stack` frames.
        OptionError: if the capacity is less than one transition per environment.
    """

    def __init__(
        self,
        max_size: int,
        batch: Mapping[str, np.ndarray],
        stack: int,
        prioritized: bool,
        columns: Iterable[str] = (),
        images: Sequence[ByteImage] = (),
    ):
        observations, actions = batch['observations'], batch['actions']
        self.shape, self.stack = observations.shape[1:], stack
        self.n_envs = self.shape[0]
        self._frames = StackedFrames(self.shape[1:], stack, images) if stack > 1 else None
        self.columns = tuple(columns)
        further = {name: (batch[name].shape[2:], batch[name].dtype) for name in self.columns}
        observation, action = (self.shape[1:], observations.dtype), (actions.shape[2:], actions.dtype)
        arrays = layout(max_size, self.n_envs, observation, action, self._frames, further)
        self.arrays: Arrays = {name: np.zeros(shape, dtype) for name, (shape, dtype) in arrays.items()}
        self.flat = {name: array.reshape(-1, *array.shape[2:]) for name, array in self.arrays.items()}
        self.rows = len(self.arrays['flags'])
        self.priorities = SumTree(self.rows * self.n_envs) if prioritized else None
        self.new_priority = 1.0
        self.stored = self.count = self.position = 0
        self._newest = b''  # bytes of the complete observations in the head
        # whether the stack in the head contains frames that were never added
        self._unknown = np.zeros(self.n_envs, bool)

    @property
    def head(self) -> int:
        """The row of the newest observation, in which the next addition begins."""
        return self.position % self.rows

    @property
    def used(self) -> int:
        """Number of rows written so far, including the head."""
        return min(self.position + 1, self.rows)

    @property
    def oldest(self) -> int:
        """Row number of the oldest row in the ring; `position` is that of the newest."""
        return self.position + 1 - self.used

    def add(self, batch: Mapping[str, np.ndarray]) -> None:
        """Copy a batch into the ring, or its newest rows if it exceeds the capacity. See `Buffer.add`."""
        observations = batch['observations']
        if observations.shape[1:] != self.shape:
            raise ValueError(f'observations: got the shape {observations.shape[1:]}, expected {self.shape}')
        restarted = self._restarted(observations[0], batch.get('restarted'))
        if restarted.size:
            self._restart(observations[0], restarted)
        flags = _flags_of(batch)
        self.stored += int(np.count_nonzero(flags))
        if self.stack > 1:
            ages = self._follow_stacks(batch, flags)
        self._newest = observations[-1].tobytes()

        skipped = max(len(flags) - self.rows, 0)
        start = (self.head + skipped) % self.rows
        steps = len(flags) - 1 - skipped
        here, after = self._span(start, steps), self._span((start + 1) % self.rows, steps)
        self._write_flags(start, flags[skipped:])
        for name in ('actions', 'rewards', *self.columns):
            self.arrays[name][here] = batch[name][skipped : len(flags) - 1]
        frames = observations if self._frames is None else self._frames.newest(observations)
        self.arrays['observations'][after] = frames[skipped + 1 :]
        if restarted.size or skipped:
            self.arrays['observations'][start] = frames[skipped]
        self.position += len(flags) - 1
        for name in self.columns:
            if len(batch[name]) == len(flags):  # the column has a value after the last step
                self.arrays[name][self.head] = batch[name][-1]
        if self.stack > 1:
            self.arrays['ages'][start] = ages[skipped]
            self.arrays['ages'][after] = ages[skipped + 1 :]
            self._forget_cut_stacks()

    def _span(self, start: int, length: int) -> slice | np.ndarray:
        """Return the index of `length` rows from `start` on."""
        if start + length <= self.rows:
            return slice(start, start + length)
        return np.arange(start, start + length) % self.rows

    def _write_flags(self, start: int, flags: np.ndarray) -> None:
        """Write the flags [T + 1, N] of T rows and of the head behind them."""
        span = self._span(start, len(flags))
        written = self.arrays['flags']
        self.count += int(np.count_nonzero(flags)) - int(np.count_nonzero(written[span]))
        written[span] = flags
        if self.priorities is not None:
            new = np.where(flags, self.new_priority, 0.0).reshape(-1)
            rows_to_end = (self.rows - start) * self.n_envs
            self.priorities.set_span(start * self.n_envs, new[:rows_to_end])
            if len(new) > rows_to_end:
                self.priorities.set_span(0, new[rows_to_end:])

    def _restarted(self, first: np.ndarray, restarted: np.ndarray | None) -> np.ndarray:
        """Return the indices of environments that were reset before this batch (see `Buffer.add`): at first, all."""
        if not self._newest:
            return np.arange(self.n_envs)
        if restarted is not None:
            return np.flatnonzero(restarted)
        observed = first.tobytes()
        if observed == self._newest:
            return np.arange(0)
        size = first.nbytes // self.n_envs
        parts = [slice(n * size, (n + 1) * size) for n in range(self.n_envs)]
        return np.array([n for n, part in enumerate(parts) if observed[part] != self._newest[part]])

    def _restart(self, first: np.ndarray, envs: np.ndarray) -> None:
        # the newest transitions of these environments have no next observation
        self._forget((self.head - 1) % self.rows * self.n_envs + envs)
        if self._frames is not None:
            self.arrays['ages'][self.head, envs] = 0
            self._unknown[envs] = [not self._frames.repeats_one(stack) for stack in first[envs]]

    def _forget(self, flat_rows: np.ndarray) -> None:
        flags = self.flat['flags']
        self.count -= int(np.count_nonzero(flags[flat_rows]))
        flags[flat_rows] = 0
        if self.priorities is not None:
            self.priorities.set(flat_rows, 0.0)

    def take_observations(self, flat_rows: np.ndarray, out: np.ndarray) -> None:
        """Write the observations of flat rows [B] to `out` [B, *D]; rows beyond the end of the ring wrap around."""
        frames = self.flat['observations']
        if self._frames is None:
            frames.take(flat_rows, axis=0, out=out, mode='wrap')
            return
        ages = self.flat['ages'].take(flat_rows, mode='wrap').astype(np.int64)
        for j in range(self.stack):
            back = np.minimum(ages, self.stack - 1 - j) * self.n_envs
            self._frames.write(out, j, frames.take(flat_rows - back, axis=0, mode='wrap'))

    # stacks of frames

    def _follow_stacks(self, batch: Mapping[str, np.ndarray], flags: np.ndarray) -> np.ndarray:
        """Return the ages of all observations, uint8 [T + 1, N], and clear the flags of incomplete stacks.

        If the first stack after a reset repeats one frame, a new stack begins there. Some environments keep shifting
        the frames through a reset. Otherwise, some frames were never added, and the stack is complete after stack - 1
        new frames.
        """
        assert self._frames is not None
        observations, longest = batch['observations'], self.stack - 1
        ages = np.zeros(flags.shape, np.uint8)
        ages[0] = self.arrays['ages'][self.head]
        for t, valid in enumerate(batch['valid']):
            flags[t, self._unknown] = 0
            ages[t + 1] = np.minimum(ages[t] + 1, longest)
            for n in np.flatnonzero(~valid):
                before, after = observations[t, n], observations[t + 1, n]
                if self._frames.repeats_one(after):
                    ages[t + 1, n], self._unknown[n] = 0, False
                elif not self._frames.continues(before, after):
                    ages[t + 1, n], self._unknown[n] = 0, True
            self._unknown &= ages[t + 1] < longest
        return ages

    def _forget_cut_stacks(self) -> None:
        """Remove the oldest rows whose first frames were overwritten."""
        back = np.arange(1, min(self.stack, self.rows))[:, None]
        rows = (self.head + back) % self.rows * self.n_envs + np.arange(self.n_envs)
        cut = rows[(self.flat['ages'][rows] >= back) & (self.flat['flags'][rows] > 0)]
        if cut.size:
            self._forget(cut)

    # saving and loading

    def read_rows(self, first: int, stop: int) -> Arrays:
        """Return the rows with numbers from `first` to `stop` - 1 of all arrays except the flags, by name.

        The returned arrays may be views of the ring: the next addition may overwrite them.
        """
        span = self._span(first % self.rows, stop - first)
        return {name: array[span] for name, array in self.arrays.items() if name != 'flags'}

    def write_rows(self, first: int, rows: Mapping[str, np.ndarray]) -> None:
        """Write rows that `read_rows` returned; `first` is the number of the first row."""
        for name, array in rows.items():
            self.arrays[name][self._span(first % self.rows, len(array))] = array

    def state(self) -> tuple[Arrays, dict[str, Any]]:
        """Return the remaining state: copies of the arrays that can change in any row, and counters as JSON values."""
        arrays = {'flags': self.arrays['flags'][: self.used].copy(), 'unknown': self._unknown.copy()}
        arrays['newest'] = np.frombuffer(self._newest, np.uint8)
        if self.priorities is not None:
            arrays['priorities'] = self.priorities.leaves[: self.used * self.n_envs].copy()
        return arrays, {name: getattr(self, name) for name in _COUNTERS}

    def load(self, arrays: Mapping[str, np.ndarray], counters: Mapping[str, Any]) -> None:
        """Restore the state that `state` of a ring of the same size returned; `write_rows` restores the rows."""
        for name in _COUNTERS:
            setattr(self, name, counters[name])
        self.arrays['flags'][: self.used] = arrays['flags']
        self.count = int(np.count_nonzero(arrays['flags']))
        self._newest, self._unknown = np.asarray(arrays['newest']).tobytes(), np.array(arrays['unknown'], bool)
        if self.priorities is not None:
            self.priorities.set_span(0, arrays['priorities'])

    def batch_columns(self) -> dict[str, tuple[list[int], str]]:
        """Return the shape [N, …] and the dtype of each array in a batch for this ring, as JSON values."""
        arrays = {name: self.arrays[name] for name in ('observations', 'actions', *self.columns)}
        shapes = {name: array.shape[1:] for name, array in arrays.items()} | {'observations': self.shape}
        return {name: (list(shapes[name]), array.dtype.str) for name, array in arrays.items()}


_COUNTERS = ('position', 'stored', 'new_priority')


def layout(
    max_size: int,
    n_envs: int,
    observation: ArraySpec,
    action: ArraySpec,
    frames: StackedFrames | None,
    columns: RingColumns,
) -> dict[str, ArraySpec]:
    """Return the shape and the dtype of each array of a ring.

    Raises:
        OptionError: if the capacity is less than one transition per environment.
    """
    if max_size < n_envs:
        raise OptionError('buffer_max_size', f'got {max_size}, expected at least {n_envs}, one for each environment')
    ring = (max_size // n_envs + 1, n_envs)
    (shape, dtype), number = observation, ()
    if frames is not None:
        shape = frames.stored_shape
    rows: dict[str, ArraySpec] = {'observations': (shape, dtype), 'actions': action}
    rows |= {'rewards': (number, np.float32), 'flags': (number, np.uint8), **columns}
    if frames is not None:
        rows['ages'] = (number, np.uint8)
    return {name: ((*ring, *shape), dtype) for name, (shape, dtype) in rows.items()}


def ring_bytes_needed(
    max_size: int,
    n_envs: int,
    observation_space: Any,
    action: ArraySpec,
    stack: int = 1,
    prioritized: bool = False,
    columns: RingColumns = NO_COLUMNS,
    images: Sequence[ByteImage] = (),
) -> int:
    """Return the size of all arrays of a replay buffer in bytes, including ages and priorities; see `layout`.

    `max_size` counts transitions over all environments. `observation_space` is that of the encoded observations.
    """
    observation = (observation_space.shape, observation_space.dtype)
    frames = StackedFrames(observation_space.shape, stack, images) if stack > 1 else None
    arrays = layout(max_size, n_envs, observation, action, frames, columns)
    ring = sum(math.prod(shape) * np.dtype(dtype).itemsize for shape, dtype in arrays.values())
    return ring + (SumTree.bytes_needed(math.prod(arrays['flags'][0])) if prioritized else 0)


def _flags_of(batch: Mapping[str, np.ndarray]) -> np.ndarray:
    """Return the flags of the rows in a batch and, for the head, a row of zeros: uint8 [T + 1, N]."""
    valid = batch['valid']
    flags = np.zeros((len(valid) + 1, valid.shape[1]), np.uint8)
    flags[:-1] = valid
    for name, flag in (('terminated', TERMINATED), ('truncated', TRUNCATED)):
        if np.count_nonzero(batch[name]):
            flags[:-1] |= (batch[name] & valid) * np.uint8(flag)
    return flags
