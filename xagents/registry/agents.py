"""Which agents there are; loads no TensorFlow until an agent itself is asked for."""

from __future__ import annotations

import dataclasses
import importlib
import importlib.util
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from xagents.options.agents import AgentOptions
from xagents.options.commands import EvaluateOptions, ExportOptions, PlayOptions, TuneOptions
from xagents.options.declaration import Option, declared_options
from xagents.options.environment import EnvironmentOptions, NetworkOptions
from xagents.options.errors import OptionError, did_you_mean, error_line
from xagents.options.runs import RunOptions, SessionOptions, TrainOptions
from xagents.options.settings import options_in_groups
from xagents.registry.parts import PartRegistry

T = TypeVar('T')


@dataclasses.dataclass(frozen=True)
class NetworkRole:
    """One network of an agent.

    `label` is what messages call it, `option` names its .cfg. The agent knows the sizes of its `outputs`;
    `output_activation` is that of `--net`'s. `takes_actions` is true if its input has actions and observations.
    """

    label: str
    option: str
    outputs: tuple[str, ...]
    output_activation: str = 'linear'
    takes_actions: bool = False

    @property
    def signature(self) -> tuple[tuple[str, ...], bool]:
        """What it makes of what: networks of one kind may have each other's weights."""
        return self.outputs, self.takes_actions


@dataclasses.dataclass(frozen=True)
class Variant:
    """Another form of an agent's networks, which the switch `option` chooses: files with its name in theirs.

    Its outputs are the network's own when not given.
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
        class_or_path: its class, or `module:Class`, which is imported when the class is asked for.
        networks: in the order of `--checkpoints`.
        help: one line for the usage page.
        variant: another form of its networks.
        activation: of `--net`'s layers.
        initializer: likewise.
        declaration: the dataclass of its options, or `module:Class`; its class's `Options` when not given.
        folder: the package whose `models/` has the shipped .cfg files of its networks; none when not given.
        distribution: the distribution that it comes with, for messages.
    """

    id: str
    class_or_path: str | type
    networks: tuple[NetworkRole, ...]
    help: str
    variant: Variant | None = None
    activation: str = 'tanh'
    initializer: str = 'orthogonal'
    declaration: str | type = ''
    folder: str = ''
    distribution: str = 'xagents'

    @classmethod
    def derived_from(cls, model: str | Entry, id: str, class_or_path: str | type, help: str, **others: Any) -> Entry:
        """Return an entry that has what another agent's, given as such or by id, has where nothing else is said."""
        known = find_agent(model) if isinstance(model, str) else model
        return dataclasses.replace(
            known, **{'distribution': '', **others, 'id': id, 'class_or_path': class_or_path, 'help': help}
        )

    @property
    def module(self) -> Any:
        """The agent's package, with what declares its options loaded."""
        if isinstance(self.class_or_path, str):
            assert self.options  # loads its module
        location = (
            self.class_or_path.partition(':')[0]
            if isinstance(self.class_or_path, str)
            else self.class_or_path.__module__
        )
        return importlib.import_module(location.rpartition('.')[0] or location)

    @property
    def options(self) -> type[AgentOptions]:
        """The dataclass of its options."""
        return self._import(self.declaration) if self.declaration else self.agent.Options

    def options_in(self, *groups: str) -> dict[str, Option]:
        """Return the options of some groups by name; see `xagents.options.settings.GROUPS`."""
        return options_in_groups(self.options, *groups)

    @property
    def agent(self) -> Any:
        """The agent's class; importing it loads TensorFlow."""
        agent = self._import(self.class_or_path)
        if self.declaration and agent.Options is not self.options:
            declared = f'{self.options.__name__}, its class {agent.Options.__name__}'
            problem = f'{self.id} of {self.distribution} has the options {declared}; expected the same in both'
            raise OptionError('agent', problem)
        return agent

    @property
    def class_name(self) -> str:
        """The name of the agent's class."""
        return (
            self.class_or_path.rpartition(':')[2]
            if isinstance(self.class_or_path, str)
            else self.class_or_path.__name__
        )

    def has_class(self, agent: type) -> bool:
        """Return whether a class is the agent's; loads nothing."""
        if not isinstance(self.class_or_path, str):
            return self.class_or_path is agent
        module, _, name = self.class_or_path.partition(':')
        return (module, name) == (agent.__module__, agent.__qualname__) or (
            getattr(sys.modules.get(module), name, None) is agent
        )

    def _import(self, location: str | type) -> Any:
        """What `module:Class` names."""
        if not isinstance(location, str):
            return location
        module, _, name = location.partition(':')
        try:
            return getattr(importlib.import_module(module), name)
        except Exception as error:
            if self.distribution == 'xagents':
                raise
            raise OptionError(
                'agent', f'{self.id} of {self.distribution} cannot be loaded: {error_line(error)}'
            ) from error

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
        spec = importlib.util.find_spec(self.folder) if self.folder else None
        places = (spec.submodule_search_locations or []) if spec else []
        shipped = [path for location in places for path in (Path(location) / 'models').glob('*.cfg')]
        role, other = model.removesuffix('model').rstrip('_'), self.variant.name if self.variant else None
        ours = sorted(
            (other in words, str(path), path.stem)
            for path in shipped
            if role in (words := path.stem.split('-'))[1:] or not role
        )
        return {kind: [path for _, path, stem in ours if stem.startswith(kind)] for kind in NETWORK_KINDS}

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


NETWORK_KINDS = ('ann', 'cnn')
_ACTOR_CRITIC = (NetworkRole('model', 'model', ('actor', 'critic')),)
_ACTOR_Q = (NetworkRole('model', 'model', ('actor', 'q')),)
_ACTOR_AND_CRITIC = (
    NetworkRole('actor', 'actor_model', ('actor',)),
    NetworkRole('critic', 'critic_model', ('critic',)),
)
_Q = (NetworkRole('model', 'model', ('q',)),)
_ACTOR = NetworkRole('actor', 'actor_model', ('actor',), output_activation='tanh')
_CRITIC = NetworkRole('critic', 'critic_model', ('critic',), takes_actions=True)
_DDPG = (_ACTOR, _CRITIC)
_TD3 = (_ACTOR, *(dataclasses.replace(_CRITIC, label=f'critic {i}') for i in (1, 2)))
_IQL = (*_TD3, NetworkRole('value', 'value_model', ('value',)))
_SHARED, _DUELING = Variant('shared_network'), Variant('dueling', ('advantage', 'value'))


def _builtin_entry(
    id: str, class_name: str, networks: tuple[NetworkRole, ...], help: str, *more: Any, **others: Any
) -> Entry:
    package_name = f'xagents.{id.replace("-", "_")}'
    fields = {'declaration': f'{package_name}.cli:{class_name}Options', 'folder': package_name, **others}
    return Entry(id, f'{package_name}.agent:{class_name}', networks, help, *more, **fields)


_OFF_POLICY = {'activation': 'relu', 'initializer': 'fan_in_uniform'}
_BUILTIN_ENTRIES = (
    _builtin_entry('a2c', 'A2C', _ACTOR_CRITIC, 'advantage actor-critic: the simplest on-policy agent', _SHARED),
    _builtin_entry(
        'acer', 'ACER', _ACTOR_Q, 'actor-critic with experience replay: discrete actions, fewer steps than A2C', _SHARED
    ),
    _builtin_entry('bc', 'BC', _ACTOR_CRITIC, 'behaviour cloning: imitates the actions of a data set', _SHARED),
    _builtin_entry(
        'ddpg', 'DDPG', _DDPG, 'deep deterministic policy gradient: continuous actions, few steps', **_OFF_POLICY
    ),
    _builtin_entry('dqn', 'DQN', _Q, 'deep Q-network: discrete actions, few steps', _DUELING, **_OFF_POLICY),
    _builtin_entry('iql', 'IQL', _IQL, 'implicit Q-learning: data sets, continuous actions', **_OFF_POLICY),
    _builtin_entry('ppo', 'PPO', _ACTOR_CRITIC, 'proximal policy optimisation: start with this one', _SHARED),
    _builtin_entry(
        'td3', 'TD3', _TD3, 'twin delayed DDPG: continuous actions, few steps, steadier than DDPG', **_OFF_POLICY
    ),
    _builtin_entry('td3-bc', 'TD3BC', _TD3, 'TD3 held at its data: data sets, continuous actions', **_OFF_POLICY),
    _builtin_entry('trpo', 'TRPO', _ACTOR_AND_CRITIC, 'trust region policy optimisation: steady steps, on-policy'),
)
BUILTIN_AGENTS: dict[str, Entry] = {entry.id: entry for entry in _BUILTIN_ENTRIES}
# of several policies, each of which is an agent's
TEAM_ENTRY = Entry(
    *('team', 'xagents.teams.agent:TeamAgent', (), 'several policies in one environment, each by an agent of its own'),
    declaration='xagents.teams.cli:TeamOptions',
    folder='xagents.teams',
)


class Agents(Mapping[str, Entry]):
    """Every agent by its id.

    A look-up also finds those of installed packages; a loop goes over ours, and those that were registered in this
    process or have been looked up.
    """

    def __getitem__(self, id: str) -> Entry:
        entry = TEAM_ENTRY if id == TEAM_ENTRY.id else BUILTIN_AGENTS.get(id) or parts.find(id)
        if entry is None:
            raise KeyError(id)
        return entry

    def __contains__(self, id: object) -> bool:
        """Return whether there is such an agent, and it can be loaded."""
        try:
            return isinstance(id, str) and self.get(id) is not None
        except OptionError:
            return False

    def __iter__(self) -> Iterator[str]:
        return iter((*BUILTIN_AGENTS, *sorted(parts.registered)))

    def __len__(self) -> int:
        return sum(1 for _ in self)


agents = Agents()
"""What is known of every agent, by id: an `Entry` each, those that were registered included."""


def find_agent(agent_id: str) -> Entry:
    """Return an agent's entry, or raise an `OptionError` that names the nearest one, or the package that is broken."""
    entry = agents.get(agent_id)
    if entry is None:
        known = agent_names()
        hint = did_you_mean(agent_id.lower(), known)
        raise OptionError('agent', f'got {agent_id}, expected one of {", ".join(known)}{hint}')
    return entry


def agent_names() -> list[str]:
    """Return the id of every agent, also of those in installed packages, ours first; loads no package."""
    return [*BUILTIN_AGENTS, *parts.names()]


def help_lines() -> dict[str, str]:
    """Return a line of help for every agent by its id, ours first.

    An agent whose entry point names its class is described by the summary of its package, because loading a class loads
    TensorFlow; one that cannot be loaded by why it cannot.
    """
    lines = {name: entry.help for name, entry in parts.registered.items()}
    for name, packages in parts.entry_point_table().items():
        package, summary, location = packages[0]
        if refusal := parts.refusal_reason(name):
            lines[name if name not in BUILTIN_AGENTS else f'{name} ({package})'] = f'refused: {refusal}'
        elif name not in lines:
            # a class is written in capitals, and loading it would load TensorFlow
            is_class = location.rpartition(':')[2].rpartition('.')[2][:1].isupper()
            lines[name] = (f'{package}: {summary}' if summary else f'of {package}') if is_class else _entry_help(name)
    return {**{id: entry.help for id, entry in BUILTIN_AGENTS.items()}, **dict(sorted(lines.items()))}


def find_entry(agent: type) -> Entry | None:
    """Return the entry of an agent's class; None where it is not registered."""
    known = (*BUILTIN_AGENTS.values(), TEAM_ENTRY, *parts.registered.values())
    found = next((entry for entry in known if entry.has_class(agent)), None)
    package = agent.__module__.split('.')[0]
    if found or package in ('xagents', '__main__', 'builtins', 'keras', 'abc'):
        return found
    # it may have been imported from its package before anybody looked its name up
    for name, points in parts.entry_point_table().items():
        of_package = any(location.split(':')[0].split('.')[0] == package for _, _, location in points)
        if of_package and name in agents and agents[name].has_class(agent):
            return agents[name]
    return None


def agent_id_of(agent: type) -> str:
    """Return what an agent of a class is called in what it saves: its id, or its name where it is not registered."""
    entry = find_entry(agent)
    return entry.id if entry else agent.__name__.lower()


# what the commands themselves take: an agent's own options have other names
_COMMANDS = (
    *(EnvironmentOptions, NetworkOptions, RunOptions, SessionOptions, TrainOptions),
    *(TuneOptions, PlayOptions, EvaluateOptions, ExportOptions),
)


def register(
    name: str,
    *,
    help: str = '',
    networks: Sequence[NetworkRole] | None = None,
    variant: Variant | None = None,
    activation: str = '',
    initializer: str = '',
) -> Callable[[type[T]], type[T]]:
    """Register an agent's class in this process, to be used by its name as ours are.

    Args:
        name: lowercase letters, digits and dashes.
        help: one line for the usage page; the first line of the class's docstring when not given.
        networks: what the constructor takes behind the environments, `()` for nothing; those of the agent that the
            class inherits, with their files, when not given.
        variant: another form of the networks; inherited when not given.
        activation: of `--net`'s layers; likewise.
        initializer: likewise.

    Raises:
        OptionError: for a name that is none or is taken, or a class that is no agent.
    """
    given = {'variant': variant, 'help': help, 'activation': activation, 'initializer': initializer}
    fields: dict[str, Any] = {field: value for field, value in given.items() if value}
    if networks is not None:
        fields['networks'] = tuple(networks)
    parts._check_name(name)

    def decorate(agent: type[T]) -> type[T]:
        parts.register(name, agent, _class_entry(name, agent, str(agent.__module__).split('.')[0], fields))
        return agent

    return decorate


def _to_entry(name: str, thing: Any, package: str) -> Entry:
    if isinstance(thing, type):
        return _class_entry(name, thing, package, {})
    if not isinstance(thing, Entry):
        raise ValueError(f'its entry point names a {type(thing).__name__}, expected an agent class or an Entry')
    if thing.id != name:
        raise ValueError(f'its Entry has the id {thing.id}, expected the name of its entry point')
    entry = dataclasses.replace(thing, distribution=package)
    _check_options(entry.options)
    return entry


def _class_entry(name: str, agent: type, package: str, given: dict[str, Any]) -> Entry:
    """Return an entry of what a class says itself, or inherits from an agent that has an entry."""
    if not hasattr(agent, 'Options'):
        raise OptionError('agent', f'got {agent.__name__}, expected a subclass of BaseAgent')
    model = next((entry for base in agent.__mro__[1:] if (entry := find_entry(base))), None)
    if model is None and 'networks' not in given:
        raise OptionError('agent', f'{agent.__name__} inherits no agent that has networks: register it with networks=')
    _check_options(agent.Options)
    summary_line = (agent.__doc__ or '').strip().split('\n')[0].rstrip('.')
    model = model or Entry(name, agent, (), agent.__name__)
    # networks of its own have no files of the agent that it inherits
    files = {'folder': '', 'variant': None} if 'networks' in given else {}
    fields = {**files, 'help': summary_line or model.help, **given}
    return dataclasses.replace(
        model, id=name, class_or_path=agent, declaration=agent.Options, distribution=package, **fields
    )


def _check_options(declaration: Any) -> None:
    """Check that the options of an agent do not conflict with those of the commands."""
    if not (isinstance(declaration, type) and issubclass(declaration, AgentOptions)):
        raise OptionError('Options', f'got {declaration!r}, expected a subclass of AgentOptions')
    known = declared_options(declaration)
    command_flags = {
        flag for group in _COMMANDS for option in declared_options(group).values() for flag in option.flags
    }
    for flag in (flag for option in known.values() for flag in option.flags):
        if flag in command_flags:
            raise OptionError('Options', f'{flag} is an option of the commands, choose another name')
    tuned = {**known, **declared_options(EnvironmentOptions), **declared_options(NetworkOptions)}
    for name in declaration.ranges:
        if name not in tuned or tuned[name].tune is None:
            raise OptionError('Options', f'ranges: {name} is no option that has a search type')


def _entry_help(name: str) -> str:
    try:
        entry = parts.find(name)
        return entry.help if entry else ''
    except OptionError as error:
        return error.problem


parts: PartRegistry[Entry] = PartRegistry('agents', 'agent', _to_entry, BUILTIN_AGENTS)
