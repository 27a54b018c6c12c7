"""The rollout buffer: samples complete rollouts from a ring, for agents whose targets need consecutive steps."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from xagents.options.errors import OptionError
from xagents.replay.buffer import Buffer
from xagents.replay.ring import TERMINATED, TRUNCATED, VALID, Arrays, Ring

# arrays [T, N, …] in every rollout; `observations` is [T + 1, N, *D]
STEPS = ('actions', 'rewards', 'terminated', 'truncated', 'valid')
FLAGS = {'terminated': TERMINATED, 'truncated': TRUNCATED, 'valid': VALID}


class RolloutBuffer(Buffer):
    """A buffer of the newest rollouts of T steps x N environments that samples complete rollouts uniformly.

    In a sampled rollout, two kinds of steps are no longer valid. The first kind is the last step before an environment
    was reset between two rollouts, because its next observation was not added. The second kind is a step with an
    incomplete stack: a frame was never added, or is overwritten. A backward recursion over a rollout must stop at
    invalid steps, because the step before them does not always end an episode.

    Args:
        max_size: capacity, in transitions over all environments; rounded down to whole rollouts.
        initial_size: number of valid transitions that must have been stored before the buffer is ready; `max_size` by
            default. It is rounded up to whole rollouts, but not above the capacity.
        n_steps: T.
        stack: number of frames in an observation [H, W, stack], newest last; above 1, only the newest is stored.
        columns: names of further arrays [T, N, …] of a rollout to store, in addition to observations, actions, rewards
            and flags.

    Raises:
        OptionError: for inconsistent sizes and values out of range.
        ValueError: for a column that the buffer always stores, or that is listed twice.
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
        self._output: Arrays = {}
        self._check_sizes({'n_steps': self.n_steps})
        for name in self.columns:
            if name in _TAKEN or self.columns.count(name) > 1:
                problem = 'which the buffer stores already; expected names of other columns'
                raise ValueError(f'columns: got {name!r}, {problem}')

    @property
    def rollouts(self) -> int:
        """Number of rollouts that the buffer contains now."""
        return (self._ring.used - 1) // self.n_steps if self._ring else 0

    @property
    def required_size(self) -> int:
        """Number of valid transitions that must have been stored before it is ready; exact as soon as N is known."""
        if self._ring is None:
            return self.initial_size
        size = self.n_steps * self._ring.n_envs
        # rows that only reset an environment take capacity but do not count here: it may need some more rollouts
        return min(-(-self.initial_size // size), self.max_size // size) * size

    def add(self, batch: Mapping[str, np.ndarray]) -> None:
        """Copy a rollout of `n_steps` steps with the columns [T, N, …] into the buffer; see `Buffer.add`.

        Raises:
            ValueError: for another number of steps, other shapes than before, a missing column, or observations that
                are not the expected stacks. The buffer does not change then.
            OptionError: if the capacity is less than one rollout.
        """
        self._check_batch(batch)
        super().add(batch)

    def storage_options(self) -> dict[str, Any]:
        """Return the options that determine the stored form of a rollout."""
        return {'frame_stack': self.stack, 'n_steps': self.n_steps, 'columns': list(self.columns)}

    def make_ring(self, template: Mapping[str, np.ndarray]) -> Ring:
        """Return an empty ring for rollouts with the shapes of `template`."""
        size = rounded_size(self.max_size, self.n_steps, template['observations'].shape[1])
        return Ring(size, template, self.stack, False, self.columns, self.byte_images)

    def _check_batch(self, batch: Mapping[str, np.ndarray]) -> None:
        observations = batch['observations']
        steps, n_envs = len(observations) - 1, observations.shape[1]
        if steps != self.n_steps:
            raise ValueError(f'observations: got a rollout of {steps} steps, expected {self.n_steps}')
        for name in (*STEPS, *self.columns):
            if name not in batch:
                raise ValueError(f'{name}: not in the rollout, which contains {", ".join(sorted(batch))}')
            expected: tuple[int, ...] = (steps, n_envs, *batch[name].shape[2:])
            if self._ring and name in self._ring.arrays:
                expected = (steps, *self._ring.arrays[name].shape[1:])
            if batch[name].shape != expected:
                raise ValueError(f'{name}: got the shape {batch[name].shape}, expected {expected}')

    def sample(self, rng: np.random.Generator) -> Arrays:
        """Sample one of the stored rollouts.

        Returns:
            Arrays by name, which the next call overwrites: `observations` [T + 1, N, *D], `actions`, `rewards`, bool
            `terminated`, `truncated` and `valid`, and the columns [T, N, …]. All flags of an invalid step are False,
            and frames of its observation may be wrong. If an environment was reset after the rollout, its last
            observation is the first one after the reset.

        Raises:
            ValueError: if the buffer is empty.
        """
        ring = self._ring
        if ring is None or not self.rollouts:
            raise ValueError('the rollout buffer holds no rollout')
        out = self._output or self._make_output(ring)
        # rollouts are consecutive; the newest ends before the head, and one may wrap around the end of the ring
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

    def _make_output(self, ring: Ring) -> Arrays:
        steps = (self.n_steps, ring.n_envs)
        out = {'observations': np.zeros((self.n_steps + 1, *ring.shape), ring.arrays['observations'].dtype)}
        for name in ('actions', 'rewards', *self.columns):
            out[name] = np.zeros((*steps, *ring.arrays[name].shape[2:]), ring.arrays[name].dtype)
        self._output = out | {name: np.zeros(steps, bool) for name in FLAGS}
        return self._output


# array names with another meaning in a rollout or a ring
_TAKEN = {'observations', *STEPS, 'restarted', 'flags', 'ages'}


def rounded_size(max_size: int, n_steps: int, n_envs: int) -> int:
    """Return the capacity in transitions, rounded down to whole rollouts; raise an `OptionError` if it is 0."""
    size = n_steps * n_envs
    if max_size < size:
        problem = f'got {max_size}, expected at least {size}, one rollout of {n_steps} steps x {n_envs} environments'
        raise OptionError('buffer_max_size', problem)
    return max_size // size * size
