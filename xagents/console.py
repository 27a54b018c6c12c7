"""What a run says: a progress bar on a terminal, plain lines elsewhere, and why it ended."""

from __future__ import annotations

import math
import sys
import time
from datetime import timedelta
from typing import Any

from rich.console import Console as Terminal
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

SECONDS_BETWEEN_LINES = 0.5
SECONDS_WITHOUT_A_LINE = 10.0


class Console:
    """Prints at most two status lines a second.

    Args:
        quiet: print only the closing line.
        total: steps of the whole run, for the ETA; None where no budget of steps is given.
    """

    def __init__(self, quiet: bool, total: int | None = None):
        self.quiet = quiet
        self._terminal = Terminal(file=sys.stdout, highlight=False, soft_wrap=True)
        self._total = total
        self._progress: Progress | None = None
        self._last = -math.inf

    def say(self, line: str) -> None:
        """Print a line that must be seen, once."""
        if line and not self.quiet:
            self._print(line)

    def status(self, line: str, steps: int) -> None:
        """Show how the run stands after `steps`; left out when the last line is less than half a second old."""
        if self.quiet or not self.due():
            return
        self._last = time.monotonic()
        if not self._terminal.is_terminal:
            self._print(line)
            return
        if self._progress is None:
            self._progress = Progress(
                TextColumn('{task.description}'),
                BarColumn(bar_width=16),
                TaskProgressColumn(),
                TextColumn('ETA'),
                TimeRemainingColumn(),
                console=self._terminal,
                transient=True,
            )
            self._progress.add_task('', total=self._total)
            self._progress.start()
        self._progress.update(self._progress.task_ids[0], description=line, completed=steps)

    @property
    def bar(self) -> bool:
        """Whether a progress bar is drawn, which moves also between checks."""
        return self._terminal.is_terminal

    def due(self) -> bool:
        """Return whether the last line is old enough for another one."""
        return time.monotonic() - self._last >= SECONDS_BETWEEN_LINES

    @property
    def silent(self) -> bool:
        """Whether nothing was shown for so long that people wonder."""
        return time.monotonic() - self._last >= SECONDS_WITHOUT_A_LINE

    def event(self, line: str) -> None:
        """Print a line about a change; it counts as a status line."""
        if not self.quiet:
            self._last = time.monotonic()
            self._print(line)

    def stop(self) -> None:
        """Take the bar away."""
        if self._progress is not None:
            self._progress.stop()
            self._progress = None

    def close(self, line: str) -> None:
        """Print the closing line, also when quiet."""
        self.stop()
        if line:
            self._print(line)

    def _print(self, line: str) -> None:
        self._terminal.print(line, markup=False)


def number(value: float, precision: int) -> str:
    """Return a number for people; 'none' where there is none yet."""
    if not math.isfinite(value):
        return 'none'
    text = f'{value:.{precision}f}'
    return text.rstrip('0').rstrip('.') if '.' in text else text


def status_line(ctx: Any, precision: int) -> str:
    """Return how a run stands: time, steps, games, speed, mean and best reward, and what learning waits for."""
    speed = ctx.logs.get('steps_per_second', math.nan)
    parts = {
        'time': str(timedelta(seconds=int(ctx.seconds))),
        'steps': str(ctx.steps),
        'games': str(ctx.games),
        'speed': f'{number(speed, 0)} steps/s',
        'mean reward': number(ctx.mean_reward, precision),
        'best reward': number(ctx.best_reward, precision),
    }
    line = ', '.join(f'{name}: {value}' for name, value in parts.items())
    return f'{line}, {ctx.note}' if ctx.note else line


def bottleneck(seconds: dict[str, float]) -> str:
    """Return where the time went and what would help, in one line."""
    total = sum(seconds.values())
    if total <= 0:
        return ''
    names = {'env': 'environments', 'act': 'acting', 'replay': 'replaying', 'learn': 'learning', 'rest': 'the rest'}
    hints = {
        'env': 'try more --n-envs; for slow environments --vector envpool or async',
        'act': 'try more --n-envs: each call acts for all of them',
        'replay': 'try a smaller batch, or more updates at a time: a larger --train-frequency',
        'learn': 'try a smaller network, or fewer updates for each step',
        'rest': 'that is the loop itself, evaluating, saving and own stages',
    }
    worst = max(seconds, key=seconds.__getitem__)
    shares = ', '.join(f'{names[k]} {100 * v / total:.0f} %' for k, v in seconds.items())
    return f'Time: {shares}. Most goes into {names[worst]}: {hints[worst]}.'
