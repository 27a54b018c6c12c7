"""An environment with a parameter that only critics may see."""

import gymnasium
import numpy as np
from gymnasium import spaces

STEPS = 20


class HiddenBonus(gymnasium.Env):
    """Reach the number that is shown; a hidden bonus, equal in all steps of an episode, is added to each reward.

    The bonus is noise for a critic that does not see it. The best return is 0 on average.

    Args:
        size: standard deviation of the bonus.
        discrete: whether an action is one of five numbers instead of a number.
    """

    def __init__(self, size=1.0, discrete=False):
        self.size, self.discrete = size, discrete
        number = spaces.Box(-np.inf, np.inf, (1,), np.float32)
        self.observation_space = spaces.Dict(bonus=number, goal=spaces.Box(-1, 1, (1,), np.float32))
        self.action_space = spaces.Discrete(5) if discrete else spaces.Box(-1, 1, (1,), np.float32)

    def observation(self):
        """Draw a goal."""
        self.goal = self.np_random.uniform(-1, 1, 1).astype(np.float32)
        return {'bonus': np.array([self.bonus], np.float32), 'goal': self.goal}

    def reset(self, *, seed=None, options=None):
        """Draw the bonus of an episode."""
        super().reset(seed=seed)
        self.t, self.bonus = 0, self.size * self.np_random.standard_normal()
        return self.observation(), {}

    def step(self, action):
        """Reward nearness to the goal, and add the bonus."""
        chosen = (int(action) - 2) / 2 if self.discrete else float(action[0])
        reward = self.bonus - abs(chosen - float(self.goal[0]))
        self.t += 1
        return self.observation(), reward, False, self.t >= STEPS, {}


gymnasium.register('HiddenBonus-v0', HiddenBonus)


class Blind(gymnasium.ObservationWrapper):
    """Removes the bonus from observations."""

    def __init__(self, env):
        super().__init__(env)
        self.observation_space = env.observation_space['goal']

    def observation(self, observation):
        """Return the goal."""
        return observation['goal']
