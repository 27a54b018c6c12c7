"""1.0's import paths; each name lives elsewhere and is loaded when it is used."""

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
    """Make an agent as 1.0 did, by its name in `xagents.agents`; `xagents.make` is the shorter way.

    `agent_kwargs` are options of the agent and the run, the others those of environments, networks and optimisers, and
    `weights`.
    """
    from xagents.factory.make import make

    return make(agent_id, **{**non_agent_kwargs, **agent_kwargs})


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f'module {__name__!r} has no attribute {name!r}')
    return getattr(importlib.import_module(_HOMES[name]), name)
