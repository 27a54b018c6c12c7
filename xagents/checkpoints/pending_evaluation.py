"""An evaluation that was requested and whose result is not applied yet (`--eval-async`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from xagents.checkpoints.state_files import AgentState, state_from_arrays, state_to_arrays


@dataclass
class PendingEvaluation:
    """A pending evaluation.

    Attributes:
        state: the evaluated weights, with the counters at the time of the request.
        seed: the seed of the episodes.
        episodes: the number of episodes.
        age: iterations since the request.
    """

    state: AgentState
    seed: int
    episodes: int
    age: int = 0

    @property
    def steps(self) -> int:
        """The step of the weights."""
        return self.state.record['counters']['steps']

    def to_state(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Return arrays by name and a record for JSON, from which the evaluation can be repeated."""
        counters = {'seed': self.seed, 'episodes': self.episodes, 'age': self.age}
        return state_to_arrays(self.state), {'state': self.state.record, **counters}

    @classmethod
    def load(cls, arrays: dict[str, np.ndarray], record: Mapping[str, Any]) -> PendingEvaluation:
        """Return the evaluation from the results of `to_state`, without its policy as data."""
        counters = {name: record[name] for name in ('seed', 'episodes', 'age')}
        return cls(state_from_arrays(arrays, record['state']), **counters)
