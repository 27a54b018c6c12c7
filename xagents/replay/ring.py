"""The ring that a replay buffer is kept in: each observation once, each frame of a stack once.

A ring of `rows` rows x N environments, time-major. Row t holds an observation, the action taken on it, its reward and
its flags. The next observation of row t is the observation of row t + 1: an episode's last observation has a row of its
own, which only reset the environment. The newest observation stands in the row where the next addition begins, the
head. A flat row is row * N + environment; one that cannot be sampled has no flag at all.

Rows are also counted since the start: the k-th stands in row k % rows until the (k + rows)-th takes its place. An added
row stays as it is, but for its flags; and the newest observation is replaced when its environment begins anew.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from xagents.options.errors import OptionError
from xagents.replay.sum_tree import SumTree

VALID, TERMINATED, TRUNCATED = 1, 2, 4

# Shape and dtype, for one row of one environment; those of arrays by name.
ArraySpec = tuple[tuple[int, ...], Any]
RingColumns = Mapping[str, ArraySpec]
NO_COLUMNS: RingColumns = MappingProxyType({})


class Ring:
    """Transitions of N environments, the newest of them.

    Attributes:
        arrays: by name, [rows, N, …]: `observations` (of stacks, the newest frame), `actions`, `rewards`, `flags`,
            the further columns and, of stacks, `ages`: how many rows back their first frame stands, at most stack - 1.
        flat: the same arrays as [rows * N, …].
        rows: how many there are, one more than it holds transitions of an environment.
        n_envs: N.
        shape: [N, *D] of the observations added.
        columns: names of what else of a batch is stored, [T, N, …] each, as it is.
        stored: valid transitions added since the start.
        count: transitions that can be sampled.
        position: rows added since the start, so that the newest observation is in the position-th.
        priorities: if wanted, the tree in which each transition gets `new_priority`, the largest so far, when it comes,
            and 0 when it is forgotten.

    Args:
        max_size: transitions over all environments, rounded down to a multiple of N.
        batch: the first one that will be added, for its shapes.
        stack: frames an observation; above 1 only the newest is stored.

    Raises:
        ValueError: where observations are no stacks of as many frames.
        OptionError: if the capacity is less than one transition per environment.
    """

    def __init__(
        self, max_size: int, batch: Mapping[str, np.ndarray], stack: int, prioritized: bool, columns: Iterable[str] = ()
    ):
        observations, actions = batch['observations'], batch['actions']
        self.shape, self.stack = observations.shape[1:], stack
        self.n_envs = self.shape[0]
        if stack > 1 and (len(self.shape) != 4 or self.shape[-1] != stack):
            raise ValueError(f'observations: got the shape {self.shape[1:]}, takes [H, W, {stack}]')
        self.columns = tuple(columns)
        further = {name: (batch[name].shape[2:], batch[name].dtype) for name in self.columns}
        observation, action = (self.shape[1:], observations.dtype), (actions.shape[2:], actions.dtype)
        arrays = layout(max_size, self.n_envs, observation, action, stack, further)
        self.arrays: dict[str, np.ndarray] = {name: np.zeros(shape, dtype) for name, (shape, dtype) in arrays.items()}
        self.flat = {name: array.reshape(-1, *array.shape[2:]) for name, array in self.arrays.items()}
        self.rows = len(self.arrays['flags'])
        self.priorities = SumTree(self.rows * self.n_envs) if prioritized else None
        self.new_priority = 1.0
        self.stored = self.count = self.position = 0
        self._newest = b''  # the observations in the head, whole
        self._unknown = np.zeros(self.n_envs, bool)  # whether a stack in the head holds frames that were never seen

    @property
    def head(self) -> int:
        """The row of the newest observation, where the next addition begins."""
        return self.position % self.rows

    @property
    def used(self) -> int:
        """Rows written so far, the head included; those beyond were never."""
        return min(self.position + 1, self.rows)

    @property
    def oldest(self) -> int:
        """The number, counted since the start, of the oldest row that is held; `position` is that of the newest."""
        return self.position + 1 - self.used

    def add(self, batch: Mapping[str, np.ndarray]) -> None:
        """Copy a batch into the ring; of more than it holds, the newest. See `Buffer.add`."""
        observations = batch['observations']
        if observations.shape[1:] != self.shape:
            raise ValueError(f'observations: got the shape {observations.shape[1:]}, the buffer holds {self.shape}')
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
            self.arrays[name][here] = batch[name][skipped:]
        frames = observations if self.stack == 1 else observations[..., -1]
        self.arrays['observations'][after] = frames[skipped + 1 :]
        if restarted.size or skipped:
            self.arrays['observations'][start] = frames[skipped]
        self.position += len(flags) - 1
        if self.stack > 1:
            self.arrays['ages'][start] = ages[skipped]
            self.arrays['ages'][after] = ages[skipped + 1 :]
            self._forget_cut_stacks()

    def _span(self, start: int, length: int) -> slice | np.ndarray:
        """Return `length` rows from `start` on as an index."""
        if start + length <= self.rows:
            return slice(start, start + length)
        return np.arange(start, start + length) % self.rows

    def _write_flags(self, start: int, flags: np.ndarray) -> None:
        """Write the flags of transitions and, behind them, of the head."""
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
        """Return who begins anew: at first all, then those in `restarted` or, without it, who shows something new."""
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
        # what stands before has no next observation
        self._forget((self.head - 1) % self.rows * self.n_envs + envs)
        if self.stack > 1:
            self.arrays['ages'][self.head, envs] = 0
            self._unknown[envs] = [not _repeats_one_frame(stack) for stack in first[envs]]

    def _forget(self, flat_rows: np.ndarray) -> None:
        flags = self.flat['flags']
        self.count -= int(np.count_nonzero(flags[flat_rows]))
        flags[flat_rows] = 0
        if self.priorities is not None:
            self.priorities.set(flat_rows, 0.0)

    def take_observations(self, flat_rows: np.ndarray, out: np.ndarray) -> None:
        """Write the observations of flat rows [B], which may lie beyond the ring's end, to `out` [B, *D]."""
        frames = self.flat['observations']
        if self.stack == 1:
            frames.take(flat_rows, axis=0, out=out, mode='wrap')
            return
        ages = self.flat['ages'].take(flat_rows, mode='wrap').astype(np.int64)
        for j in range(self.stack):
            back = np.minimum(ages, self.stack - 1 - j) * self.n_envs
            out[..., j] = frames.take(flat_rows - back, axis=0, mode='wrap')

    # frames are shared between stacks

    def _follow_stacks(self, batch: Mapping[str, np.ndarray], flags: np.ndarray) -> np.ndarray:
        """Return the ages of all observations, uint8 [T + 1, N], and take the flags from stacks that are not all here.

        A reset begins a stack if that repeats one frame. Some environments shift their frames on through a reset; of
        others, frames were never seen, and it takes stack - 1 new ones until all are.
        """
        observations, longest = batch['observations'], self.stack - 1
        ages = np.zeros(flags.shape, np.uint8)
        ages[0] = self.arrays['ages'][self.head]
        for t, valid in enumerate(batch['valid']):
            flags[t, self._unknown] = 0
            ages[t + 1] = np.minimum(ages[t] + 1, longest)
            for n in np.flatnonzero(~valid):
                before, after = observations[t, n], observations[t + 1, n]
                if _repeats_one_frame(after):
                    ages[t + 1, n], self._unknown[n] = 0, False
                elif not np.array_equal(after[..., :-1], before[..., 1:]):
                    ages[t + 1, n], self._unknown[n] = 0, True
            self._unknown &= ages[t + 1] < longest
        return ages

    def _forget_cut_stacks(self) -> None:
        """Forget the oldest rows, whose first frames were overwritten."""
        back = np.arange(1, min(self.stack, self.rows))[:, None]
        rows = (self.head + back) % self.rows * self.n_envs + np.arange(self.n_envs)
        cut = rows[(self.flat['ages'][rows] >= back) & (self.flat['flags'][rows] > 0)]
        if cut.size:
            self._forget(cut)

    # keeping

    def read_rows(self, first: int, stop: int) -> dict[str, np.ndarray]:
        """Return the rows from `first` to before `stop`, counted since the start, of all arrays but the flags.

        They may be the ring's own: use them before anything is added.
        """
        span = self._span(first % self.rows, stop - first)
        return {name: array[span] for name, array in self.arrays.items() if name != 'flags'}

    def write_rows(self, first: int, rows: Mapping[str, np.ndarray]) -> None:
        """Put back what `read_rows` returned, the first of them being the row `first`."""
        for name, array in rows.items():
            self.arrays[name][self._span(first % self.rows, len(array))] = array

    def state(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Return the rest: copies of what may change in any row, and numbers as JSON holds them."""
        arrays = {'flags': self.arrays['flags'][: self.used].copy(), 'unknown': self._unknown.copy()}
        arrays['newest'] = np.frombuffer(self._newest, np.uint8)
        if self.priorities is not None:
            arrays['priorities'] = self.priorities.leaves[: self.used * self.n_envs].copy()
        return arrays, {name: getattr(self, name) for name in _COUNTERS}

    def load(self, arrays: Mapping[str, np.ndarray], counters: Mapping[str, Any]) -> None:
        """Take over what `state` of a ring of the same size returned; its rows are to be written, too."""
        for name in _COUNTERS:
            setattr(self, name, counters[name])
        self.arrays['flags'][: self.used] = arrays['flags']
        self.count = int(np.count_nonzero(arrays['flags']))
        self._newest, self._unknown = np.asarray(arrays['newest']).tobytes(), np.array(arrays['unknown'], bool)
        if self.priorities is not None:
            self.priorities.set_span(0, arrays['priorities'])

    def batch_columns(self) -> dict[str, tuple[list[int], str]]:
        """Return shape, [N, …], and dtype of the columns of a batch that such a ring is for, as JSON holds them."""
        arrays = {name: self.arrays[name] for name in ('observations', 'actions', *self.columns)}
        shapes = {name: array.shape[1:] for name, array in arrays.items()} | {'observations': self.shape}
        return {name: (list(shapes[name]), array.dtype.str) for name, array in arrays.items()}


_COUNTERS = ('position', 'stored', 'new_priority')


def layout(
    max_size: int, n_envs: int, observation: ArraySpec, action: ArraySpec, stack: int, columns: RingColumns
) -> dict[str, ArraySpec]:
    """Return shape and dtype of each array of a ring that holds at least one transition per environment."""
    if max_size < n_envs:
        raise OptionError('buffer_max_size', f'got {max_size}, expected at least {n_envs}, one for each environment')
    ring = (max_size // n_envs + 1, n_envs)
    (shape, dtype), number = observation, ()
    rows: dict[str, ArraySpec] = {'observations': (shape if stack == 1 else shape[:-1], dtype), 'actions': action}
    rows |= {'rewards': (number, np.float32), 'flags': (number, np.uint8), **columns}
    if stack > 1:
        rows['ages'] = (number, np.uint8)
    return {name: ((*ring, *shape), dtype) for name, (shape, dtype) in rows.items()}


def ring_bytes_needed(
    max_size: int,
    n_envs: int,
    observation_space: Any,
    action_shape: tuple[int, ...],
    action_dtype: Any,
    stack: int = 1,
    prioritized: bool = False,
    columns: RingColumns = NO_COLUMNS,
) -> int:
    """Return the bytes of all of a replay buffer's arrays, ages and priorities included; see `layout`.

    `max_size` counts transitions over all environments; observations are the encoded ones.
    """
    observation = (observation_space.shape, observation_space.dtype)
    arrays = layout(max_size, n_envs, observation, (action_shape, action_dtype), stack, columns)
    ring = sum(math.prod(shape) * np.dtype(dtype).itemsize for shape, dtype in arrays.values())
    return ring + (SumTree.bytes_needed(math.prod(arrays['flags'][0])) if prioritized else 0)


def _flags_of(batch: Mapping[str, np.ndarray]) -> np.ndarray:
    """Return the flags of a batch's rows and, for the head, a row without any: uint8 [T + 1, N]."""
    valid = batch['valid']
    flags = np.zeros((len(valid) + 1, valid.shape[1]), np.uint8)
    flags[:-1] = valid
    for name, flag in (('terminated', TERMINATED), ('truncated', TRUNCATED)):
        if np.count_nonzero(batch[name]):
            flags[:-1] |= (batch[name] & valid) * np.uint8(flag)
    return flags


def _repeats_one_frame(stack: np.ndarray) -> bool:
    """Return whether a stack [H, W, stack] holds one frame only, as after a reset."""
    return bool((stack == stack[..., -1:]).all())
