"""The live table of the runs of a grid on a terminal."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable
from datetime import timedelta
from typing import Any

from rich.console import Console as Terminal
from rich.console import Group
from rich.text import Text

from xagents.logs.console import format_number, shown_best
from xagents.logs.live_table import COLOURS, LiveTable, clean_line, new_table

LONGEST_REASON = 120
WRONG_INPUT = 2
ENDS = {0: 'finished', 130: 'interrupted', 143: 'interrupted'}


class RunTable(LiveTable):
    """The output of the runs of a grid: one row per run, with the numbers of its last JSON object.

    Args:
        names: names of the runs.
        precision: decimals of rewards.
        terminal: the console of rich; standard output by default.

    Attributes:
        last: last line of each run that is not a JSON object, by name.
    """

    def __init__(self, names: Iterable[str], precision: int = 2, *, terminal: Terminal | None = None):
        self._rows: dict[str, dict[str, Any]] = {name: {} for name in names}
        self._codes: dict[str, int | None] = {}  # of the runs that have started; None while a run continues
        self._precision = precision
        self.last: dict[str, str] = {}
        super().__init__(quiet=False, live=True, terminal=terminal, transient=True)

    def started(self, name: str, command: str) -> None:
        """Show that a run has started."""
        self._codes[name] = None

    def print_line(self, name: str, line: str) -> None:
        """Show a line of output of a run."""
        record = None
        with contextlib.suppress(ValueError):
            record = json.loads(line)
        if isinstance(record, dict):
            self._rows[name] = {**self._rows[name], **record}
        elif line.strip():
            self.last[name] = line

    def ended(self, name: str, code: int) -> None:
        """Show the end of a run by its exit code."""
        self._codes[name] = code

    def _state(self, name: str) -> str:
        """Return the state of a run for people; empty if it has not started."""
        if name not in self._codes:
            return ''
        if (code := self._codes[name]) is None:
            return 'running'
        reason = self.last.get(name, '').removeprefix('xagents train: ')
        return ENDS.get(code) or f'failed: {clean_line(reason, LONGEST_REASON)}'

    def close(self, interrupted: bool = False) -> None:
        """Remove the table and print why runs failed. The command prints the list of the runs."""
        super().close()
        codes = {name: code for name, code in self._codes.items() if code is not None}
        if set(codes.values()) == {WRONG_INPUT} and not interrupted:
            return  # the command prints the error
        for name, code in codes.items():
            if code not in ENDS:
                self.say(f'{name}: {self.last.get(name, f"exit code {code}")}')

    def _render(self) -> Group:
        states = {name: self._state(name) for name in self._rows}
        count = {kind: sum(state.startswith(kind) for state in states.values()) for kind in ('running', 'finished')}
        parts = [f'finished {count["finished"]} of {len(states)}', f'running {count["running"]}', self._elapsed()]
        footer = Text(', '.join(parts), overflow='fold')
        columns = 'steps', 'mean reward', 'best reward', 'steps/s', 'ETA'
        table = new_table((), run={'ratio': 1}, state={'max_width': max(13, self._terminal.width // 4)})
        for column in columns:
            table.add_column(column, justify='right', no_wrap=True)
        # if not all rows fit, show running runs first, then failed ones
        order = sorted(states, key=lambda name: ('', 'finished', 'failed', 'running').index(_kind(states[name])))
        shown = set(order[::-1][: self._rows_that_fit(footer)])
        for name in filter(shown.__contains__, states):
            state = states[name]
            table.add_row(name, Text(state or 'waiting', style=COLOURS.get(_kind(state), '')), *self._cells(name))
        return Group(table, footer)

    def _cells(self, name: str) -> list[str]:
        row = self._rows[name]
        steps, eta = row.get('steps'), row.get('eta')
        mean, best, speed = (_number(row.get(key)) for key in ('mean_reward', 'best_reward', 'steps_per_second'))
        means = [format_number(value, self._precision) if steps else '' for value in (mean, shown_best(mean, best))]
        running = self._state(name) == 'running'
        left = str(timedelta(seconds=max(round(eta), 0))) if running and eta is not None else ''
        return [str(steps or ''), *means, format_number(speed, 0) if running and steps else '', left]


def _kind(state: str) -> str:
    """Return the first word of a state; an interrupted run is sorted with the failed ones."""
    first = state.partition(':')[0]
    return 'failed' if first == 'interrupted' else first


def _number(value: float | None) -> float:
    return float('nan') if value is None else value
