"""CartPole whose step sleeps for a millisecond, as long as a simulator takes: `benchmarks.envs.slow:Slow-v0`.

In `Straggler-v0`, the first process that steps the environment takes five times as long as the others.
"""

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
    """CartPole that sleeps at every step."""

    def step(self, action: Any) -> Any:
        """Sleep, then step."""
        time.sleep(SECONDS)
        return super().step(action)


@functools.cache
def is_first(lock: str) -> bool:
    """Return whether this process is the first caller; it stays the first until it ends."""
    file = os.open(lock, os.O_RDWR)  # stays open, because closing releases the lock
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(file)
        return False
    return True


class Straggler(CartPoleEnv):
    """CartPole that sleeps at every step, five times as long in one process.

    Args:
        lock: path of an existing file. The first process that steps locks it.
        options: of CartPole.
    """

    def __init__(self, lock: str, **options: Any):
        super().__init__(**options)
        self.lock = lock

    def step(self, action: Any) -> Any:
        """Sleep, then step."""
        time.sleep(SECONDS * (TIMES if is_first(self.lock) else 1))
        return super().step(action)


gymnasium.register('Slow-v0', entry_point=Slow, max_episode_steps=500)
gymnasium.register('Straggler-v0', entry_point=Straggler, max_episode_steps=500)
