"""The options of A2C. Does not load TensorFlow."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from xagents.options.agents import OnPolicyOptions, SDEOptions
from xagents.options.declaration import choice, network_file


@dataclass
class ActorCriticOptions(OnPolicyOptions):
    """Options of agents with one network of two heads."""

    model: str | None = network_file('.cfg file of the network; the default depends on the environment')


@dataclass
class A2COptions(SDEOptions, ActorCriticOptions):
    """Advantage actor-critic."""

    has_memory = True

    ranges: ClassVar = {
        'n_envs': (1, 4, 8, 16),
        'n_steps': (5, 8, 16, 32, 64, 128),
        'lr': (1e-5, 1e-2),
        'gamma': (0.9, 0.9999),
        'lam': (0.8, 1.0),
        'entropy_coef': (1e-5, 0.1),
        'grad_norm': (0.3, 5.0),
        'normalize_advantage': (False, True),
        'normalize_obs': (False, True),
        'normalize_reward': (False, True),
    }

    v_trace: bool = choice(False, 'correct for rollouts of an older policy (V-trace); required by --overlap')
