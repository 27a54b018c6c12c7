"""The options of TRPO. Does not load TensorFlow."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from xagents.options.agents import OnPolicyOptions, SDEOptions
from xagents.options.declaration import changed, network_file, positive, tuned_count, weight
from xagents.ppo.cli import PPOOptions


@dataclass
class TRPOOptions(SDEOptions, OnPolicyOptions):
    """Trust region policy optimisation."""

    ranges: ClassVar = {
        'n_envs': (1, 2, 4, 8),
        'n_steps': (128, 256, 512, 1024, 2048),
        'max_kl': (1e-3, 0.05),
        'cg_damping': (1e-3, 0.2),
        'lr': (1e-4, 1e-2),
        'critic_iterations': (3, 20),
        'gamma': (0.9, 0.9999),
        'lam': (0.8, 1.0),
        'normalize_obs': (False, True),
        'normalize_reward': (False, True),
    }

    actor_model: str | None = network_file(".cfg file of the policy's network; the default depends on the environment")
    critic_model: str | None = network_file(".cfg file of the critic's network; the default depends on the environment")
    lr: float = changed(
        OnPolicyOptions, 'lr', 7e-4, help='learning rate of the critic; larger values learn faster and less stably'
    )
    n_steps: int = changed(OnPolicyOptions, 'n_steps', 512)
    normalize_advantage: bool = changed(OnPolicyOptions, 'normalize_advantage', True)
    advantage_epsilon: float = changed(PPOOptions, 'advantage_epsilon', 1e-8)
    max_kl: float = positive(1e-3, 'δ, the largest mean KL divergence of an update; larger values allow larger steps')
    cg_damping: float = weight(1e-3, 'added to the diagonal of the Fisher matrix; larger values give shorter steps')
    cg_residual_tolerance: float = weight(
        1e-10, 'squared residual at which conjugate gradient stops; larger values stop sooner'
    )
    cg_iterations: int = tuned_count(
        10, 'iterations of conjugate gradient; larger values approximate the natural gradient better and take longer'
    )
    fvp_n_steps: int = tuned_count(
        5, 'number of transitions of which one is used for the Fisher matrix; larger values are faster and less exact'
    )
    actor_iterations: int = tuned_count(
        10, 'largest number of step sizes that the line search tries; larger values allow smaller steps'
    )
    critic_iterations: int = tuned_count(
        3, 'passes of the critic over each rollout; larger values fit the critic more closely'
    )
    mini_batches: int = changed(PPOOptions, 'mini_batches', 4)
    minibatch_size: int | None = changed(PPOOptions, 'minibatch_size', None)
    entropy_coef: float = changed(
        OnPolicyOptions, 'entropy_coef', 0.0, ignored=True, help='without effect: TRPO has no entropy bonus'
    )
    value_loss_coef: float = changed(
        OnPolicyOptions, 'value_loss_coef', 0.5, ignored=True, help='without effect: the critic is trained separately'
    )
    grad_norm: float = changed(OnPolicyOptions, 'grad_norm', 0.5, ignored=True, help='without effect: see --max-kl')
    clip_norm: float = changed(PPOOptions, 'clip_norm', 0.1, ignored=True, help='without effect: see --max-kl')
    ppo_epochs: int = changed(PPOOptions, 'ppo_epochs', 4, ignored=True, help='without effect: see --critic-iterations')
