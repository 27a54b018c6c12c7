"""Import paths of version 1.0 for the replay buffer `xagents.replay.transitions.ReplayBuffer`."""

from __future__ import annotations

from typing import Any

from xagents.replay.transitions import ReplayBuffer


class ReplayBuffer1(ReplayBuffer):
    """`ReplayBuffer` under its name in version 1.0, with the same arguments."""


class ReplayBuffer2(ReplayBuffer):
    """`ReplayBuffer` under its name and signature in version 1.0. The argument `slots` has no effect."""

    def __init__(
        self, max_size: int, slots: int = 5, initial_size: int | None = None, batch_size: int = 32, **options: Any
    ):
        super().__init__(max_size, initial_size, batch_size, **options)
