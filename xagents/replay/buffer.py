"""The base class of replay buffers: the ring that stores the transitions, and the sizes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from xagents.options.errors import OptionError
from xagents.replay.frames import ByteImage
from xagents.replay.ring import Ring


class Buffer(ABC):
    """A buffer that stores transitions in a ring; subclasses define the sampling.

    The first addition allocates the ring with the shapes of its batch.

    Attributes:
        max_size: capacity, in transitions over all environments.
        initial_size: number of valid transitions that must have been stored before the buffer is ready; `max_size` by
            default.
        stack: number of frames in an observation.
        byte_images: the stacks among the bytes of an observation; empty if observations are images. Set before the
            first addition.
    """

    stack: int
    byte_images: Sequence[ByteImage] = ()

    def __init__(self, max_size: int, initial_size: int | None):
        self.max_size = max_size
        self.initial_size = max_size if initial_size is None else initial_size
        self._ring: Ring | None = None

    @property
    def ring(self) -> Ring | None:
        """The ring that stores the transitions; None before the first addition."""
        return self._ring

    @property
    def stored(self) -> int:
        """Number of valid transitions added since the start, including overwritten ones."""
        return self._ring.stored if self._ring else 0

    def __len__(self) -> int:
        """Return the number of valid transitions that the buffer contains now and can sample."""
        return self._ring.count if self._ring else 0

    @property
    def ready(self) -> bool:
        """Whether enough transitions were stored and at least one can be sampled."""
        return len(self) > 0 and self.stored >= self.required_size

    @property
    @abstractmethod
    def required_size(self) -> int:
        """Number of valid transitions that must have been stored before it is ready; exact as soon as N is known."""

    @abstractmethod
    def storage_options(self) -> dict[str, Any]:
        """Return the options that determine the stored form of a transition, without the size, as JSON values."""

    @abstractmethod
    def make_ring(self, template: Mapping[str, np.ndarray]) -> Ring:
        """Return an empty ring for the options of the buffer and batches with the shapes of `template`."""

    def add(self, batch: Mapping[str, np.ndarray]) -> None:
        """Copy a batch of transitions into the buffer. If the batch exceeds the capacity, copy the newest ones.

        A batch continues the previous one. If an environment was reset between two batches, the buffer removes its
        newest transition.

        Args:
            batch: `observations` [T + 1, N, *D], `actions` [T, N, …], `rewards` [T, N], and bool [T, N] `terminated`,
                `truncated` and `valid`. `valid` is False if a row only reset its environment. The optional bool
                `restarted` [N] marks environments that were reset between two batches. Without it, an environment
                counts as reset if its first observation differs from the last one added.

        Raises:
            ValueError: if the observations have another shape than before, or are not the expected stacks of frames.
            OptionError: if the buffer is too small.
        """
        if self._ring is None:
            self._ring = self.make_ring(batch)
        self._ring.add(batch)

    def adopt_ring(self, ring: Ring) -> None:
        """Use the ring of another buffer with the same options; this buffer must be empty."""
        if self._ring is not None and self._ring.position:
            raise ValueError(f'the replay buffer already holds {len(self)} transitions, expected an empty one')
        self._ring = ring

    def _check_sizes(self, further: Mapping[str, int], at_most_max: Iterable[str] = ()) -> None:
        """Check sizes by name; the initial size and the sizes in `at_most_max` must not exceed `max_size`."""
        sizes = {'buffer_max_size': self.max_size, 'buffer_initial_size': self.initial_size, **further}
        for name, value in {**sizes, 'frame_stack': self.stack}.items():
            least = 0 if name == 'buffer_initial_size' else 1
            if value < least:
                raise OptionError(name, f'got {value}, expected a whole number at least {least}')
        for name in ('buffer_initial_size', *at_most_max):
            if sizes[name] > self.max_size:
                raise OptionError(name, f'got {sizes[name]}, expected at most buffer_max_size, {self.max_size}')
