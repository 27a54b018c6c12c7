"""The options of TD3. Does not load TensorFlow."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from xagents.ddpg.cli import DDPGOptions
from xagents.options.declaration import count, weight


@dataclass
class TD3Options(DDPGOptions):
    """Twin delayed deep deterministic policy gradient."""

    ranges: ClassVar = {**DDPGOptions.ranges, 'policy_delay': (1, 2, 4)}

    policy_delay: int = count(
        2,
        'critic updates per update of the policy and the target networks; larger values let the critics converge first',
        tune='categorical',
    )
    policy_noise_coef: float = weight(0.2, 'scale of noise on target actions; larger values smooth the critics more')
    noise_clip: float = weight(0.5, 'limit of the noise on target actions; larger values clip less noise')
