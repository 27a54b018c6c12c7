"""The options of TD3; loads no TensorFlow."""

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
        "critics' updates for each of the policy and the targets; more let the critics settle first",
        at_least=1,
        tune='categorical',
    )
    policy_noise_coef: float = option(
        0.2,
        "noise on the target policy's actions; a larger one smooths the critics more",
        at_least=0,
        tune='log_uniform',
    )
    noise_clip: float = option(
        0.5, 'largest noise on those actions; a larger one lets rarer noise through', at_least=0, tune='log_uniform'
    )
