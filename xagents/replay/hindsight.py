"""Hindsight experience replay: sampled transitions get a goal that was achieved later in their episode.

Andrychowicz et al. 2017, arXiv:1707.01495. Sampling replaces the goals; the stored transitions do not change.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from xagents.envs.goals import GoalFunctions
from xagents.options.errors import OptionError
from xagents.replay.ring import TERMINATED, TRUNCATED, VALID, Arrays, Ring, RingColumns
from xagents.replay.transitions import ReplayBuffer, RewardScale

STRATEGIES = ('future', 'final', 'episode')
# arrays of an `EpisodeIndex`, for the memory needed
EPISODE_COLUMNS: RingColumns = {'place': ((), np.int32), 'first': ((), np.int64), 'last': ((), np.int64)}


class EpisodeIndex:
    """The first and the last row of the episode of each row in a ring, updated as rows are added.

    An episode is a sequence of consecutive rows of one environment that can be sampled. Its last row is terminated or
    truncated, or is the newest row, or has no known next observation. As in the ring, row numbers count from the start.

    The episodes of an environment are numbered, too. A ring of R rows contains at most R episodes of an environment, so
    the bounds of an episode are stored at its number modulo R. The last row of a running episode is the newest row: a
    new row changes one number, not one per row of the episode.
    """

    def __init__(self, ring: Ring):
        self._ring, size = ring, ring.rows * ring.n_envs
        # `_places`: for each flat row, the index of its episode in `_first` and `_last`
        self._places, self._first, self._last = (np.zeros(size, dtype) for _, dtype in EPISODE_COLUMNS.values())
        self._numbers = np.zeros(ring.n_envs, np.int64)  # number of the newest episode of each environment
        self.add_rows(ring.oldest)

    def add_rows(self, start: int) -> None:
        """Add the new rows from `start` on; the cost does not depend on the size of the ring."""
        ring, envs = self._ring, np.arange(self._ring.n_envs)
        start = max(start, ring.oldest)
        rows = np.arange(start, ring.position)
        if not rows.size:
            return
        # [1 + T + 1, N]: the row before the new rows, the new rows, and the newest observation, which has no flags
        flags = ring.arrays['flags'][np.arange(start - 1, ring.position + 1) % ring.rows]
        if start == ring.oldest:
            flags[0] = 0
        valid = flags & VALID > 0
        goes_on = valid & (flags & (TERMINATED | TRUNCATED) == 0)
        begins, ends = valid[1:-1] & ~goes_on[:-2], valid[1:-1] & ~(goes_on[1:-1] & valid[2:])
        # if the environment was reset between two batches, the ring has removed the transition before the new rows
        broken = envs[~valid[0]]
        places = self._numbers[broken] % ring.rows * ring.n_envs + broken
        self._last[places] = np.minimum(self._last[places], start - 2)
        numbers = self._numbers + np.cumsum(begins, axis=0)
        self._numbers = numbers[-1]
        all_places = numbers % ring.rows * ring.n_envs + envs
        self._places.reshape(ring.rows, ring.n_envs)[rows % ring.rows] = all_places
        for bound, at in ((self._first, begins), (self._last, ends)):
            bound[all_places[at]] = start + np.nonzero(at)[0]

    def rows(self, flat_rows: np.ndarray) -> np.ndarray:
        """Return the row numbers, counted from the start, of flat rows [B]."""
        ring = self._ring
        rows = flat_rows // ring.n_envs
        rows += ring.position - ring.head
        return np.subtract(rows, ring.rows, out=rows, where=rows > ring.position)  # rows behind the head are older

    def first(self, flat_rows: np.ndarray) -> np.ndarray:
        """Return the first rows that the ring still contains of the episodes of flat rows [B]."""
        return np.maximum(self._first.take(self._places.take(flat_rows)), self._ring.oldest)

    def last(self, flat_rows: np.ndarray) -> np.ndarray:
        """Return the last rows of the episodes of flat rows [B]."""
        return self._last.take(self._places.take(flat_rows))


class HindsightBuffer(ReplayBuffer):
    """A replay buffer that replaces the goals of some sampled transitions by goals achieved in their episodes.

    The new goal replaces the desired goal in both observations. The goal functions of the environment compute the new
    reward and, if the environment defines it, whether the episode terminates.

    Args:
        max_size: capacity, as for `ReplayBuffer`.
        initial_size: as for `ReplayBuffer`.
        batch_size: as for `ReplayBuffer`.
        goals: the goal functions of the environment.
        strategy: selection of the new goal: 'future' draws uniformly from the goals achieved by the transition or later
            in its episode, 'episode' from those of the whole episode; 'final' takes the last achieved goal (section 4.5
            of the paper).
        ratio: fraction of a batch that gets new goals, rounded to whole transitions; k / (k + 1) with the k of the
            paper.
        options: further options of `ReplayBuffer`; n-step sums, stacks of frames and priorities are not supported.
    """

    def __init__(
        self,
        max_size: int,
        initial_size: int | None = None,
        batch_size: int = 32,
        *,
        goals: GoalFunctions,
        strategy: str = 'future',
        ratio: float = 0.8,
        **options: Any,
    ):
        super().__init__(max_size, initial_size, batch_size, **options)
        if strategy not in STRATEGIES:
            raise OptionError('her_strategy', f'got {strategy}, expected one of {", ".join(STRATEGIES)}')
        if not 0 <= ratio <= 1:
            raise OptionError('her_ratio', f'got {ratio}, expected a number at least 0 and at most 1')
        self.goals, self.strategy, self.ratio = goals, strategy, ratio
        self._episodes: EpisodeIndex | None = None

    def configure(self, *, n_step: int = 1, gamma: float = 0.99, stack: int = 1, alpha: float | None = None) -> None:
        """Change the sampling; see `ReplayBuffer.configure`."""
        if n_step > 1:
            raise OptionError('n_step', f'got {n_step} with hindsight, expected 1')
        if stack > 1 or alpha is not None:
            raise OptionError('her', f'got {"stacks of frames" if stack > 1 else "priorities"}, expected none of them')
        super().configure(n_step=n_step, gamma=gamma, stack=stack, alpha=alpha)

    def add(self, batch: Mapping[str, np.ndarray]) -> None:
        """Copy a batch of transitions into the buffer and index its episodes; see `Buffer.add`."""
        start = self._ring.position if self._ring else 0
        super().add(batch)
        assert self._ring is not None
        if self._episodes is None:
            self._episodes = EpisodeIndex(self._ring)
        else:
            self._episodes.add_rows(start)

    def adopt_ring(self, ring: Ring) -> None:
        """Use the ring of another buffer and index its episodes, which follow from its flags."""
        super().adopt_ring(ring)
        self._episodes = EpisodeIndex(ring)

    def _gather(self, ring: Ring, rows: np.ndarray, scale: RewardScale, out: Arrays, rng: np.random.Generator) -> None:
        super()._gather(ring, rows, scale, out, rng)
        # the order of a batch is random, so its first transitions are a random subset; slices are faster than indices
        share = round(self.ratio * self.batch_size)
        if not share:
            return
        drawn = {name: array.reshape(-1, self.batch_size, *array.shape[1:])[:, :share] for name, array in out.items()}
        goals = self._draw_goals(ring, rows.reshape(-1, self.batch_size)[:, :share].ravel(), rng)
        for observations in (drawn['observations'], drawn['next_observations']):
            observations[..., self.goals.desired] = goals.reshape(-1, share, goals.shape[1])
        achieved = drawn['next_observations'][..., self.goals.achieved].reshape(goals.shape)
        rewards, terminated = self.goals.compute_rewards(achieved, goals)
        drawn['rewards'][:] = (rewards if scale is None else scale(rewards)).reshape(-1, share)
        if terminated is not None:
            drawn['discounts'][:] = np.where(terminated, 0.0, self.gamma).reshape(-1, share)

    def _draw_goals(self, ring: Ring, flat_rows: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Return goals [B, g] that were achieved in the episodes of flat rows [B]."""
        episodes = self._episodes
        assert episodes is not None
        rows, chosen = episodes.rows(flat_rows), episodes.last(flat_rows)
        if self.strategy != 'final':
            first = rows if self.strategy == 'future' else episodes.first(flat_rows)
            chosen -= first - 1
            chosen = (rng.random(len(rows)) * chosen).astype(np.int64)
            chosen += first
        # the goal that a step achieved is in the observation of the next row
        chosen -= rows - 1
        chosen *= ring.n_envs
        chosen += flat_rows
        return ring.flat['observations'].take(chosen, axis=0, mode='wrap')[:, self.goals.achieved]
