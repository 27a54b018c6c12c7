"""A sum tree: sampling in proportion to priorities that change often."""

from __future__ import annotations

import numpy as np

WIDTH = 32
# a positive float64 times this factor is the next smaller float64
JUST_BELOW_ONE = 1.0 - 2.0**-53


class SumTree:
    """A tree whose leaves are priorities and whose inner nodes are the sums of their 32 children.

    The tree stores three levels: leaves, sums of 32 and sums of 1024. Each draw adds the sums of 1024. After a leaf
    changes, its blocks are summed completely; adding differences would accumulate rounding errors.

    Attributes:
        leaves: priorities, float64, at least 0. The array is a little longer than `size`; the additional leaves are 0.

    Args:
        size: number of leaves.
    """

    def __init__(self, size: int):
        leaves, sums, tops = _level_sizes(size)
        self.leaves, self._sums, self._tops = np.zeros(leaves), np.zeros(sums), np.zeros(tops)
        self._leaf_blocks, self._sum_blocks = self.leaves.reshape(-1, WIDTH), self._sums.reshape(-1, WIDTH)

    @staticmethod
    def bytes_needed(size: int) -> int:
        """Return the memory of a tree with `size` leaves in bytes."""
        return 8 * sum(_level_sizes(size))

    def set(self, indices: np.ndarray, priorities: np.ndarray | float) -> None:
        """Set the leaves at `indices` (1-D); if an index occurs twice, one of its priorities is set."""
        self.leaves[indices] = priorities
        blocks = indices // WIDTH
        self._sums[blocks] = np.add.reduce(self._leaf_blocks.take(blocks, axis=0), axis=1)
        blocks //= WIDTH
        self._tops[blocks] = np.add.reduce(self._sum_blocks.take(blocks, axis=0), axis=1)

    def set_span(self, start: int, priorities: np.ndarray) -> None:
        """Set the leaves start, start + 1, … to `priorities` (1-D, at least one)."""
        end = start + len(priorities)
        self.leaves[start:end] = priorities
        span = slice(start // WIDTH, (end - 1) // WIDTH + 1)
        np.add.reduce(self._leaf_blocks[span], axis=1, out=self._sums[span])
        span = slice(span.start // WIDTH, (span.stop - 1) // WIDTH + 1)
        np.add.reduce(self._sum_blocks[span], axis=1, out=self._tops[span])

    def find(self, fractions: np.ndarray) -> tuple[np.ndarray, float]:
        """Find the leaves in which fractions of the total sum fall.

        The sum of all leaves must be above 0.

        Args:
            fractions: float64 [B] in [0, 1).

        Returns:
            The indices of the leaves, int64 [B], none of which is 0; and the sum of all leaves.
        """
        sums = np.add.accumulate(self._tops)
        total = float(sums[-1])
        rest = np.minimum(fractions * total, total * JUST_BELOW_ONE)
        tops = sums.searchsorted(rest, side='right')
        rest -= np.where(tops > 0, sums[tops - 1], 0.0)
        blocks, rest = _descend(self._sum_blocks, tops, rest)
        return _descend(self._leaf_blocks, blocks, rest)[0], total


def _level_sizes(size: int) -> tuple[int, int, int]:
    """Return the numbers of leaves, of sums of 32, and of sums of 1024 for at least `size` leaves."""
    tops = -(-size // WIDTH**2)
    return tops * WIDTH**2, tops * WIDTH, tops


def _descend(blocks: np.ndarray, chosen: np.ndarray, rest: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the child of each chosen block [B] in which `rest` [B] falls, and the remainder of `rest` in the child.

    Sums in another order may differ in the last digit. `rest` is therefore limited to below the sum computed here, so
    that no child with the sum 0 is chosen.
    """
    children = blocks.take(chosen, axis=0).T.copy()  # [32, B]: NumPy is twice as fast along the batch
    sums = np.add.accumulate(children, axis=0)
    rest = np.minimum(rest, sums[-1] * JUST_BELOW_ONE)
    places = np.add.reduce(sums <= rest, axis=0, dtype=np.uint8).astype(np.int64)
    found = places * len(chosen) + np.arange(len(chosen))
    rest -= sums.take(found) - children.take(found)
    return chosen * WIDTH + places, np.maximum(rest, 0.0, out=rest)
