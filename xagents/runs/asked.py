"""An evaluation that was asked for and whose result is not taken yet: what `--eval-async` has under way."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from xagents.runs.checkpoints import State, all_arrays, state_of_arrays


@dataclass
class Asked:
    """An evaluation under way.

    Attributes:
        state: the weights that are evaluated, with the counters of then.
        seed: of its episodes.
        episodes: how many.
        age: iterations since it was asked for.
    """

    state: State
    seed: int
    episodes: int
    age: int = 0

    @property
    def steps(self) -> int:
        """The step of the weights."""
        return self.state.record['counters']['steps']

    def whole(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Return all of it as arrays by name and a record for JSON; the result is played again from these."""
        numbers = {'seed': self.seed, 'episodes': self.episodes, 'age': self.age}
        return all_arrays(self.state), {'state': self.state.record, **numbers}

    @classmethod
    def load(cls, arrays: dict[str, np.ndarray], record: Mapping[str, Any]) -> Asked:
        """Undo `whole`; the policy as data is not read again."""
        numbers = {name: record[name] for name in ('seed', 'episodes', 'age')}
        return cls(state_of_arrays(arrays, record['state']), **numbers)
