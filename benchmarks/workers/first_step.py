"""A wrapper that writes the time of the first step of an environment."""

import os
import time
from typing import Any

import gymnasium

FILE = 'XAGENTS_FIRST_STEPS'


class FirstStep(gymnasium.Wrapper):
    """Appends the time of its first step to the file in the environment variable `FILE`."""

    _stepped = False

    def step(self, action: Any) -> Any:
        """Step; write the time before the first step."""
        if not self._stepped:
            self._stepped = True
            with open(os.environ[FILE], 'a') as file:
                file.write(f'{time.time()}\n')
        return self.env.step(action)
