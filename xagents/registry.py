"""Which agents there are; loads no TensorFlow until an agent itself is asked for."""

from __future__ import annotations

import dataclasses
import importlib
import importlib.util
import sys
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
    """One agent, wherever its code stands; also a mapping, as in 1.0.

    Its keys are `agent`, `module`, and of `model`, `actor_model` and `critic_model` those that the agent has, each
    `{'ann': [cfg, …], 'cnn': [cfg, …]}`.

    Args:
        id: what is typed.
        home: its class, or `module:Class`, which is imported when the class is asked for.
        networks: in the order of `--checkpoints`.
        help: one line for the usage page.
        variant: another form of its networks.
        activation: of `--net`'s layers.
        initializer: likewise.
        declaration: the dataclass of its options, or `module:Class`; its class's `Options` when not given.
        folder: the package whose `models/` has the shipped .cfg files of its networks; none when not given.
        origin: the distribution that it comes with, for messages.
    """

    id: str
    home: str | type
    networks: tuple[Network, ...]
    help: str
    variant: Variant | None = None
    activation: str = 'tanh'
    initializer: str = 'orthogonal'
    declaration: str | type = ''
    folder: str = ''
    origin: str = 'xagents'

    @classmethod
    def like(cls, model: str | Entry, id: str, home: str | type, help: str, **others: Any) -> Entry:
        """Return an agent's entry that has what another one has.

        Args:
            model: the other one, or its id: networks, their files and options are its own where nothing else is said.
            id: what is typed.
            home: the agent's class, or `module:Class`.
            help: one line for the usage page.
            others: further fields.
        """
        known = find_agent(model) if isinstance(model, str) else model
        return dataclasses.replace(known, **{'origin': '', **others, 'id': id, 'home': home, 'help': help})

    @property
    def module(self) -> Any:
        """The agent's package, with what declares its options loaded."""
        if isinstance(self.home, str):
            assert self.options  # loads its module
        place = self.home.partition(':')[0] if isinstance(self.home, str) else self.home.__module__
        return importlib.import_module(place.rpartition('.')[0] or place)

    @property
    def options(self) -> type[AgentOptions]:
        """The dataclass of its options."""
        return self._at(self.declaration) if self.declaration else self.agent.Options

    @property
    def agent(self) -> Any:
        """The agent's class; importing it loads TensorFlow."""
        agent = self._at(self.home)
        if self.declaration and agent.Options is not self.options:
            declared = f'{self.options.__name__}, its class {agent.Options.__name__}'
            raise OptionError(
                'agent', f'{self.id} of {self.origin} has the options {declared}; admits the same in both'
            )
        return agent

    @property
    def class_name(self) -> str:
        """The name of the agent's class."""
        return self.home.rpartition(':')[2] if isinstance(self.home, str) else self.home.__name__

    def is_of(self, agent: type) -> bool:
        """Return whether a class is the agent's; loads nothing."""
        if not isinstance(self.home, str):
            return self.home is agent
        module, _, name = self.home.partition(':')
        return (module, name) == (agent.__module__, agent.__qualname__) or (
            getattr(sys.modules.get(module), name, None) is agent
        )

    def _at(self, place: str | type) -> Any:
        """What `module:Class` names; what is another package's and cannot be loaded is told in one line."""
        if not isinstance(place, str):
            return place
        module, _, name = place.partition(':')
        try:
            return getattr(importlib.import_module(module), name)
        except Exception as error:
            if self.origin == 'xagents':
                raise
            raise OptionError('agent', f'{self.id} of {self.origin} cannot be loaded: {told(error)}') from error

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
        role = model.removesuffix('model').rstrip('_')
        found = {
            kind: [p for p in self._shipped(f'{kind}*.cfg') if role in p.stem.split('-')[1:] or not role]
            for kind in KINDS
        }
        other = self.variant.name if self.variant else None
        return {
            k: sorted(map(str, paths), key=lambda p: (other in Path(p).stem.split('-'), p))
            for k, paths in found.items()
        }

    def _shipped(self, pattern: str) -> list[Path]:
        found = importlib.util.find_spec(self.folder) if self.folder else None
        places = (found.submodule_search_locations or []) if found else []
        return [path for place in places for path in (Path(place) / 'models').glob(pattern)]

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


def _ours(id: str, class_name: str, networks: tuple[Network, ...], help: str, *more: Any, **others: Any) -> Entry:
    """An agent of this package: each stands in a folder of its own, in the same way."""
    fields = {'declaration': f'xagents.{id}.cli:{class_name}Options', 'folder': f'xagents.{id}', **others}
    return Entry(id, f'xagents.{id}.agent:{class_name}', networks, help, *more, **fields)


OURS: dict[str, Entry] = {
    entry.id: entry
    for entry in (
        _ours('a2c', 'A2C', _ACTOR_CRITIC, 'advantage actor-critic: the simplest on-policy agent', _SHARED),
        _ours(
            'acer',
            'ACER',
            (Network('model', 'model', ('actor', 'q')),),
            'actor-critic with experience replay: discrete actions, fewer steps than A2C',
            _SHARED,
        ),
        _ours(
            'ddpg',
            'DDPG',
            (_ACTOR, _critic('critic')),
            'deep deterministic policy gradient: continuous actions, few steps',
            activation='relu',
            initializer='fan_in_uniform',
        ),
        _ours(
            'dqn',
            'DQN',
            (Network('model', 'model', ('q',)),),
            'deep Q-network: discrete actions, few steps',
            Variant('dueling', ('advantage', 'value')),
            activation='relu',
            initializer='fan_in_uniform',
        ),
        _ours('ppo', 'PPO', _ACTOR_CRITIC, 'proximal policy optimisation: start with this one', _SHARED),
        _ours(
            'td3',
            'TD3',
            (_ACTOR, _critic('critic 1'), _critic('critic 2')),
            'twin delayed DDPG: continuous actions, few steps, steadier than DDPG',
            activation='relu',
            initializer='fan_in_uniform',
        ),
        _ours(
            'trpo',
            'TRPO',
            (Network('actor', 'actor_model', ('actor',)), Network('critic', 'critic_model', ('critic',))),
            'trust region policy optimisation: steady steps, on-policy',
        ),
    )
}


class Agents(Mapping[str, Entry]):
    """Every agent by its id.

    A look-up also finds those that installed packages name. A loop goes over those that are known without loading
    anybody's package: ours, and those that were registered in this process or have been looked up.
    """

    def __getitem__(self, id: str) -> Entry:
        entry = _found(id)
        if entry is None:
            raise KeyError(id)
        return entry

    def __contains__(self, id: object) -> bool:
        """Return whether there is such an agent, and it can be loaded."""
        try:
            return isinstance(id, str) and _found(id) is not None
        except OptionError:
            return False

    def __iter__(self) -> Iterator[str]:
        from xagents import extensions

        return iter((*OURS, *sorted(extensions.agents.known)))

    def __len__(self) -> int:
        return sum(1 for _ in self)


agents = Agents()


def _found(id: str) -> Entry | None:
    if id in OURS:
        return OURS[id]
    from xagents import extensions

    return extensions.agents.find(id)


def find_agent(agent_id: str) -> Entry:
    """Return an agent's entry.

    Raises:
        OptionError: where there is no such agent, naming the nearest one, or the package that has it is broken.
    """
    entry = _found(agent_id)
    if entry is None:
        known = names()
        raise OptionError(
            'agent', f'got {agent_id}, admits one of {", ".join(known)}{nearest(agent_id.lower(), known)}'
        )
    return entry


def names() -> list[str]:
    """Return the id of every agent, also of those in installed packages, ours first; loads no package."""
    from xagents import extensions

    return [*OURS, *extensions.agents.names()]


def listed() -> dict[str, str]:
    """Return a line of help for every agent by its id, ours first.

    An agent whose entry point names its class is told by its package's summary, because loading a class loads
    TensorFlow; one that cannot be loaded by why it cannot.
    """
    from xagents import extensions

    return {**{id: entry.help for id, entry in OURS.items()}, **extensions.listed_agents()}


def entry_of(agent: type) -> Entry | None:
    """Return the entry of an agent's class; None where it is not registered."""
    from xagents import extensions

    known = (*OURS.values(), *extensions.agents.known.values())
    found = next((entry for entry in known if entry.is_of(agent)), None)
    return found or extensions.entry_in_package_of(agent)


def id_of(agent: type) -> str:
    """Return what an agent of a class is called in what it saves: its id, or its name where it is not registered."""
    entry = entry_of(agent)
    return entry.id if entry else agent.__name__.lower()


def told(error: BaseException) -> str:
    """Return what somebody's package raised, on one line."""
    return ' '.join(f'{type(error).__name__}: {error}'.split())[:300]
