"""The options of IQL. Does not load TensorFlow."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from xagents.ddpg.cli import DDPGOptions
from xagents.options.agents import OffPolicyOptions, OnPolicyOptions
from xagents.options.declaration import changed, network_file, positive, weight


@dataclass
class IQLOptions(OffPolicyOptions):
    """Implicit Q-learning."""

    ranges: ClassVar = {
        'lr': (1e-5, 1e-3),
        'gamma': (0.9, 0.9999),
        'tau': (1e-3, 0.1),
        'buffer_batch_size': (64, 128, 256, 512),
        'expectile': (0.6, 0.95),
        'inverse_temperature': (0.5, 10.0),
        'normalize_obs': (False, True),
    }

    actor_model: str | None = changed(DDPGOptions, 'actor_model', None)
    critic_model: str | None = changed(DDPGOptions, 'critic_model', None)
    value_model: str | None = network_file('.cfg file of the value network; the default depends on the environment')
    expectile: float = positive(
        0.7,
        'τ, expectile of action values that defines a state value; larger values approach the best action of the data',
        below=1,
    )
    inverse_temperature: float = weight(
        3.0, 'β, weight of advantages in imitation; larger values imitate good actions more, 0 imitates all equally'
    )
    max_weight: float = positive(100.0, 'largest imitation weight; larger values let single actions count more')
    tau: float = changed(DDPGOptions, 'tau', 0.005)
    lr: float = changed(OffPolicyOptions, 'lr', 3e-4)
    buffer_batch_size: int = changed(OffPolicyOptions, 'buffer_batch_size', 256)
    log_std_init: float = changed(OnPolicyOptions, 'log_std_init', 0.0)
