"""The options of CrossQ. Does not load TensorFlow."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from xagents.options.agents import OffPolicyOptions
from xagents.options.declaration import changed
from xagents.sac.cli import SACOptions
from xagents.td3.cli import TD3Options


@dataclass
class CrossQOptions(SACOptions):
    """SAC with batch normalisation and without target networks."""

    ranges: ClassVar = {
        **{name: r for name, r in SACOptions.ranges.items() if name != 'tau'},
        'policy_delay': (1, 2, 3, 4),
    }

    tau: float = changed(
        SACOptions, 'tau', 0.005, ignored=True, tune=None, help='without effect: CrossQ has no target networks'
    )
    lr: float = changed(OffPolicyOptions, 'lr', 1e-3)
    beta1: float = changed(OffPolicyOptions, 'beta1', 0.5)
    policy_delay: int = changed(
        TD3Options,
        'policy_delay',
        3,
        help='critic updates per update of the policy; larger values let the critics converge first',
    )
