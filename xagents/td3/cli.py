"""The options of TD3. Does not load TensorFlow."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from xagents.ddpg.cli import DDPGOptions
from xagents.options.declaration import option


@dataclass
class TD3Options(DDPGOptions):
    """Twin delayed deep deterministic policy gradient."""

    ranges: ClassVar = {**DDPGOptions.ranges, 'policy_delay': (1, 2, 4)}

    policy_delay: int = option(
        2,
        'critic updates per update of the policy and the target networks; larger values let the critics converge first',
        at_least=1,
        tune='categorical',
    )
    policy_noise_coef: float = option(
        0.2,
        'scale of the noise on target actions; larger values smooth the critics more',
        at_least=0,
        tune='log_uniform',
    )
    noise_clip: float = option(
        0.5,
        'value to which the noise on target actions is clipped; larger values clip less noise',
        at_least=0,
        tune='log_uniform',
    )
