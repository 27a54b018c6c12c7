# ruff: noqa: RUF009 -- option() returns a dataclass field
"""Options of environments and of networks without a file."""

from __future__ import annotations

import dataclasses
from typing import Any

from xagents.options.declaration import Options, choice, count, option

# options that require --net
NET_ONLY_OPTIONS = ('activation', 'initializer')
NO_ENVIRONMENT = "got nothing, expected an id of Gymnasium's, such as CartPole-v1"


@dataclasses.dataclass
class EnvironmentOptions(Options):
    """Options of the environments and their wrappers."""

    env: str | None = option(
        None,
        "the environment: an id of Gymnasium's, module:Id, gym:Id for the old gym, pettingzoo:NAME for several agents",
        metavar='ID',
    )
    n_envs: int = choice(
        1, 'number of parallel environments; larger values give more varied batches', at_most=16384, at_least=1
    )
    preprocess: bool | None = option(None, 'Atari preprocessing; recognised by the environment when not given')
    max_frame: bool = choice(True, 'maximum of two frames (always on where frames are skipped)')
    max_episode_steps: int | None = count(
        None, "time limit of an episode, instead of the environment's own; larger values allow longer episodes"
    )
    env_kwargs: dict | None = option(None, 'arguments of the environment, as key=value …', metavar='KEY=VALUE')
    vector: str = choice('auto', 'how environments run in parallel', choices=('auto', 'sync', 'async', 'envpool'))
    frame_stack: int = choice(4, 'Atari frames in one observation; larger values show more of the past', at_least=1)
    clip_rewards: bool = option(True, 'Atari: learn from the sign of a reward')
    episodic_life: bool = option(True, 'Atari: a lost life ends an episode while training')
    fire_reset: bool = option(True, 'Atari: press FIRE after a reset, if the game has that action')
    sticky_actions: bool = option(False, 'Atari: repeat the last action with probability 0.25')
    wrapper: list[str] | None = option(
        None, 'Gymnasium wrappers around each environment, as module:Class', metavar='MODULE:CLASS'
    )
    agent_index: bool = option(
        False, 'several agents in one environment: add the index of the agent to its observation'
    )

    def create_envs_kwargs(self) -> dict[str, Any]:
        """Return the keyword arguments of `create_envs`."""
        keywords = self.asdict()
        return {**keywords, 'wrapper': keywords['wrapper'] or ()}


@dataclasses.dataclass
class NetworkOptions(Options):
    """Options of a network without a file."""

    net: list[int] | None = count(
        None, 'widths of a dense network, instead of a .cfg; larger can learn more and are slower', metavar='UNITS'
    )
    activation: str | None = choice(
        None, 'activation of --net', choices=('tanh', 'relu', 'elu', 'selu', 'gelu', 'silu', 'sigmoid')
    )
    initializer: str | None = choice(
        None,
        'initial weights of --net: orthogonal with a small head of the policy, or uniform by the number of inputs',
        choices=('orthogonal', 'glorot_uniform', 'fan_in_uniform'),
    )
    shared_network: bool = option(False, 'one trunk for actor and critic, of agents whose network has both heads')
