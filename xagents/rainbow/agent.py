"""Rainbow (Hessel et al. 2018, arXiv:1710.02298): DQN with six extensions."""

from __future__ import annotations

from xagents.dqn.agent import DQN
from xagents.rainbow.cli import RainbowOptions


class Rainbow(DQN):
    """Rainbow: DQN with double, dueling, prioritized, n-step and distributional values, and a noisy network.

    Each extension is an option of DQN with another default. The distribution consists of quantiles, which need no
    bounds of the return; `distribution='categorical'` selects that of the paper.

    Args:
        envs: as for DQN.
        model: as for DQN; by default it is noisy and returns [advantages [B, n K], value [B, K]].
        buffers: as for DQN.
        options: `RainbowOptions` and `RunOptions`.
    """

    Options = RainbowOptions
    options: RainbowOptions
