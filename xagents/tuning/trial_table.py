"""The output of `xagents tune`: a live table of trials on a terminal, one line per trial elsewhere."""

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
    """A trial in the table. `best` is the best value of the study at the end of the trial."""

    number: int
    parameters: str = ''
    state: str = 'running'
    value: float | None = None
    best: float | None = None
    done: float = 0.0
    reason: str = ''


class TrialTable:
    """The output of the trials of one call of `xagents tune`, on standard output.

    The state of an ended trial is complete, pruned, failed or killed. A killed trial does not count, because its
    settings are queued for another trial.

    Args:
        total: number of trials; None if it is not limited, then there is no ETA.
        jobs: number of parallel trials.
        quiet: print nothing.
        live: whether to draw a live table; by default only on a terminal.
        terminal: the console of rich; standard output by default.
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
        """Add a running trial with its searched parameters."""
        text = ' '.join(f'{name}={format_short(value)}' for name, value in parameters.items())
        self._rows[number] = TrialRow(number, text)

    def progressed(self, number: int, done: float, value: float | None) -> None:
        """Show the progress of a trial, from 0 to 1, and its value so far."""
        row = self._rows.setdefault(number, TrialRow(number))
        row.done, row.value = min(done, 1.0), value

    def finished(
        self, number: int, state: str, value: float | None, best: BestTrial, seconds: float, reason: str = ''
    ) -> None:
        """Show the result of a trial: state, value, duration in seconds, and the reason of a failure."""
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
        """Print a line above the table."""
        # print nothing if standard output is closed
        if line and not self.quiet and not getattr(self._terminal.file, 'closed', False):
            self._terminal.print(Text(line), soft_wrap=True, crop=False)

    def close(self) -> None:
        """Stop updating the table, which remains on the terminal."""
        if self._live is not None:
            self._live.stop()

    def _render(self) -> Group:
        """Return the table and its last line. A thread of rich calls this method."""
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
        # if not all rows fit, show the best trial, running trials, then the newest
        best = self._best[0] if self._best else None
        rows.sort(key=lambda row: (row.number != best, row.state != 'running', -row.number))
        # the header and the cursor take one line each
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
        # workers without a trial do not shorten the time
        return f'ETA {timedelta(seconds=round(mean * left / max(min(self.jobs, left), 1)))}'


def format_short(value: Any) -> str:
    """Return a parameter value as short text, such as 3.2e-4."""
    if isinstance(value, bool):
        return str(value).lower()
    if not isinstance(value, float):
        return _one_line(str(value), LONGEST_PARAMETER)
    if not math.isfinite(value):
        return 'none'
    digits = 3
    # add digits until a value such as 0.9996 is not rounded to 1
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
    """Return text on one line, without escape sequences and control characters, shortened to `longest` characters."""
    text = ESCAPES.sub('', text)
    line = ' '.join(''.join(letter if letter.isprintable() else ' ' for letter in text).split())
    return line if len(line) <= longest else f'{line[: longest - 1]}…'


def _is_terminal(terminal: Terminal) -> bool:
    # with FORCE_COLOR, rich regards a file as a terminal: print colours there, but no live table
    try:
        return terminal.is_interactive and terminal.file.isatty()
    except ValueError:  # closed
        return False
