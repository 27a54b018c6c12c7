"""Three agents in an environment with negligible cost: `pettingzoo:benchmarks.envs.cheap`.

Shapes and time limit are those of simple_spread. Observations are rows of a table. An agent gets a reward for the
action that the first number of its observation encodes.
"""

from typing import Any

import numpy as np
from gymnasium import spaces
from pettingzoo import ParallelEnv

AGENTS, ACTIONS, WIDTH, CYCLES, EPISODES = 3, 5, 18, 25, 16


class Cheap(ParallelEnv):
    """The environment."""

    metadata = {'name': 'cheap', 'render_modes': []}

    def __init__(self, render_mode: str | None = None) -> None:
        self.render_mode = render_mode
        self.possible_agents = [f'agent_{number}' for number in range(AGENTS)]
        self.agents = list(self.possible_agents)
        self._seen = spaces.Box(-1, 1, (WIDTH,), np.float32)
        self._actions = spaces.Discrete(ACTIONS)
        rng = np.random.default_rng(0)
        table = rng.uniform(-1, 1, (EPISODES, CYCLES + 1, AGENTS, WIDTH)).astype(np.float32)
        wanted = np.minimum((table[..., 0] + 1) / 2 * ACTIONS, ACTIONS - 1).astype(int).tolist()
        # all observations are made here, so that a step only looks them up
        names = self.possible_agents
        self._table = [[dict(zip(names, row, strict=True)) for row in episode] for episode in table]
        self._wanted = [[dict(zip(names, row, strict=True)) for row in episode] for episode in wanted]
        self._episode, self._cycle = 0, 0

    def observation_space(self, agent: str) -> spaces.Box:
        """Return the observation space of an agent."""
        return self._seen

    def action_space(self, agent: str) -> spaces.Discrete:
        """Return the action space of an agent."""
        return self._actions

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[dict, dict]:
        """Start the next episode of the table, or the one with the number `seed`."""
        self._episode = (self._episode + 1 if seed is None else seed) % EPISODES
        self._cycle, self.agents = 0, list(self.possible_agents)
        return dict(self._table[self._episode][0]), {agent: {} for agent in self.agents}

    def step(self, actions: dict[str, Any]) -> tuple[dict, dict, dict, dict, dict]:
        """Reward each agent with the wanted action."""
        wanted, there = self._wanted[self._episode][self._cycle], self.agents
        rewards = {agent: float(actions[agent] == wanted[agent]) for agent in there}
        self._cycle += 1
        over = self._cycle == CYCLES
        seen = dict(self._table[self._episode][self._cycle])
        if over:
            self.agents = []
        return seen, rewards, dict.fromkeys(there, False), dict.fromkeys(there, over), {agent: {} for agent in there}


parallel_env = Cheap
