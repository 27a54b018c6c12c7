"""Environments whose infos have numbers that are known."""

import gymnasium
import numpy as np
from gymnasium import spaces
from pettingzoo import ParallelEnv


class Costly(gymnasium.Env):
    """Episodes of `length` steps. Step t costs t, a half-step of odd t is `odd`, and `height` is a number of the state.

    Args:
        length: steps of an episode.
        wrong: a value that is no number, from the second step on; None for none.
    """

    observation_space = spaces.Box(-1, 1, (2,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, length=5, wrong=None):
        self.length, self.wrong = length, wrong

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.age = 0
        return self.observe(), {'cost': 1000.0, 'height': 0}

    def observe(self):
        self.height = float(self.np_random.normal())
        return np.clip(np.array([self.height, self.age / self.length], np.float32), -1, 1)

    def step(self, action):
        self.age += 1
        info = {'cost': self.age, 'height': self.height, 'name': 'costly', 'flag': bool(action)}
        if self.age % 2:
            info['odd'] = np.array([0.5])
        if self.wrong is not None and self.age == 2:
            info['cost'] = np.zeros(3) if self.wrong == 'array' else self.wrong
        return self.observe(), 1.0, False, self.age == self.length, info


class CostlyContinuous(Costly):
    """`Costly` with a continuous action."""

    action_space = spaces.Box(-1, 1, (1,), np.float32)

    def step(self, action):
        return super().step(bool(action[0] > 0))


class CostlyTeam(ParallelEnv):
    """Two agents; agent i pays i + 1 a step, and the first leaves after 3 of 5 steps. The second pays nothing then."""

    metadata = {'name': 'costly_team'}
    possible_agents = ['a', 'b']

    def __init__(self, render_mode=None):
        self.render_mode = render_mode

    def observation_space(self, agent):
        return spaces.Box(-1, 1, (1,), np.float32)

    def action_space(self, agent):
        return spaces.Discrete(2)

    def reset(self, seed=None, options=None):
        self.agents, self.t = list(self.possible_agents), 0
        return {agent: np.zeros(1, np.float32) for agent in self.agents}, {}

    def step(self, actions):
        self.t += 1
        there = self.agents
        infos = {agent: {'cost': self.possible_agents.index(agent) + 1, 'late': self.t > 3} for agent in there}
        terminated = {agent: agent == 'a' and self.t == 3 for agent in there}
        truncated = {agent: self.t == 5 for agent in there}
        self.agents = [agent for agent in there if not (terminated[agent] or truncated[agent])]
        shown = {agent: np.zeros(1, np.float32) for agent in there}
        return shown, dict.fromkeys(there, 1.0), terminated, truncated, infos

    def close(self):
        pass


gymnasium.register('Costly-v0', Costly)
gymnasium.register('CostlyContinuous-v0', CostlyContinuous)


class Levels(gymnasium.Env):
    """Shows its `level`, which also is the reward of each of 3 steps; infos have it, too. `limit` is a method's.

    Args:
        level: the level.
    """

    observation_space = spaces.Box(-100, 100, (2,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, level=0):
        self.level, self._limit, self.n_set = level, 3, 0

    def set_limit(self, limit):
        self._limit, self.n_set = limit, self.n_set + 1

    def show(self):
        return np.array([self.level, self.np_random.normal()], np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.age = 0
        return self.show(), {}

    def step(self, action):
        self.age += 1
        return self.show(), float(self.level), False, self.age >= 3, {'level': self.level, 'is_success': self.level > 1}


gymnasium.register('Levels-v0', Levels)


class Picky(Levels):
    """Attributes of many kinds: `hard` and `text`, which has a method, accept at most 1."""

    def __init__(self):
        super().__init__()
        self.name, self.state, self.flag, self.whole, self.speed = 'picky', np.zeros(3), True, 1, 1.0
        self.text, self._hard = 'easy', 0

    def set_text(self, value):
        if value > 1:
            raise ValueError('text is at most 1\nand more')
        self.text = str(value)

    @property
    def hard(self):
        return self._hard

    @hard.setter
    def hard(self, value):
        if value > 1:
            raise ValueError('hard is at most 1')
        self._hard = value


gymnasium.register('Picky-v0', Picky)
