"""Environments of several agents whose answers are known."""

import numpy as np
from gymnasium import spaces
from pettingzoo import ParallelEnv


class OwnNumber(ParallelEnv):
    """Every agent is paid for playing its own number, and sees nothing; the second one leaves after 3 of 8 steps.

    The best returns are 8, 3 and 8: a mean of 19 / 3. Who cannot tell the agents apart gets 8 at most: 8 / 3.
    """

    metadata = {'name': 'own_number'}
    possible_agents = ['a_0', 'a_1', 'a_2']

    def __init__(self, render_mode=None):
        self.render_mode = render_mode

    def observation_space(self, agent):
        return spaces.Box(-1, 1, (1,), np.float32)

    def action_space(self, agent):
        return spaces.Discrete(3)

    def reset(self, seed=None, options=None):
        self.agents, self.t = list(self.possible_agents), 0
        return self._seen(self.agents), {}

    def _seen(self, agents):
        return {agent: np.zeros(1, np.float32) for agent in agents}

    def step(self, actions):
        self.t += 1
        there = self.agents
        assert sorted(actions) == sorted(there)
        rewards = {agent: float(actions[agent] == int(agent[-1])) for agent in there}
        terminated = {agent: agent == 'a_1' and self.t == 3 for agent in there}
        truncated = {agent: self.t == 8 for agent in there}
        self.agents = [agent for agent in there if not (terminated[agent] or truncated[agent])]
        return self._seen(there), rewards, terminated, truncated, {agent: {} for agent in there}

    def render(self):
        return np.zeros((8, 8, 3), np.uint8)

    def close(self):
        pass


class Leaving(ParallelEnv):
    """Shows the step, the agent's number and a random one; agent i leaves after i + 2 steps, with i + 1 a step.

    The last agent is cut off after 5 steps, where it would go on.
    """

    metadata = {'name': 'leaving', 'render_fps': 7}
    possible_agents = ['x', 'y', 'z', 'w']

    def __init__(self, render_mode=None, image=False, continuous=False):
        self.render_mode, self.image, self.continuous = render_mode, image, continuous
        self.rng = np.random.default_rng(0)

    def observation_space(self, agent):
        if self.image:
            return spaces.Box(0, 255, (40, 40, 3), np.uint8)
        return spaces.Box(-np.inf, np.inf, (3,), np.float32)

    def action_space(self, agent):
        return spaces.Box(-2, 2, (2,), np.float32) if self.continuous else spaces.Discrete(2)

    def reset(self, seed=None, options=None):
        if seed is not None:
            self.rng = np.random.default_rng(seed)
        self.agents, self.t = list(self.possible_agents), 0
        return self._seen(self.agents), {}

    def _seen(self, agents):
        seen = {a: [self.t, self.possible_agents.index(a), self.rng.random()] for a in agents}
        if self.image:
            return {a: np.full((40, 40, 3), s, np.uint8) for a, s in seen.items()}
        return {a: np.array(s, np.float32) for a, s in seen.items()}

    def step(self, actions):
        assert set(actions) == set(self.agents)
        for agent, action in actions.items():
            assert self.action_space(agent).contains(action), action
        self.t += 1
        there = self.agents
        number = self.possible_agents.index
        rewards = {a: number(a) + 1.0 for a in there}
        terminated = {a: number(a) < 3 and self.t == number(a) + 2 for a in there}
        truncated = {a: number(a) == 3 and self.t == 5 for a in there}
        infos = {a: {'is_success': number(a) == 1} if terminated[a] else {} for a in there}
        self.agents = [a for a in there if not (terminated[a] or truncated[a])]
        return self._seen(there), rewards, terminated, truncated, infos

    def render(self):
        return np.full((16, 16, 3), self.t, np.uint8)

    def close(self):
        pass


class Different(Leaving):
    """One of its agents sees more."""

    def observation_space(self, agent):
        return spaces.Box(-1, 1, (3 + (agent == 'z'),), np.float32)


class Late(Leaving):
    """Begins without its last agent."""

    def reset(self, seed=None, options=None):
        seen, infos = super().reset(seed, options)
        self.agents.remove('w')
        del seen['w']
        return seen, infos


class Returning(Leaving):
    """Its first agent is away for the third step, and comes back for the fifth, or in the step in which it leaves."""

    possible_agents = ['x', 'y']

    def __init__(self, back=4):
        super().__init__()
        self.back = back

    def step(self, actions):
        assert set(actions) == set(self.agents)
        self.t += 1
        there = self.agents
        gone = {a: a == 'x' and self.t == 2 for a in there}
        cut = {a: self.t == 7 for a in there}
        after = [a for a in there if not (gone[a] or cut[a])] + (['x'] if self.t == self.back else [])
        self.agents = after
        return self._seen({*there, *after}), dict.fromkeys(there, 1.0), gone, cut, {}


class Undrawn(OwnNumber):
    """Draws no pictures."""

    def __init__(self):
        super().__init__()


class Silent(OwnNumber):
    """Its agents are gone after 5 steps, without a word."""

    def step(self, actions):
        seen, rewards, *_flags, _infos = super().step(actions)
        no = dict.fromkeys(rewards, False)
        self.agents = [] if self.t == 5 else list(self.possible_agents)
        return seen, rewards, no, no, None


class Alone(OwnNumber):
    """Has one agent."""

    possible_agents = ['a_0']


class Nobody(OwnNumber):
    """Has none."""

    possible_agents = []


class Walks(ParallelEnv):
    """Each agent walks on a line of its own for 8 steps, and is paid for its place; nothing is drawn at random."""

    metadata = {'name': 'walks'}

    def __init__(self, agents=('a', 'b'), render_mode=None):
        self.possible_agents, self.render_mode = list(agents), render_mode

    def observation_space(self, agent):
        return spaces.Box(-8, 8, (2,), np.float32)

    def action_space(self, agent):
        return spaces.Discrete(2)

    def reset(self, seed=None, options=None):
        self.agents, self.t, self.at = list(self.possible_agents), 0, dict.fromkeys(self.possible_agents, 0)
        return self._seen(), {}

    def _seen(self):
        return {agent: np.array([self.at[agent], self.t], np.float32) for agent in self.agents}

    def step(self, actions):
        self.t += 1
        for agent, action in actions.items():
            self.at[agent] += 2 * int(action) - 1
        seen, over = self._seen(), self.t == 8
        each = dict.fromkeys(self.agents)
        rewards = {agent: float(self.at[agent]) for agent in each}
        self.agents = [] if over else self.agents
        return seen, rewards, dict.fromkeys(each, False), dict.fromkeys(each, over), {agent: {} for agent in each}

    def close(self):
        pass


class Unlike(Walks):
    """Two agents of three kinds of spaces: the last one sees more, and acts by numbers."""

    def __init__(self, render_mode=None):
        super().__init__(('a_0', 'a_1', 'z'), render_mode)

    def observation_space(self, agent):
        return spaces.Box(-8, 8, (3 if agent == 'z' else 2,), np.float32)

    def action_space(self, agent):
        return spaces.Box(-1, 1, (1,), np.float32) if agent == 'z' else spaces.Discrete(2)

    def _seen(self):
        return {a: np.array([self.at[a], self.t, 1][: 3 if a == 'z' else 2], np.float32) for a in self.agents}

    def step(self, actions):
        for agent, action in actions.items():
            assert self.action_space(agent).contains(action), (agent, action)
        return super().step({agent: np.ravel(action)[0] > 0 for agent, action in actions.items()})
