"""The options of PPO. Does not load TensorFlow."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from xagents.a2c.cli import ActorCriticOptions
from xagents.options.agents import SDEOptions
from xagents.options.declaration import changed, count, option, positive, schedule
from xagents.options.rules import Rule, Rules

whole_sequences = Rule(
    'sequence_length',
    lambda o: o.sequence_length is not None and o.n_steps % o.sequence_length,
    'got {o.sequence_length}, expected a divisor of the {o.n_steps} of --n-steps',
)


@dataclass
class PPOOptions(SDEOptions, ActorCriticOptions):
    """Proximal policy optimisation."""

    ranges: ClassVar = {
        'n_envs': (1, 4, 8, 16),
        'n_steps': (32, 64, 128, 256, 512, 1024, 2048),
        'mini_batches': (1, 2, 4, 8, 16, 32),
        'ppo_epochs': (3, 4, 5, 10, 20),
        'lr': (1e-5, 1e-2),
        'gamma': (0.9, 0.9999),
        'lam': (0.8, 1.0),
        'clip_norm': (0.05, 0.4),
        'entropy_coef': (1e-5, 0.1),
        'grad_norm': (0.3, 5.0),
        'normalize_obs': (False, True),
        'normalize_reward': (False, True),
    }

    n_steps: int = changed(ActorCriticOptions, 'n_steps', 128)
    lam: float = changed(ActorCriticOptions, 'lam', 0.95)
    normalize_advantage: bool = changed(ActorCriticOptions, 'normalize_advantage', True)
    ppo_epochs: int = count(4, 'passes over each rollout; larger values reuse it more often', tune='categorical')
    mini_batches: int = count(4, 'minibatches per pass; larger values give more, noisier steps', tune='categorical')
    minibatch_size: int | None = count(
        None,
        'transitions per minibatch, instead of --mini-batches; larger values give fewer, less noisy steps',
        replaces='mini_batches',
        tune='categorical',
    )
    sequence_length: int | None = count(
        None,
        '--memory: steps of a sequence, through which gradients pass (default: --n-steps); larger values remember '
        'longer and give fewer sequences',
        tune='categorical',
    )
    advantage_epsilon: float = positive(
        1e-8, 'added to the standard deviation when advantages are normalised; larger values damp small advantages'
    )
    clip_norm: float = positive(
        0.1, 'clip range of the policy ratio, not of gradients; larger values allow larger policy steps'
    )
    clip_schedule: str = schedule('course of the clip range: constant, or down to 0 along a line or a cosine')
    target_kl: float | None = option(
        None,
        'approximate KL divergence that ends the passes over a rollout (default: none); larger values end them later',
        above=0,
    )
    value_clip: float | None = option(
        None, 'clip range of value changes (default: no clipping); larger values allow larger changes', above=0
    )

    has_memory = True
    memory_options: ClassVar = ('sequence_length',)
    rules: ClassVar[Rules] = (whole_sequences,)
