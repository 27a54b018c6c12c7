"""Settings: the options of an agent and its run, sorted into groups, checked and completed once, then handed down."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

from xagents.options.agents import AgentOptions
from xagents.options.declaration import Option, Options, canonical, describe
from xagents.options.environment import EnvironmentOptions, NetworkOptions
from xagents.options.runs import (
    DatasetOptions,
    ExplorerOptions,
    RecordOptions,
    RunOptions,
    SessionOptions,
    TrainOptions,
)

T = TypeVar('T', bound=Options)
# what options are about, in the order of the pages; `agent` are those of one agent
GROUPS: dict[str, type[Options]] = {
    'environment': EnvironmentOptions,
    'run': RunOptions,
    'train': TrainOptions,
    'network': NetworkOptions,
    'agent': AgentOptions,
    'session': SessionOptions,
    'record': RecordOptions,
    'explorers': ExplorerOptions,
    'dataset': DatasetOptions,
}


def known(agent: type[AgentOptions], *groups: str) -> dict[str, Option]:
    """Return the options of some groups (of `GROUPS`; all of `train` when not given) by name.

    The group 'agent' is that of one `agent`.
    """
    of = {**GROUPS, 'agent': agent}
    names = groups or ('environment', 'run', 'train', 'network', 'agent', 'session')
    return {name: option for group in names for name, option in describe(of[group]).items()}


@dataclass
class Settings:
    """Every option of an agent and its run.

    Attributes:
        environment: `env` may be an id, a function that makes an environment, or ready-made environments.
        network: of networks without a file.
        models: the files, or names, of the networks, by option; None where none is given.
        agent: of the mathematics.
        run: of the process.
        given: what was given, or stood in for it, by name.
    """

    environment: EnvironmentOptions
    network: NetworkOptions
    models: dict[str, Any]
    agent: AgentOptions
    run: RunOptions
    given: dict[str, Any]


def resolve_all(agent: type[AgentOptions], models: Iterable[str], given: Mapping[str, Any], name: str) -> Settings:
    """Return the settings that given options make.

    Args:
        agent: the options of the agent.
        models: those of them that name its networks' files.
        given: options by name.
        name: of the agent, for messages.

    Raises:
        OptionError: for an unknown option, a value that is not admitted, or two that exclude each other.
    """
    everything = known(agent, 'environment', 'network', 'agent', 'run')
    given = canonical(given, everything, f'of {name}')
    files = {model: everything[model].check(given.get(model)) for model in models}
    env = given.get('env')
    text = env is None or isinstance(env, str)  # ready-made environments are none
    environment = _group(EnvironmentOptions, {n: v for n, v in given.items() if text or n != 'env'})
    environment.env = env
    mathematics = _group(agent, {n: v for n, v in given.items() if n not in files})
    return Settings(environment, _group(NetworkOptions, given), files, mathematics, _group(RunOptions, given), given)


class OfAgent(NamedTuple):
    """What an agent is made with: options, those of its runs by default, and what is to be said of them."""

    agent: AgentOptions
    run: RunOptions
    said: list[str]


def of_agent(name: str, agent: type[AgentOptions], given: dict[str, Any]) -> OfAgent:
    """Return the options of an agent's constructor, with a seed drawn where none was given.

    Args:
        name: of its class, for messages.
        agent: its options.
        given: keywords; `settings` has them resolved already.

    Raises:
        OptionError: as `resolve_all`.
    """
    settings: Settings | None = given.pop('settings', None)
    if settings is None:
        given = canonical(given, known(agent, 'agent', 'run'), f'of {name}')
        options, run = _group(agent, given), _group(RunOptions, given)
    else:
        options, run = settings.agent, settings.run
    said = []
    if 'seed' not in options.given or options.seed is None:
        said.append(f'Seed: {options.draw_seed()}')
    without_effect = [o.flag for n, o in describe(agent).items() if n in options.given and o.without_effect]
    if without_effect:
        said.append(f'Warning: without effect on {name}: {", ".join(without_effect)}')
    return OfAgent(options, run, said)


def _group(group: type[T], given: Mapping[str, Any]) -> T:
    known = describe(group)
    return group.resolve({name: value for name, value in given.items() if name in known})
