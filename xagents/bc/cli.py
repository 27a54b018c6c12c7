"""The options of behaviour cloning. Does not load TensorFlow."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from xagents.a2c.cli import ActorCriticOptions
from xagents.options.agents import AgentOptions, OffPolicyOptions, OnPolicyOptions
from xagents.options.declaration import changed

NO_REWARDS = 'without effect: behaviour cloning does not use rewards'


@dataclass
class BCOptions(AgentOptions):
    """Behaviour cloning."""

    datasets = 'only'

    ranges: ClassVar = {'lr': (1e-5, 1e-2), 'buffer_batch_size': (64, 128, 256, 512), 'normalize_obs': (False, True)}

    model: str | None = changed(ActorCriticOptions, 'model', None)
    lr: float = changed(AgentOptions, 'lr', 1e-3)
    buffer_batch_size: int = changed(OffPolicyOptions, 'buffer_batch_size', 256)
    grad_norm: float = changed(OnPolicyOptions, 'grad_norm', 10.0)
    log_std_init: float = changed(OnPolicyOptions, 'log_std_init', 0.0)
    gamma: float = changed(AgentOptions, 'gamma', 0.99, ignored=True, help=NO_REWARDS)
    normalize_reward: bool = changed(AgentOptions, 'normalize_reward', False, ignored=True, help=NO_REWARDS)
    reward_scale: float = changed(AgentOptions, 'reward_scale', 1.0, ignored=True, help=NO_REWARDS)
