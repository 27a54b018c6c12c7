"""What `xagents tune` shows of its trials: a table that moves on a terminal, plain lines elsewhere."""

from __future__ import annotations

import math
import re
import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from rich.console import Console as Terminal
from rich.console import Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from xagents.logs.console import number as plain_number

__all__ = ['TrialTable', 'short']

DRAWINGS_PER_SECOND = 4
COUNTED = ('complete', 'pruned', 'failed')
"""Trials in one of these states are among those that a call finishes; the retry of a killed one takes its place."""
COLOURS = {'running': 'cyan', 'pruned': 'yellow', 'failed': 'red', 'killed': 'red'}
LONGEST_REASON = 120
LONGEST_PARAMETER = 24
_ESCAPES = re.compile(r'\x1b\[[0-?]*[ -/]*[@-~]')


@dataclass
class _Row:
    """A trial as the table shows it; `best` is the study's best value when it ended."""

    number: int
    parameters: dict[str, Any] = field(default_factory=dict)
    state: str = 'running'
    value: float | None = None
    best: float | None = None
    fraction: float = 0.0
    reason: str = ''


class TrialTable:
    """Shows the trials of one call of `xagents tune`, on standard output.

    On a terminal a table is drawn in place, from a thread that ends with `close()`; elsewhere each trial that ends is
    one line. Everything shown is given: a trial's state is 'complete', 'pruned', 'failed', or 'killed' where a retry
    takes its place, so that it does not count.

    Args:
        total: trials that the call finishes; None where only the clock ends it, then there is no ETA.
        jobs: trials that run at a time.
        quiet: show nothing at all.
        live: whether the table is drawn; when not given, where standard output is a terminal.
        terminal: where to show it instead of standard output.
    """

    def __init__(
        self, total: int | None, jobs: int, quiet: bool, live: bool | None = None, *, terminal: Terminal | None = None
    ):
        self.total = total
        self.jobs = jobs
        self.quiet = quiet
        self._terminal = terminal or Terminal(highlight=False, soft_wrap=True, emoji=False)
        self._drawn = (_is_terminal(self._terminal) if live is None else live) and not quiet
        self._live: Live | None = None
        self._closed = False
        # the thread that draws reads what the methods write; a signal's handler may call one within another
        self._lock = threading.RLock()
        self._rows: dict[int, _Row] = {}
        self._best: tuple[int, float] | None = None
        self._durations: list[float] = []
        self._start = time.monotonic()

    def started(self, number: int, parameters: Mapping[str, Any]) -> None:
        """Show that a trial runs; `parameters` are those that are searched."""
        with self._lock:
            self._rows[number] = _Row(number, dict(parameters))
        self._show()

    def progressed(self, number: int, fraction: float, value: float | None) -> None:
        """Show how far a trial is: the `fraction` of its steps, from 0 to 1, and its value so far."""
        with self._lock:
            row = self._rows.setdefault(number, _Row(number))
            row.fraction = min(max(fraction, 0.0), 1.0) if math.isfinite(fraction) else row.fraction
            row.value = value
        self._show()

    def finished(
        self,
        number: int,
        state: str,
        value: float | None,
        best: tuple[int, float] | None,
        seconds: float,
        reason: str = '',
    ) -> None:
        """Show that a trial has ended.

        Args:
            number: the trial's.
            state: 'complete', 'pruned', 'failed' or 'killed'.
            value: what it is worth; None where it has no value.
            best: number and value of the study's best trial by now; None before there is one.
            seconds: how long it took.
            reason: why it failed.
        """
        with self._lock:
            row = self._rows.setdefault(number, _Row(number))
            row.state, row.value, row.reason = state, value, _one_line(reason, LONGEST_REASON)
            row.best = best[1] if best else None
            self._best = best
            if state in COUNTED:
                self._durations.append(seconds)
            line = self._line(row, seconds)
        if not self._drawn:
            self.say(line)
        self._show()

    def say(self, line: str) -> None:
        """Print a line that stays, above the table."""
        # whoever closes standard output wants to see nothing
        if line and not self.quiet and not getattr(self._terminal.file, 'closed', False):
            self._terminal.print(Text(line), soft_wrap=True, crop=False)

    def close(self) -> None:
        """Leave the table as it is and end its thread; closing again does nothing."""
        self._closed = True
        live, self._live = self._live, None
        if live is None:
            return
        thread = live._refresh_thread
        live.stop()
        if thread is not None:
            thread.join()

    def _show(self) -> None:
        if self._drawn and self._live is None and not self._closed:
            self._live = Live(
                console=self._terminal,
                get_renderable=self._table,
                refresh_per_second=DRAWINGS_PER_SECOND,
                vertical_overflow='crop',
            )
            self._live.start(refresh=True)

    def _table(self) -> Group:
        """Return what is drawn now."""
        with self._lock:
            width, height = self._terminal.size
            footer = Text(self._summary(), overflow='fold')
            taken = 2 + len(footer.wrap(self._terminal, max(width, 1)))  # the header, the footer and the cursor's line
            table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style='bold', expand=True)
            for name in ('trial', 'value', 'best'):
                table.add_column(name, justify='right', no_wrap=True)
            table.add_column('state', no_wrap=True, overflow='ellipsis', max_width=max(13, width // 4))
            table.add_column('parameters', no_wrap=True, overflow='ellipsis', ratio=1)
            for row in self._chosen(max(height - taken, 1)):
                self._add(table, row)
            return Group(table, footer)

    def _chosen(self, room: int) -> list[_Row]:
        """Return the rows that are shown, by number: the best, what runs, then the newest."""
        best = self._best[0] if self._best else None
        order = sorted(self._rows.values(), key=lambda row: (row.number != best, row.state != 'running', -row.number))
        return sorted(order[:room], key=lambda row: row.number)

    def _add(self, table: Table, row: _Row) -> None:
        is_best = self._best is not None and row.number == self._best[0]
        state = f'running {100 * row.fraction:.0f} %' if row.state == 'running' else row.state
        table.add_row(
            f'{row.number}*' if is_best else str(row.number),
            '' if row.state == 'running' and row.value is None else _value(row.value),
            '' if row.state == 'running' else _value(row.best),
            Text(f'{state}: {row.reason}' if row.reason else state, style=COLOURS.get(row.state, '')),
            Text(_settings(row.parameters)),
            style='bold green' if is_best else '',
        )

    def _summary(self) -> str:
        running = sum(row.state == 'running' for row in self._rows.values())
        parts = [
            f'finished {len(self._durations)}' + (f' of {self.total}' if self.total is not None else ''),
            f'running {running}',
            self._best_part(),
            f'elapsed {_clock(time.monotonic() - self._start)}',
        ]
        return ', '.join([*parts, *self._eta_part()])

    def _line(self, row: _Row, seconds: float) -> str:
        parts = [
            f'trial {row.number}: value {_value(row.value)}',
            self._best_part(),
            f'{row.state} ({row.reason})' if row.reason else row.state,
            _settings(row.parameters),
            f'{plain_number(seconds, 0 if seconds >= 10 else 1)} s',
            *self._eta_part(),
        ]
        return ', '.join(part for part in parts if part)

    def _best_part(self) -> str:
        return f'best {_value(self._best[1])} (trial {self._best[0]})' if self._best else 'best none'

    def _eta_part(self) -> Iterable[str]:
        if self.total is None:
            return []
        if not self._durations:
            return ['ETA -']
        remaining = max(self.total - len(self._durations), 0)
        mean = sum(self._durations) / len(self._durations)
        # workers without a trial left make nothing faster
        return [f'ETA {_clock(mean * remaining / max(min(self.jobs, remaining), 1))}']


def short(value: Any, digits: int = 3) -> str:
    """Return a parameter's value in few characters, such as 3.2e-4; numbers to so many significant digits."""
    if isinstance(value, bool):
        return 'true' if value else 'false'
    if not isinstance(value, float):
        return _one_line(str(value), LONGEST_PARAMETER)
    if not math.isfinite(value):
        return 'none'
    # a discount of 0.9996 is far from 1, whatever rounding says
    while digits < 9 and abs(value) < 1 and abs(float(f'{value:.{digits}g}')) == 1:
        digits += 1
    if value != 0 and not 1e-3 <= abs(value) < 1e6:
        mantissa, exponent = f'{value:.{digits - 1}e}'.split('e')
        mantissa = mantissa.rstrip('0').rstrip('.') if '.' in mantissa else mantissa
        return f'{mantissa}e{int(exponent)}'
    text = f'{value:.{digits}g}'
    return f'{value:.0f}' if 'e' in text else text


def _settings(parameters: Mapping[str, Any]) -> str:
    return ' '.join(f'{name}={short(value)}' for name, value in parameters.items())


def _value(value: float | None) -> str:
    if value is None or not math.isfinite(value):
        return 'none'
    value = float(value)
    return plain_number(value, 2) if value == 0 or 1 <= abs(value) < 1e7 else short(value)


def _clock(seconds: float) -> str:
    return str(timedelta(seconds=round(seconds)))


def _one_line(text: str, longest: int) -> str:
    """Return foreign text on one line, without what would move the cursor, and cut."""
    text = _ESCAPES.sub('', text)
    line = ' '.join(''.join(letter if letter.isprintable() else ' ' for letter in text).split())
    return line if len(line) <= longest else f'{line[: longest - 1]}…'


def _is_terminal(terminal: Terminal) -> bool:
    # FORCE_COLOR makes rich call a file a terminal: colours are welcome there, a table that moves is not
    try:
        return terminal.is_interactive and terminal.file.isatty()
    except ValueError:  # closed
        return False
