"""The options of DDPG. Does not load TensorFlow."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from xagents.options.agents import OffPolicyOptions
from xagents.options.declaration import network_file, option, positive, weight


@dataclass
class DDPGOptions(OffPolicyOptions):
    """Deep deterministic policy gradient."""

    ranges: ClassVar = {
        'lr': (1e-5, 1e-2),
        'gamma': (0.9, 0.9999),
        'tau': (1e-3, 0.1),
        'buffer_batch_size': (32, 64, 128, 256),
        'buffer_initial_size': (500, 10_000),
        'train_frequency': (1, 4, 16, 64),
        'step_noise_coef': (0.05, 0.5),
        'noise': ('gaussian', 'ornstein-uhlenbeck'),
    }

    actor_model: str | None = network_file(".cfg file of the actor's network; the default depends on the environment")
    critic_model: str | None = network_file(".cfg file of the critic's network; the default depends on the environment")
    noise: str = option(
        'gaussian',
        'exploration noise: independent at every step, or correlated in time',
        choices=('gaussian', 'ornstein-uhlenbeck'),
        tune='categorical',
    )
    step_noise_coef: float = weight(
        0.1, 'scale of the exploration noise, for actions from -1 to 1; larger values explore more'
    )
    tau: float = positive(
        0.005,
        'fraction by which an update of the target networks moves them; larger values are faster and less stable',
        at_most=1,
    )
