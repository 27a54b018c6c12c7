"""Random numbers: one generator per purpose, so that the use of one does not change the numbers of another."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np


class RandomStreams:
    """Generators by purpose, each created from (seed, purpose) on its first use."""

    def __init__(self, seed: int):
        self.seed = seed
        self._generators: dict[str, np.random.Generator] = {}

    def __call__(self, purpose: str) -> np.random.Generator:
        """Return the generator of a purpose."""
        if purpose not in self._generators:
            self._generators[purpose] = np.random.Generator(np.random.SFC64(self._sequence(purpose)))
        return self._generators[purpose]

    def derive_seed(self, purpose: str, count: int) -> int:
        """Return a seed from (seed, purpose, count), without changing a generator."""
        return int(self._sequence(purpose, count).generate_state(1)[0])

    def _sequence(self, purpose: str, *count: int) -> np.random.SeedSequence:
        return np.random.SeedSequence([self.seed, zlib.crc32(purpose.encode()), *count])

    def restart(self, seed: int) -> None:
        """Restart every generator from another seed."""
        self.seed = seed
        self._generators.clear()

    def state(self) -> dict[str, Any]:
        """Return the states of the generators, for JSON."""
        return {purpose: _plain(rng.bit_generator.state) for purpose, rng in [*self._generators.items()]}

    def load(self, state: Mapping[str, Any]) -> None:
        """Load states; a generator without a saved state restarts from its seed."""
        self._generators.clear()
        for purpose, saved in state.items():
            self(purpose).bit_generator.state = _arrays(saved)


def _plain(state: Any) -> Any:
    """Return the state of a generator for JSON: arrays become dicts."""
    if isinstance(state, dict):
        return {key: _plain(value) for key, value in state.items()}
    return {'uint64': [int(x) for x in state]} if isinstance(state, np.ndarray) else state


def _arrays(state: Any) -> Any:
    """Undo `_plain`."""
    if isinstance(state, dict) and set(state) == {'uint64'}:
        return np.array(state['uint64'], np.uint64)
    return {key: _arrays(value) for key, value in state.items()} if isinstance(state, dict) else state
