"""PPO under a name of its own; all of it is inherited but one default."""

from dataclasses import dataclass

from xagents import PPO
from xagents.options import changed
from xagents.ppo.cli import PPOOptions


@dataclass
class SteadyOptions(PPOOptions):
    """Those of PPO."""

    clip_schedule: str = changed(PPOOptions, 'clip_schedule', 'linear')


class SteadyPPO(PPO):
    """PPO whose clip range falls to 0."""

    Options = SteadyOptions
