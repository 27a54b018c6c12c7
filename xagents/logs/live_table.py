"""A table that is redrawn on a terminal while processes run; lines of text elsewhere."""

from __future__ import annotations

import re
import time
from abc import ABC, abstractmethod
from datetime import timedelta
from typing import Any

from rich.console import Console as Terminal
from rich.console import RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

DRAWINGS_PER_SECOND = 4
COLOURS = {'running': 'cyan', 'pruned': 'yellow', 'interrupted': 'yellow', 'failed': 'red', 'killed': 'red'}
ESCAPES = re.compile(r'\x1b\[[0-?]*[ -/]*[@-~]')


class LiveTable(ABC):
    """A table on standard output. A subclass draws it.

    Args:
        quiet: print nothing.
        live: whether to draw the table; by default only on a terminal.
        terminal: the console of rich; standard output by default.
        transient: whether to remove the table at the end.
    """

    def __init__(
        self, quiet: bool, live: bool | None = None, terminal: Terminal | None = None, transient: bool = False
    ):
        self.quiet = quiet
        self._start = time.monotonic()
        self._terminal = terminal or Terminal(highlight=False, soft_wrap=True, emoji=False)
        self._live: Live | None = None
        if not quiet and (is_live_terminal(self._terminal) if live is None else live):
            shown: dict[str, Any] = {'refresh_per_second': DRAWINGS_PER_SECOND, 'vertical_overflow': 'crop'}
            self._live = Live(console=self._terminal, get_renderable=self._render, transient=transient, **shown)
            self._live.start()

    def say(self, line: str) -> None:
        """Print a line above the table."""
        # print nothing if standard output is closed
        if line and not self.quiet and not getattr(self._terminal.file, 'closed', False):
            self._terminal.print(Text(line), soft_wrap=True, crop=False)

    def close(self) -> None:
        """Stop drawing the table."""
        if self._live is not None:
            self._live.stop()

    @abstractmethod
    def _render(self) -> RenderableType:
        """Return the table and its last line. A thread of rich calls this method."""

    def _elapsed(self) -> str:
        return f'elapsed {timedelta(seconds=round(time.monotonic() - self._start))}'

    def _rows_that_fit(self, footer: Text) -> int:
        """Return the number of rows between the header and the last lines; the cursor takes one line, too."""
        width, height = self._terminal.size
        return max(height - 2 - len(footer.wrap(self._terminal, max(width, 1))), 1)


def new_table(numbers: tuple[str, ...], **columns: dict[str, Any]) -> Table:
    """Return an empty table with right-aligned columns of numbers, then other columns with their arguments."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style='bold', expand=True)
    for name in numbers:
        table.add_column(name, justify='right', no_wrap=True)
    for name, arguments in columns.items():
        table.add_column(name, no_wrap=True, overflow='ellipsis', **arguments)
    return table


def clean_line(text: str, longest: int) -> str:
    """Return text on one line, without escape sequences and control characters, shortened to `longest` characters."""
    text = ESCAPES.sub('', text)
    line = ' '.join(''.join(letter if letter.isprintable() else ' ' for letter in text).split())
    return line if len(line) <= longest else f'{line[: longest - 1]}…'


def is_live_terminal(terminal: Terminal) -> bool:
    """Return whether a live table can be drawn on a console."""
    # with FORCE_COLOR, rich regards a file as a terminal: print colours there, but no live table
    try:
        return terminal.is_interactive and terminal.file.isatty()
    except ValueError:  # closed
        return False
