"""An evaluation that was asked for and whose result is not taken yet: what `--eval-async` has under way."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from xagents.checkpoints.state_files import AgentState, state_from_arrays, state_to_arrays


@dataclass
class PendingEvaluation:
    """An evaluation under way.

    Attributes:
        state: the weights that are evaluated, with the counters of then.
        seed: of its episodes.
        episodes: how many.
        age: iterations since it was asked for.
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
        """Return all of it as arrays by name and a record for JSON; the result is played again from these."""
        counters = {'seed': self.seed, 'episodes': self.episodes, 'age': self.age}
        return state_to_arrays(self.state), {'state': self.state.record, **counters}

    @classmethod
    def load(cls, arrays: dict[str, np.ndarray], record: Mapping[str, Any]) -> PendingEvaluation:
        """Undo `to_state`; the policy as data is not read again."""
        counters = {name: record[name] for name in ('seed', 'episodes', 'age')}
        return cls(state_from_arrays(arrays, record['state']), **counters)
