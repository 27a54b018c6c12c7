"""Environments whose best actions depend on earlier observations."""

import gymnasium
import numpy as np
from gymnasium import spaces


class Recall(gymnasium.Env):
    """Show a cue of two in the first observation; after `delay` more steps, the action that names the cue is right.

    The reward is 1 for the right action in the last step and 0 otherwise. Without memory, no policy exceeds a mean of
    0.5. The other observations are noise, so that a network cannot use the time alone.
    """

    observation_space = spaces.Box(-2.0, 2.0, (3,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, delay: int = 10):
        self.delay = delay

    def _observation(self):
        cue = (2 * self.cue - 1) if self.t == 0 else 0
        return np.array([cue, self.t == self.delay, self.np_random.uniform(-1, 1)], np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t, self.cue = 0, int(self.np_random.integers(2))
        return self._observation(), {}

    def step(self, action):
        done = self.t == self.delay
        reward = float(done and action == self.cue)
        self.t += not done
        return self._observation(), reward, done, False, {}


gymnasium.register('Recall-v0', Recall)
