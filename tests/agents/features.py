"""Features of observations and actions: an environment that has each, and the agents that support it."""

from __future__ import annotations

import dataclasses

import pytest

import xagents
from tests.agents.contract import CASES


@dataclasses.dataclass(frozen=True)
class Feature:
    """A feature, the environment that has it, and the agents that support it.

    Args:
        env: id of the environment, or of one environment for each agent that needs another one.
        agents: ids of the agents.
        env_kwargs: arguments of the environment.
        options: options of the agents.
        recorder: agent that records the data set for agents that learn from one.
        has_images: whether networks have convolutions.
        of_agents: further options of an agent, by its id.
        has_explorers: whether explorers can step the environments.
        has_overlap: whether agents can collect one iteration ahead.
    """

    env: str
    agents: tuple[str, ...]
    env_kwargs: dict = dataclasses.field(default_factory=dict)
    options: dict = dataclasses.field(default_factory=dict)
    recorder: str = 'ppo'
    has_images: bool = False
    of_agents: dict = dataclasses.field(default_factory=dict)
    has_explorers: bool = True
    has_overlap: bool = True

    @property
    def has_memory(self):
        """Whether agents have recurrent layers."""
        return 'memory' in self.options

    def make(self, agent_id, **options):
        """Make a small agent."""
        case = CASES[agent_id]
        known = {'env': self.env, 'env_kwargs': self.env_kwargs}
        source = {'n_envs': 3}
        if case.offline:
            source = {'dataset': self.record(), 'eval_frequency': 1000}
        defaults = {'net': [8], 'seed': 1, 'quiet': True, 'opt_epsilon': 1e-3, **case.options}
        return xagents.make(
            agent_id, **{**known, **source, **defaults, **self.options, **self.of_agents.get(agent_id, {}), **options}
        )

    def record(self):
        """Record a data set from the environment and return its name."""
        pytest.importorskip('minari')
        name = f'{self.env.rpartition(":")[2].lower().replace("-v0", "")}-{len(str(self.env_kwargs))}-v0'
        if name not in RECORDED:
            RECORDED.add(name)
            options = {'net': [8], 'seed': 1, **self.options}
            agent = xagents.make(self.recorder, self.env, env_kwargs=self.env_kwargs, **options)
            xagents.record(agent, name, episodes=10, random_actions=0.5, seed=1, say=lambda line: None)
        return name


RECORDED: set[str] = set()
MASKED = 'tests.masked_problems:TwoLegal-v0'
MIXED = 'tests.mixed_problems:Mixed-v0'
PICTURES = 'tests.picture_problems:TwoClues-v0'
NIM = 'pettingzoo:tests.game_problems:Nim'
ANYTHING = 'tests.problems:Anything-v0'
HIDDEN = 'tests.privileged_problems:HiddenBonus-v0'
CRITIC_ONLY = {'critic_only': ['bonus']}
MEMORY = {'memory': 4}
FUNCTIONS = 'tests.functional_problems:'
COMPILED = {'vector': 'compiled', 'normalize_obs': True}
FEATURES = {
    'masks': Feature(
        MASKED, ('a2c', 'acer', 'bc', 'dqn', 'ppo', 'pqn', 'rainbow', 'sac', 'trpo'), {'n': 5}, recorder='dqn'
    ),
    'critic-only': Feature(
        HIDDEN,
        ('a2c', 'bc', 'crossq', 'ddpg', 'iql', 'ppo', 'sac', 'td3', 'td3-bc', 'tqc', 'trpo'),
        options=CRITIC_ONLY,
    ),
    'critic-only, discrete': Feature(HIDDEN, ('acer', 'sac'), {'discrete': True}, CRITIC_ONLY),
    'images beside vectors': Feature(
        PICTURES,
        ('a2c', 'acer', 'bc', 'dqn', 'ppo', 'pqn', 'rainbow', 'sac', 'trpo'),
        {'mask': True},
        {'net': None, 'frame_stack': 2, 'normalize_obs': True},
        recorder='dqn',
        has_images=True,
    ),
    'images beside vectors, continuous': Feature(
        PICTURES,
        ('crossq', 'ddpg', 'iql', 'sac', 'td3', 'td3-bc', 'tqc'),
        {'continuous': True},
        {'net': None, 'frame_stack': 2},
        recorder='td3',
        has_images=True,
    ),
    'mixed actions': Feature(MIXED, ('a2c', 'bc', 'ppo', 'trpo'), {'nesting': 'nested'}),
    'binary actions': Feature(ANYTHING, ('a2c', 'bc', 'ppo', 'trpo'), {'actions': 'binary'}),
    'games': Feature(
        NIM,
        ('a2c', 'acer', 'dqn', 'ppo', 'pqn', 'rainbow', 'sac', 'trpo'),
        {'toll': -0.25},
        {'self_play': True, 'snapshot_frequency': 20, 'pool': 3, 'normalize_obs': True},
        has_overlap=False,
    ),
    'memory': Feature(MASKED, ('a2c', 'dqn', 'ppo', 'pqn'), {'n': 5}, MEMORY),
    'memory, lstm, for actor and critic': Feature(
        HIDDEN, ('a2c', 'ppo'), {}, {**CRITIC_ONLY, 'memory': 4, 'memory_kind': 'lstm'}
    ),
    'memory with images': Feature(
        PICTURES,
        ('a2c', 'dqn', 'ppo', 'pqn'),
        {'mask': True},
        {**MEMORY, 'net': None, 'frame_stack': 2, 'normalize_obs': True},
        has_images=True,
    ),
    'memory with mixed actions': Feature(MIXED, ('a2c', 'ppo'), {'nesting': 'nested'}, {'memory': 4}),
    'compiled, with masks': Feature(
        f'{FUNCTIONS}TwoLegal',
        ('a2c', 'acer', 'dqn', 'ppo', 'pqn', 'rainbow', 'sac', 'trpo'),
        options=COMPILED,
        has_explorers=False,
    ),
    'compiled, continuous': Feature(
        f'{FUNCTIONS}Target',
        ('a2c', 'crossq', 'ddpg', 'ppo', 'sac', 'td3', 'tqc', 'trpo'),
        options=COMPILED,
        has_explorers=False,
    ),
    'compiled, with mixed actions': Feature(f'{FUNCTIONS}Mixed', ('ppo',), options=COMPILED, has_explorers=False),
    'compiled, with memory': Feature(
        f'{FUNCTIONS}TwoLegal', ('dqn', 'ppo'), options={**COMPILED, **MEMORY}, has_explorers=False
    ),
}
for feature in FEATURES.values():
    if feature.has_memory:  # sequences of replay are short, and not prioritized
        feature.of_agents['dqn'] = {'sequence_length': 3, 'burn_in': 2, 'prioritized': False, 'n_step': 1}
