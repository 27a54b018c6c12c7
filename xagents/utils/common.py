"""Import paths of version 1.0; each name is imported from its present module at first use."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

_MODULES = {
    'ModelReader': 'xagents.networks.models',
    'create_envs': 'xagents.envs.create',
    'plot_history': 'xagents.reports.plotting',
    'write_from_dict': 'xagents.logs.history',
}


def create_agent(agent_id: str, agent_kwargs: Mapping[str, Any], non_agent_kwargs: Mapping[str, Any]) -> Any:
    """Create an agent with the signature of version 1.0; `xagents.make` is the present function.

    Args:
        agent_id: the name of the agent in `xagents.agents`.
        agent_kwargs: options of the agent and the run.
        non_agent_kwargs: options of environments, networks and optimisers, and `weights`.
    """
    from xagents.factory.make import make

    return make(agent_id, **{**non_agent_kwargs, **agent_kwargs})


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f'module {__name__!r} has no attribute {name!r}')
    return getattr(importlib.import_module(_MODULES[name]), name)
