"""CartPole whose step sleeps for a millisecond, as long as a simulator takes: `benchmarks.envs.slow:Slow-v0`.

`Straggler-v0` is the same, but that of the processes that step it the first one takes five times as long.
"""

from __future__ import annotations

import fcntl
import functools
import os
import time
from typing import Any

import gymnasium
from gymnasium.envs.classic_control import CartPoleEnv

SECONDS = 0.001
TIMES = 5


class Slow(CartPoleEnv):
    """Sleeps at every step."""

    def step(self, action: Any) -> Any:
        """Sleep, and take a step."""
        time.sleep(SECONDS)
        return super().step(action)


@functools.cache
def is_first(lock: str) -> bool:
    """Return whether this process is the first one that asks; it is so until it ends."""
    file = os.open(lock, os.O_RDWR)  # stays open: the lock goes with it
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(file)
        return False
    return True


class Straggler(CartPoleEnv):
    """Sleeps at every step, in one process five times as long.

    Args:
        lock: path of a file that is there. The process that steps first takes it; those that only make it do not.
        options: of CartPole.
    """

    def __init__(self, lock: str, **options: Any):
        super().__init__(**options)
        self.lock = lock

    def step(self, action: Any) -> Any:
        """Sleep, and take a step."""
        time.sleep(SECONDS * (TIMES if is_first(self.lock) else 1))
        return super().step(action)


gymnasium.register('Slow-v0', entry_point=Slow, max_episode_steps=500)
gymnasium.register('Straggler-v0', entry_point=Straggler, max_episode_steps=500)
