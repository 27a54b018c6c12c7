"""What changes during a run: learning rates, ranges, exploration."""

from __future__ import annotations

import math
from dataclasses import dataclass

SCHEDULE_TYPES = ('constant', 'linear', 'cosine')


@dataclass(frozen=True)
class Schedule:
    """A value that goes from `start` to `end`.

    Args:
        start: the value at step 0.
        schedule_type: constant, linear or cosine.
        end: the value after `steps`.
        steps: its own length in environment steps; the run's (`schedule_steps`, `max_steps`) when not given.
        option: the option that chooses the kind, for messages.
        optional: whether the value simply stays at `start` in a run whose length nobody gave.
    """

    start: float
    schedule_type: str = 'constant'
    end: float = 0.0
    steps: int | None = None
    option: str = 'lr_schedule'
    optional: bool = False

    def needs_length(self) -> bool:
        """Return whether only the run can say how long it is."""
        return self.schedule_type != 'constant' and self.steps is None

    def __call__(self, step: int, length: int | None) -> float:
        """Return the value after `step` environment steps of a run whose schedules are `length` steps long."""
        if self.schedule_type == 'constant' or (self.optional and length is None):
            return self.start
        progress = min(max(step / max(self.steps or length or 1, 1), 0.0), 1.0)
        share = 1.0 - progress if self.schedule_type == 'linear' else 0.5 * (1.0 + math.cos(math.pi * progress))
        return self.end + (self.start - self.end) * share
