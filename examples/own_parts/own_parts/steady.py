"""PPO with another name and another default of one option."""

from dataclasses import dataclass

from xagents import PPO
from xagents.options import changed
from xagents.ppo.cli import PPOOptions


@dataclass
class SteadyOptions(PPOOptions):
    """The options of PPO, with a linear schedule of the clip range."""

    clip_schedule: str = changed(PPOOptions, 'clip_schedule', 'linear')


class SteadyPPO(PPO):
    """PPO whose clip range decreases to 0."""

    Options = SteadyOptions
