"""An agent's whole state, gathered in one place: what a checkpoint must hold, and how it is taken over."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    pass


@dataclass
class State:
    """What a checkpoint holds: arrays that equal seeds make equal, and a record for JSON, which has the clock, too.

    Attributes:
        weights: for each model, its weights and then its optimiser's variables.
        arrays: the agent's parts and, of a whole state, the environments and what is in flight.
        record: counters, recent episodes, options and random streams, as JSON holds them.
    """

    weights: list[list[np.ndarray]] = field(default_factory=list)
    arrays: dict[str, np.ndarray] = field(default_factory=dict)
    record: dict[str, Any] = field(default_factory=dict)
