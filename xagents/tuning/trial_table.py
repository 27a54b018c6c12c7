"""The output of `xagents tune`: a live table of trials on a terminal, one line per trial elsewhere."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from rich.console import Console as Terminal
from rich.console import Group
from rich.text import Text

from xagents.logs.console import format_number as plain_number
from xagents.logs.live_table import COLOURS, LiveTable, clean_line, new_table

BestTrial = tuple[int, float] | None  # number and value of a study's best trial
COUNTED = ('complete', 'pruned', 'failed')
LONGEST_REASON = 120
LONGEST_PARAMETER = 24


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


class TrialTable(LiveTable):
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
        self.total, self.jobs = total, jobs
        self._rows: dict[int, TrialRow] = {}
        self._best: BestTrial = None
        self._seconds: list[float] = []
        super().__init__(quiet, live, terminal)

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
        row.reason = clean_line(reason, LONGEST_REASON)
        if state in COUNTED:
            self._seconds.append(seconds)
        if self._live is None:
            said = f'{state} ({row.reason})' if reason else state
            took = f'{plain_number(seconds, 0 if seconds >= 10 else 1)} s'
            parts = [f'trial {number}: value {_value(value)}', self._best_part(), said, row.parameters, took]
            self.say(', '.join(filter(None, [*parts, self._eta()])))

    def _render(self) -> Group:
        """Return the table and its last line. A thread of rich calls this method."""
        rows = list(self._rows.values())
        running = sum(row.state == 'running' for row in rows)
        finished = f'finished {len(self._seconds)}' + ('' if self.total is None else f' of {self.total}')
        parts = [finished, f'running {running}', self._best_part(), self._elapsed(), self._eta()]
        footer = Text(', '.join(filter(None, parts)), overflow='fold')
        state_width = max(13, self._terminal.width // 4)
        table = new_table(('trial', 'value', 'best'), state={'max_width': state_width}, parameters={'ratio': 1})
        # if not all rows fit, show the best trial, running trials, then the newest
        best = self._best[0] if self._best else None
        rows.sort(key=lambda row: (row.number != best, row.state != 'running', -row.number))
        for row in sorted(rows[: self._rows_that_fit(footer)], key=lambda row: row.number):
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
    if isinstance(value, bool) or value is None:
        return str(value).lower()
    if not isinstance(value, float):
        return clean_line(str(value), LONGEST_PARAMETER)
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
