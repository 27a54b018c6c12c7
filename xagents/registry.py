"""Which agents there are; loads no TensorFlow until an agent itself is asked for."""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from xagents.options import OptionError, nearest
from xagents.settings import AgentOptions


@dataclasses.dataclass(frozen=True)
class Entry(Mapping):
    """One agent; also a mapping, as in 1.0: `agent`, `module`, and `model`, `{'ann': [cfg, …], 'cnn': [cfg, …]}`.

    Args:
        id: what is typed.
        class_name: its class in `xagents.<id>.agent`; its options are `<class_name>Options` in `xagents.<id>.cli`.
        models: names of its networks in the order of `--checkpoints`.
        help: one line for the usage page.
    """

    id: str
    class_name: str
    models: tuple[str, ...]
    help: str

    @property
    def module(self) -> Any:
        """The agent's package, with its `cli` loaded."""
        importlib.import_module(f'xagents.{self.id}.cli')
        return importlib.import_module(f'xagents.{self.id}')

    @property
    def options(self) -> type[AgentOptions]:
        """The dataclass of its options."""
        return getattr(importlib.import_module(f'xagents.{self.id}.cli'), f'{self.class_name}Options')

    @property
    def agent(self) -> Any:
        """The agent's class; importing it loads TensorFlow."""
        return getattr(importlib.import_module(f'xagents.{self.id}.agent'), self.class_name)

    def networks(self, model: str) -> dict[str, list[str]]:
        """Return the shipped .cfg files of one model, the default of each kind first."""
        folder = Path(__file__).parent / self.id / 'models'
        prefix = {'model': ''}.get(model, model.removesuffix('_model') + '-')
        return {
            kind: sorted(map(str, folder.glob(f'{kind}-{prefix}*.cfg')), key=lambda path: ('shared' in path, path))
            for kind in ('ann', 'cnn')
        }

    def __getitem__(self, key: str) -> Any:
        if key in ('agent', 'module'):
            return getattr(self, key)
        if key in self.models:
            return self.networks(key)
        raise KeyError(key)

    def __iter__(self) -> Iterator[str]:
        return iter(('agent', 'module', *self.models))

    def __len__(self) -> int:
        return 2 + len(self.models)


agents: dict[str, Entry] = {
    entry.id: entry
    for entry in (
        Entry('a2c', 'A2C', ('model',), 'advantage actor-critic: the simplest on-policy agent'),
        Entry('ppo', 'PPO', ('model',), 'proximal policy optimisation: start with this one'),
    )
}


def find_agent(agent_id: str) -> Entry:
    """Return an agent's entry.

    Raises:
        OptionError: where there is no such agent; names the nearest one.
    """
    if agent_id not in agents:
        hint = nearest(agent_id.lower(), agents)
        raise OptionError('agent', f'got {agent_id}, admits one of {", ".join(agents)}{hint}')
    return agents[agent_id]
