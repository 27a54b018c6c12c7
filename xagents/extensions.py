"""Parts of your own: agents, networks, stages and environments that a command line then knows by name.

They are registered in a process by the functions below, or found in installed packages by the entry points
`xagents.agents`, `xagents.networks`, `xagents.stages` and `xagents.envs`; docs/extending.md shows both. Loads no
TensorFlow; a part itself may, once it is used.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from xagents import registry, settings
from xagents.entry_points import Parts
from xagents.network_functions import networks
from xagents.options import Option, OptionError, describe
from xagents.registry import Entry, Network, Variant

if TYPE_CHECKING:
    from xagents.pipeline import Recipe, Stage

T = TypeVar('T')
# names of the stages of our recipes, see stages.py
STAGES = (
    *('schedule', 'collect', 'checkpoint', 'episodes', 'evaluate', 'best', 'learn', 'remember', 'replay', 'plateau'),
    *('history', 'metrics', 'prune', 'record', 'console', 'tensorboard', 'wandb', 'video', 'overlap', 'until'),
)
# what the commands themselves take: an agent's own options have other names
_COMMANDS = (
    *(settings.EnvironmentOptions, settings.NetworkOptions, settings.RunOptions, settings.SessionOptions),
    *(settings.TrainOptions, settings.TuneOptions, settings.PlayOptions, settings.EvaluateOptions),
    settings.ExportOptions,
)


# agents


def register(
    name: str,
    *,
    help: str = '',
    networks: Sequence[Network] | None = None,
    variant: Variant | None = None,
    activation: str = '',
    initializer: str = '',
) -> Callable[[type[T]], type[T]]:
    """Register an agent's class in this process, to be used by its name as ours are.

    Args:
        name: lowercase letters, digits and dashes.
        help: one line for the usage page; the first line of the class's docstring when not given.
        networks: what the constructor takes behind the environments; those of the agent that the class inherits when
            not given, with their files.
        variant: another form of the networks; inherited when not given.
        activation: of `--net`'s layers; likewise.
        initializer: likewise.

    Returns:
        A decorator, which returns the class.

    Raises:
        OptionError: for a name that is none or is taken, or a class that is no agent.
    """
    given: dict[str, Any] = {'networks': networks and tuple(networks), 'variant': variant, 'help': help}
    given |= {'activation': activation, 'initializer': initializer}
    agents._check_name(name)

    def decorate(agent: type[T]) -> type[T]:
        fields = {field: value for field, value in given.items() if value}
        agents.register(name, agent, _of_class(name, agent, str(agent.__module__).split('.')[0], fields))
        return agent

    return decorate


def _adopt_agent(name: str, thing: Any, package: str) -> Entry:
    if isinstance(thing, type):
        return _of_class(name, thing, package, {})
    if not isinstance(thing, Entry):
        raise ValueError(f'its entry point names a {type(thing).__name__}, admits an agent class or an Entry')
    if thing.id != name:
        raise ValueError(f'its Entry has the id {thing.id}, admits the name of its entry point')
    entry = dataclasses.replace(thing, origin=package)
    _check_options(entry.options)
    return entry


def _of_class(name: str, agent: type, package: str, given: dict[str, Any]) -> Entry:
    """An entry that has what a class says itself, or inherits from an agent that has an entry."""
    from xagents.base import BaseAgent

    if not issubclass(agent, BaseAgent):
        raise OptionError('agent', f'got {agent.__name__}, admits a subclass of BaseAgent')
    model = next((entry for base in agent.__mro__[1:] if (entry := registry.entry_of(base))), None)
    if model is None and not given.get('networks'):
        raise OptionError('agent', f'{agent.__name__} inherits no agent that has networks: register it with networks=')
    _check_options(agent.Options)
    said = (agent.__doc__ or '').strip().split('\n')[0].rstrip('.')
    model = model or Entry(name, agent, (), agent.__name__)
    # networks of its own have no files of the agent that it inherits
    files = {'folder': '', 'variant': None} if 'networks' in given else {}
    fields = {**files, 'help': said or model.help, **given}
    return dataclasses.replace(model, id=name, home=agent, declaration=agent.Options, origin=package, **fields)


def _check_options(declaration: Any) -> None:
    """Check that an agent's options can stand beside those of the commands.

    Raises:
        OptionError: naming the option.
    """
    if not (isinstance(declaration, type) and issubclass(declaration, settings.AgentOptions)):
        raise OptionError('Options', f'got {declaration!r}, admits a subclass of AgentOptions')
    known = describe(declaration)
    theirs = {flag: o.name for group in _COMMANDS for o in describe(group).values() for flag in o.flags}
    for option in known.values():
        for flag in option.flags:
            if flag in theirs:
                raise OptionError('Options', f'{flag} is an option of the commands, choose another name')
    shared = (settings.EnvironmentOptions, settings.NetworkOptions)
    tuned: dict[str, Option] = {**known, **{name: o for group in shared for name, o in describe(group).items()}}
    for name in declaration.ranges:
        if name not in tuned or tuned[name].tune is None:
            raise OptionError('Options', f'ranges: {name} is no option that has a search type')


def listed_agents() -> dict[str, str]:
    """Return a line of help for every agent that is not ours, by id; see `registry.listed`."""
    lines = {name: entry.help for name, entry in agents.known.items()}
    for name, packages in agents.packages().items():
        package, summary, place = packages[0]
        refusal = agents.refused(name)
        if refusal:
            lines[name if name not in registry.OURS else f'{name} ({package})'] = f'refused: {refusal}'
        elif name not in lines:
            # a class is written in capitals, and loading it would load TensorFlow
            is_class = place.rpartition(':')[2].rpartition('.')[2][:1].isupper()
            lines[name] = (f'{package}: {summary}' if summary else f'of {package}') if is_class else _help_of(name)
    return dict(sorted(lines.items()))


def _help_of(name: str) -> str:
    try:
        entry = agents.find(name)
        return entry.help if entry else ''
    except OptionError as error:
        return error.problem


def entry_in_package_of(agent: type) -> Entry | None:
    """Return the entry of a class that was imported from a package before anybody looked its name up."""
    package = agent.__module__.split('.')[0]
    if package in ('xagents', '__main__', 'builtins', 'keras', 'abc'):
        return None
    for name, points in agents.packages().items():
        if any(place.split(':')[0].split('.')[0] == package for _, _, place in points) and name in registry.agents:
            entry = registry.agents[name]
            if entry.is_of(agent):
                return entry
    return None


# networks


def register_network(name: str, network: Any = None) -> Any:
    """Register a network in this process: wherever a .cfg path is taken, its name then is, too.

    Args:
        name: lowercase letters, digits and dashes.
        network: path of a .cfg file, or a function (see `NetworkFunction`); without it this is a decorator of one.

    Raises:
        OptionError: for a name that is none or is taken, or something that is no network.
    """
    return _registering(networks, name, network)


# environments


def register_env(name: str, function: Any = None) -> Any:
    """Register a function, or a class, that makes one environment; `--env` and `make` then take its name.

    Args:
        name: lowercase letters, digits and dashes.
        function: makes a `gymnasium.Env`; takes `render_mode` if it is to be drawn, and what `--env-kwargs` may name.
            Without it this is a decorator of one.

    Raises:
        OptionError: for a name that is none or is taken.
    """
    return _registering(envs, name, function)


def _adopt_env(name: str, thing: Any, package: str) -> Callable[..., Any]:
    if not callable(thing):
        raise ValueError(f'got a {type(thing).__name__}, admits a function or class that makes a gymnasium.Env')
    return thing


# stages


@dataclasses.dataclass(frozen=True)
class StagePart:
    """A stage, and where it stands.

    Args:
        name: that it is registered under, and has in a recipe.
        function: a stage of a stream (`@stage`), a function of a context, or, where its parameter is called `agent`, a
            function that makes one of these for an agent.
        place: 'after' or 'before'.
        existing: the stage that it is put after or before.
    """

    name: str
    function: Callable[..., Any]
    place: str = 'after'
    existing: str = 'collect'

    def made(self, agent: Any) -> Stage:
        """Return the stage for an agent."""
        try:
            names = list(inspect.signature(self.function).parameters)
        except (TypeError, ValueError):  # nothing tells what it takes
            names = []
        return self.function(agent) if names[:1] == ['agent'] else self.function


def register_stage(name: str, *, after: str | None = None, before: str | None = None) -> Callable[[T], T]:
    """Register a stage; `--stages` and `fit(stages=[…])` then take its name.

    An entry point of `xagents.stages` that names a function without this decorator puts it after `collect`.

    Args:
        name: lowercase letters, digits and dashes.
        after: the stage of the recipe that it stands behind; `collect` when neither is given.
        before: or the one that it stands in front of.

    Returns:
        A decorator of a function (see `StagePart`), which returns it.

    Raises:
        OptionError: for a name that is none or is taken, or two places.
    """
    stages._check_name(name)
    if after and before:
        raise OptionError('stages', f'{name} got after={after!r} and before={before!r}, admits one of the two')
    place, existing = ('before', before) if before else ('after', after or 'collect')

    def decorate(function: T) -> T:
        part = dataclasses.replace(_adopt_stage(name, function, ''), place=place, existing=existing)
        stages.register(name, function, part)
        return function

    return decorate


def _adopt_stage(name: str, thing: Any, package: str) -> StagePart:
    if not callable(thing):
        raise OptionError('stages', f'{name} is a {type(thing).__name__}, admits a function')
    return StagePart(name, thing)


def find_stages(names: Iterable[str]) -> list[StagePart]:
    """Return the stages of names.

    Raises:
        OptionError: for a name that no stage has, or that stands twice.
    """
    found: list[StagePart] = []
    for name in names:
        part = stages.find(name)
        if part is None:
            raise stages.unknown(name)
        if part in found:
            raise OptionError('stages', f'got {name} twice, admits each once')
        found.append(part)
    return found


def with_stages(recipe: Recipe, agent: Any, names: Iterable[str] | None) -> Recipe:
    """Return a recipe with registered stages in their places; those of one place stand in the order of `names`.

    Raises:
        OptionError: for a name that no stage has, or a place that the recipe has not.
    """
    last: dict[str, str] = {}
    for part in find_stages(names or ()):
        if part.existing not in recipe.names:
            raise OptionError(
                'stages',
                f'{part.name} stands {part.place} {part.existing}, '
                f'the recipe of {registry.id_of(type(agent))} has {", ".join(recipe.names)}',
            )
        put = recipe.after if part.place == 'after' else recipe.before
        existing = last.get(part.existing, part.existing) if part.place == 'after' else part.existing
        recipe = put(existing, part.made(agent), name=part.name)
        if part.place == 'after':
            last[part.existing] = part.name
    return recipe


def _registering(parts: Parts, name: str, thing: Any) -> Any:
    parts._check_name(name)

    def decorate(thing: T) -> T:
        parts.register(name, thing)
        return thing

    return decorate if thing is None else decorate(thing)


agents: Parts[Entry] = Parts('agents', 'agent', _adopt_agent, registry.OURS)
envs: Parts[Callable[..., Any]] = Parts('envs', 'env', _adopt_env)
stages: Parts[StagePart] = Parts('stages', 'stages', _adopt_stage, STAGES)
