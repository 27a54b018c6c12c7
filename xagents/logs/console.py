"""Console output of a run: progress, messages, the last line, and a summary of where the time went."""

from __future__ import annotations

import json
import math
import os
import sys
import time
from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.console import Console as Terminal
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskProgressColumn, TextColumn
from rich.table import Column

from xagents.system.values import to_plain_value

if TYPE_CHECKING:
    import pandas as pd

SECONDS_BETWEEN_LINES = 0.5
SECONDS_WITHOUT_A_LINE = 10.0
# variable that the parent of a run sets to read its output as JSON
FORMAT_VARIABLE = 'XAGENTS_JSON_OUTPUT'
# columns of a terminal for the percentage and a short bar
BAR_WIDTH = 14
# learning counts as waiting only if it waits for at least this fraction of the time
WAITING_THRESHOLD = 0.05
# overlapping pays off if the shorter of collecting and learning takes at least this fraction of the longer
MIN_OVERLAP_RATIO = 2 / 3
Seconds = Mapping[str, float]  # of each phase


class Console:
    """The console output of a run: a progress bar on a terminal, lines of text elsewhere, or JSON.

    In JSON, each line is one object, whose `event` is start, message, status or end. At most two status lines are
    printed per second.

    Args:
        quiet: print only the last line, which says why the run ended.
        total: the number of environment steps of the run, for the ETA.
        log_format: text or json.
        precision: the number of decimals of rewards in text.
        max_seconds: the number of seconds of the run, for the ETA.
    """

    def __init__(
        self,
        quiet: bool,
        total: int | None = None,
        log_format: str = 'text',
        precision: int = 2,
        max_seconds: float | None = None,
    ):
        self.quiet, self.precision = quiet, precision
        self._total, self._max_seconds = total, max_seconds
        self._first: tuple[int, float] | None = None  # steps and seconds of the first status of this session
        self.as_json = log_format == 'json' or FORMAT_VARIABLE in os.environ
        self._terminal = Terminal(file=sys.stdout, highlight=False, soft_wrap=True)
        self.has_bar = self._terminal.is_terminal and not (self.as_json or self._terminal.is_dumb_terminal)
        self._progress: Progress | None = None
        self._last = -math.inf

    def start(self, facts: Mapping[str, Any]) -> None:
        """Print the facts of a run as a JSON object; print nothing in text format."""
        if self.as_json and not self.quiet:
            self._object('start', facts)

    def print_line(self, line: str) -> None:
        """Print a line. It does not delay the next status line."""
        if line and not self.quiet:
            self._line(line)

    def print_event(self, line: str) -> None:
        """Print a line about a change. It counts as a status line, so that it delays the next one."""
        if not self.quiet:
            self._last = time.monotonic()
            self._line(line)

    def status(self, ctx: Any, logs: Mapping[str, float]) -> None:
        """Show the progress of the run after an iteration, unless the last line is less than half a second old.

        Args:
            ctx: the context of the iteration.
            logs: the metrics of the JSON log.
        """
        if self.quiet or not self.is_due():
            return
        self._last = time.monotonic()
        done, eta = self._progress_of(ctx)
        if self.as_json:
            more = {'seconds': ctx.seconds, 'eta': eta, **({'note': ctx.note} if ctx.note else {})}
            self._object('status', {**logs, **more})
        elif self.has_bar:
            width = self._terminal.width - BAR_WIDTH
            self._move_bar(status_line(ctx, self.precision, width, eta), done)
        else:
            self._line(status_line(ctx, self.precision, self._terminal.width, eta))

    def activity(self, text: str) -> None:
        """Show what the run does after its last iteration: in the bar, or in a line every ten seconds without a bar."""
        if self.quiet or not (self.is_due() if self.has_bar else self.is_overdue):
            return
        self._last = time.monotonic()
        if self.has_bar:
            self._move_bar(text, 1.0)
        else:
            self._line(text)

    def _progress_of(self, ctx: Any) -> tuple[float | None, float | None]:
        """Return the completed part of the run and the seconds to its end; None if no option sets its end."""
        self._first = self._first or (ctx.steps, ctx.seconds)
        parts, left = [], []
        if self._total:
            parts.append(ctx.steps / self._total)
            # the speed of this session
            steps, seconds = ctx.steps - self._first[0], ctx.seconds - self._first[1]
            left += [seconds / steps * (self._total - ctx.steps)] if steps and seconds else []
        if self._max_seconds:
            parts.append(ctx.seconds / self._max_seconds)
            left.append(self._max_seconds - ctx.seconds)
        return max(parts, default=None), min(left, default=None)

    def is_due(self) -> bool:
        """Return whether the last line is at least half a second old."""
        return time.monotonic() - self._last >= SECONDS_BETWEEN_LINES

    @property
    def is_overdue(self) -> bool:
        """Whether nothing was shown for at least ten seconds."""
        return time.monotonic() - self._last >= SECONDS_WITHOUT_A_LINE

    def stop(self) -> None:
        """Remove the progress bar."""
        if self._progress is not None:
            self._progress.stop()
            self._progress = None

    def close(self, line: str, facts: Mapping[str, Any] | None = None) -> None:
        """Print why the run ended, also if quiet: `line` in text format; `line` and `facts` in JSON."""
        self.stop()
        if self.as_json:
            self._object('end', {'text': line, **(facts or {})})
        elif line:
            self._line(line)

    def _line(self, text: str) -> None:
        if self.as_json:
            self._object('message', {'text': text})
        else:  # if there is a progress bar, rich prints the line above it
            self._terminal.print(text, markup=False)

    def _object(self, event: str, facts: Mapping[str, Any]) -> None:
        record = {'event': event} | dict(facts) | {'event': event}  # the first key, also if a metric has this name
        self._terminal.out(json.dumps(to_plain_value(record, finite=True)), highlight=False)  # never wrapped

    def _move_bar(self, line: str, done: float | None) -> None:
        if self._progress is None:
            text = TextColumn('{task.description}', table_column=Column(no_wrap=True))
            bar = (SpinnerColumn(),) if done is None else (BarColumn(bar_width=None), TaskProgressColumn())
            self._progress = Progress(*bar, text, console=self._terminal, transient=True, expand=done is not None)
            self._progress.add_task('', total=1.0)
            self._progress.start()
        self._progress.update(self._progress.task_ids[0], description=line, completed=done or 0.0)


def format_number(value: float, precision: int) -> str:
    """Return a number as text without trailing zeros, or 'none' if it is not finite."""
    if not math.isfinite(value):
        return 'none'
    text = f'{value:.{precision}f}'
    text = text.rstrip('0').rstrip('.') if '.' in text else text
    return '0' if text == '-0' else text


def shown_best(mean: float, best: float) -> float:
    """Return the best mean to show next to a mean: a new best that no check has found yet counts, too."""
    return max(mean, best) if math.isfinite(mean) and math.isfinite(best) else best


def status_line(ctx: Any, precision: int, width: int, eta: float | None = None) -> str:
    """Return the progress of a run in one line of at most `width` characters; the most important values come first."""
    speed = ctx.logs.get('steps_per_second', math.nan)
    parts = [
        ctx.note or f'mean reward: {format_number(ctx.mean_reward, precision)}',
        f'{format_number(speed, 0)} steps/s' if math.isfinite(speed) else '',
        '' if eta is None else f'ETA {timedelta(seconds=max(round(eta), 0))}',
        f'best reward: {format_number(shown_best(ctx.mean_reward, ctx.best_reward), precision)}',
        f'games: {ctx.games}',
        f'time: {timedelta(seconds=int(ctx.seconds))}',
    ]
    line = f'steps: {ctx.steps}'
    for part in filter(None, parts):
        if len(line) + len(part) + 2 > width:
            break
        line += f', {part}'
    return line


PHASES = {
    **{'env': 'environments', 'act': 'acting', 'replay': 'replaying', 'learn': 'learning'},
    **{'wait': 'waiting', 'rest': 'the rest'},
}
SIDES = ('env', 'act'), ('replay', 'learn')  # collecting and learning
HINTS = {
    'env': 'more --n-envs or --explorers are faster',
    'act': 'more --n-envs are faster',
    'replay': 'smaller batches or a larger --train-frequency are faster',
    'learn': 'smaller networks or fewer updates are faster',
    'rest': 'evaluations, checkpoints, stages; more --n-envs are faster',
}


def phase_seconds(metrics: pd.DataFrame) -> dict[str, float]:
    """Return the seconds of each measured phase, in the order of `PHASES`, without compilation.

    The first row of each phase with several rows is left out, because its functions are compiled in that iteration.
    The row is left out of all phases, so that shares of time compare the same iterations.

    Args:
        metrics: the metrics of a run, one row per iteration, with columns such as `seconds/learn`.
    """
    names = [name for name in PHASES if f'seconds/{name}' in metrics]
    seconds = metrics[[f'seconds/{name}' for name in names]].to_numpy(float)
    known = np.isfinite(seconds)
    first = known.argmax(axis=0)[known.sum(axis=0) > 1] if len(seconds) else []
    kept = np.delete(np.where(known, seconds, 0.0), first, axis=0)
    return dict(zip(names, kept.sum(axis=0).tolist(), strict=True))


def bottleneck(spent: Seconds, total: float, may_overlap: bool = False, explorers: int | None = None) -> str:
    """Return two lines: the phases that took the time, and an option that would make the run faster.

    With explorers, the second line begins in lower case: the line about explorers ends with it.

    Args:
        spent: seconds of each phase. The phase `wait`, in which learning waited, exists if `env` and `act` ran in
            parallel with learning, in a thread or in explorers.
        total: seconds of all phases.
        may_overlap: whether collecting could have run in parallel with learning, but did not.
        explorers: number of explorers; None if there are none.
    """
    if total <= 0:
        return ''
    parallel = {name: spent[name] for name in ('env', 'act') if name in spent and 'wait' in spent}
    sequential = {name: seconds for name, seconds in spent.items() if name not in parallel}
    sequential['rest'] = max(total - sum(sequential.values()), 0.0)
    total = max(total, sum(sequential.values()))
    line = f'Time: {_percentages(sequential, total)}'
    if 'wait' not in spent:
        hint = _overlap_hint(spent, total) if may_overlap else ''
        return f'{line}\n{hint or f"Most {_slowest_phase(sequential)}"}'
    line = f'{line}; in parallel {_percentages(parallel, total)}' if parallel else line
    waited = sequential.pop('wait')
    if explorers is not None:
        return f'{line}\n{_explorers_hint(spent, waited >= WAITING_THRESHOLD * total, explorers)}'
    if waited >= WAITING_THRESHOLD * total:
        waiting, side = 'Learning waits for collecting', parallel
    else:
        waiting, side = 'Collecting waits for learning', sequential
    # a recipe of the user may have measured no phase
    return f'{line}\n{waiting}; most of that time {_slowest_phase(side)}' if side else f'{line}\n{waiting}.'


def _explorers_hint(spent: Seconds, waits: bool, explorers: int) -> str:
    """Return a sentence on whether more explorers help. They divide the time of collecting, not that of learning."""
    collecting, learning = (sum(spent.get(name, 0.0) for name in side) for side in SIDES)
    full = math.ceil(explorers * collecting / learning) if learning else explorers
    if not waits or full <= explorers:
        return 'learning is the bottleneck, more explorers will not help'
    return f'the learner waits, more explorers help, up to about {full}'


def _percentages(seconds: Seconds, total: float) -> str:
    return ', '.join(f'{PHASES[name]} {100 * seconds[name] / total:.0f} %' for name in PHASES if name in seconds)


def _slowest_phase(seconds: Seconds) -> str:
    worst = max(seconds, key=seconds.__getitem__)
    return f'goes into {PHASES[worst]}: {HINTS[worst]}'


def _overlap_hint(spent: Seconds, total: float) -> str:
    """Return a sentence if collecting and learning take most of the time and about equally long, else an empty one."""
    shorter, longer = sorted(sum(spent.get(name, 0.0) for name in side) for side in SIDES)
    if shorter < MIN_OVERLAP_RATIO * longer or shorter < 0.1 * total:
        return ''
    return 'Collecting and learning take about as long: --overlap runs both in parallel'


class ExplorerStatistics:
    """Statistics of the explorers of a run, from the metrics of its iterations."""

    def __init__(self) -> None:
        self._last: dict[str, float] = {}
        self._count = self._busy = self._lag = self._most_lag = 0.0

    def add(self, logs: Mapping[str, float]) -> None:
        """Add the metrics of one iteration."""
        known = {name.removeprefix('explorers/'): logs[name] for name in logs if name.startswith('explorers/')}
        if not known:
            return
        self._last, self._count = known, self._count + 1
        self._busy += known['busy']
        self._lag += known.get('lag', 0.0)
        self._most_lag = max(self._most_lag, known.get('most_lag', 0.0))

    def line(self) -> str:
        """Return the statistics in one line, or an empty string if the run had no explorers."""
        last = self._last
        if not last:
            return ''
        line = f'Explorers: {last["alive"]:.0f}, {100 * min(self._busy / self._count, 1):.0f} % busy'
        if 'lag' in last:
            line += f'; their steps were {self._lag / self._count:.1f} rollouts old, at most {self._most_lag:.0f}'
        if last['lost']:
            line += f'; {last["lost"]:.0f} were lost, {last["lost_environments"]:.0f} environments were reset'
        return line
