"""1.0's import paths of the replay buffer; `xagents.replay.transitions.ReplayBuffer` is the one there is."""

from __future__ import annotations

from typing import Any

from xagents.replay.transitions import ReplayBuffer


class ReplayBuffer1(ReplayBuffer):
    """`ReplayBuffer` under 1.0's name; takes the same arguments."""


class ReplayBuffer2(ReplayBuffer):
    """`ReplayBuffer` under 1.0's name and signature; `slots`, what 1.0 stored of a transition, means nothing now."""

    def __init__(
        self, max_size: int, slots: int = 5, initial_size: int | None = None, batch_size: int = 32, **options: Any
    ):
        super().__init__(max_size, initial_size, batch_size, **options)
