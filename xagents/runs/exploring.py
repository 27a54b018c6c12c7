"""A run with explorers: its collector lets other processes step the environments, as long as the run lasts."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from xagents.collecting.explorer import Explorer
from xagents.explorers.local import local_fleet
from xagents.networks.plan import NetworkPlan
from xagents.options.declaration import describe
from xagents.options.environment import EnvironmentOptions
from xagents.options.errors import OptionError
from xagents.runs.learner import Learner
from xagents.runs.run import Run

# bytes of a message beside twice those of observations: copies of environments, mostly
ROOM = 256 * 2**20


def check_explorers(agent: Learner, n_explorers: int | None) -> None:
    """Check, before a run, that an agent's collecting can be divided among explorers.

    Raises:
        OptionError: naming `explorers`, in one line.
    """
    if n_explorers is None:
        return
    if n_explorers > agent.envs.n_envs:
        raise OptionError('explorers', f'got {n_explorers}, admits 1 to {agent.envs.n_envs}, one for each environment')
    if not agent.envs.can_be_divided:
        raise OptionError(
            'explorers', f"{agent.envs.id} is one vector of environments: make them by their name, with vector='sync'"
        )
    specification(agent)


def specification(agent: Learner) -> dict[str, Any]:
    """Return what every explorer of an agent is told: environments, policy and network; see `explorers.work`.

    Raises:
        OptionError: where they cannot be told.
    """
    created = {name: value for name, value in agent.origin.creation.items() if name in describe(EnvironmentOptions)}
    if not isinstance(created.get('env'), str):
        raise OptionError('explorers', f'{agent.envs.id} was handed over: explorers make environments by their name')
    known = describe(EnvironmentOptions).keys() - {'n_envs', 'vector'}
    untold = [name for name in agent.origin.untold if name in known]
    if untold:
        raise OptionError('explorers', f'{", ".join(untold)} cannot be told to other processes: numbers and texts can')
    policy, network = agent.acting.record(), agent.acting.network
    plan: NetworkPlan | None = getattr(network, 'plan', None)
    if policy is None or plan is None or not agent.acting.alone:
        raise OptionError('explorers', f'the policy of {agent.id} has no plan (docs/policy.md), by which explorers act')
    return {
        'environment': EnvironmentOptions.resolve(created).creation(),
        'policy': policy,
        'network': plan.record(),
        'alike': getattr(network, 'alike', True) or plan.differs,
        'normalizes': agent.statistics.observations is not None,
    }


@contextlib.contextmanager
def exploring(run: Run) -> Iterator[None]:
    """Let explorers collect for a run, where it asks for some; afterwards the environments stand where theirs did."""
    n_explorers, agent = run.options.explorers, run.agent
    if n_explorers is None:
        yield
        return
    collector, n_envs = agent.collector, agent.envs.n_envs
    home = collector.explorer
    assert isinstance(home, Explorer)
    row = agent.envs.observation_space
    largest = ROOM + 2 * n_envs * (getattr(agent, 'n_steps', 1) + 1) * int(np.prod(row.shape)) * row.dtype.itemsize
    with local_fleet(specification(agent), n_envs, n_explorers, home, agent.streams, min(largest, 2**31 - 1)) as fleet:
        collector.explorer = fleet
        try:
            yield
        finally:
            try:
                fleet.hand_back()
            finally:
                collector.explorer = home
