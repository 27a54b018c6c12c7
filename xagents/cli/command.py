"""A command: its options, its checks and its function. The function's module is loaded only when the command runs."""

from __future__ import annotations

import argparse
import dataclasses
import importlib
from collections.abc import Callable, Sequence
from typing import Any

from xagents.cli import checks
from xagents.config.configuration import agent_in_file, check_config, settings_file
from xagents.options.agents import AgentOptions
from xagents.options.declaration import Option, declared_options
from xagents.options.environment import EnvironmentOptions, NetworkOptions
from xagents.options.errors import GivenOptions, OptionError, as_input_errors
from xagents.options.runs import SessionOptions
from xagents.registry.agents import find_agent
from xagents.tuning.search import searchable


def flag_parser() -> argparse.ArgumentParser:
    """Return a parser without flags. It raises ArgumentError and leaves out flags that were not typed."""
    rules: dict[str, Any] = {'add_help': False, 'allow_abbrev': False, 'exit_on_error': False}
    return argparse.ArgumentParser(argument_default=argparse.SUPPRESS, **rules)


@dataclasses.dataclass(frozen=True)
class Command:
    """One command of the command line.

    Args:
        name: name on the command line.
        help: line on the usage page.
        examples: arguments of example lines, for the page of the command.
        groups: titles and dataclasses of the options, in the order of the page. Groups with one title form one section.
        target: `module:function` of this package, loaded when the command runs. The arguments are the agent's id (or
            the paths, for a command without an agent), the given options and the command line. The function may return
            a page.
        check: function that raises OptionError if options are missing or conflict.
        takes_agent: whether the first argument is an agent's id. Otherwise the arguments are paths or names.
        agent_sources: options whose file or directory names the agent if its id is left out.
        runs_without_arguments: whether the command runs without arguments. Otherwise its page is shown.
        hidden: dataclass of options that are checked but have no effect.
        accepts_ranges: whether options with a search type also accept ranges.
        trains: whether agents learn. Otherwise the page lists the options of agents and networks only on request.
    """

    name: str
    help: str
    examples: tuple[str, ...]
    groups: tuple[tuple[str, type], ...]
    target: str
    check: Callable[[Any, GivenOptions], None]
    takes_agent: bool = True
    agent_sources: tuple[str, ...] = ()
    runs_without_arguments: bool = False
    hidden: type | None = None
    accepts_ranges: bool = False
    trains: bool = False

    def run(self, target: Any, given: GivenOptions, line: str) -> str | None:
        """Call the function at `target` with these arguments and return its result."""
        module, _, function = self.target.partition(':')
        return getattr(importlib.import_module(f'xagents.cli.{module}'), function)(target, given, line)

    def sections(self, agent_id: str | None = None) -> dict[str, dict[str, Option]]:
        """Return the options by section title and name. The options that only `agent_id` has come first."""
        sections: dict[str, dict[str, Option]] = {}
        for title, group in self.groups:
            sections[title] = sections.get(title, {}) | declared_options(group)
        if not self.takes_agent:
            return sections
        shared = declared_options(AgentOptions)
        if agent_id is not None:
            entry = find_agent(agent_id)
            known = declared_options(entry.options)
            # networks first, options without effect last
            own = [option for name, option in known.items() if name not in shared]
            own.sort(key=lambda option: (option.name not in entry.models) + 2 * option.ignored)
            shared = {name: known[name] for name in shared if name in known}
            title, group = self.groups[0]
            # the agent's own options come first, after the command's section if there is one
            first = {} if group is EnvironmentOptions else {title: sections.pop(title)}
            sections = {**first, f'Only {agent_id}': {option.name: option for option in own}, **sections}
        sections['Every agent'] = shared
        sections['Session'] = declared_options(SessionOptions)
        if self.accepts_ranges:
            sections = {t: {n: searchable(o) for n, o in section.items()} for t, section in sections.items()}
        return sections

    def short_sections(self, agent_id: str | None = None) -> dict[str, dict[str, Option]]:
        """Return the sections without the options that matter only to training, which a saved agent has already."""
        sections = self.sections(agent_id)
        if self.trains:
            return sections
        short = sections
        if self.takes_agent:
            names = {*(title for title, group in self.groups if group is not NetworkOptions), 'Session'}
            short = {title: section for title, section in sections.items() if title in names}
            short['Session'] = {'seed': sections['Every agent']['seed'], **short['Session']}
        # how `tune` searches an option does not matter here
        return {t: {n: dataclasses.replace(o, tune=None) for n, o in section.items()} for t, section in short.items()}

    def options(self, agent_id: str | None = None) -> dict[str, Option]:
        """Return every accepted option by name, hidden options last."""
        options = {name: option for section in self.sections(agent_id).values() for name, option in section.items()}
        hidden = {} if self.hidden is None else declared_options(self.hidden)
        return options | {name: option for name, option in hidden.items() if name not in options}

    def find_agent_id(self, words: Sequence[str]) -> str | None:
        """Return the agent in a file or directory on the command line, or None. Raise OptionError or InputError."""
        parser = flag_parser()
        for name in self.agent_sources:
            parser.add_argument('--' + name.replace('_', '-'), dest=name)
        try:
            typed = vars(parser.parse_known_args(words)[0])
        except argparse.ArgumentError as error:  # a flag without its value
            name = (error.argument_name or '').lstrip('-').replace('-', '_')
            raise OptionError(name, f'got nothing, expected {self.options()[name].expected}') from None
        for name, path in typed.items():
            with as_input_errors():
                if name == 'config':
                    check_config(path)
                    agent_id = agent_in_file(path)
                else:
                    checks.check_run(name, path)
                    agent_id = agent_in_file(settings_file(path))
            if agent_id is not None:
                return agent_id
        return None
