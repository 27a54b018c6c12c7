"""Pages for a console: lines and tables. The columns of a page have the same widths in all of its tables."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table
    from rich.text import Text

    Rows = Iterable[Sequence[str | Text]]

# characters of a line: a narrower console wraps lines, and longer lines are hard to read
MIN_WIDTH, MAX_WIDTH = 72, 140
# spaces between two cells
COLUMN_GAP = 2
# width of a page whose lines are not wrapped
UNWRAPPED_WIDTH = 1_000_000


def format_option_value(value: Any, number: Callable[[float], str] = '{:.6g}'.format) -> str:
    """Return the value of an option as text: `-` for no value, `on` or `off` for a switch.

    Args:
        value: the value; the items of a list are joined by spaces.
        number: the function that formats floats.
    """
    if value is None or value in ([], {}):
        return '-'
    if isinstance(value, bool):
        return 'on' if value else 'off'
    if isinstance(value, (list, tuple)):
        return ' '.join(format_option_value(one, number) for one in value)
    return number(value) if isinstance(value, float) else str(value)


def console_width(width: int | None = None) -> int:
    """Return the width of a page: `width`, or the width of the console if not given; at least MIN_WIDTH."""
    from rich.console import Console

    return max(width or Console().width, MIN_WIDTH)


def column_widths(rows: Rows) -> list[int]:
    """Return the width of the widest cell of each column."""
    from rich.cells import cell_len

    return [max(cell_len(str(cell)) for cell in column) for column in zip(*rows, strict=True)]


def make_table(rows: Rows, widths: Sequence[int], styles: Sequence[str] = (), right: Collection[int] = ()) -> Table:
    """Return rows as a table without lines; a cell that is longer than its column is wrapped.

    Args:
        rows: the cells of each row.
        widths: the width of each column; columns of width 0 are omitted.
        styles: the style of each column in the form of Rich.
        right: the indices of right-aligned columns.
    """
    from rich.table import Table
    from rich.text import Text

    made = Table.grid(padding=(0, COLUMN_GAP, 0, 0))
    columns = [(index, styles[index] if styles else '') for index, width in enumerate(widths) if width]
    for index, _ in columns:
        made.add_column(width=widths[index], justify='right' if index in right else 'left')
    for row in rows:
        cells = [(row[index], style) for index, style in columns]
        made.add_row(*(Text(cell, style) if isinstance(cell, str) else cell for cell, style in cells))
    return made


def render_page(parts: Iterable[RenderableType], width: int | None = None) -> str:
    """Return lines and tables as one text, without spaces at the ends of lines.

    The text contains colours if the console supports colours. Lines are wrapped at `width`, or not if it is not given.
    """
    from rich.console import Console

    console = Console(width=width or UNWRAPPED_WIDTH, highlight=False, markup=False, emoji=False)
    with console.capture() as shown:
        for part in parts:
            console.print(part)
    return '\n'.join(line.rstrip() for line in shown.get().splitlines())
