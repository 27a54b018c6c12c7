"""Minibatches of a rollout."""

from __future__ import annotations

from typing import Any

import numpy as np

from xagents.options.errors import OptionError


class Minibatches:
    """A split of a rollout of T * N transitions into minibatches of `size` transitions.

    Args:
        options: has `n_steps`, T; `mini_batches`, the number per pass; and `minibatch_size`, used instead if set.
        n_envs: N.

    Raises:
        OptionError: if a minibatch would have no transition, or more than the rollout.
    """

    def __init__(self, options: Any, n_envs: int):
        self.transitions = n_envs * options.n_steps
        self.size = options.minibatch_size or self.transitions // options.mini_batches
        if not 1 <= self.size <= self.transitions:
            name = 'minibatch_size' if options.minibatch_size else 'mini_batches'
            got = f'got {getattr(options, name)}'
            raise OptionError(name, f'{got}, expected at most the {self.transitions} transitions of a rollout')
        self.per_pass = self.transitions // self.size if options.minibatch_size else options.mini_batches

    def draw(self, rng: np.random.Generator, passes: int) -> np.ndarray:
        """Return the rows of each minibatch, int32 [passes * minibatches, size]; a remainder is left out."""
        used = self.per_pass * self.size
        rows = [rng.permutation(self.transitions)[:used] for _ in range(passes)]
        return np.concatenate(rows).reshape(-1, self.size).astype(np.int32)
