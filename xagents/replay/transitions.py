"""The replay buffer: samples batches of transitions from a ring, uniformly or by priority."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import numpy as np

from xagents.options.errors import OptionError
from xagents.replay.buffer import Buffer
from xagents.replay.ring import TERMINATED, TRUNCATED, Arrays, ArraySpec, Ring
from xagents.replay.sum_tree import SumTree

PRIORITY_EPSILON = 1e-6
REDRAWS = 16

RewardScale = Callable[[np.ndarray], np.ndarray] | None  # elementwise


class ReplayBuffer(Buffer):
    """A replay buffer that stores the newest transitions of N environments and samples batches of them.

    Without `alpha`, sampling is uniform over all transitions that can be sampled. With `alpha`, it is proportional to
    their priorities (Schaul et al. 2016, arXiv:1511.05952). The sum of all priorities is then divided into B equal
    parts, and a batch contains one draw from each part (appendix B.2.1 of the paper).

    The buffer never samples rows that only reset their environment, transitions without a known next observation, and
    stacks with a frame that was never added or is overwritten.

    Args:
        max_size: capacity, in transitions over all environments; rounded down to a multiple of N.
        initial_size: number of transitions that must have been stored before the buffer is ready; `max_size` by
            default. It is rounded up to a multiple of N, but not above the capacity.
        batch_size: B.
        n_step: number of rewards to sum; fewer if the episode, or its stored part, ends earlier.
        gamma: discount factor of the sum.
        stack: number of frames in an observation [H, W, stack], newest last; above 1, only the newest is stored.
        alpha: exponent of the priorities; None for uniform sampling.

    Raises:
        OptionError: for inconsistent sizes and values out of range.
    """

    # names of further stored columns of a batch
    columns: ClassVar[tuple[str, ...]] = ()

    def __init__(
        self,
        max_size: int,
        initial_size: int | None = None,
        batch_size: int = 32,
        *,
        n_step: int = 1,
        gamma: float = 0.99,
        stack: int = 1,
        alpha: float | None = None,
    ):
        super().__init__(max_size, initial_size)
        self.batch_size = batch_size
        self.configure(n_step=n_step, gamma=gamma, stack=stack, alpha=alpha)

    def configure(self, *, n_step: int = 1, gamma: float = 0.99, stack: int = 1, alpha: float | None = None) -> None:
        """Change the sampling; see the class for arguments and errors.

        Raises:
            ValueError: if the buffer already contains transitions in another form.
        """
        ring = self._ring
        if ring is not None and (ring.stack, ring.priorities is not None) != (stack, alpha is not None):
            raise ValueError('buffers: got a filled buffer with another frame stack or another use of priorities')
        self.n_step, self.gamma, self.stack, self.alpha = n_step, gamma, stack, alpha
        self._check_sizes({'buffer_batch_size': self.batch_size, 'n_step': n_step}, ['buffer_batch_size'])
        for name, share in (('gamma', gamma), ('priority_alpha', alpha or 0.0)):
            if not 0 <= share <= 1:
                raise OptionError(name, f'got {share}, expected a number at least 0 and at most 1')
        self._outputs: dict[int, Arrays] = {}
        self._flat_outputs: dict[tuple[int, int], Arrays] = {}
        self._powers = (gamma ** np.arange(n_step)).astype(np.float32)
        # for each value of a step's flags: whether the episode continues, and the discount
        flags = np.arange(8)
        self._continues = flags & (TERMINATED | TRUNCATED) == 0
        self._discounts = np.where(flags & TERMINATED, 0.0, gamma).astype(np.float32)

    @property
    def required_size(self) -> int:
        """Number of transitions that must have been stored before it is ready; exact as soon as N is known."""
        initial, ring = self.initial_size, self._ring
        if ring:
            initial = min(-(-initial // ring.n_envs), ring.rows - 1) * ring.n_envs
        return max(initial, self.batch_size)

    def make_ring(self, template: Mapping[str, np.ndarray]) -> Ring:
        """Return an empty ring for batches with the shapes of `template`."""
        return Ring(
            self.max_size, template, self.stack, self.alpha is not None, columns=self.columns, images=self.byte_images
        )

    def storage_options(self) -> dict[str, Any]:
        """Return the options that determine the stored form of a transition."""
        return {'frame_stack': self.stack, 'prioritized': self.alpha is not None}

    def sample(
        self,
        n_batches: int,
        rng: np.random.Generator,
        *,
        max_batches: int | None = None,
        beta: float = 1.0,
        scale: RewardScale = None,
    ) -> Arrays:
        """Sample K batches of B transitions, with replacement.

        Args:
            n_batches: K.
            rng: the random generator.
            max_batches: M, the number of batches in the returned arrays; K by default. The contents after K batches are
                undefined.
            beta: exponent of the importance weights.
            scale: elementwise function that is applied to rewards before they are summed.

        Returns:
            Arrays [M, B, …] by name, which the next call with the same M overwrites: `observations`, `actions`,
            `rewards` (discounted sums over m <= n_step steps), `next_observations` (after the last of these steps), and
            `discounts`, float32, gamma^m (1 - terminated). With priorities also `weights`, float32, importance weights
            divided by the largest in the batch, and `rows`, int64, for `prioritize`.

        Raises:
            ValueError: if the buffer contains no transition that can be sampled, or M < K.
        """
        max_batches = n_batches if max_batches is None else max_batches
        ring = self._ring
        if not ring or not ring.count:
            raise ValueError('the replay buffer holds no transition that can be sampled')
        if not 0 < n_batches <= max_batches:
            raise ValueError(f'n_batches: got {n_batches}, expected 1 to max_batches, {max_batches}')
        batches, out = self._allocate(ring, max_batches, n_batches)
        tree = ring.priorities
        if tree is None:
            rows = _draw(ring, n_batches * self.batch_size, rng)
        else:
            rows = self._draw_prioritized(tree, ring.count, rng, beta, batches['weights'][:n_batches])
            out['rows'][:] = rows
        self._gather(ring, rows, scale, out, rng)
        return batches

    def _gather(self, ring: Ring, rows: np.ndarray, scale: RewardScale, out: Arrays, rng: np.random.Generator) -> None:
        """Write the transitions of flat rows [B] to the arrays `out` [B, …]; `rng` is for subclasses."""
        ring.take_observations(rows, out['observations'])
        ring.flat['actions'].take(rows, axis=0, out=out['actions'], mode='wrap')
        after = self._sum_rewards(ring, rows, scale, out['rewards'], out['discounts'])
        ring.take_observations(after, out['next_observations'])

    def _allocate(self, ring: Ring, max_batches: int, n_batches: int) -> tuple[Arrays, Arrays]:
        """Return the arrays [M, B, …] that `sample` returns, and views [K * B, …] of their first K batches."""
        if max_batches not in self._outputs:
            actions, number = ring.arrays['actions'], ((), np.float32)
            observation = (ring.shape[1:], ring.arrays['observations'].dtype)
            shapes: dict[str, ArraySpec] = {'observations': observation, 'next_observations': observation}
            shapes |= {'actions': (actions.shape[2:], actions.dtype), 'rewards': number, 'discounts': number}
            if ring.priorities is not None:
                shapes |= {'weights': number, 'rows': ((), np.int64)}
            size = (max_batches, self.batch_size)
            self._outputs[max_batches] = {name: np.zeros((*size, *s), d) for name, (s, d) in shapes.items()}
        batches = self._outputs[max_batches]
        key = max_batches, n_batches
        if key not in self._flat_outputs:
            self._flat_outputs[key] = {n: x[:n_batches].reshape(-1, *x.shape[2:]) for n, x in batches.items()}
        return batches, self._flat_outputs[key]

    def _draw_prioritized(
        self, tree: SumTree, count: int, rng: np.random.Generator, beta: float, weights: np.ndarray
    ) -> np.ndarray:
        """Draw flat rows in proportion to their priorities; write their importance weights to `weights` [K, B]."""
        fractions = rng.random(weights.shape)
        fractions += np.arange(self.batch_size)
        fractions /= self.batch_size
        rows, total = tree.find(fractions.reshape(-1))
        # (n P)^-beta, section 3.4
        shares = tree.leaves.take(rows).reshape(weights.shape)
        shares *= count / total
        shares **= -beta
        np.divide(shares, shares.max(axis=1, keepdims=True), out=weights, casting='same_kind')
        return rows

    def _sum_rewards(
        self, ring: Ring, rows: np.ndarray, scale: RewardScale, rewards: np.ndarray, discounts: np.ndarray
    ) -> np.ndarray:
        """Write summed rewards and discounts, float32 [B]; return the flat rows of the next observations."""
        all_flags, all_rewards = ring.flat['flags'], ring.flat['rewards']
        if self.n_step == 1:
            all_rewards.take(rows, out=rewards, mode='wrap')
            if scale is not None:
                rewards[:] = scale(rewards)
            self._discounts.take(all_flags.take(rows), out=discounts, mode='wrap')
            return rows + ring.n_envs
        steps = rows + np.arange(self.n_step)[:, None] * ring.n_envs  # [n, B]
        flags = all_flags.take(steps, mode='wrap')
        # stop before a row if the episode ended before it or if it has no flags: the head and removed rows
        summed = np.ones(steps.shape, bool)
        np.logical_and(self._continues.take(flags[:-1]), flags[1:], out=summed[1:])
        for k in range(2, self.n_step):
            summed[k] &= summed[k - 1]
        each = all_rewards.take(steps, mode='wrap')
        each = np.where(summed, each if scale is None else scale(each), np.float32(0))
        np.matmul(self._powers, each, out=rewards)
        m = summed.sum(axis=0)
        last = flags[m - 1, np.arange(len(rows))]
        np.multiply(self._powers.take(m - 1), self._discounts.take(last), out=discounts)
        return rows + m * ring.n_envs

    def priorities(self) -> Arrays:
        """Return the priorities of all rows and the largest priority so far, as arrays by name."""
        ring = self._ring
        assert ring is not None and ring.priorities is not None
        return {'rows': ring.priorities.leaves.copy(), 'largest': np.array(ring.new_priority)}

    def load_priorities(self, state: Mapping[str, np.ndarray]) -> None:
        """Restore the priorities that `priorities` of a buffer with the same transitions returned."""
        ring = self._ring
        assert ring is not None and ring.priorities is not None
        ring.priorities.set_span(0, state['rows'])
        ring.new_priority = float(state['largest'])

    def prioritize(self, rows: np.ndarray, td_errors: np.ndarray) -> None:
        """Set the priorities of sampled rows to (|TD error| + 1e-6)^alpha.

        Errors that are not finite, and rows that can no longer be sampled, are ignored.

        Args:
            rows: `rows` of a result of `sample`.
            td_errors: TD errors with the same shape.

        Raises:
            ValueError: if the buffer has no priorities.
        """
        ring = self._ring
        if ring is None or ring.priorities is None or self.alpha is None:
            raise ValueError('alpha: got None: the replay buffer has no priorities to set')
        rows, errors = np.ravel(rows), np.abs(np.ravel(td_errors), dtype=np.float64)
        admitted = np.isfinite(errors) & (ring.flat['flags'].take(rows) > 0)
        if not admitted.all():
            rows, errors = rows[admitted], errors[admitted]
        if rows.size:
            priorities = (errors + PRIORITY_EPSILON) ** self.alpha
            ring.new_priority = max(ring.new_priority, float(priorities.max()))
            ring.priorities.set(rows, priorities)


def _draw(ring: Ring, size: int, rng: np.random.Generator) -> np.ndarray:
    """Draw flat rows uniformly; redraw rows that cannot be sampled."""
    flags, population = ring.flat['flags'], ring.used * ring.n_envs
    rows = (rng.random(size) * population).astype(np.int64)  # four times as fast as integers()
    drawn = flags.take(rows)
    if np.count_nonzero(drawn) == size:
        return rows
    wrong = np.flatnonzero(drawn == 0)
    for _ in range(REDRAWS):
        rows[wrong] = redrawn = (rng.random(wrong.size) * population).astype(np.int64)
        wrong = wrong[flags.take(redrawn) == 0]
        if not wrong.size:
            return rows
    # very few rows can be sampled
    rows[wrong] = rng.choice(np.flatnonzero(flags), size=wrong.size)
    return rows
