"""What a command is: its options, what it requires, what it runs. Nothing heavy is loaded before it runs."""

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
from xagents.options.environment import EnvironmentOptions
from xagents.options.errors import GivenOptions, OptionError, as_input_errors
from xagents.options.runs import SessionOptions
from xagents.registry.agents import find_agent
from xagents.tuning.search import searchable


def flag_parser() -> argparse.ArgumentParser:
    """Return a parser without flags that raises ArgumentError and leaves out what was not typed."""
    return argparse.ArgumentParser(
        add_help=False, allow_abbrev=False, exit_on_error=False, argument_default=argparse.SUPPRESS
    )


@dataclasses.dataclass(frozen=True)
class Command:
    """One command of the command line.

    Args:
        name: what is typed.
        help: its line on the usage page.
        examples: what is typed after its name, for its own page.
        groups: titles and dataclasses of its options in the order of its page; those under one title are one section.
        target: `module:function` of this package, loaded when the command runs. The function takes the agent's id (or
            the
            paths, where the command takes no agent), the given options and the typed line, and may return a page.
        check: raises OptionError for what is missing or contradicts itself.
        takes_agent: whether an agent's id stands behind the command; paths do otherwise.
        agent_sources: options whose file or folder names the agent where its id is left out.
        runs_without_arguments: whether it runs with nothing behind it; its page is shown otherwise.
        hidden: dataclass of options that are checked and have no effect.
        accepts_ranges: whether options with a search type take ranges, too.
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

    def run(self, target: Any, given: GivenOptions, line: str) -> str | None:
        """Do the work; arguments and result are those of the function at `place`."""
        module, _, function = self.target.partition(':')
        return getattr(importlib.import_module(f'xagents.cli.{module}'), function)(target, given, line)

    def sections(self, agent_id: str | None = None) -> dict[str, dict[str, Option]]:
        """Return the options by section title and name, those that only `agent_id` has first."""
        sections: dict[str, dict[str, Option]] = {}
        for title, group in self.groups:
            sections[title] = sections.get(title, {}) | declared_options(group)
        if not self.takes_agent:
            return sections
        shared = declared_options(AgentOptions)
        if agent_id is not None:
            entry = find_agent(agent_id)
            known = declared_options(entry.options)
            # the networks first, what does nothing last
            own = [option for name, option in known.items() if name not in shared]
            own.sort(key=lambda option: (option.name not in entry.models) + 2 * option.ignored)
            shared = {name: known[name] for name in shared}
            title, group = self.groups[0]
            # the agent's own stand first, but for what the command is about
            first = {} if group is EnvironmentOptions else {title: sections.pop(title)}
            sections = {**first, f'Only {agent_id}': {option.name: option for option in own}, **sections}
        sections['Every agent'] = shared
        sections['Session'] = declared_options(SessionOptions)
        if self.accepts_ranges:
            sections = {t: {n: searchable(o) for n, o in section.items()} for t, section in sections.items()}
        return sections

    def options(self, agent_id: str | None = None) -> dict[str, Option]:
        """Return every accepted option by name, the hidden ones last."""
        options = {name: option for section in self.sections(agent_id).values() for name, option in section.items()}
        hidden = {} if self.hidden is None else declared_options(self.hidden)
        return options | {name: option for name, option in hidden.items() if name not in options}

    def find_agent_id(self, words: Sequence[str]) -> str | None:
        """Return the agent that a file or folder on the line names, if any; raises OptionError or InputError."""
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
