"""The options of PQN. Does not load TensorFlow."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from xagents.dqn.cli import DQNOptions
from xagents.options.agents import AgentOptions, OnPolicyOptions
from xagents.options.declaration import changed, count, tuned_fraction
from xagents.options.rules import Rules
from xagents.ppo.cli import PPOOptions, whole_sequences


@dataclass
class PQNOptions(AgentOptions):
    """Parallelised Q-network."""

    ranges: ClassVar = {
        'n_envs': (1, 4, 8, 16),
        'n_steps': (16, 32, 64, 128),
        'mini_batches': (1, 2, 4, 8, 16),
        'epochs': (1, 2, 4, 8),
        'lr': (1e-5, 1e-2),
        'gamma': (0.9, 0.9999),
        'lam': (0.3, 0.99),
        'epsilon_end': (0.001, 0.2),
        'epsilon_decay_steps': (10_000, 500_000),
    }

    model: str | None = changed(DQNOptions, 'model', None)
    lr: float = changed(AgentOptions, 'lr', 2.5e-4)
    n_steps: int = changed(OnPolicyOptions, 'n_steps', 32)
    lam: float = changed(
        OnPolicyOptions, 'lam', 0.65, help='lambda of the returns; larger values rely more on rewards than on values'
    )
    epochs: int = count(4, 'passes over each rollout; larger values reuse it more often', tune='categorical')
    mini_batches: int = changed(PPOOptions, 'mini_batches', 4)
    minibatch_size: int | None = changed(PPOOptions, 'minibatch_size', None)
    sequence_length: int | None = changed(PPOOptions, 'sequence_length', None)
    grad_norm: float = changed(DQNOptions, 'grad_norm', 10.0)
    epsilon_start: float = tuned_fraction(1.0, 'initial probability of a random action; larger values explore more')
    epsilon_end: float = tuned_fraction(0.05, 'probability of a random action after decay; larger values explore more')
    epsilon_decay_steps: int = changed(DQNOptions, 'epsilon_decay_steps', 250_000)

    has_memory = True
    memory_options: ClassVar = ('sequence_length',)
    rules: ClassVar[Rules] = (whole_sequences,)
