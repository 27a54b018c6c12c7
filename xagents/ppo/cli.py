"""The options of PPO; loads no TensorFlow."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from xagents.a2c.cli import ActorCriticOptions
from xagents.options.agents import SDEOptions
from xagents.options.declaration import changed, option


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
    ppo_epochs: int = option(4, 'passes over a rollout; more reuse it more', at_least=1, tune='categorical')
    mini_batches: int = option(
        4, 'minibatches of a pass; more give smaller, noisier steps', at_least=1, tune='categorical'
    )
    minibatch_size: int | None = option(
        None,
        'transitions in a minibatch, instead of --mini-batches; more give fewer, less noisy steps',
        replaces='mini_batches',
        at_least=1,
        tune='categorical',
    )
    advantage_epsilon: float = option(
        1e-8,
        'added to the deviation that advantages are divided by; larger damps small advantages',
        above=0,
        tune='log_uniform',
    )
    clip_norm: float = option(
        0.1, 'clip range of the policy ratio; larger allows larger policy steps', above=0, tune='log_uniform'
    )
    clip_schedule: str = option('constant', 'how the clip range goes to 0', choices=('constant', 'linear', 'cosine'))
    target_kl: float | None = option(
        None, 'end an update once the approximate KL passes it, off when not given; larger ends it later', above=0
    )
    value_clip: float | None = option(
        None, "clip range of the critic's change, off when not given; larger allows larger changes", above=0
    )
