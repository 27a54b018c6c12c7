"""The options of Rainbow. Does not load TensorFlow."""

from __future__ import annotations

from dataclasses import dataclass

from xagents.dqn.cli import DQNOptions
from xagents.options.declaration import changed


@dataclass
class RainbowOptions(DQNOptions):
    """Rainbow: the options of DQN, with its extensions on."""

    double: bool = changed(DQNOptions, 'double', True)
    dueling: bool = changed(DQNOptions, 'dueling', True)
    prioritized: bool = changed(DQNOptions, 'prioritized', True)
    n_step: int = changed(DQNOptions, 'n_step', 3)
    distribution: str | None = changed(DQNOptions, 'distribution', 'quantile')
    noisy: bool = changed(DQNOptions, 'noisy', True)
