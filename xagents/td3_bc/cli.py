"""The options of TD3+BC. Does not load TensorFlow."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from xagents.options.declaration import changed, weight
from xagents.td3.cli import TD3Options


@dataclass
class TD3BCOptions(TD3Options):
    """TD3 with behaviour cloning."""

    ranges: ClassVar = {
        'lr': (1e-5, 1e-3),
        'gamma': (0.9, 0.9999),
        'tau': (1e-3, 0.1),
        'buffer_batch_size': (64, 128, 256, 512),
        'alpha': (0.1, 10.0),
        'policy_noise_coef': (0.05, 0.5),
        'policy_delay': (1, 2, 4),
    }

    alpha: float = weight(2.5, 'weight of the critic relative to imitation; larger values move further from the data')
    lr: float = changed(TD3Options, 'lr', 3e-4)
    buffer_batch_size: int = changed(TD3Options, 'buffer_batch_size', 256)
    normalize_obs: bool = changed(TD3Options, 'normalize_obs', True)
