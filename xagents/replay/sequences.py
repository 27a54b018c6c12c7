"""A replay buffer of sequences, for agents with memory (Kapturowski et al. 2019, R2D2)."""

from __future__ import annotations

from typing import Any

import numpy as np

from xagents.replay.ring import VALID, Arrays, Ring
from xagents.replay.transitions import REDRAWS, ReplayBuffer, RewardScale

# the stored column: the memory of the policy that acted, before each step
MEMORY = 'memory'


class SequenceBuffer(ReplayBuffer):
    """A replay buffer whose batches are sequences of consecutive transitions of one environment.

    A sequence has `burn_in` steps, which only prepare the memory, and `length` steps to learn from. It begins with the
    stored memory of its first step and may continue into the next episode. Rows that only reset are part of it.

    Args:
        max_size: capacity, as for `ReplayBuffer`.
        initial_size: as for `ReplayBuffer`; at least one sequence must have been stored.
        batch_size: B, the number of sequences of a batch.
        length: L, the number of steps to learn from.
        burn_in: number of steps before them.
    """

    columns = (MEMORY,)

    def __init__(
        self, max_size: int, initial_size: int | None = None, batch_size: int = 32, *, length: int, burn_in: int = 0
    ):
        self.length, self.burn_in = length, burn_in
        super().__init__(max_size, initial_size, batch_size)

    @property
    def steps(self) -> int:
        """W, the number of steps of a sequence."""
        return self.burn_in + self.length

    @property
    def ready(self) -> bool:
        """Whether enough transitions were stored and at least one sequence can be sampled."""
        return super().ready and self._ring is not None and self._ring.used > self.steps

    def storage_options(self) -> dict[str, Any]:
        """Return the options that determine the stored form of a transition."""
        return {**super().storage_options(), 'columns': list(self.columns)}

    def sample(
        self,
        n_batches: int,
        rng: np.random.Generator,
        *,
        max_batches: int | None = None,
        beta: float = 1.0,
        scale: RewardScale = None,
    ) -> Arrays:
        """Sample K batches of B sequences of W steps, with replacement; see `ReplayBuffer.sample` for the arguments.

        Returns:
            Arrays [M, W B, …] by name, in which row t B + b of a batch is step t of sequence b: `observations`,
            `actions`, `rewards`, `next_observations`, `discounts`; `weights`, float32, with a mean of 1 over the valid
            steps to learn from, and 0 for others; `keep` and `next_keep`, float32, 0 in steps after which the memory
            becomes zeros, for observations and next observations. Also `memory` and `next_memory` [M, B, units], the
            memory before the first observation and before the first next observation.

        Raises:
            ValueError: if the buffer contains no sequence, or M < K.
        """
        max_batches = n_batches if max_batches is None else max_batches
        ring, steps, size = self._ring, self.steps, self.batch_size
        if ring is None or ring.used <= steps:
            raise ValueError(f'the replay buffer holds no sequence of {steps} steps')
        if not 0 < n_batches <= max_batches:
            raise ValueError(f'n_batches: got {n_batches}, expected 1 to max_batches, {max_batches}')
        batches = self._arrays(ring, max_batches)
        out = {name: x[:n_batches] for name, x in batches.items()}
        starts = _draw_starts(ring, steps, n_batches * size, rng).reshape(n_batches, size)
        # [K, W, B] flat rows, which may exceed the ring and then wrap around
        rows = starts[:, None] + np.arange(steps)[:, None] * ring.n_envs
        flat = rows.reshape(-1)
        for name, at in (('observations', flat), ('next_observations', flat + ring.n_envs)):
            ring.take_observations(at, out[name].reshape(-1, *ring.shape[1:]))
        out['actions'][:] = ring.flat['actions'].take(flat, axis=0, mode='wrap').reshape(out['actions'].shape)
        rewards = ring.flat['rewards'].take(rows, mode='wrap')
        flags, memory = ring.flat['flags'].take(rows, mode='wrap'), ring.flat[MEMORY]
        valid = flags & VALID > 0
        # the memory became zeros where the stored one did: also between two rollouts, and not at incomplete stacks
        passes = [(memory.take(rows + k * ring.n_envs, axis=0, mode='wrap') != 0).any(-1) for k in (1, 2)]
        learned = valid & (np.arange(steps) >= self.burn_in)[:, None]
        counts = np.maximum(learned.sum((1, 2), keepdims=True), 1)
        columns = {
            'rewards': np.where(valid, rewards if scale is None else scale(rewards), 0),
            'discounts': self._discounts.take(flags),
            'weights': learned * (steps * size / counts),
            'keep': passes[0],
            'next_keep': passes[1],
        }
        for name, x in columns.items():
            out[name][:] = x.reshape(n_batches, -1)
        out['memory'][:] = memory.take(starts, axis=0, mode='wrap')
        out['next_memory'][:] = memory.take(starts + ring.n_envs, axis=0, mode='wrap')
        return batches

    def _arrays(self, ring: Ring, max_batches: int) -> Arrays:
        """Return the arrays that `sample` returns."""
        if max_batches not in self._outputs:
            rows, size = self.steps * self.batch_size, self.batch_size
            observation, actions, units = ring.shape[1:], ring.arrays['actions'], ring.arrays[MEMORY].shape[2:]
            dtype = ring.arrays['observations'].dtype
            arrays = {name: np.zeros((max_batches, rows, *observation), dtype) for name in _OBSERVATIONS}
            arrays['actions'] = np.zeros((max_batches, rows, *actions.shape[2:]), actions.dtype)
            arrays |= {name: np.zeros((max_batches, rows), np.float32) for name in _NUMBERS}
            arrays |= {name: np.zeros((max_batches, size, *units), np.float32) for name in ('memory', 'next_memory')}
            self._outputs[max_batches] = arrays
        return self._outputs[max_batches]


_OBSERVATIONS = ('observations', 'next_observations')
_NUMBERS = ('rewards', 'discounts', 'weights', 'keep', 'next_keep')


def _draw_starts(ring: Ring, steps: int, size: int, rng: np.random.Generator) -> np.ndarray:
    """Draw flat rows uniformly that begin sequences of `steps` rows; rows that cannot be sampled are redrawn."""
    n, flags = ring.n_envs, ring.flat['flags']

    def draw(size: int) -> np.ndarray:
        offsets = rng.integers((ring.used - steps) * n, size=size)
        return (ring.oldest * n + offsets) % (ring.rows * n)

    rows = draw(size)
    for _ in range(REDRAWS):
        wrong = np.flatnonzero(flags.take(rows) == 0)
        if not wrong.size:
            break
        rows[wrong] = draw(wrong.size)
    return rows
