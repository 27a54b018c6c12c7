"""Pages for a console: lines, and tables whose columns keep their widths from the first line of a page to the last."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table
    from rich.text import Text

# columns of a page: a narrower console wraps whole lines, and lines of a wider one would be hard to follow
MIN_WIDTH, MAX_WIDTH = 72, 140
# columns between two cells
COLUMN_GAP = 2
# of a page whose lines are not wrapped
UNWRAPPED_WIDTH = 1_000_000


def format_option_value(value: Any, number: Callable[[float], str] = '{:.6g}'.format) -> str:
    """Return an option's value as one would type it; '-' for none, on or off for a switch. `number` writes floats."""
    if value is None or value in ([], {}):
        return '-'
    if isinstance(value, bool):
        return 'on' if value else 'off'
    if isinstance(value, (list, tuple)):
        return ' '.join(format_option_value(one, number) for one in value)
    return number(value) if isinstance(value, float) else str(value)


def console_width(width: int | None = None) -> int:
    """Return the width for a page: `width`, or the console's when not given, and at least MIN_WIDTH."""
    from rich.console import Console

    return max(width or Console().width, MIN_WIDTH)


def column_widths(rows: Iterable[Sequence[str | Text]]) -> list[int]:
    """Return, for each column, the width of its widest cell."""
    from rich.cells import cell_len

    return [max(cell_len(str(cell)) for cell in column) for column in zip(*rows, strict=True)]


def make_table(
    rows: Iterable[Sequence[str | Text]], widths: Sequence[int], styles: Sequence[str] = (), right: Collection[int] = ()
) -> Table:
    """Return rows as a table without rules; a cell that is longer than its column is wrapped.

    A column of width 0 is left out; those numbered in `right` are aligned to the right.
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
    """Return lines and tables as one text, in colours where the console shows them, without spaces at ends of lines.

    Lines are wrapped at `width`, or nowhere when not given.
    """
    from rich.console import Console

    console = Console(width=width or UNWRAPPED_WIDTH, highlight=False, markup=False, emoji=False)
    with console.capture() as shown:
        for part in parts:
            console.print(part)
    return '\n'.join(line.rstrip() for line in shown.get().splitlines())
