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
class Network:
    """One network of an agent.

    Args:
        label: what messages call it.
        option: the option that names its .cfg.
        outputs: names of its outputs, whose sizes the agent knows.
        output_activation: of `--net`'s outputs.
        takes_actions: whether it sees actions beside observations.
    """

    label: str
    option: str
    outputs: tuple[str, ...]
    output_activation: str = 'linear'
    takes_actions: bool = False


@dataclasses.dataclass(frozen=True)
class Variant:
    """Another form of an agent's networks, which a switch chooses: files with its name in theirs.

    Args:
        option: the switch.
        outputs: names of the outputs; the network's own when not given.
    """

    option: str
    outputs: tuple[str, ...] | None = None

    @property
    def name(self) -> str:
        """What stands in the files' names."""
        return self.option.removesuffix('_network')


@dataclasses.dataclass(frozen=True)
class Entry(Mapping):
    """One agent; also a mapping, as in 1.0: `agent`, `module`, and `model`, `{'ann': [cfg, …], 'cnn': [cfg, …]}`.

    Args:
        id: what is typed.
        class_name: its class in `xagents.<id>.agent`; its options are `<class_name>Options` in `xagents.<id>.cli`.
        networks: in the order of `--checkpoints`.
        help: one line for the usage page.
        variant: another form of its networks.
        activation: of `--net`'s layers.
        initializer: likewise.
    """

    id: str
    class_name: str
    networks: tuple[Network, ...]
    help: str
    variant: Variant | None = None
    activation: str = 'tanh'
    initializer: str = 'orthogonal'

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

    @property
    def labels(self) -> tuple[str, ...]:
        """What its networks are called, in the order of `--checkpoints`."""
        return tuple(network.label for network in self.networks)

    @property
    def models(self) -> tuple[str, ...]:
        """The options that name its networks' files."""
        return tuple(dict.fromkeys(network.option for network in self.networks))

    def files(self, model: str) -> dict[str, list[str]]:
        """Return the shipped .cfg files of one model, the default of each kind first and the variant's last."""
        folder = Path(__file__).parent / self.id / 'models'
        role = model.removesuffix('model').rstrip('_')
        found = {
            kind: [p for p in folder.glob(f'{kind}*.cfg') if role in p.stem.split('-')[1:] or not role]
            for kind in KINDS
        }
        other = self.variant.name if self.variant else None
        return {
            k: sorted(map(str, paths), key=lambda p: (other in Path(p).stem.split('-'), p))
            for k, paths in found.items()
        }

    def __getitem__(self, key: str) -> Any:
        if key in ('agent', 'module'):
            return getattr(self, key)
        if key in self.models:
            return self.files(key)
        raise KeyError(key)

    def __iter__(self) -> Iterator[str]:
        return iter(('agent', 'module', *self.models))

    def __len__(self) -> int:
        return 2 + len(self.models)


KINDS = ('ann', 'cnn')
_ACTOR_CRITIC = (Network('model', 'model', ('actor', 'critic')),)
_SHARED = Variant('shared_network')
_ACTOR = Network('actor', 'actor_model', ('actor',), output_activation='tanh')


def _critic(label: str) -> Network:
    return Network(label, 'critic_model', ('critic',), takes_actions=True)


agents: dict[str, Entry] = {
    entry.id: entry
    for entry in (
        Entry('a2c', 'A2C', _ACTOR_CRITIC, 'advantage actor-critic: the simplest on-policy agent', _SHARED),
        Entry(
            'acer',
            'ACER',
            (Network('model', 'model', ('actor', 'q')),),
            'actor-critic with experience replay: discrete actions, fewer steps than A2C',
            _SHARED,
        ),
        Entry(
            'ddpg',
            'DDPG',
            (_ACTOR, _critic('critic')),
            'deep deterministic policy gradient: continuous actions, few steps',
            activation='relu',
            initializer='fan_in_uniform',
        ),
        Entry(
            'dqn',
            'DQN',
            (Network('model', 'model', ('q',)),),
            'deep Q-network: discrete actions, few steps',
            Variant('dueling', ('advantage', 'value')),
            activation='relu',
            initializer='fan_in_uniform',
        ),
        Entry('ppo', 'PPO', _ACTOR_CRITIC, 'proximal policy optimisation: start with this one', _SHARED),
        Entry(
            'td3',
            'TD3',
            (_ACTOR, _critic('critic 1'), _critic('critic 2')),
            'twin delayed DDPG: continuous actions, few steps, steadier than DDPG',
            activation='relu',
            initializer='fan_in_uniform',
        ),
        Entry(
            'trpo',
            'TRPO',
            (Network('actor', 'actor_model', ('actor',)), Network('critic', 'critic_model', ('critic',))),
            'trust region policy optimisation: steady steps, on-policy',
        ),
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
