"""What replay buffers share: the ring that their content is kept in, their sizes, and how they are saved."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from xagents.options.errors import OptionError
from xagents.replay.ring import Ring


class Buffer(ABC):
    """A ring that is made at the first addition, by the shapes that come; what can be drawn is up to subclasses.

    Attributes:
        max_size: transitions over all environments.
        initial_size: how many valid ones must have been stored before it is ready, `max_size` when not given.
        stack: frames of an observation.
    """

    stack: int

    def __init__(self, max_size: int, initial_size: int | None):
        self.max_size = max_size
        self.initial_size = max_size if initial_size is None else initial_size
        self._ring: Ring | None = None

    @property
    def ring(self) -> Ring | None:
        """What the transitions are kept in; None before the first addition."""
        return self._ring

    @property
    def stored(self) -> int:
        """Valid transitions added since the start, overwritten ones included."""
        return self._ring.stored if self._ring else 0

    def __len__(self) -> int:
        """Valid transitions that are held now and can be drawn."""
        return self._ring.count if self._ring else 0

    @property
    def ready(self) -> bool:
        """Whether enough was stored and something valid can be drawn."""
        return len(self) > 0 and self.stored >= self.required_size

    @property
    @abstractmethod
    def required_size(self) -> int:
        """How many valid transitions must have been stored before it is ready; known exactly once N is."""

    @abstractmethod
    def storage_options(self) -> dict[str, Any]:
        """Return the options, besides its size, that decide what is kept of a transition, as JSON holds them."""

    @abstractmethod
    def make_ring(self, template: Mapping[str, np.ndarray]) -> Ring:
        """Return an empty ring for batches like this one, by the buffer's options."""

    def add(self, batch: Mapping[str, np.ndarray]) -> None:
        """Copy what was collected; of more than the buffer holds, the newest.

        Args:
            batch: `observations` [T + 1, N, *D], `actions` [T, N, …], `rewards` [T, N], and bool [T, N] `terminated`,
                `truncated` and `valid`, which is False where a row only reset. It goes on where the last one ended. An
                environment that was reset in between loses its newest transition: one whose `restarted` [N] is true or,
                without that column, whose first observation is not the last one that was added.

        Raises:
            ValueError: for observations of another shape than before, or no stacks where stacks were announced.
            OptionError: if the buffer is too small.
        """
        if self._ring is None:
            self._ring = self.make_ring(batch)
        self._ring.add(batch)

    def adopt_ring(self, ring: Ring) -> None:
        """Take over the ring of another buffer with the same options; this one must be empty."""
        if self._ring is not None and self._ring.position:
            raise ValueError(f'the replay buffer already holds {len(self)} transitions, expected an empty one')
        self._ring = ring

    def _check_sizes(self, further: Mapping[str, int], at_most_max: Iterable[str] = ()) -> None:
        """Check sizes by name; those named `at_most_max`, and the initial size, against the largest, too."""
        sizes = {'buffer_max_size': self.max_size, 'buffer_initial_size': self.initial_size, **further}
        for name, value in {**sizes, 'frame_stack': self.stack}.items():
            least = 0 if name == 'buffer_initial_size' else 1
            if value < least:
                raise OptionError(name, f'got {value}, expected a whole number at least {least}')
        for name in ('buffer_initial_size', *at_most_max):
            if sizes[name] > self.max_size:
                raise OptionError(name, f'got {sizes[name]}, expected at most buffer_max_size, {self.max_size}')
