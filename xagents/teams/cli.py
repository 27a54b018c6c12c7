# ruff: noqa: RUF009 -- option() makes a dataclass field, which is what stands there
"""The options of several policies that learn together; loads no TensorFlow."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from xagents.options.agents import AgentOptions
from xagents.options.declaration import changed, option
from xagents.options.errors import OptionError, format_value

POLICY_FORMAT = 'expected NAME=AGENT:AGENTS, as in hunter=ppo:adversary_*'
# what stands before the names of other metrics, and of what checkpoints hold
RESERVED_NAMES = (
    'environments',
    'evaluate',
    'evaluations',
    'in_flight',
    'loss',
    'replay',
    'reward',
    'seconds',
    'stats',
    'weights',
)
# keys of a policy, in addition to the options of its agent
POLICY_KEYS = ('agent', 'agents')


@dataclass
class TeamOptions(AgentOptions):
    """Several policies in one environment; what is said of all of them stands for each that says nothing else."""

    # nothing is said of all where the policies' agents have defaults of their own
    gamma: float | None = changed(AgentOptions, 'gamma', None)  # type: ignore[assignment]
    lr: float | None = changed(AgentOptions, 'lr', None)  # type: ignore[assignment]
    opt_epsilon: float | None = changed(AgentOptions, 'opt_epsilon', None)  # type: ignore[assignment]
    beta1: float | None = changed(AgentOptions, 'beta1', None)  # type: ignore[assignment]
    beta2: float | None = changed(AgentOptions, 'beta2', None)  # type: ignore[assignment]
    optimizer: str | None = changed(AgentOptions, 'optimizer', None)  # type: ignore[assignment]
    lr_schedule: str | None = changed(AgentOptions, 'lr_schedule', None)  # type: ignore[assignment]
    normalize_obs: bool | None = changed(AgentOptions, 'normalize_obs', None)  # type: ignore[assignment]
    normalize_reward: bool | None = changed(AgentOptions, 'normalize_reward', None)  # type: ignore[assignment]
    reward_scale: float | None = changed(AgentOptions, 'reward_scale', None)  # type: ignore[assignment]
    precision: str | None = changed(AgentOptions, 'precision', None)  # type: ignore[assignment]
    policies: dict | None = option(
        None, 'which policies learn, by which agent and for which players', metavar='NAME=AGENT:PLAYERS'
    )

    def check(self) -> None:
        """Let each policy be a mapping of `agent`, `agents` and the options of its agent."""
        super().check()
        for name in self.policies or ():
            if not (isinstance(name, str) and name.isidentifier()) or name in RESERVED_NAMES:
                reserved = ', '.join(RESERVED_NAMES)
                problem = f'got the name {format_value(name)}, expected letters, digits and _, and none of {reserved}'
                raise OptionError('policies', problem)
        if self.policies is not None:
            self.policies = {name: parse_policy(name, spec) for name, spec in self.policies.items()}


def parse_policy(name: str, spec: Any) -> dict[str, Any]:
    """Return a policy as a mapping of `agent` (an id), `agents` (a list of names or patterns) and further options.

    Args:
        name: of the policy, for messages.
        spec: such a mapping, (agent, agents), or 'agent:agents'; several agents are a list, or parted by commas.

    Raises:
        OptionError: for anything else.
    """
    if isinstance(spec, str):
        agent, _, players = spec.partition(':')
        spec = {'agent': agent, 'agents': players}
    elif isinstance(spec, tuple | list) and len(spec) == 2:
        spec = dict(zip(POLICY_KEYS, spec, strict=True))
    if not isinstance(spec, Mapping):
        raise OptionError('policies', f'{name}: got {format_value(spec)}, {POLICY_FORMAT}')
    policy = {str(key).replace('-', '_'): value for key, value in spec.items()}
    for key in POLICY_KEYS:
        if policy.get(key) in (None, '', [], ()):
            raise OptionError('policies', f'{name}: got no {key}, {POLICY_FORMAT}')
    given: Any = policy['agents']
    agent_names = [given] if isinstance(given, int) else given.split(',') if isinstance(given, str) else given
    if not isinstance(agent_names, tuple | list) or not isinstance(policy['agent'], str):
        raise OptionError('policies', f'{name}: got {format_value(spec)}, {POLICY_FORMAT}')
    agent_names = [str(agent_name).strip() for agent_name in agent_names]
    if not all(agent_names):
        raise OptionError('policies', f'{name}: got {format_value(spec)}, {POLICY_FORMAT}')
    return {**policy, 'agents': agent_names}


def policy_seed(seed: int, name: str) -> int:
    """Return the seed of a policy that was given none of its own."""
    return int(np.random.SeedSequence([seed, zlib.crc32(name.encode())]).generate_state(1)[0])
