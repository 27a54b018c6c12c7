"""Import paths of version 1.0. Each name is imported from its present module on first use."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

_HOMES = {
    'ModelReader': 'xagents.networks.models',
    'create_envs': 'xagents.envs.create',
    'plot_history': 'xagents.reports.plotting',
    'write_from_dict': 'xagents.logs.history',
}


def create_agent(agent_id: str, agent_kwargs: Mapping[str, Any], non_agent_kwargs: Mapping[str, Any]) -> Any:
    """Make an agent with the signature of version 1.0. New code uses the shorter `xagents.make`.

    Args:
        agent_id: the agent's id, a key of `xagents.agents`.
        agent_kwargs: options of the agent and the run.
        non_agent_kwargs: options of environments, networks and optimisers, and `weights`.

    Returns:
        The agent, as `xagents.make` returns it.
    """
    from xagents.factory.make import make

    return make(agent_id, **{**non_agent_kwargs, **agent_kwargs})


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f'module {__name__!r} has no attribute {name!r}')
    return getattr(importlib.import_module(_HOMES[name]), name)
