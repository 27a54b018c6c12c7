"""What a run says: a bar on a terminal, plain lines elsewhere, or JSON for machines; and why it ended."""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Any, Protocol

from rich.console import Console as Terminal
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

SECONDS_BETWEEN_LINES = 0.5
SECONDS_WITHOUT_A_LINE = 10.0
# of the time: waiting less than this is no waiting
MUCH_WAITING = 0.05
# the shorter of collecting and learning, as a part of the longer: from here on doing both at once is worth it
ABOUT_AS_LONG = 1 / 3


class Screen(Protocol):
    """How what a run says is shown.

    Attributes:
        bar: whether a progress bar is drawn, which moves also between checks.
    """

    bar: bool

    def start(self, facts: Mapping[str, Any]) -> None:
        """Show what run it is."""

    def message(self, text: str) -> None:
        """Show a line."""

    def status(self, ctx: Any) -> None:
        """Show how the run stands."""

    def end(self, text: str, facts: Mapping[str, Any]) -> None:
        """Show why the run ended."""

    def stop(self) -> None:
        """Leave the screen as other programs expect it."""


class Console:
    """Says at most two status lines a second.

    Args:
        quiet: say only how the run ended.
        total: steps of the whole run, for the ETA; None where no budget of steps is given.
        log_format: text or json.
        precision: decimals of rewards in text.
    """

    def __init__(self, quiet: bool, total: int | None = None, log_format: str = 'text', precision: int = 2):
        self.quiet = quiet
        self._screen: Screen = Json() if log_format == 'json' else Text(total, precision)
        self._last = -math.inf

    def start(self, facts: Mapping[str, Any]) -> None:
        """Say what run it is: agent, env, seed, options."""
        if not self.quiet:
            self._screen.start(facts)

    def say(self, line: str) -> None:
        """Say a line that must be seen, once."""
        if line and not self.quiet:
            self._screen.message(line)

    def status(self, ctx: Any) -> None:
        """Show how the run stands after an iteration; left out when the last line is less than half a second old."""
        if self.quiet or not self.due():
            return
        self._last = time.monotonic()
        self._screen.status(ctx)

    @property
    def bar(self) -> bool:
        """Whether a progress bar is drawn, which moves also between checks."""
        return self._screen.bar

    def due(self) -> bool:
        """Return whether the last line is old enough for another one."""
        return time.monotonic() - self._last >= SECONDS_BETWEEN_LINES

    @property
    def silent(self) -> bool:
        """Whether nothing was shown for so long that people wonder."""
        return time.monotonic() - self._last >= SECONDS_WITHOUT_A_LINE

    def event(self, line: str) -> None:
        """Say a line about a change; it counts as a status line."""
        if not self.quiet:
            self._last = time.monotonic()
            self._screen.message(line)

    def stop(self) -> None:
        """Take the bar away."""
        self._screen.stop()

    def close(self, line: str, facts: Mapping[str, Any] | None = None) -> None:
        """Say why the run ended, also when quiet.

        Args:
            line: for people.
            facts: for machines: why, steps, mean_reward, best_reward, seconds.
        """
        self._screen.stop()
        self._screen.end(line, facts or {})


class Text:
    """For people: a progress bar on a terminal, plain lines elsewhere; arguments as of `Console`."""

    def __init__(self, total: int | None, precision: int):
        self._terminal = Terminal(file=sys.stdout, highlight=False, soft_wrap=True)
        self._total, self._precision = total, precision
        self._progress: Progress | None = None
        self.bar = self._terminal.is_terminal

    def start(self, facts: Mapping[str, Any]) -> None:
        """Show nothing: people know what they typed."""

    def message(self, text: str) -> None:
        """Print a line, above the bar where there is one."""
        self._terminal.print(text, markup=False)

    def status(self, ctx: Any) -> None:
        """Print the status line, or move the bar."""
        line = status_line(ctx, self._precision)
        if not self.bar:
            self.message(line)
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
            # the ETA is that of this session's speed: steps of earlier ones took no time of it
            self._progress.add_task('', total=self._total, completed=ctx.steps)
            self._progress.start()
        self._progress.update(self._progress.task_ids[0], description=line, completed=ctx.steps)

    def end(self, text: str, facts: Mapping[str, Any]) -> None:
        """Print the closing line."""
        if text:
            self.message(text)

    def stop(self) -> None:
        """Take the bar away."""
        if self._progress is not None:
            self._progress.stop()
            self._progress = None


class Json:
    """For machines: one JSON object a line, whose `event` is start, message, status or end."""

    bar = False

    def __init__(self) -> None:
        self._terminal = Terminal(file=sys.stdout)

    def start(self, facts: Mapping[str, Any]) -> None:
        """Print what run it is."""
        self._print('start', facts)

    def message(self, text: str) -> None:
        """Print a line as `text`."""
        self._print('message', {'text': text})

    def status(self, ctx: Any) -> None:
        """Print the whole log, the run's time, and the note where there is one."""
        self._print('status', {**ctx.logs, 'seconds': ctx.seconds, **({'note': ctx.note} if ctx.note else {})})

    def end(self, text: str, facts: Mapping[str, Any]) -> None:
        """Print why the run ended."""
        self._print('end', {'text': text, **facts})

    def stop(self) -> None:
        """Do nothing: there is no bar."""

    def _print(self, event: str, facts: Mapping[str, Any]) -> None:
        record = {'event': event} | dict(facts) | {'event': event}  # first, whatever a log calls its metrics
        self._terminal.out(json.dumps(plain(record)), highlight=False)  # never wrapped


def plain(value: Any) -> Any:
    """Return a value as JSON holds it: numbers that are not finite become null, what JSON does not know a string."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if hasattr(value, 'tolist'):  # numbers and arrays of NumPy
        return plain(value.tolist())
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value is None or isinstance(value, str | int) else str(value)


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


PHASES = {
    'env': 'environments',
    'act': 'acting',
    'replay': 'replaying',
    'learn': 'learning',
    'wait': 'waiting',
    'rest': 'the rest',
}
HINTS = {
    'env': 'try more --n-envs; for slow environments --vector envpool or async',
    'act': 'try more --n-envs: each call acts for all of them',
    'replay': 'try a smaller batch, or more updates at a time: a larger --train-frequency',
    'learn': 'try a smaller network, or fewer updates for each step',
    'rest': 'that is the loop itself, evaluating, saving, videos and own stages',
}


def bottleneck(spent: Mapping[str, float], total: float, may_overlap: bool = False) -> str:
    """Return where the time went and what would help, in one line.

    Args:
        spent: seconds by phase: env, act, replay, learn; and wait, where collecting (env and act) went on in a thread
            beside the others: how long learning waited for it.
        total: seconds in all.
        may_overlap: whether collecting could go on beside learning and did not.
    """
    if total <= 0:
        return ''
    beside = {name: spent[name] for name in ('env', 'act') if name in spent and 'wait' in spent}
    here = {name: seconds for name, seconds in spent.items() if name not in beside}
    here['rest'] = max(total - sum(here.values()), 0.0)
    total = max(total, sum(here.values()))
    line = f'Time: {_shares(here, total)}'
    if 'wait' not in spent:
        worst = _largest(here)
        line = f'{line}. Most goes into {PHASES[worst]}: {HINTS[worst]}.'
        return f'{line} {_overlap_hint(spent, total) if may_overlap else ""}'.rstrip()
    line = f'{line}; beside it {_shares(beside, total)}' if beside else line
    if here['wait'] >= MUCH_WAITING * total:
        waiting, side = 'Learning waits for collecting', beside
    else:
        waiting, side = 'Collecting waits for learning', {n: s for n, s in here.items() if n != 'wait'}
    if not side:  # own stages that measured nothing
        return f'{line}. {waiting}.'
    worst = _largest(side)
    return f'{line}. {waiting}, where most goes into {PHASES[worst]}: {HINTS[worst]}.'


def _shares(seconds: Mapping[str, float], total: float) -> str:
    names: Iterable[str] = (name for name in PHASES if name in seconds)
    return ', '.join(f'{PHASES[name]} {100 * seconds[name] / total:.0f} %' for name in names)


def _largest(seconds: Mapping[str, float]) -> str:
    return max(seconds, key=seconds.__getitem__)


def _overlap_hint(spent: Mapping[str, float], total: float) -> str:
    """Return a sentence where collecting and learning are of similar size and what the run is about."""
    collecting, learning = (
        sum(spent.get(name, 0.0) for name in side) for side in (('env', 'act'), ('replay', 'learn'))
    )
    shorter, longer = sorted((collecting, learning))
    if shorter < ABOUT_AS_LONG * longer or shorter < 0.1 * total:
        return ''
    return 'Collecting and learning take about as long: --overlap does both at once.'
