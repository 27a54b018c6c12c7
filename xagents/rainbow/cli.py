"""The options of Rainbow. Does not load TensorFlow."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from xagents.dqn.cli import DQNOptions
from xagents.options.declaration import changed


@dataclass
class RainbowOptions(DQNOptions):
    """Rainbow: the options of DQN, with its extensions on."""

    # without random actions, as in the paper
    ranges: ClassVar = {name: r for name, r in DQNOptions.ranges.items() if not name.startswith('epsilon')}

    double: bool = changed(DQNOptions, 'double', True)
    dueling: bool = changed(DQNOptions, 'dueling', True)
    prioritized: bool = changed(DQNOptions, 'prioritized', True)
    n_step: int = changed(DQNOptions, 'n_step', 3)
    distribution: str | None = changed(DQNOptions, 'distribution', 'quantile')
    noisy: bool = changed(DQNOptions, 'noisy', True)
    epsilon_end: float = changed(DQNOptions, 'epsilon_end', 0.0)
