"""Minibatches of a rollout: of single transitions or, for agents with memory, of sequences."""

from __future__ import annotations

from typing import Any

import numpy as np

from xagents.options.errors import OptionError
from xagents.options.rules import is_changed


class Minibatches:
    """A split of a rollout of T * N transitions into minibatches.

    The rollout has one row for each transition; with memory, one for each sequence of L steps.

    Args:
        options: has `n_steps`, T; `mini_batches`, the number per pass; and `minibatch_size`, used instead if set. With
            memory, the default of `mini_batches` is at most the number of sequences.
        n_envs: N.
        length: L, the number of steps of a row.

    Attributes:
        rows: the number of rows of a rollout.
        size: the number of rows of a minibatch.
        per_pass: the number of minibatches of a pass.

    Raises:
        OptionError: if a minibatch would have no row, a part of a sequence, or more than the rollout.
    """

    def __init__(self, options: Any, n_envs: int, length: int = 1):
        self.rows = n_envs * options.n_steps // length
        given, number = options.minibatch_size, options.mini_batches
        if length > 1 and not is_changed(options, 'mini_batches'):
            number = min(number, self.rows)
        self.size = given // length if given else self.rows // number
        if not 1 <= self.size <= self.rows or (given or 0) % length:
            name, most = ('minibatch_size', self.rows * length) if given else ('mini_batches', self.rows)
            what = 'transitions' if given or length == 1 else 'sequences'
            multiple = f'a multiple of the {length} steps of a sequence, ' if given and length > 1 else ''
            problem = f'got {getattr(options, name)}, expected {multiple}at most the {most} {what} of a rollout'
            raise OptionError(name, problem)
        self.per_pass = self.rows // self.size if given else number

    def draw(self, rng: np.random.Generator, passes: int) -> np.ndarray:
        """Return the rows of each minibatch, int32 [passes * minibatches, size]; a remainder is left out."""
        used = self.per_pass * self.size
        rows = [rng.permutation(self.rows)[:used] for _ in range(passes)]
        return np.concatenate(rows).reshape(-1, self.size).astype(np.int32)
