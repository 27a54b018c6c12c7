"""Interfaces for acting: a network as a function of arrays, and its weights. Does not load TensorFlow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol, Self

import numpy as np

# the logit or the value of an illegal action, and a number that separates it from all others
ILLEGAL = np.float32(-1e30)
LEGAL_FROM = np.float32(-1e29)


class PublishedWeights(NamedTuple):
    """Weights after an update, for copies of the network that act.

    Attributes:
        version: number that grows with each update.
        weights: all weights, float32 [P]; the next update may overwrite the array.
        warming_up: whether nothing was learned yet, so that random actions are as good as those of the network.
    """

    version: int
    weights: np.ndarray
    warming_up: bool = False


class ActingNetwork(Protocol):
    """A function from observations to the outputs of the policy."""

    def __call__(
        self, observations: np.ndarray, noise: np.ndarray | None = None, memory: np.ndarray | None = None
    ) -> Sequence[np.ndarray]:
        """Return the outputs, arrays [N, units], for observations [N, *D]; the next call may overwrite the arrays.

        Noisy layers take `noise` [N, M]; without it, they have their mean weights. Recurrent layers take `memory`
        [N, M], the states before the step; the memory after the step is then the last output.
        """

    @property
    def memory_units(self) -> int:
        """The length of the memory of one row; 0 without recurrent layers."""

    @property
    def published_weights(self) -> PublishedWeights:
        """The present weights."""

    def copy(self) -> Self:
        """Return a network with a copy of the weights, which only `sync` changes."""

    def sync(self, published_weights: PublishedWeights) -> None:
        """Replace the weights by published weights."""
