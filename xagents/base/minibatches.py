"""How a rollout is cut into minibatches."""

from __future__ import annotations

from typing import Any

import numpy as np

from xagents.options.errors import OptionError


class Minibatches:
    """Passes over a rollout of T * N transitions, in minibatches of `size`.

    Args:
        options: `n_steps`, T; `mini_batches`, how many in a pass; or `minibatch_size` instead.
        n_envs: N.

    Raises:
        OptionError: where a minibatch would have no transition, or more than there are.
    """

    def __init__(self, options: Any, n_envs: int):
        self.transitions = n_envs * options.n_steps
        self.size = options.minibatch_size or self.transitions // options.mini_batches
        if not 1 <= self.size <= self.transitions:
            name = 'minibatch_size' if options.minibatch_size else 'mini_batches'
            raise OptionError(
                name, f'got {getattr(options, name)}, expected at most the {self.transitions} transitions of a rollout'
            )
        self.per_pass = self.transitions // self.size if options.minibatch_size else options.mini_batches

    def draw(self, rng: np.random.Generator, passes: int) -> np.ndarray:
        """Return the rows of each minibatch, int32 [passes * minibatches, size]; what does not divide is left out."""
        used = self.per_pass * self.size
        rows = [rng.permutation(self.transitions)[:used] for _ in range(passes)]
        return np.concatenate(rows).reshape(-1, self.size).astype(np.int32)
