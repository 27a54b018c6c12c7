"""Agents whose update is a line of NumPy, so that nothing compiles, and an environment that does as it is told.

The fixture `small_agents` makes them known as `small` and `small-replay`; the environment is
`tests.small_agents:Trouble-v0`.
"""

from __future__ import annotations

import contextlib
import math
import time
from typing import Any, ClassVar, NamedTuple

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

import xagents
from xagents import DQN, PPO
from xagents.registry import agents as registry
from xagents.registry.parts import REGISTERED_MODULES

ENV = 'tests.small_agents:Trouble-v0'


def changed(agent: Any, batch: dict[str, Any], learning_rate: float) -> dict[str, float]:
    """Change the weights by what was collected and by a draw, or refuse it."""
    seen = sum(float(np.asarray(batch[name], np.float64).mean()) for name in ('rewards', 'observations'))
    if not math.isfinite(seen):
        return {'updates': 0.0, 'stats/refused': 1.0}
    rng = agent.rng('learn')
    weights = agent.model.get_weights()
    agent.model.set_weights([w + np.float32(learning_rate * seen) * rng.random(w.shape, np.float32) for w in weights])
    agent.actor.refresh()
    return {'updates': 1.0, 'stats/refused': 0.0, 'loss/policy': seen}


class Small(PPO):
    """Collects like PPO."""

    def learn(self, batch, schedule):
        return changed(self, batch, schedule['learning_rate'])


class SmallReplay(DQN):
    """Collects and remembers like DQN."""

    def learn(self, batch, schedule):
        return changed(self, batch, schedule['learning_rate'])


class Fault(NamedTuple):
    """What an environment does once.

    Args:
        env: its index.
        step: how many of its steps it has taken then.
        what: 'observation', 'reward' or 'raise'.
        value: what it gives.
    """

    env: int
    step: int
    what: str
    value: float = math.nan


class Trouble(gymnasium.Env):
    """Shows random numbers; its episodes are of random length; a step's reward is its action.

    Args:
        sleep: seconds that a step takes.
    """

    observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float32)
    action_space = spaces.Discrete(2)
    faults: ClassVar[tuple[Fault, ...]] = ()
    made: ClassVar[int] = 0

    def __init__(self, sleep: float = 0.0):
        self.index, self.sleep = Trouble.made, sleep
        Trouble.made += 1
        self.taken = self.age = self.length = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.age, self.length = 0, int(self.np_random.integers(3, 9))
        return self.observation(), {}

    def step(self, action):
        if self.sleep:
            time.sleep(self.sleep)
        self.taken += 1
        self.age += 1
        observation, reward = self.observation(), float(action)
        for fault in self.faults:
            if (fault.env, fault.step) == (self.index, self.taken):
                if fault.what == 'raise':
                    raise ArithmeticError(f'broken at step {self.taken}')
                if fault.what == 'reward':
                    reward = fault.value
                else:
                    observation[1] = fault.value
        return observation, reward, self.age >= self.length, False, {}

    def observation(self):
        return self.np_random.normal(size=2).astype(np.float32)


gymnasium.register('Trouble-v0', f'{__name__}:Trouble', disable_env_checker=True)


@contextlib.contextmanager
def registered():
    """Let both agents be known for a while."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(REGISTERED_MODULES, '')
        patch.setattr(registry.parts, 'registered', {})
        patch.setattr(registry.parts, '_objects', {})
        xagents.register('small')(Small)
        xagents.register('small-replay')(SmallReplay)
        yield


def make(agent_id='small', *faults, **options):
    """Make an agent whose environments have faults."""
    Trouble.made, Trouble.faults = 0, faults
    given = {'n_envs': 3, 'seed': 1, 'net': [4], 'quiet': True}
    if agent_id == 'small':
        given |= {'n_steps': 4, 'mini_batches': 1}
    else:
        given |= {'train_frequency': 12, 'gradient_steps': 2, 'buffer_initial_size': 24, 'buffer_max_size': 120}
    return xagents.make(agent_id, ENV, **{**given, **options})


def on_cartpole(agent_id='small', **options):
    """Make an agent, one of these or another on-policy one, whose environments are known to everybody."""
    return xagents.make(agent_id, 'CartPole-v1', **{'n_envs': 4, 'n_steps': 32, 'seed': 1, 'quiet': True, **options})


def weights(agent):
    """The weights of an agent's first network, to be compared to the bit."""
    return [v.tobytes() for v in agent.output_models[0].get_weights()]
