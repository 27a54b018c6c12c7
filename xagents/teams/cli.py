# ruff: noqa: RUF009 -- option() returns a dataclass field
"""The options of teams: several policies that learn together. Does not load TensorFlow."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from xagents.options.agents import AgentOptions
from xagents.options.declaration import NAME_CHARACTERS, changed, option
from xagents.options.errors import OptionError, format_value

POLICY_FORMAT = 'expected NAME=AGENT:AGENTS, as in hunter=ppo:adversary_*'
# prefixes of other metrics and of other arrays in checkpoints
RESERVED_NAMES: tuple[str, ...] = ('environments', 'env_state', 'evaluate', 'evaluations', 'in_flight', 'loss')
RESERVED_NAMES += ('replay', 'reward', 'seconds', 'stats', 'weights')
# keys of a policy, in addition to the options of its agent
POLICY_KEYS = ('agent', 'agents')


@dataclass
class TeamOptions(AgentOptions):
    """Options of a team; a value applies to each policy that does not set the option itself."""

    # None: each policy uses the default of its own agent
    gamma: float | None = changed(AgentOptions, 'gamma', None)  # type: ignore[assignment]
    lr: float | None = changed(AgentOptions, 'lr', None)  # type: ignore[assignment]
    opt_epsilon: float | None = changed(AgentOptions, 'opt_epsilon', None)  # type: ignore[assignment]
    beta1: float | None = changed(AgentOptions, 'beta1', None)  # type: ignore[assignment]
    beta2: float | None = changed(AgentOptions, 'beta2', None)  # type: ignore[assignment]
    optimizer: str | None = changed(AgentOptions, 'optimizer', None)  # type: ignore[assignment]
    weight_decay: float | None = changed(AgentOptions, 'weight_decay', None)  # type: ignore[assignment]
    lr_schedule: str | None = changed(AgentOptions, 'lr_schedule', None)  # type: ignore[assignment]
    normalize_obs: bool | None = changed(AgentOptions, 'normalize_obs', None)  # type: ignore[assignment]
    normalize_reward: bool | None = changed(AgentOptions, 'normalize_reward', None)  # type: ignore[assignment]
    reward_scale: float | None = changed(AgentOptions, 'reward_scale', None)  # type: ignore[assignment]
    precision: str | None = changed(AgentOptions, 'precision', None)  # type: ignore[assignment]
    policies: dict | None = option(
        None,
        'policies that learn, each with its algorithm and the agents that it controls',
        metavar='NAME=AGENT:AGENTS',
    )

    def complete(self) -> None:
        """Check the policies, and convert each to a dict of `agent`, `agents` and the options of its agent."""
        super().complete()
        for name in self.policies or ():
            if not (isinstance(name, str) and name.isidentifier()) or name in RESERVED_NAMES:
                reserved = ', '.join(RESERVED_NAMES)
                problem = f'got the name {format_value(name)}, expected {NAME_CHARACTERS}, and none of {reserved}'
                raise OptionError('policies', problem)
        if self.policies is not None:
            self.policies = {name: parse_policy(name, spec) for name, spec in self.policies.items()}


def parse_policy(name: str, spec: Any) -> dict[str, Any]:
    """Return a policy as a mapping of `agent` (an id), `agents` (a list of names or patterns) and further options.

    Args:
        name: name of the policy, for messages.
        spec: such a mapping, (agent, agents), or 'agent:agents'; several agents are a list or separated by commas.

    Raises:
        OptionError: if `spec` has another form.
    """
    if isinstance(spec, str):
        agent, _, players = spec.partition(':')
        spec = {'agent': agent, 'agents': players}
    elif isinstance(spec, tuple | list) and len(spec) == 2:
        spec = dict(zip(POLICY_KEYS, spec, strict=True))
    wrong = OptionError('policies', f'{name}: got {format_value(spec)}, {POLICY_FORMAT}')
    if not isinstance(spec, Mapping):
        raise wrong
    policy = {str(key).replace('-', '_'): value for key, value in spec.items()}
    for key in POLICY_KEYS:
        if policy.get(key) in (None, '', [], ()):
            raise OptionError('policies', f'{name}: got no {key}, {POLICY_FORMAT}')
    given: Any = policy['agents']
    agent_names = [given] if isinstance(given, int) else given.split(',') if isinstance(given, str) else given
    if not isinstance(agent_names, tuple | list) or not isinstance(policy['agent'], str):
        raise wrong
    agent_names = [str(agent_name).strip() for agent_name in agent_names]
    if not all(agent_names):
        raise wrong
    return {**policy, 'agents': agent_names}


def policy_text(policy: Mapping[str, Any]) -> str | dict[str, Any]:
    """Return a policy that `parse_policy` has returned as `agent:agents`, or as it is if it has options of its own."""
    return f'{policy["agent"]}:{",".join(policy["agents"])}' if policy.keys() == {*POLICY_KEYS} else dict(policy)


def policy_seed(seed: int, name: str) -> int:
    """Return the default seed of a policy, from the seed of the team and the name of the policy."""
    return int(np.random.SeedSequence([seed, zlib.crc32(name.encode())]).generate_state(1)[0])
