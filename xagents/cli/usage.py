"""The pages that say what can be typed; what they say of an option comes from its declaration alone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from xagents.cli.commands import Command, commands
from xagents.options.declaration import Option
from xagents.registry.agents import agents, listed
from xagents.version import __version__

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

# columns of the console: a narrower one wraps whole lines, and lines of a wider one would be hard to follow
MIN_WIDTH = 72
MAX_WIDTH = 140
# columns of the table: a flag longer than this stands on its own line where that gives the help this much room
LONG_FLAG = 22
GOOD_HELP = 40
LEGEND = '-: not given. off, on: a switch, which --no-… turns off. …: one or more values.'
RANGES = (
    'Tuned as: of int and log_uniform two values are the bounds of a search, of categorical two or more the choices; '
    'one value is fixed.'
)
STYLES = ('cyan', '', 'green', 'dim')


class Row(NamedTuple):
    """What the table says of one option."""

    flag: str
    help: str
    default: str
    tuned: str


def usage_page() -> str:
    """Return what `xagents` prints."""
    lines = '\n'.join(f'    {command.name:<10} {command.help}' for command in commands.values())
    return f"""xagents {__version__}

Usage:
    xagents <command> <agent> [options] [args]

Available commands:
{lines}

Use xagents <command> to see more info about a command
Use xagents <command> <agent> to see more info about command + agent"""


def command_page(command: Command, agent_id: str | None = None) -> str:
    """Return what `xagents <command>` and `xagents <command> <agent>` print: how it is used, and its options.

    It is as wide as the console, with colours where that shows them.
    """
    from rich.console import Console

    console = Console(highlight=False)
    console.width = min(max(console.width, MIN_WIDTH), MAX_WIDTH)
    examples = [line if agent_id is None else line.replace('<agent>', agent_id) for line in command.examples]
    usage = '\n'.join(f'    xagents {command.name} {line}' for line in examples)
    subject = f'{agent_id}, {agents[agent_id].help}' if agent_id else command.help
    with console.capture() as page:
        console.print(f'{subject}\n\nUsage:\n{usage}\n', markup=False)
        if command.takes_agent and agent_id is None:
            lines = '\n'.join(f'    {id:<10} {line}' for id, line in listed().items())
            console.print(f'Available agents:\n{lines}\n', markup=False)
        console.print(*_tables(command, agent_id, console.width), sep='')
        console.print(f'\n{LEGEND}', style='dim', markup=False)
        if command.searches:
            console.print(RANGES, style='dim', markup=False)
    return '\n'.join(line.rstrip() for line in page.get().splitlines())


def _tables(command: Command, agent_id: str | None, width: int) -> Iterator[RenderableType]:
    """The options, a section at a time, in columns of the same widths throughout."""
    from rich.text import Text

    sections = command.sections(agent_id)
    rows = {title: [_row(option) for option in section.values()] for title, section in sections.items()}
    header = Row('Flag', 'Help', 'Default', 'Tuned as')
    columns = list(zip(header, *(row for section in rows.values() for row in section), strict=True))
    flag, help_, default, tuned = (max(map(len, column)) for column in columns)
    tuned = 0 if set(columns[3][1:]) == {'-'} else tuned
    room = width - default - tuned - 6
    if room - flag < GOOD_HELP:
        # a few long flags stand on lines of their own, so that the help of all the others has room
        flag = min(flag, LONG_FLAG)
    widths = (flag, min(help_, room - flag), default, tuned)
    yield _table([header], widths, ('bold',) * 4)
    for title, section in rows.items():
        yield Text(f'\n{title}', style='bold')
        together: list[Row] = []
        for row in section:
            if len(row.flag) > flag:
                yield _table(together, widths, STYLES)
                yield Text(row.flag, style=STYLES[0])
                together = [row._replace(flag='')]
            else:
                together.append(row)
        yield _table(together, widths, STYLES)


def _table(rows: list[Row], widths: tuple[int, ...], styles: tuple[str, ...]) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, show_header=False)
    shown = [index for index, width in enumerate(widths) if width]
    for index in shown:
        table.add_column(width=widths[index])
    for row in rows:
        table.add_row(*(Text(row[index], style=styles[index]) for index in shown))
    return table


def _row(option: Option) -> Row:
    return Row(_flags(option), _help(option), shown_default(option.default), option.tune or '-')


def _flags(option: Option) -> str:
    names = [flag for flag in option.flags if option.type is not bool or not flag.startswith('--no-')]
    return ', '.join(names) + (' …' if option.takes_several else '')


def _help(option: Option) -> str:
    return option.help + (f' ({", ".join(map(str, option.choices))})' if option.choices else '')


def shown_default(value: Any) -> str:
    """Return a default as one would type it; '-' for none, and a switch as on or off."""
    if value is None or value in ([], {}):
        return '-'
    if isinstance(value, bool):
        return 'on' if value else 'off'
    if isinstance(value, float):
        if not 0 < abs(value) <= 1e-3:
            return f'{value:.12g}'
        digits, _, exponent = f'{value:.11e}'.partition('e')
        return f'{digits.rstrip("0").rstrip(".")}e{int(exponent)}'
    if isinstance(value, (list, tuple)):
        return ' '.join(map(shown_default, value))
    return str(value)
