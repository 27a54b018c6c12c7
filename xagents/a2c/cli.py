"""The options of A2C; loads no TensorFlow."""

from __future__ import annotations

from dataclasses import dataclass

from xagents.options import option
from xagents.settings import OnPolicyOptions


@dataclass
class A2COptions(OnPolicyOptions):
    """Advantage actor-critic."""

    model: str | None = option(None, 'a .cfg of the network; chosen by the environment when not given', metavar='CFG')
