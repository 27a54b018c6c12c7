"""The rollout buffer: draws whole stored rollouts from a ring, for agents whose targets need them in order."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from xagents.options.errors import OptionError
from xagents.replay import ring as rings
from xagents.replay.buffer import Buffer
from xagents.replay.ring import TERMINATED, TRUNCATED, VALID, Ring, RingColumns

# columns [T, N, …] that every rollout has; `observations` is [T + 1, N, *D]
STEPS = ('actions', 'rewards', 'terminated', 'truncated', 'valid')
FLAGS = {'terminated': TERMINATED, 'truncated': TRUNCATED, 'valid': VALID}


class RolloutBuffer(Buffer):
    """Keeps the newest rollouts of T steps x N environments and draws whole ones, uniformly.

    A step is no longer valid when it is drawn if what it needs is not there: the last one before an environment began
    anew between two rollouts (its next observation was not seen), and those whose stack has a frame that was not seen
    or is overwritten. What is computed backwards through a rollout must stop at steps that are not valid, as there is
    not always an episode's end before them.

    Args:
        max_size: transitions over all environments; rounded down to whole rollouts.
        initial_size: how many valid ones must have been stored before it is ready, `max_size` when not given; rounded
            up to whole rollouts, but not above what the buffer holds.
        n_steps: T.
        stack: frames of an observation [H, W, stack], newest last; above 1, only the newest of them is stored.
        columns: what else of a rollout is kept, [T, N, …] each, besides observations, actions, rewards and flags.

    Raises:
        OptionError: for sizes that do not go together and values out of range.
        ValueError: for a column that is kept anyway.
    """

    def __init__(
        self,
        max_size: int,
        initial_size: int | None = None,
        *,
        n_steps: int,
        stack: int = 1,
        columns: Iterable[str] = ('logits',),
    ):
        super().__init__(max_size, initial_size)
        self.n_steps, self.stack, self.columns = n_steps, stack, tuple(columns)
        self._output: dict[str, np.ndarray] = {}
        self._check_sizes({'n_steps': self.n_steps})
        for name in self.columns:
            if name in _TAKEN or self.columns.count(name) > 1:
                raise ValueError(f'columns: got {name!r}, which is kept already; expected names of other columns')

    @property
    def rollouts(self) -> int:
        """Rollouts that are held now."""
        return (self._ring.used - 1) // self.n_steps if self._ring else 0

    @property
    def required_size(self) -> int:
        """How many valid transitions must have been stored before it is ready; known exactly once N is."""
        if self._ring is None:
            return self.initial_size
        size = self.n_steps * self._ring.n_envs
        # rows that only reset count for the capacity but not for this, so it may take some rollouts more
        return min(-(-self.initial_size // size), self.max_size // size) * size

    def add(self, batch: Mapping[str, np.ndarray]) -> None:
        """Copy a rollout of `n_steps` steps, with the columns [T, N, …]; see `Buffer.add`.

        Raises:
            ValueError: for another number of steps, other shapes than before, a column that is not there, or no stacks
                where stacks were announced; nothing is added then.
            OptionError: if the capacity is less than one rollout.
        """
        self._check_batch(batch)
        super().add(batch)

    def storage_options(self) -> dict[str, Any]:
        """Return the options that decide what is kept of a rollout."""
        return {'frame_stack': self.stack, 'n_steps': self.n_steps, 'columns': list(self.columns)}

    def make_ring(self, template: Mapping[str, np.ndarray]) -> Ring:
        """Return an empty ring for rollouts like this one."""
        size = rounded_size(self.max_size, self.n_steps, template['observations'].shape[1])
        return Ring(size, template, self.stack, prioritized=False, columns=self.columns)

    def _check_batch(self, batch: Mapping[str, np.ndarray]) -> None:
        observations = batch['observations']
        steps, n_envs = len(observations) - 1, observations.shape[1]
        if steps != self.n_steps:
            raise ValueError(f'observations: got those of {steps} steps, the buffer takes rollouts of {self.n_steps}')
        for name in (*STEPS, *self.columns):
            if name not in batch:
                raise ValueError(f'{name}: not in the rollout, which has {", ".join(sorted(batch))}')
            expected: tuple[int, ...] = (steps, n_envs, *batch[name].shape[2:])
            if self._ring and name in self._ring.arrays:
                expected = (steps, *self._ring.arrays[name].shape[1:])
            if batch[name].shape != expected:
                raise ValueError(f'{name}: got the shape {batch[name].shape}, the buffer takes {expected}')

    def sample(self, rng: np.random.Generator) -> dict[str, np.ndarray]:
        """Draw one of the stored rollouts.

        Returns:
            `observations` [T + 1, N, *D], `actions`, `rewards`, bool `terminated`, `truncated` and `valid`, and the
            columns [T, N, …], as they were added, in arrays that the next call overwrites. Steps that are not valid
            have no flag; their observations may lack frames, and the last observation of an environment that then
            began anew is the first one after it.

        Raises:
            ValueError: where there is none.
        """
        ring = self._ring
        if ring is None or not self.rollouts:
            raise ValueError('the rollout buffer holds no rollout')
        out = self._output or self._make_output(ring)
        # rollouts stand one behind the other, the newest before the head, and may go on at the ring's beginning
        back = (1 + int(rng.integers(self.rollouts))) * self.n_steps
        start = (ring.head - back) % ring.rows
        n = ring.n_envs
        flat_rows = np.arange(start * n, (start + self.n_steps + 1) * n)
        ring.take_observations(flat_rows, out['observations'].reshape(-1, *ring.shape[1:]))
        rows = np.arange(start, start + self.n_steps)
        for name in ('actions', 'rewards', *self.columns):
            ring.arrays[name].take(rows, axis=0, out=out[name], mode='wrap')
        flags = ring.arrays['flags'].take(rows, axis=0, mode='wrap')
        for name, flag in FLAGS.items():
            np.not_equal(flags & np.uint8(flag), 0, out=out[name])
        return dict(out)

    def _make_output(self, ring: Ring) -> dict[str, np.ndarray]:
        steps = (self.n_steps, ring.n_envs)
        out = {'observations': np.zeros((self.n_steps + 1, *ring.shape), ring.arrays['observations'].dtype)}
        for name in ('actions', 'rewards', *self.columns):
            out[name] = np.zeros((*steps, *ring.arrays[name].shape[2:]), ring.arrays[name].dtype)
        self._output = out | {name: np.zeros(steps, bool) for name in FLAGS}
        return self._output


# names in a rollout or in a ring that mean something else
_TAKEN = {'observations', *STEPS, 'restarted', 'flags', 'ages'}


def rounded_size(max_size: int, n_steps: int, n_envs: int) -> int:
    """Return the capacity in transitions, rounded down to whole rollouts; raise an `OptionError` if it is 0."""
    size = n_steps * n_envs
    if max_size < size:
        problem = f'got {max_size}, expected at least {size}, one rollout of {n_steps} steps x {n_envs} environments'
        raise OptionError('buffer_max_size', problem)
    return max_size // size * size


def rollout_bytes_needed(
    max_size: int,
    n_steps: int,
    n_envs: int,
    observation_space: Any,
    action_shape: tuple[int, ...],
    action_dtype: Any,
    columns: RingColumns,
    stack: int = 1,
) -> int:
    """Return the bytes that a rollout buffer's arrays will take; `columns` are those of the policy that are kept.

    Raises:
        OptionError: if the capacity is less than one rollout.
    """
    size = rounded_size(max_size, n_steps, n_envs)
    return rings.ring_bytes_needed(size, n_envs, observation_space, action_shape, action_dtype, stack, columns=columns)
