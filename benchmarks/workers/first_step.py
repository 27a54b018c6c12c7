"""A wrapper that writes down when an environment made its first step."""

from __future__ import annotations

import os
import time
from typing import Any

import gymnasium

FILE = 'XAGENTS_FIRST_STEPS'


class FirstStep(gymnasium.Wrapper):
    """Appends the time of its first step to the file that `FILE` names in the environment's variables."""

    def __init__(self, env: gymnasium.Env) -> None:
        super().__init__(env)
        self._stepped = False

    def step(self, action: Any) -> Any:
        """Step, after writing the time down if it is the first one."""
        if not self._stepped:
            self._stepped = True
            with open(os.environ[FILE], 'a') as file:
                file.write(f'{time.time()}\n')
        return self.env.step(action)
