"""Reading, checking and writing YAML files of settings, whose keys are the flags of `xagents train`.

The declared type of an option determines how a value is read, not YAML's own rules: 1e-3 is a number for a numeric
option, and `no` is a text for a text option. Nothing in a file is executed. This module does not load TensorFlow.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from xagents.config.yaml_values import check_tag, dump, parse_node, read_nodes
from xagents.options.declaration import Option, declared_options, resolve_aliases
from xagents.options.environment import EnvironmentOptions
from xagents.options.errors import OptionError, but_of, format_value
from xagents.options.foreign_names import option_hint
from xagents.options.runs import PRESET_OPTIONS
from xagents.registry.agents import TEAM_ENTRY, agents, find_agent
from xagents.system.file_names import CONFIG, CONFIG_MISSING, GROUP, has_checkpoints
from xagents.system.modules import import_modules
from xagents.system.values import to_plain_value

# keys that are not options, and options that exist only on the command line
AGENT, ABOUT, IMPORTS = 'agent', 'about', 'imports'
COMMAND_LINE_ONLY = ('config', 'print_config', 'resume', 'debug')
# options with one value for all runs of a grid
SHARED_IN_GRID = (*COMMAND_LINE_ONLY, 'run_dir', 'from_study', 'storage', *PRESET_OPTIONS, 'seeds', 'grid_jobs')


class Configuration(NamedTuple):
    """The contents of a file of settings.

    Attributes:
        agent: id of the agent; None if the file does not name one.
        options: checked values of options with one value, by Python name.
        grid: checked values of options with several values, by Python name.
    """

    agent: str | None
    options: dict[str, Any]
    grid: dict[str, list[Any]]


def train_options(agent_id: str) -> dict[str, Option]:
    """Return every option of `xagents train` by its Python name."""
    return find_agent(agent_id).options_in()


def read_config_file(path: str | os.PathLike[str], agent_id: str | None = None) -> Configuration:
    """Read a file of settings. Values that are null are left out.

    Args:
        path: path of the file.
        agent_id: id of the agent. If None, the file must name the agent; otherwise it may name only this agent.

    Returns:
        The agent, options and grid of the file.

    Raises:
        ValueError: if the file or a value is wrong. The message is one line with the file and the key.
    """
    nodes = read_nodes(path)
    try:
        agent_in_config = _agent_id(nodes)
        if agent_in_config and agent_id and agent_in_config != agent_id:
            raise OptionError(AGENT, f'got {agent_in_config}, expected {agent_id}, the agent of the command')
        chosen_agent = agent_id or agent_in_config
        if chosen_agent is None:
            raise OptionError(AGENT, f'got nothing, expected one of {", ".join(agents)}')
        return Configuration(agent_in_config, *_split_options(chosen_agent, nodes))
    except OptionError as error:
        raise ValueError(f'{path}: {error.name.replace("_", "-")}: {error.problem}') from error


def read_config(folder: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the `agent` of a run and its options by Python name. Raise ValueError if the file is wrong."""
    configuration = read_config_file(Path(folder) / CONFIG)
    return {'agent': configuration.agent, **configuration.options}


def read_plain_config(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the agent and the options in a file, by Python name, without checks. No module in the file is imported.

    Raises:
        ValueError: if the file is missing, or is no mapping of YAML.
    """
    nodes = read_nodes(path)
    values = {name: _plain_value(path, name, node) for name, node in nodes.items() if name != ABOUT}
    return {name: value for name, value in values.items() if value not in (None, {})}


def read_about(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the section `about` of a file of settings: command, time, versions. It is empty if there is none.

    Raises:
        ValueError: if the file is missing, or is no mapping of YAML.
    """
    node = read_nodes(path).get(ABOUT)
    about = None if node is None else _plain_value(path, ABOUT, node)
    return about if isinstance(about, dict) else {}


def _plain_value(path: str | os.PathLike[str], name: str, node: yaml.Node) -> Any:
    try:
        return yaml.safe_load(yaml.serialize(node))
    except (yaml.YAMLError, ValueError) as error:  # an unknown tag, or a number or date that does not exist
        raise ValueError(f'{path}: {name.replace("_", "-")}: has no plain value') from error


def check_config(path: str | os.PathLike[str]) -> None:
    """Raise OptionError, with the nearest name, if `--config` does not name a file."""
    if os.path.isdir(path) or not os.path.exists(path):  # not for a pipe, which can be read only once
        try:
            read_nodes(path)
        except ValueError as error:
            raise OptionError('config', str(error)) from error


def agent_in_file(path: str | os.PathLike[str]) -> str | None:
    """Return the agent that a file names, or None, without checking the rest. Raise ValueError for a wrong file."""
    try:
        return _agent_id(read_nodes(path))
    except OptionError as error:
        raise ValueError(f'{path}: {error}') from error


def settings_file(folder: str | os.PathLike[str]) -> Path:
    """Return the file of settings of a run directory or a group of runs. Raise ValueError if there is none."""
    for name in (CONFIG, GROUP):
        if os.path.isfile(os.path.join(folder, name)):
            return Path(folder) / name
    if has_checkpoints(folder):
        raise ValueError(f'{folder} {CONFIG_MISSING}')
    raise ValueError(f'{folder}: expected a run directory, which has a {CONFIG} or a {GROUP}')


def to_yaml(agent_id: str, options: Mapping[str, Any], about: Mapping[str, Any] | None = None) -> str:
    """Return options as YAML that `read_config_file` and other YAML readers read as equal values.

    Args:
        agent_id: id of the agent, the first key.
        options: options by Python name. None is written as null. A comment replaces values that YAML cannot hold.
        about: plain values about the origin of the file. They become the last key, which readers ignore.
    """
    settings = {name.replace('_', '-'): value for name, value in options.items()}
    unwritable = {name: value for name, value in settings.items() if callable(value)}
    plain = {name: to_plain_value(value) for name, value in settings.items() if name not in unwritable}
    comments = [f'# {name} was given in Python: {format_value(ascii(value))}\n' for name, value in unwritable.items()]
    ends = [dump({ABOUT: to_plain_value(about)})] if about else []
    return ''.join([dump({AGENT: agent_id, **plain}), *comments, *ends])


def default_line(option: Option) -> str:
    """Return a comment with an option's key, default and help. Without its # the comment sets the default."""
    key, has_default = option.name.replace('_', '-'), option.default not in (None, [], {})
    setting = dump({key: to_plain_value(option.default)}).rstrip('\n') if has_default else f'{key}:'
    return f'# {setting}  # {option.help}\n'


def _agent_id(nodes: Mapping[str, yaml.Node]) -> str | None:
    if IMPORTS in nodes:  # the modules may register the agent
        import_modules(parse_node(declared_options(EnvironmentOptions)[IMPORTS], nodes[IMPORTS]))
    if AGENT not in nodes:
        return TEAM_ENTRY.id if 'policies' in nodes else None
    node = nodes[AGENT]
    if node.id != 'scalar':
        raise OptionError(AGENT, f'got a {node.id}, expected one of {", ".join(agents)}')
    return find_agent(node.value).id


def _split_options(agent_id: str, nodes: Mapping[str, yaml.Node]) -> tuple[dict[str, Any], dict[str, list[Any]]]:
    """Return the options with one value, and the values of options with several."""
    known = train_options(agent_id)
    options: dict[str, Any] = {}
    grid: dict[str, list[Any]] = {}
    for name, node in resolve_aliases(nodes, known).items():
        if name in (AGENT, ABOUT):
            continue
        if name not in known:
            hint = but_of(agents_with_option(name)) or option_hint(name, known).replace('_', '-')
            raise OptionError(name, f'is no option of xagents train {agent_id}{hint}')
        if name in COMMAND_LINE_ONLY:
            raise OptionError(name, 'is no setting of a run, expected only on the command line')
        option = known[name]
        check_tag(option, node)
        # each value of a list makes a run, unless the option itself accepts a list
        if node.id == 'sequence' and (not option.is_list or any(one.id == 'sequence' for one in node.value)):
            if name in SHARED_IN_GRID:
                raise OptionError(name, f'got a list, which would make several runs, expected {option.expected}')
            grid[name] = _check_distinct(option, [parse_node(option, one) for one in node.value])
        else:
            options[name] = parse_node(option, node)
    return {name: value for name, value in options.items() if value not in (None, {})}, grid


def agents_with_option(name: str) -> list[str]:
    """Return the ids of the agents that have an option. Agents that cannot be loaded are left out."""
    owners = []
    for agent_id, entry in agents.items():
        with contextlib.suppress(OptionError):
            if name in declared_options(entry.options):
                owners.append(agent_id)
    return owners


def _check_distinct(option: Option, values: list[Any]) -> list[Any]:
    if not values:
        raise OptionError(option.name, f'got an empty list, expected {option.expected}, or a list of them')
    for index, value in enumerate(values):
        if value is None:
            raise OptionError(option.name, f'got nothing in a list, expected {option.expected}')
        if value in values[:index]:
            raise OptionError(option.name, f'got {format_value(value)} twice, expected different values')
    return values
