"""CartPole whose step takes a millisecond of sleep, as a simulator's or a machine's does: `benchmarks.slow:Slow-v0`."""

from __future__ import annotations

import time
from typing import Any

import gymnasium
from gymnasium.envs.classic_control import CartPoleEnv

SECONDS = 0.001


class Slow(CartPoleEnv):
    """Sleeps at every step."""

    def step(self, action: Any) -> Any:
        """Sleep, and take a step."""
        time.sleep(SECONDS)
        return super().step(action)


gymnasium.register('Slow-v0', entry_point=Slow, max_episode_steps=500)
