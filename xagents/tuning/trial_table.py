"""What `xagents tune` shows of its trials: a table that moves on a terminal, a line for each trial elsewhere."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from rich.console import Console as Terminal
from rich.console import Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from xagents.logs.console import format_number as plain_number

DRAWINGS_PER_SECOND = 4
BestTrial = tuple[int, float] | None  # number and value of a study's best trial
COUNTED = ('complete', 'pruned', 'failed')
COLOURS = {'running': 'cyan', 'pruned': 'yellow', 'failed': 'red', 'killed': 'red'}
LONGEST_REASON = 120
LONGEST_PARAMETER = 24
ESCAPES = re.compile(r'\x1b\[[0-?]*[ -/]*[@-~]')


@dataclass
class TrialRow:
    """A trial in the table; `best` is the study's best value when it ended."""

    number: int
    parameters: str = ''
    state: str = 'running'
    value: float | None = None
    best: float | None = None
    done: float = 0.0
    reason: str = ''


class TrialTable:
    """Shows the trials of one call of `xagents tune`, on standard output.

    A trial's state is complete, pruned or failed. It is killed, and does not count, where another one takes its place.
    Without a `total` there is no ETA. Where `live` is not given, a table is drawn on a terminal only.
    """

    def __init__(
        self, total: int | None, jobs: int, quiet: bool, live: bool | None = None, *, terminal: Terminal | None = None
    ):
        self.total, self.jobs, self.quiet = total, jobs, quiet
        self._rows: dict[int, TrialRow] = {}
        self._best: BestTrial = None
        self._seconds: list[float] = []
        self._start = time.monotonic()
        self._terminal = terminal or Terminal(highlight=False, soft_wrap=True, emoji=False)
        self._live: Live | None = None
        if not quiet and (_is_terminal(self._terminal) if live is None else live):
            shown: dict[str, Any] = {'refresh_per_second': DRAWINGS_PER_SECOND, 'vertical_overflow': 'crop'}
            self._live = Live(console=self._terminal, get_renderable=self._render, **shown)
            self._live.start()

    def started(self, number: int, parameters: Mapping[str, Any]) -> None:
        """Show that a trial runs; `parameters` are those that are searched."""
        self._rows[number] = TrialRow(
            number, ' '.join(f'{name}={format_short(value)}' for name, value in parameters.items())
        )

    def progressed(self, number: int, done: float, value: float | None) -> None:
        """Show which part of its steps a trial has done, from 0 to 1, and its value so far."""
        row = self._rows.setdefault(number, TrialRow(number))
        row.done, row.value = min(done, 1.0), value

    def finished(
        self, number: int, state: str, value: float | None, best: BestTrial, seconds: float, reason: str = ''
    ) -> None:
        """Show that a trial has ended, in which state, how long it took, and why it failed."""
        row = self._rows.setdefault(number, TrialRow(number))
        self._best = best
        row.state, row.value, row.best = state, value, best[1] if best else None
        row.reason = _one_line(reason, LONGEST_REASON)
        if state in COUNTED:
            self._seconds.append(seconds)
        if self._live is None:
            said = f'{state} ({row.reason})' if reason else state
            took = f'{plain_number(seconds, 0 if seconds >= 10 else 1)} s'
            parts = [f'trial {number}: value {_value(value)}', self._best_part(), said, row.parameters, took]
            self.say(', '.join(filter(None, [*parts, self._eta()])))

    def say(self, line: str) -> None:
        """Print a line that stays, above the table."""
        # whoever closes standard output wants to see nothing
        if line and not self.quiet and not getattr(self._terminal.file, 'closed', False):
            self._terminal.print(Text(line), soft_wrap=True, crop=False)

    def close(self) -> None:
        """Leave the table as it is."""
        if self._live is not None:
            self._live.stop()

    def _render(self) -> Group:
        """Return what is drawn now; it is called in a thread of rich's."""
        rows = list(self._rows.values())
        width, height = self._terminal.size
        running = sum(row.state == 'running' for row in rows)
        finished = f'finished {len(self._seconds)}' + ('' if self.total is None else f' of {self.total}')
        elapsed = f'elapsed {timedelta(seconds=round(time.monotonic() - self._start))}'
        parts = [finished, f'running {running}', self._best_part(), elapsed, self._eta()]
        footer = Text(', '.join(filter(None, parts)), overflow='fold')
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style='bold', expand=True)
        for name in ('trial', 'value', 'best'):
            table.add_column(name, justify='right', no_wrap=True)
        table.add_column('state', no_wrap=True, overflow='ellipsis', max_width=max(13, width // 4))
        table.add_column('parameters', no_wrap=True, overflow='ellipsis', ratio=1)
        # if not all fit: the best trial, running trials, then the newest
        best = self._best[0] if self._best else None
        rows.sort(key=lambda row: (row.number != best, row.state != 'running', -row.number))
        # the header and the cursor have a line each
        row_count = height - 2 - len(footer.wrap(self._terminal, max(width, 1)))
        for row in sorted(rows[: max(row_count, 1)], key=lambda row: row.number):
            runs = row.state == 'running'
            state = f'running {100 * row.done:.0f} %' if runs else ': '.join(filter(None, [row.state, row.reason]))
            table.add_row(
                f'{row.number}*' if row.number == best else str(row.number),
                '' if runs and row.value is None else _value(row.value),
                '' if runs else _value(row.best),
                Text(state, style=COLOURS.get(row.state, '')),
                Text(row.parameters),
                style='bold green' if row.number == best else '',
            )
        return Group(table, footer)

    def _best_part(self) -> str:
        return f'best {_value(self._best[1])} (trial {self._best[0]})' if self._best else 'best none'

    def _eta(self) -> str:
        if self.total is None or not self._seconds:
            return '' if self.total is None else 'ETA -'
        left = max(self.total - len(self._seconds), 0)
        mean = sum(self._seconds) / len(self._seconds)
        # workers without a trial left make nothing faster
        return f'ETA {timedelta(seconds=round(mean * left / max(min(self.jobs, left), 1)))}'


def format_short(value: Any) -> str:
    """Return a parameter's value in few characters, such as 3.2e-4."""
    if isinstance(value, bool):
        return str(value).lower()
    if not isinstance(value, float):
        return _one_line(str(value), LONGEST_PARAMETER)
    if not math.isfinite(value):
        return 'none'
    digits = 3
    # a discount of 0.9996 is far from 1, whatever rounding says
    while digits < 9 and abs(value) < 1 and abs(float(f'{value:.{digits}g}')) == 1:
        digits += 1
    if value != 0 and not 1e-3 <= abs(value) < 1e6:
        mantissa, exponent = f'{value:.{digits - 1}e}'.split('e')
        return f'{plain_number(float(mantissa), digits)}e{int(exponent)}'
    text = f'{value:.{digits}g}'
    return f'{value:.0f}' if 'e' in text else text


def _value(value: float | None) -> str:
    if value is None or value == 0 or 1 <= abs(value) < 1e7:
        return plain_number(math.nan if value is None else value, 2)
    return format_short(float(value))


def _one_line(text: str, longest: int) -> str:
    """Return foreign text on one line, without what would move the cursor, and cut."""
    text = ESCAPES.sub('', text)
    line = ' '.join(''.join(letter if letter.isprintable() else ' ' for letter in text).split())
    return line if len(line) <= longest else f'{line[: longest - 1]}…'


def _is_terminal(terminal: Terminal) -> bool:
    # FORCE_COLOR makes rich call a file a terminal: colours are welcome there, a table that moves is not
    try:
        return terminal.is_interactive and terminal.file.isatty()
    except ValueError:  # closed
        return False
