"""Hindsight experience replay: transitions drawn with a goal that was achieved later in their episode.

Andrychowicz et al. 2017, arXiv:1707.01495. All of it happens when transitions are drawn; what is stored stays.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from xagents.envs.goals import GoalFunctions
from xagents.options.errors import OptionError
from xagents.replay.ring import TERMINATED, TRUNCATED, VALID, Ring, RingColumns
from xagents.replay.transitions import ReplayBuffer, RewardScale

STRATEGIES = ('future', 'final', 'episode')
# what is kept for a row besides, for the memory needed: see `EpisodeIndex`
EPISODE_COLUMNS: RingColumns = {'place': ((), np.int32), 'first': ((), np.int64), 'last': ((), np.int64)}


class EpisodeIndex:
    """Where the episode of each row of a ring begins and ends, kept up as rows are added.

    An episode is rows of one environment, one behind the other, that can be sampled: up to the one that ended it, the
    newest one, or one whose next observation was not seen. Rows are counted since the start, as the ring does. The
    episodes of an environment are numbered, too; a ring of R rows holds at most R of them, so that what is known of one
    stands at its number modulo R. Of a running episode the last row is the newest: one number changes, not one a row.
    """

    def __init__(self, ring: Ring):
        self._ring = ring
        # of each flat row, where its episode stands in `first` and `last`
        self._places, self._first, self._last = (
            np.zeros(ring.rows * ring.n_envs, d) for _, d in EPISODE_COLUMNS.values()
        )
        self._numbers = np.zeros(ring.n_envs, np.int64)  # of the newest episodes
        self.add_rows(ring.oldest)

    def add_rows(self, start: int) -> None:
        """Take note of the rows from `start` on, which were added; it costs the same whatever the ring holds."""
        ring, envs = self._ring, np.arange(self._ring.n_envs)
        start = max(start, ring.oldest)
        rows = np.arange(start, ring.position)
        if not rows.size:
            return
        # [1 + T + 1, N]: the row before them, them, and the newest observation, which has no flags
        flags = ring.arrays['flags'][np.arange(start - 1, ring.position + 1) % ring.rows]
        if start == ring.oldest:
            flags[0] = 0
        valid = flags & VALID > 0
        goes_on = valid & (flags & (TERMINATED | TRUNCATED) == 0)
        begins, ends = valid[1:-1] & ~goes_on[:-2], valid[1:-1] & ~(goes_on[1:-1] & valid[2:])
        # the row before was forgotten, if its environment began anew meanwhile
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
        """Return the numbers of flat rows [B]."""
        ring = self._ring
        rows = flat_rows // ring.n_envs
        rows += ring.position - ring.head
        return np.subtract(rows, ring.rows, out=rows, where=rows > ring.position)  # those behind the head are older

    def first(self, flat_rows: np.ndarray) -> np.ndarray:
        """Return the first rows that are held of the episodes of flat rows [B]."""
        return np.maximum(self._first.take(self._places.take(flat_rows)), self._ring.oldest)

    def last(self, flat_rows: np.ndarray) -> np.ndarray:
        """Return the last rows of the episodes of flat rows [B]."""
        return self._last.take(self._places.take(flat_rows))


class HindsightBuffer(ReplayBuffer):
    """A replay buffer that gives a share of the drawn transitions another goal, which was achieved in their episode.

    The new goal takes the place of the desired one in both observations. The environment's goal functions say what the
    reward is then and, where they say that, whether the episode ends.

    Args:
        max_size: as for `ReplayBuffer`, like `initial_size` and `batch_size`.
        goals: the environment's.
        strategy: which goals: 'future' one that is achieved by the transition or later, 'episode' one of the whole
            episode, each equally likely; 'final' the last one (section 4.5 of the paper).
        ratio: the share of a batch that gets one, rounded to whole transitions; k / (k + 1) for the k of the paper.
        options: those of `ReplayBuffer` as well; it admits neither n-step sums nor stacks nor priorities.
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
        """Change how it is sampled, as `ReplayBuffer.configure`."""
        if n_step > 1:
            raise OptionError('n_step', f'got {n_step} with hindsight, expected 1')
        if stack > 1 or alpha is not None:
            raise OptionError('her', f'got {"stacks of frames" if stack > 1 else "priorities"}, expected none of them')
        super().configure(n_step=n_step, gamma=gamma, stack=stack, alpha=alpha)

    def add(self, batch: Mapping[str, np.ndarray]) -> None:
        """Copy what was collected, as `Buffer.add`, and take note of its episodes."""
        start = self._ring.position if self._ring else 0
        super().add(batch)
        assert self._ring is not None
        if self._episodes is None:
            self._episodes = EpisodeIndex(self._ring)
        else:
            self._episodes.add_rows(start)

    def adopt_ring(self, ring: Ring) -> None:
        """Take over the ring of another buffer; its flags say where episodes begin and end."""
        super().adopt_ring(ring)
        self._episodes = EpisodeIndex(ring)

    def _gather(
        self,
        ring: Ring,
        rows: np.ndarray,
        scale: RewardScale | None,
        out: dict[str, np.ndarray],
        rng: np.random.Generator,
    ) -> None:
        super()._gather(ring, rows, scale, out, rng)
        # the order of a batch is random, so its first transitions are a random part: slices are faster than indices
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
        # what a step achieves is shown in the row behind its own
        chosen -= rows - 1
        chosen *= ring.n_envs
        chosen += flat_rows
        return ring.flat['observations'].take(chosen, axis=0, mode='wrap')[:, self.goals.achieved]
