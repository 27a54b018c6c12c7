"""The registry of agents. TensorFlow is loaded only when an agent's class is used."""

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
from xagents.options.declaration import Option, declared_options, network_file
from xagents.options.environment import EnvironmentOptions, NetworkOptions
from xagents.options.errors import OptionError, error_line, format_value
from xagents.options.foreign_names import agent_hint
from xagents.options.runs import RunOptions, SessionOptions, TrainOptions
from xagents.options.settings import options_in_groups
from xagents.registry.parts import PartRegistry

T = TypeVar('T')


@dataclasses.dataclass(frozen=True)
class NetworkRole:
    """One network of an agent.

    Attributes:
        label: name in messages.
        option: option of its .cfg file.
        outputs: names of its outputs, whose sizes the agent determines.
        output_activation: activation of the outputs of `--net`.
        takes_actions: whether the input is an observation and an action.
        shares_trunk: whether the outputs of `--net` share its layers.
    """

    label: str
    option: str
    outputs: tuple[str, ...]
    output_activation: str = 'linear'
    takes_actions: bool = False
    shares_trunk: bool = False

    @property
    def is_actor(self) -> bool:
        """Whether the network is an actor and not also a critic."""
        return 'actor' in self.outputs and {*self.outputs} <= {'actor', 'log_std'}

    @property
    def signature(self) -> tuple[tuple[str, ...], bool]:
        """Outputs and type of input. Networks with equal signatures may exchange weights."""
        return self.outputs, self.takes_actions


@dataclasses.dataclass(frozen=True)
class Variant:
    """Another form of an agent's networks, which a switch chooses.

    Attributes:
        option: the switch.
        outputs: names of the outputs; None for those of the network.
    """

    option: str
    outputs: tuple[str, ...] | None = None

    @property
    def name(self) -> str:
        """The word for this variant in names of .cfg files."""
        return self.option.removesuffix('_network')


@dataclasses.dataclass(frozen=True)
class Entry(Mapping):
    """The registry entry of one agent. As in 1.0, an entry is also a mapping.

    The keys of the mapping are `agent`, `module`, and the options of its networks, such as `model`, `actor_model` and
    `critic_model`. The value of such an option is `{'ann': [cfg, …], 'cnn': [cfg, …]}`.

    Args:
        id: name on the command line.
        class_or_path: the agent's class, or `module:Class`, which is imported when the class is used.
        networks: networks in the order of `--checkpoints`.
        help: one line for the usage page.
        variant: another form of the networks, or None.
        activation: activation of the layers of `--net`.
        initializer: initializer of the layers of `--net`.
        normalise: normalisation of the layers of `--net`, `layer` or `batch`, or None.
        declaration: dataclass of the options, or `module:Class`. The default is `Options` of the agent's class.
        folder: package whose `models/` contains the .cfg files of the networks; '' for no files.
        distribution: distribution that contains the agent, for messages.
        for_discrete: entry of another form of the agent, for Discrete actions, with the same options; or None.
    """

    id: str
    class_or_path: str | type
    networks: tuple[NetworkRole, ...]
    help: str
    variant: Variant | None = None
    activation: str = 'tanh'
    initializer: str = 'orthogonal'
    normalise: str | None = None
    declaration: str | type = ''
    folder: str = ''
    distribution: str = 'xagents'
    for_discrete: Entry | None = None

    def form_for(self, action_space: object) -> Entry:
        """Return the entry of the form of the agent for an action space."""
        discrete = type(action_space).__name__ == 'Discrete'  # without loading Gymnasium
        return self.for_discrete if discrete and self.for_discrete is not None else self

    @classmethod
    def derived_from(cls, model: str | Entry, id: str, class_or_path: str | type, help: str, **others: Any) -> Entry:
        """Return an entry with the fields of another agent's entry or id, except for the given fields."""
        known = find_agent(model) if isinstance(model, str) else model
        own = {'id': id, 'class_or_path': class_or_path, 'help': help}
        fields = {'distribution': '', 'for_discrete': None, **others, **own}
        return dataclasses.replace(known, **fields)

    @property
    def module(self) -> Any:
        """The agent's package. The declaration of the options is loaded, too."""
        if isinstance(self.class_or_path, str):
            assert self.options  # loads its module
        location = self._location[0]
        return importlib.import_module(location.rpartition('.')[0] or location)

    @property
    def _location(self) -> tuple[str, str]:
        """The module and the name of the agent's class."""
        if not isinstance(self.class_or_path, str):
            return self.class_or_path.__module__, self.class_or_path.__name__
        module, _, name = self.class_or_path.partition(':')
        return module, name

    @property
    def options(self) -> type[AgentOptions]:
        """The dataclass of the options."""
        return self._import(self.declaration) if self.declaration else self.agent.Options

    def options_in(self, *groups: str) -> dict[str, Option]:
        """Return the options of some groups by name (see `xagents.options.settings.GROUPS`)."""
        return options_in_groups(self.options, *groups)

    @property
    def agent(self) -> Any:
        """The agent's class. Importing it loads TensorFlow."""
        agent = self._import(self.class_or_path)
        if self.declaration and agent.Options is not self.options:
            declared = f'{self.options.__name__}, its class {agent.Options.__name__}'
            problem = f'{self.id} of {self.distribution} has the options {declared}; expected the same in both'
            raise OptionError('agent', problem)
        return agent

    @property
    def class_name(self) -> str:
        """The name of the agent's class."""
        return self._location[1]

    def has_class(self, agent: type) -> bool:
        """Return whether `agent` is the agent's class. Load nothing."""
        if not isinstance(self.class_or_path, str):
            return self.class_or_path is agent
        module, name = self._location
        is_named = (module, name) == (agent.__module__, agent.__qualname__)
        return is_named or getattr(sys.modules.get(module), name, None) is agent

    def _import(self, location: str | type) -> Any:
        """Return the class at `module:Class`."""
        if not isinstance(location, str):
            return location
        module, _, name = location.partition(':')
        try:
            return getattr(importlib.import_module(module), name)
        except Exception as error:
            if self.distribution == 'xagents':
                raise
            problem = f'{self.id} of {self.distribution} cannot be loaded: {error_line(error)}'
            raise OptionError('agent', problem) from error

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels of the networks, in the order of `--checkpoints`."""
        return tuple(network.label for network in self.networks)

    @property
    def models(self) -> tuple[str, ...]:
        """The options of the networks' .cfg files."""
        return tuple(dict.fromkeys(network.option for network in self.networks))

    def files(self, model: str) -> dict[str, list[str]]:
        """Return the built-in .cfg files of a model by kind, the default of each kind first and the variant's last."""
        spec = importlib.util.find_spec(self.folder) if self.folder else None
        places = (spec.submodule_search_locations or []) if spec else []
        shipped = [path for location in places for path in (Path(location) / 'models').glob('*.cfg')]
        role, other = model.removesuffix('model').rstrip('_'), self.variant.name if self.variant else None
        words = {path: path.stem.split('-') for path in shipped}
        ours = sorted((other in words[p], str(p), p.stem) for p in shipped if not role or role in words[p][1:])
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
_ACTOR_AND_CRITIC = tuple(NetworkRole(label, f'{label}_model', (label,)) for label in ('actor', 'critic'))
_Q = (NetworkRole('model', 'model', ('q',)),)
_ACTOR = NetworkRole('actor', 'actor_model', ('actor',), output_activation='tanh')
_CRITIC = NetworkRole('critic', 'critic_model', ('critic',), takes_actions=True)
_DDPG = (_ACTOR, _CRITIC)
_TD3 = (_ACTOR, *(dataclasses.replace(_CRITIC, label=f'critic {i}') for i in (1, 2)))
_IQL = (*_TD3, NetworkRole('value', 'value_model', ('value',)))
_SAC = (
    NetworkRole('actor', 'actor_model', ('actor', 'log_std'), shares_trunk=True),
    *(dataclasses.replace(_CRITIC, label=f'critic {i}') for i in (1, 2)),
)
_DISCRETE_SAC = (
    NetworkRole('actor', 'actor_model', ('actor',)),
    *(NetworkRole(f'critic {i}', 'critic_model', ('q',)) for i in (1, 2)),
)
_TQC = (
    _SAC[0],
    *(NetworkRole(f'critic {i}', 'critic_model', ('quantiles',), takes_actions=True) for i in (1, 2)),
)
_SHARED, _DUELING = Variant('shared_network'), Variant('dueling', ('advantage', 'value'))


def _builtin(id: str, name: str, networks: tuple[NetworkRole, ...], help: str, *more: Any, **others: Any) -> Entry:
    package = f'xagents.{id.replace("-", "_")}'
    fields = {'declaration': f'{package}.cli:{name}Options', 'folder': package, **others}
    return Entry(id, f'{package}.agent:{name}', networks, help, *more, **fields)


_OFF_POLICY = {'activation': 'relu', 'initializer': 'fan_in_uniform'}
_SAC_ENTRY = _builtin('sac', 'SAC', _SAC, 'soft actor-critic: continuous or discrete actions', **_OFF_POLICY)
_DISCRETE_SAC_ENTRY = dataclasses.replace(
    _SAC_ENTRY,
    class_or_path='xagents.sac.discrete.agent:DiscreteSAC',
    networks=_DISCRETE_SAC,
    folder='xagents.sac.discrete',
)
_BUILTIN_ENTRIES = (
    _builtin('a2c', 'A2C', _ACTOR_CRITIC, 'advantage actor-critic: the simplest on-policy agent', _SHARED),
    _builtin('acer', 'ACER', _ACTOR_Q, 'actor-critic with experience replay: discrete actions', _SHARED),
    _builtin('bc', 'BC', _ACTOR_CRITIC, 'behaviour cloning: imitates the actions of a data set', _SHARED),
    dataclasses.replace(
        _builtin('crossq', 'CrossQ', _SAC, 'SAC with batch normalisation: continuous actions', **_OFF_POLICY),
        normalise='batch',
        # a layer before a normalisation does not depend on the scale of its weights, so that steps of Adam are large in
        # proportion to small weights: with `fan_in_uniform`, CrossQ did not learn LunarLanderContinuous
        initializer='glorot_uniform',
    ),
    _builtin('ddpg', 'DDPG', _DDPG, 'deep deterministic policy gradient: continuous actions', **_OFF_POLICY),
    _builtin('dqn', 'DQN', _Q, 'deep Q-network: discrete actions, few environment steps', _DUELING, **_OFF_POLICY),
    _builtin('iql', 'IQL', _IQL, 'implicit Q-learning: continuous actions, from data sets', **_OFF_POLICY),
    _builtin('ppo', 'PPO', _ACTOR_CRITIC, 'proximal policy optimisation: start with this one', _SHARED),
    dataclasses.replace(
        _builtin('pqn', 'PQN', _Q, 'Q-learning from rollouts, without a replay buffer: discrete actions'),
        activation='relu',
        normalise='layer',
    ),
    dataclasses.replace(
        _builtin('rainbow', 'Rainbow', _Q, 'DQN with six extensions: discrete actions', _DUELING, **_OFF_POLICY),
        folder='xagents.dqn',
    ),
    dataclasses.replace(_SAC_ENTRY, for_discrete=_DISCRETE_SAC_ENTRY),
    _builtin('td3', 'TD3', _TD3, 'twin delayed DDPG: continuous actions, more stable than DDPG', **_OFF_POLICY),
    _builtin('td3-bc', 'TD3BC', _TD3, 'TD3 with behaviour cloning: continuous actions, from data sets', **_OFF_POLICY),
    _builtin('tqc', 'TQC', _TQC, 'SAC with truncated distributions of values: continuous actions', **_OFF_POLICY),
    _builtin('trpo', 'TRPO', _ACTOR_AND_CRITIC, 'trust region policy optimisation: stable policy steps, on-policy'),
)
BUILTIN_AGENTS: dict[str, Entry] = {entry.id: entry for entry in _BUILTIN_ENTRIES}
# several policies, each with its own agent
TEAM_ENTRY = Entry(
    *('team', 'xagents.teams.agent:TeamAgent', (), 'several policies in one environment, each with its own agent'),
    declaration='xagents.teams.cli:TeamOptions',
    folder='xagents.teams',
)


class Agents(Mapping[str, Entry]):
    """A mapping of every agent's id to its entry.

    A look-up also finds agents of installed packages. Iteration covers the built-in agents, and agents that were
    registered in this process or have been looked up.
    """

    def __getitem__(self, id: str) -> Entry:
        entry = TEAM_ENTRY if id == TEAM_ENTRY.id else BUILTIN_AGENTS.get(id) or parts.find(id)
        if entry is None:
            raise KeyError(id)
        return entry

    def __contains__(self, id: object) -> bool:
        """Return whether an agent has this id and can be loaded."""
        try:
            return isinstance(id, str) and self.get(id) is not None
        except OptionError:
            return False

    def __iter__(self) -> Iterator[str]:
        return iter((*BUILTIN_AGENTS, *sorted(parts.registered)))

    def __len__(self) -> int:
        return sum(1 for _ in self)


agents = Agents()
"""The entries of all agents by id, including registered ones."""


# end of a message: how to use an agent of a user's own module
OWN = ", or module:Class; --import MODULE registers a module's agents"


def find_agent(agent_id: str) -> Entry:
    """Return an agent's entry. Raise OptionError, with the nearest name, if it is unknown or cannot be loaded."""
    if (entry := agents.get(agent_id)) is None:
        known = agent_names()
        hint = agent_hint(agent_id, known)
        raise OptionError('agent', f'got {format_value(agent_id)}, expected one of {", ".join(known)}{hint or OWN}')
    return entry


def agent_names() -> list[str]:
    """Return the ids of all agents, including those of installed packages, built-in ones first. Load no package."""
    return [*BUILTIN_AGENTS, *parts.names()]


def help_lines() -> dict[str, str]:
    """Return a line of help for every agent by its id, built-in agents first.

    If an entry point names a class, the line is the summary of its package, because loading a class loads TensorFlow.
    If an agent cannot be loaded, the line is the reason.
    """
    lines = {name: entry.help for name, entry in parts.registered.items()}
    for name, packages in parts.entry_point_table().items():
        package, summary, location = packages[0]
        if refusal := parts.refusal_reason(name):
            lines[name if name not in BUILTIN_AGENTS else f'{name} ({package})'] = f'refused: {refusal}'
        elif name not in lines:
            # names of classes begin with a capital; loading a class would load TensorFlow
            is_class = location.rpartition(':')[2].rpartition('.')[2][:1].isupper()
            lines[name] = (f'{package}: {summary}' if summary else f'of {package}') if is_class else _entry_help(name)
    return {**{id: entry.help for id, entry in BUILTIN_AGENTS.items()}, **dict(sorted(lines.items()))}


def find_entry(agent: type) -> Entry | None:
    """Return the entry of an agent's class, or None if it is not registered."""
    known = [*BUILTIN_AGENTS.values(), TEAM_ENTRY, *parts.located.values(), *parts.registered.values()]
    known += [entry.for_discrete for entry in known if entry.for_discrete is not None]
    found = next((entry for entry in known if entry.has_class(agent)), None)
    package = agent.__module__.split('.')[0]
    if found or package in ('xagents', '__main__', 'builtins', 'keras', 'abc'):
        return found
    # the class may have been imported before its name was looked up
    for name, points in parts.entry_point_table().items():
        of_package = any(location.split(':')[0].split('.')[0] == package for _, _, location in points)
        if of_package and name in agents and agents[name].has_class(agent):
            return agents[name]
    return None


def agent_id_of(agent: type) -> str:
    """Return the name of a class of agents in saved files: its id, or the name of the class without one."""
    entry = find_entry(agent)
    return entry.id if entry else agent.__name__.lower()


# options of the commands: options of an agent must have other names
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
    """Register an agent's class in this process, so that its name can be used as that of a built-in agent.

    Args:
        name: name of lower-case letters, digits and dashes.
        help: one line for the usage page. The default is the first line of the class's docstring.
        networks: arguments of the constructor after the environments, `()` for none. The default are the networks and
            files of the agent that the class inherits.
        variant: another form of the networks. The default is inherited.
        activation: activation of the layers of `--net`. The default is inherited.
        initializer: initializer of the layers of `--net`. The default is inherited.

    Returns:
        A decorator for the class. It returns the class unchanged.

    Raises:
        OptionError: if the name is invalid or in use, or the class is not an agent.
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
        known = next((entry for entry in parts.registered.values() if entry.has_class(thing)), None)
        # a decorator has registered the class under another name, perhaps with networks of its own
        return dataclasses.replace(known, id=name) if known else _class_entry(name, thing, package, {})
    if not isinstance(thing, Entry):
        raise ValueError(f'got a {type(thing).__name__}, expected an agent class or an Entry')
    if thing.id != name:
        raise ValueError(f'its Entry has the id {thing.id}, expected the name of its entry point')
    entry = dataclasses.replace(thing, distribution=package)
    _check_options(entry.options)
    return entry


def _class_entry(name: str, agent: type, package: str, given: dict[str, Any]) -> Entry:
    """Return an entry with the fields of `given`, of the class, and of the registered agent that it inherits."""
    if not hasattr(agent, 'Options'):
        raise OptionError('agent', f'got {agent.__name__}, expected a subclass of BaseAgent')
    model = next((entry for base in agent.__mro__[1:] if (entry := find_entry(base))), None)
    if model is None and 'networks' not in given:
        raise OptionError('agent', f'got {agent.__name__}, which inherits no agent with networks, expected networks=')
    _declare_networks(agent, given.get('networks', ()))
    _check_options(agent.Options)
    summary_line = (agent.__doc__ or '').strip().split('\n')[0].rstrip('.')
    model = model or Entry(name, agent, (), agent.__name__)
    # own networks do not use the files of the inherited agent
    files = {'folder': '', 'variant': None} if 'networks' in given else {}
    fields = {**files, 'help': summary_line or model.help, **given}
    fields |= {'id': name, 'class_or_path': agent, 'declaration': agent.Options, 'distribution': package}
    fields['for_discrete'] = None
    return dataclasses.replace(model, **fields)


def _declare_networks(agent: Any, networks: Sequence[NetworkRole]) -> None:
    """Declare the options of the networks' files that the options of an agent lack."""
    declaration = agent.Options
    known = getattr(declaration, '__dataclass_fields__', None)
    labels = {} if known is None else {n.option: n.label for n in networks if n.option not in known}
    if labels:
        fields = [(name, str | None, network_file(f'.cfg file of the network: {labels[name]}')) for name in labels]
        names = {'__module__': declaration.__module__, '__doc__': declaration.__doc__}
        made = dataclasses.make_dataclass(declaration.__name__, fields, bases=(declaration,), namespace=names)
        agent.Options = made


def _check_options(declaration: Any) -> None:
    """Raise OptionError if options of an agent conflict with options of the commands."""
    if not (isinstance(declaration, type) and issubclass(declaration, AgentOptions)):
        raise OptionError('Options', f'got {declaration!r}, expected a subclass of AgentOptions')
    known = declared_options(declaration)
    taken = {flag for group in _COMMANDS for option in declared_options(group).values() for flag in option.flags}
    for flag in (flag for option in known.values() for flag in option.flags):
        if flag in taken:
            raise OptionError('Options', f'{flag} is an option of the commands, expected another name')
    for name, inherited in declared_options(AgentOptions).items():
        if name in known and known[name].type is not inherited.type:
            expected = f'{inherited.expected}, or another name'
            raise OptionError('Options', f'{name} is an option of every agent: expected {expected}')
    tuned = {**known, **declared_options(EnvironmentOptions), **declared_options(NetworkOptions)}
    for name in declaration.ranges:
        if name not in tuned or tuned[name].tune is None:
            problem = f'ranges: got {name}, which is hidden or cannot be searched; expected options with a search type'
            remedy = 'declare a changed default by changed(…), and leave hidden options out of `ranges`'
            raise OptionError(declaration.__qualname__, f'{problem} ({remedy})')


def _entry_help(name: str) -> str:
    try:
        entry = parts.find(name)
        return entry.help if entry else ''
    except OptionError as error:
        return error.problem


parts: PartRegistry[Entry] = PartRegistry('agents', 'agent', _to_entry, BUILTIN_AGENTS)
