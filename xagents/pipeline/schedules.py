"""Schedules of values that change during a run, such as learning rates, clip ranges and exploration."""

from __future__ import annotations

import math
from dataclasses import dataclass

SCHEDULE_TYPES = ('constant', 'linear', 'cosine')


@dataclass(frozen=True)
class Schedule:
    """A value that changes from `start` to `end`.

    Args:
        start: the value at step 0.
        schedule_type: constant, linear or cosine.
        end: the value after `steps`.
        steps: length in environment steps; by default the length of the run (`schedule_steps` or `max_steps`).
        option: name of the option that sets the type, for messages.
        optional: whether the value stays at `start` in a run without a length.
        steps_option: name of the option that sets `steps`, for messages.
    """

    start: float
    schedule_type: str = 'constant'
    end: float = 0.0
    steps: int | None = None
    option: str = 'lr_schedule'
    optional: bool = False
    steps_option: str = ''

    def needs_length(self) -> bool:
        """Return whether the schedule needs the length of the run."""
        return self.schedule_type != 'constant' and self.steps is None

    def __call__(self, step: int, length: int | None) -> float:
        """Return the value after `step` environment steps of a run whose schedules are `length` steps long."""
        if self.schedule_type == 'constant' or (self.optional and length is None):
            return self.start
        progress = min(max(step / max(self.steps or length or 1, 1), 0.0), 1.0)
        share = 1.0 - progress if self.schedule_type == 'linear' else 0.5 * (1.0 + math.cos(math.pi * progress))
        return self.end + (self.start - self.end) * share
