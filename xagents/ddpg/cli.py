"""The options of DDPG; loads no TensorFlow."""

from __future__ import annotations

from dataclasses import dataclass

from xagents.options import option
from xagents.settings import OffPolicyOptions


@dataclass
class DDPGOptions(OffPolicyOptions):
    """Deep deterministic policy gradient."""

    actor_model: str | None = option(
        None, "a .cfg of the actor's network; chosen by the environment when not given", metavar='CFG'
    )
    critic_model: str | None = option(
        None, "a .cfg of the critic's network; chosen by the environment when not given", metavar='CFG'
    )
    noise: str = option(
        'gaussian',
        'exploration noise: drawn anew at every step, or drifting',
        choices=('gaussian', 'ornstein-uhlenbeck'),
        tune='categorical',
    )
    step_noise_coef: float = option(
        0.1,
        'exploration noise, actions going from -1 to 1; a larger one explores more',
        at_least=0,
        tune='log_uniform',
    )
    tau: float = option(
        0.005,
        'fraction by which target networks move at an update; a larger one is faster and less steady',
        above=0,
        at_most=1,
        tune='log_uniform',
    )
