"""The usage pages. The text about an option comes only from its declaration."""

from __future__ import annotations

import itertools
import textwrap
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

from xagents.cli.commands import Command, commands
from xagents.options.declaration import Option
from xagents.registry.agents import agents, find_agent, help_lines
from xagents.system import pages
from xagents.version import __version__

if TYPE_CHECKING:
    from rich.console import RenderableType

HELP_ALL = '--help-all'
# columns of the table: a longer flag gets its own line if that gives the help this width
LONG_FLAG = 22
GOOD_HELP = 40
# of commands that train, whose complete lists are long
OFTEN_USED = 'env', 'max_steps', 'target_reward', 'tuned', 'n_envs', 'net', 'lr', 'seed', 'run_dir'
LEGEND = '-: none. off, on: a switch, which --no-… turns off. …: one or more values.'
RANGES = (
    'Tuned as: one value fixes an option. Two values of int and log_uniform are the bounds of a search; two or more '
    'values of categorical are its choices (for a switch: false true). -: cannot be searched.'
)
STYLES = ('cyan', '', 'green', 'dim')


class OptionRow(NamedTuple):
    """The row of an option in the table."""

    flag: str
    help: str
    default: str
    tuned: str


def usage_page() -> str:
    """Return the page that `xagents` prints."""
    lines = '\n'.join(f'    {command.name:<10} {command.help}' for command in commands.values())
    return f"""xagents {__version__}

Usage:
    xagents <command> <agent> [options] [args]

Available commands:
{lines}

Use xagents <command> to see more info about a command
Use xagents <command> <agent> to see more info about command + agent"""


def command_page(command: Command, agent_id: str | None = None, complete: bool = False) -> str:
    """Return the page that `xagents <command>` and `xagents <command> <agent>` print: examples and options.

    The page is as wide as the console, and has colours if the console supports them.

    Args:
        command: the command.
        agent_id: the agent, or None for the options that all agents share.
        complete: whether to list also the options that matter only to training.
    """
    from rich.text import Text

    width = min(pages.console_width(), pages.MAX_WIDTH)
    examples = command.examples if agent_id is None else _examples_of(command, agent_id)
    usage = '\n'.join(f'    xagents {command.name} {line}' for line in examples)
    subject = f'{agent_id}, {agents[agent_id].help}' if agent_id else command.help
    parts: list[RenderableType] = [f'{subject}\n\nUsage:\n{usage}\n']
    if command.takes_agent and agent_id is None:
        lines = '\n'.join(f'    {id:<10} {line}' for id, line in help_lines().items())
        parts.append(f'Available agents:\n{lines}\n')
    every, short = command.sections(agent_id), command.short_sections(agent_id)
    if command.trains:
        known = {name: option.flag for section in every.values() for name, option in section.items()}
        flags = ' '.join(known[name] for name in OFTEN_USED if name in known)
        parts.append(
            textwrap.fill(f'Often used: {flags}', width, subsequent_indent='    ', break_on_hyphens=False) + '\n'
        )
    parts += [*_tables(every if complete else short, width), Text(f'\n{LEGEND}', style='dim')]
    if len(short) < len(every) and not complete:
        line = ' '.join(filter(None, ['xagents', command.name, agent_id, HELP_ALL]))
        parts.append(Text(f'{line} also lists options that matter only to training.', style='dim'))
    return pages.render_page([*parts, Text(RANGES, style='dim')] if command.accepts_ranges else parts, width)


def _examples_of(command: Command, agent_id: str) -> list[str]:
    """Return the examples of a command that apply to an agent."""
    lines = [line.replace('<agent>', agent_id) for line in command.examples]
    without = {'never': '--dataset', 'only': '--env'}.get(find_agent(agent_id).options.datasets)
    if command.name != 'train' or without is None:
        return lines
    return [line for line in lines if without not in line]


def _tables(sections: Mapping[str, Mapping[str, Option]], width: int) -> Iterator[RenderableType]:
    """Yield the options, one section at a time, in columns of equal widths in all sections."""
    from rich.text import Text

    rows = {title: [_row(option) for option in section.values()] for title, section in sections.items()}
    header = OptionRow('Flag', 'Help', 'Default', 'Tuned as')
    every = [row for section in rows.values() for row in section]
    flag, help_, default, tuned = pages.column_widths([header, *every])
    tuned = 0 if all(row.tuned == '-' for row in every) else tuned
    help_width = width - default - tuned - 3 * pages.COLUMN_GAP
    if help_width - flag < GOOD_HELP:
        # a few long flags get their own lines, so that the help of the other flags has enough width
        flag = min(flag, LONG_FLAG)
    widths = (flag, min(help_, help_width - flag), default, tuned)
    yield pages.make_table([header], widths, ('bold',) * 4)
    for title, section in rows.items():
        yield Text(f'\n{title}', style='bold')
        for own_line, group in itertools.groupby(section, lambda row: len(row.flag) > flag):
            if not own_line:
                yield pages.make_table(group, widths, STYLES)
                continue
            for row in group:
                yield Text(row.flag, style=STYLES[0])
                yield pages.make_table([row._replace(flag='')], widths, STYLES)


def _row(option: Option) -> OptionRow:
    flags = ', '.join(flag for flag in option.flags if option.type is not bool or not flag.startswith('--no-'))
    choices = f' ({", ".join(map(str, option.choices))})' if option.choices else ''
    several = ' …' if option.accepts_multiple else ''
    return OptionRow(flags + several, option.help + choices, format_default(option), option.tune or '-')


def format_default(option: Option) -> str:
    """Return a default as users type it. The result is '-' for no default, and on or off for a switch."""
    if option.default is None and option.none_word != 'none':
        return option.none_word
    return pages.format_option_value(option.default, _number)


def _number(value: float) -> str:
    if not 0 < abs(value) <= 1e-3:
        return f'{value:.12g}'
    digits, _, exponent = f'{value:.11e}'.partition('e')
    return f'{digits.rstrip("0").rstrip(".")}e{int(exponent)}'
