"""What acts, seen from outside: a network as a function of arrays, and the weights that it is given. No TensorFlow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol, Self

import numpy as np


class PublishedWeights(NamedTuple):
    """Weights that an update has made, for whoever acts by a copy of the network; a later `version` is larger.

    The next update may overwrite the weights, float32 [P] in one vector. While `warming_up`, nothing was learned yet,
    so that any action is as good as another.
    """

    version: int
    weights: np.ndarray
    warming_up: bool = False


class ActingNetwork(Protocol):
    """From observations to the policy's outputs."""

    def __call__(self, observations: np.ndarray) -> Sequence[np.ndarray]:
        """Return the outputs [N, units] for observations [N, *D]; the next call may overwrite the arrays."""

    @property
    def published_weights(self) -> PublishedWeights:
        """Its present weights."""

    def copy(self) -> Self:
        """Return a network with weights of its own, which only `sync` changes."""

    def sync(self, published_weights: PublishedWeights) -> None:
        """Take over published weights."""
