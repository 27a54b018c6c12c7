"""Games in which agents take turns, and whose best moves are known."""

import numpy as np
from gymnasium import spaces
from pettingzoo import AECEnv
from pettingzoo.utils.agent_selector import AgentSelector

PILE = 7


class Nim(AECEnv):
    """Two players take one, two or three stones in turn. Who takes the last stone wins; piles of 4 and 8 are lost.

    Args:
        pile: number of stones.
        masked: whether observations have an action mask; otherwise infos have it.
        unequal: whether the second player has another action space.
        key: the key of the mask.
        toll: what a player receives for each move of the other one that does not end the game.
    """

    metadata = {'name': 'nim', 'is_parallelizable': False, 'render_modes': []}

    def __init__(self, pile=PILE, masked=True, unequal=False, key='action_mask', toll=0, render_mode=None):
        super().__init__()
        self.size, self.masked, self.key, self.toll, self.render_mode = pile, masked, key, toll, render_mode
        self.possible_agents = ['first', 'second']
        pile_seen = spaces.Box(0, 1, (pile + 1,), np.int8)
        seen = spaces.Dict({'observation': pile_seen, key: spaces.Box(0, 1, (3,), np.int8)}) if masked else pile_seen
        self.observation_spaces = dict.fromkeys(self.possible_agents, seen)
        self.action_spaces = dict.fromkeys(self.possible_agents, spaces.Discrete(3))
        if unequal:
            self.action_spaces['second'] = spaces.Discrete(4)

    def observation_space(self, agent):
        return self.observation_spaces[agent]

    def action_space(self, agent):
        return self.action_spaces[agent]

    def mask(self):
        return (np.arange(1, 4) <= self.pile).astype(np.int8)

    def observe(self, agent):
        seen = np.eye(self.size + 1, dtype=np.int8)[self.pile]
        return {'observation': seen, self.key: self.mask()} if self.masked else seen

    def reset(self, seed=None, options=None):
        self.agents = list(self.possible_agents)
        self.pile, self.moves = self.size, []
        self.rewards = dict.fromkeys(self.agents, 0)
        self._cumulative_rewards = dict.fromkeys(self.agents, 0)
        self.terminations, self.truncations = dict.fromkeys(self.agents, False), dict.fromkeys(self.agents, False)
        self.infos = {agent: {} if self.masked else {self.key: self.mask()} for agent in self.agents}
        self.selector = AgentSelector(self.agents)
        self.agent_selection = self.selector.next()

    def step(self, action):
        agent = self.agent_selection
        assert self.mask()[action], f'{action} is illegal with {self.pile} stones'
        self.moves.append((agent, int(action) + 1))
        self.pile -= int(action) + 1
        self.rewards = {one: 0 if one == agent else self.toll for one in self.agents}
        if not self.pile:
            self.rewards = {one: 1 if one == agent else -1 for one in self.agents}
            self.terminations = dict.fromkeys(self.agents, True)
        if not self.masked:
            self.infos = {one: {self.key: self.mask()} for one in self.agents}
        self.agent_selection = self.selector.next()

    def close(self):
        pass
