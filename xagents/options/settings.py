"""Settings: all options of an agent and its run, divided into groups and checked once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeVar

from xagents.options import runs
from xagents.options.agents import AgentOptions
from xagents.options.declaration import Option, Options, declared_options, resolve_aliases
from xagents.options.environment import EnvironmentOptions, NetworkOptions
from xagents.options.runs import RunOptions

T = TypeVar('T', bound=Options)
# groups of options in the order of the help pages; `agent` is replaced by the options of one agent
GROUPS: dict[str, type[Options]] = {
    'environment': EnvironmentOptions,
    'run': RunOptions,
    'train': runs.TrainOptions,
    'network': NetworkOptions,
    'agent': AgentOptions,
    'session': runs.SessionOptions,
    'record': runs.LoggingOptions,
    'explorers': runs.ExplorerOptions,
    'dataset': runs.DatasetOptions,
}


def options_in_groups(agent: type[AgentOptions], *groups: str) -> dict[str, Option]:
    """Return the options of some groups by name.

    Args:
        agent: the options of one agent, for the group 'agent'.
        groups: keys of `GROUPS`; without them, all groups of `xagents train`.
    """
    of = {**GROUPS, 'agent': agent}
    names = groups or ('environment', 'run', 'train', 'network', 'agent', 'session')
    return {name: option for group in names for name, option in declared_options(of[group]).items()}


@dataclass(frozen=True)
class Settings:
    """Every option of an agent and its run. They are resolved and checked once, and do not change.

    Attributes:
        environment: options of the environments; `env` may be an id, a function that makes an environment, or
            ready-made environments.
        network: options of networks without a file.
        models: files or names of the networks, by option; None for a network without a file.
        agent: options of the algorithm.
        run: options of the run.
        given_options: the given values by name, including values from files and presets.
    """

    environment: EnvironmentOptions
    network: NetworkOptions
    models: dict[str, Any]
    agent: AgentOptions
    run: RunOptions
    given_options: Mapping[str, Any]

    def with_environment(self, **options: Any) -> Settings:
        """Return settings with other options of the environment; None removes a given one."""
        given = {**self.given_options, **options}
        given = {name: value for name, value in given.items() if value is not None}
        return replace(self, environment=self.environment.changed(**options), given_options=given)


def resolve_settings(agent: type[AgentOptions], models: Iterable[str], given: Mapping[str, Any], name: str) -> Settings:
    """Return the settings for given options.

    Args:
        agent: the class of the agent's options.
        models: names of the options that take the file of a network.
        given: values by name of the option.
        name: name of the agent in messages.

    Raises:
        OptionError: for an unknown option, a value that is not valid, or options that exclude each other.
    """
    all_options = options_in_groups(agent, 'environment', 'network', 'agent', 'run')
    given = resolve_aliases(given, all_options, f'of {name}')
    files = {model: all_options[model].check(given.get(model)) for model in models}
    network = _resolve_group(NetworkOptions, given)
    if network.block == 'simba':  # running statistics of the observations are part of this network
        given = {'normalize_obs': True, **given}
    env = given.get('env')
    text = env is None or isinstance(env, str)  # False for ready-made environments
    environment = _resolve_group(EnvironmentOptions, {n: v for n, v in given.items() if text or n != 'env'})
    environment = environment.changed(env=env)
    agent_options = _resolve_group(agent, {n: v for n, v in given.items() if n not in files})
    run = _resolve_group(RunOptions, given)
    return Settings(environment, network, files, agent_options, run, given)


class AgentSettings(NamedTuple):
    """The options of an agent, the default options of its runs, and messages about both for the console."""

    agent: AgentOptions
    run: RunOptions
    messages: list[str]


def resolve_agent_options(name: str, agent: type[AgentOptions], given: dict[str, Any]) -> AgentSettings:
    """Return the options of an agent's constructor.

    Args:
        name: name of the agent's class in messages.
        agent: the class of the agent's options.
        given: keywords of the constructor; the key `settings` contains resolved `Settings`, if present.

    Raises:
        OptionError: as `resolve_settings`.
    """
    settings: Settings | None = given.pop('settings', None)
    if settings is None:
        given = resolve_aliases(given, options_in_groups(agent, 'agent', 'run'), f'of {name}')
        options, run = _resolve_group(agent, given), _resolve_group(RunOptions, given)
    else:
        options, run = settings.agent, settings.run
    messages = []
    if ignored := [o.flag for n, o in declared_options(agent).items() if n in options.given_names and o.ignored]:
        messages.append(f'Warning: without effect on {name}: {", ".join(ignored)}')
    return AgentSettings(options, run, messages)


def _resolve_group(group: type[T], given: Mapping[str, Any]) -> T:
    known = declared_options(group)
    return group.resolve({name: value for name, value in given.items() if name in known})
