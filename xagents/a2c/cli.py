"""The options of A2C; loads no TensorFlow."""

from __future__ import annotations

from dataclasses import dataclass

from xagents.options import option
from xagents.settings import AgentOptions


@dataclass
class A2COptions(AgentOptions):
    """Advantage actor-critic."""

    model: str | None = option(None, 'a .cfg of the network; chosen by the environment when not given', metavar='CFG')
    n_steps: int = option(
        5,
        'steps an environment takes before an update; more give less bias and fewer updates',
        at_least=1,
        tune='categorical',
    )
    lam: float = option(
        1.0, 'GAE lambda; larger trusts rewards more than the critic', at_least=0, at_most=1, tune='log_uniform'
    )
    entropy_coef: float = option(
        0.01, 'weight of the entropy bonus; larger explores more', at_least=0, tune='log_uniform'
    )
    value_loss_coef: float = option(0.5, "weight of the critic's loss", at_least=0, tune='log_uniform')
    grad_norm: float = option(0.5, 'largest gradient norm; larger allows larger updates', above=0, tune='log_uniform')
    normalize_advantage: bool = option(False, 'normalise advantages to mean 0 and deviation 1', tune='categorical')
    log_std_init: float = option(
        0.0, 'initial log standard deviation of continuous actions; larger explores more', at_least=-20, at_most=5
    )
