"""Stages that report on a run: history, metrics, console and monitors."""

from __future__ import annotations

import math
import os
import shlex
import time
from collections import deque
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

from xagents.checkpoints.status import is_group
from xagents.logs.console import Console, ExplorerStatistics, bottleneck, format_number, shown_best
from xagents.logs.history import HistoryWriter
from xagents.logs.metrics import MetricsWriter
from xagents.logs.monitors import TensorBoardMonitor, TrackioMonitor, WandbMonitor
from xagents.logs.video import has_display
from xagents.pipeline.context import Context, Stream
from xagents.pipeline.recipe import for_run
from xagents.runs.header import header_lines, space_lines
from xagents.runs.run import Run

MONITOR_SECONDS = 0.2
MIN_SECONDS_FOR_HINT = 2.0


def start(run: Run) -> None:
    """Create the console of a run and print its header. The command line has printed the first lines."""
    options, agent = run.options, run.agent
    ends = options.max_steps, options.log_format, options.display_precision, options.max_time
    run.console = Console(options.quiet, *ends)
    facts = {'agent': agent.id, 'env': agent.envs.id, 'seed': agent.options.drawn_seed, 'options': settings(run)}
    run.console.start(facts)
    if run.console.as_json:
        return
    n_envs = agent.envs.n_whole_envs
    lines = header_lines(agent.id, agent.envs.id, n_envs, agent.options.drawn_seed, options)
    lines = [*([] if run.command else lines), *space_lines(agent.envs)]
    for line in lines if run.command or run.is_first else []:
        run.console.print_line(line)


def end(run: Run, error: BaseException | None = None, begun: bool = True) -> None:
    """Print why the run ended. The JSON log also contains an error; for people, the caller prints the error.

    Args:
        run: run that ends.
        error: exception that ended the run, or None.
        begun: whether training has started. False if the run was resumed after its end.
    """
    ctx = run.progress.context
    counters = {name: getattr(ctx, name) for name in ('steps', 'mean_reward', 'best_reward', 'seconds')}
    facts = {'why': 'failed' if error else run.stop_reason, **counters}
    if error:
        facts['error'] = f'{type(error).__name__}: {error}'
    line = '' if error else _closing_line(run)
    if line and not begun:
        line += f': {run.options.run_dir} already ended at step {ctx.steps}; set a later end, as --max-steps, to resume'
    if not error:
        run.console.stop()
        # the last object of a JSON log contains the counters
        counted = begun and not run.console.as_json
        for summary in [*run.summary, *(_closing_lines(run) if counted else [])]:
            run.console.print_line(summary)
    run.console.close(line, facts)


def _closing_line(run: Run) -> str:
    """Return the line that says why a run ended."""
    return {
        'target': f'Reward achieved in {run.progress.context.steps} steps',
        'steps': 'Maximum steps exceeded',
        'time': 'Maximum time exceeded',
        'early': 'Early stopping',
        'interrupted': run.interrupted_line(),
    }.get(run.stop_reason, '')


def _closing_lines(run: Run) -> list[str]:
    """Return a line with the counters and means of a run that ends, and lines with the next commands."""
    ctx, options = run.progress.context, run.options
    n = len(run.progress.rewards)
    window = 'the last evaluation' if ctx.evaluated else f'{n} episode{"s" * (n != 1)}'
    done = f'{ctx.steps} steps in {timedelta(seconds=round(ctx.seconds))}'
    line = f'{done}; no mean reward yet'
    if math.isfinite(ctx.mean_reward):
        best = shown_best(ctx.mean_reward, ctx.best_reward)
        mean, best_mean = (format_number(value, options.display_precision) for value in (ctx.mean_reward, best))
        line = f'{done}; mean reward of {window}: {mean}' + (f', best: {best_mean}' if math.isfinite(best) else '')
    return [line, *_next_lines(run)]


def _next_lines(run: Run) -> list[str]:
    """Return the commands that use the files of a run, or a line if the run has kept nothing."""
    options = run.options
    if run.stop_reason == 'interrupted':  # the closing line names the command that resumes the run
        return []
    if options.run_dir is not None:
        if is_group(os.path.dirname(os.path.abspath(options.run_dir))):
            return []  # the command that runs the group names its next commands
        if not run.is_named:
            return [f'Next, in Python: xagents.load({options.run_dir!r}, env=…), or xagents.resume in the same way']
        name = shlex.quote(options.run_dir)
        longer = {'steps': f' --max-steps {2 * (options.max_steps or 0)}'}
        longer['time'] = f' --max-time {math.ceil(2 * (options.max_time or 0))}'
        resume = f'train --resume {name}{longer[run.stop_reason]}' if run.stop_reason in longer else ''
        show = ' --render' if has_display() else ' --video-dir video' if run.agent.envs.draws_pictures else ''
        play = f'play --run-dir {name}{show}{" --stochastic" if run.needs_sampling else ""}'
        commands = [play, f'plot --run-dir {name}', resume or f'evaluate --run-dir {name}']
        if run.needs_sampling:  # the summary has a line about it, and at most eight
            del commands[1]
        return [f'{"     " if i else "Next:"} xagents {command}' for i, command in enumerate(commands)]
    if run.options.checkpoints:
        env = shlex.quote(run.agent.envs.id)
        return [f'Next: xagents play {run.agent.id} --env {env} --weights {shlex.join(run.options.checkpoints)}']
    if run.command or not run.is_first:
        return []
    return ['Nothing was saved: agent.save(directory) saves the agent, and run_dir=directory in fit saves the run']


def settings(run: Run) -> dict[str, Any]:
    """Return every option of a run by name: the agent's options and the run's options."""
    return {**run.all_options(), 'run_dir': run.options.run_dir}


@for_run
def history(run: Run, stream: Stream) -> Iterator[Context]:
    """Write one row per episode to the history."""
    path, before, resumed = run.options.history_path, run.progress.context, run.resumed_at
    if not path:
        yield from stream
        return
    writer = HistoryWriter(path, resume=run.continues)
    if writer.renamed_to:
        run.console.print_line(f'Renamed the existing history to {writer.renamed_to}')
    rewards, level = run.progress.rewards.copy(), before.level
    if resumed is not None:
        writer.truncate_after(resumed)
    # the best weights may be older than the end of the history
    steps = max((writer.last_step or 0) - before.steps, 0)
    seconds = max((writer.last_time or 0.0) - before.seconds, 0.0) if resumed is None else 0.0
    run.writers.append(writer)
    try:
        for ctx in stream:
            if ctx.level != level:  # means are those of one level of the curriculum
                level = ctx.level
                rewards.clear()
            # best mean of the earlier checks: the episodes of this iteration ended before its check
            known = ctx.new_best if ctx.new_best is not None else ctx.best_reward
            if ctx.episodes:
                times = [(e.reward, e.step + steps, e.time + seconds) for e in ctx.episodes]
                window = rewards if run.is_of_level(ctx) else deque[float](maxlen=rewards.maxlen)
                writer.append([(append_and_mean(window, row[0]), known, *row) for row in times])
            yield ctx
    finally:
        writer.close()


def append_and_mean(rewards: deque[float], reward: float) -> float:
    """Add a reward to the last rewards and return their mean, or NaN if it is undefined.

    The sum is computed from scratch: the rounding of a running sum depends on earlier rewards, so that a resumed run
    would write different bits. 100 rewards take 8 µs.
    """
    rewards.append(reward)
    try:
        return math.fsum(rewards) / len(rewards)
    except (ValueError, OverflowError):  # inf with -inf, or an overflow
        return math.nan


@for_run
def metrics(run: Run, stream: Stream) -> Iterator[Context]:
    """Add the counters and the speed in steps per second to the log."""
    previous, start = run.progress.context.steps, run.clock()
    speed = math.nan
    for n, ctx in enumerate(stream):
        now = run.clock()
        instant = (ctx.steps - previous) / max(now - start, 1e-9)
        # mean of about the last ten iterations; the first iteration compiles and is left out
        speed = instant if n <= 3 else 0.9 * speed + 0.1 * instant
        previous, start = ctx.steps, now
        counters = ('steps', 'games', 'updates', 'mean_reward', 'best_reward')
        ctx.logs |= {name: getattr(ctx, name) for name in counters} | {'steps_per_second': speed}
        yield ctx


@for_run
def console(run: Run, stream: Stream) -> Iterator[Context]:
    """Print the status of the run, at most twice a second, and the time of each phase at the end."""
    screen, phases, precision = run.console, _PhaseSeconds(run), run.options.display_precision
    old_best, shown, level = None, False, run.progress.context.level
    row = _MonitorRow()
    try:
        for ctx in stream:
            phases.add(ctx.logs)
            if screen.as_json:
                row.add(ctx)
            if ctx.level != level:  # the best means of two levels of the curriculum do not compare
                old_best, level = None, ctx.level
            if ctx.new_best is not None and old_best is None:
                old_best = ctx.new_best
            for message in ctx.messages:
                screen.print_line(message)
            if old_best is not None and not shown and screen.is_due():
                screen.print_event(best_line(old_best, ctx.best_reward, precision))
                old_best, shown = None, True  # the next line shows the status
            elif (ctx.checked or ctx.note or screen.has_bar or screen.is_overdue) and screen.is_due():
                screen.status(ctx, row.take(ctx))
                shown = False
            yield ctx
            if ctx.stop and old_best is not None and ctx.level == level:  # before the closing line
                screen.print_line(best_line(old_best, ctx.best_reward, precision))
                old_best = None
    finally:
        screen.stop()
        if old_best is not None and run.progress.context.level == level:
            screen.print_line(best_line(old_best, run.progress.context.best_reward, precision))
        run.summary += phases.lines()


class _PhaseSeconds:
    """Seconds that a run spent in each phase. The first iteration that learns compiles and is left out."""

    def __init__(self, run: Run):
        self._run = run
        self._spent: dict[str, float] = {}
        self._total = 0.0
        self._before: float | None = None
        self._learned = False
        self.explorers = ExplorerStatistics()

    def add(self, logs: dict[str, float]) -> None:
        """Add the seconds of one iteration."""
        now = self._run.clock()
        compiled = 'seconds/learn' in logs and not self._learned
        self._learned = self._learned or compiled
        if self._before is not None and not compiled:
            self._total += now - self._before
            for name in ('env', 'act', 'replay', 'learn', 'wait'):
                if f'seconds/{name}' in logs:
                    self._spent[name] = self._spent.get(name, 0.0) + logs[f'seconds/{name}']
        self._before = now
        self.explorers.add(logs)

    def lines(self) -> list[str]:
        """Return the closing lines about phases, explorers and the bottleneck; those of a short run omit it."""
        explorers, lines = self.explorers.line(), list[str]()
        if self._total > MIN_SECONDS_FOR_HINT:
            may_overlap = not self._run.agent.traits.no_overlap_reason and (os.cpu_count() or 1) > 1
            lines = bottleneck(self._spent, self._total, may_overlap, self._run.options.explorers).splitlines()
        if not explorers:
            return lines
        return [*lines[:1], '; '.join([explorers, *lines[1:]])]


def best_line(old: float, new: float, precision: int) -> str:
    """Return the console line about a new best mean, with as many decimals as tell the means apart, at most 6.

    The line of a first best, with an `old` of NaN, has one mean.
    """
    if math.isnan(old):
        return f'Best reward: {format_number(new, precision)}'
    means = (format_number(old, precision), format_number(new, precision))
    while means[0] == means[1] and precision < 6:
        precision += 1
        means = (format_number(old, precision), format_number(new, precision))
    return f'Best reward updated: {means[0]} -> {means[1]}'


class _MonitorRow:
    """The next row of a monitor. A row follows many short iterations, most of which end no episode."""

    def __init__(self) -> None:
        self._means: dict[str, list[tuple[float, int]]] = {}
        self._sums: dict[str, float] = {}

    def add(self, ctx: Context) -> None:
        """Add the means with counts, and the numbers of refused updates, of one iteration."""
        for name, count in ctx.counts.items():
            if name in ctx.logs:  # a custom stage may have removed the metric
                self._means.setdefault(name, []).append((ctx.logs[name], count))
        for name, value in ctx.logs.items():
            if value and name.endswith('stats/refused'):
                self._sums[name] = self._sums.get(name, 0.0) + value

    def take(self, ctx: Context) -> dict[str, float]:
        """Return the row after an iteration, and begin the next row."""
        row = {**ctx.logs, **{name: _weighted_mean(own) for name, own in self._means.items()}, **self._sums}
        self._means.clear()
        self._sums.clear()
        return row


def _weighted_mean(values: list[tuple[float, int]]) -> float:
    """Return the mean of values with counts; one value to the bit."""
    if len(values) == 1:
        return values[0][0]
    return sum(value * count for value, count in values) / sum(count for _, count in values)


@for_run
def write_metrics(run: Run, stream: Stream) -> Iterator[Context]:
    """Write the log to the metrics file of the run directory."""

    def make() -> Any:
        writer = MetricsWriter(run.options.metrics_path or '', resume=run.continues)
        if run.resumed_at is not None:
            writer.truncate_after(run.resumed_at)
        run.writers.append(writer)
        return writer

    return _monitor(stream, run.options.metrics_path, make)


@for_run
def tensorboard(run: Run, stream: Stream) -> Iterator[Context]:
    """Write the log as TensorBoard events."""

    def make() -> Any:
        resumed = run.resumed_at
        monitor = TensorBoardMonitor(run.options.events_folder or '', None if resumed is None else resumed + 1)
        run.writers.append(monitor)
        return monitor

    return _monitor(stream, run.options.events_folder, make)


@for_run
def wandb(run: Run, stream: Stream) -> Iterator[Context]:
    """Send the log to the Weights & Biases run `--monitor-session`. The run directory stores its id."""
    return _tracker(run, stream, 'wandb', WandbMonitor)


@for_run
def trackio(run: Run, stream: Stream) -> Iterator[Context]:
    """Write the log to the trackio run `--monitor-session`. The run directory stores its id."""
    return _tracker(run, stream, 'trackio', TrackioMonitor)


def _tracker(run: Run, stream: Stream, name: str, monitor: Callable[..., Any]) -> Iterator[Context]:
    """Write the log to a tracker if `--monitor` names it. `monitor` is the class of its monitor."""
    session = run.options.monitor_session if run.options.monitor == name else None

    def make() -> Any:
        config = {'agent': run.agent.id, **settings(run)}
        memory = run.options.path_in_run_dir(f'{name}.json')
        return monitor(session, config, id_file=memory, resumed_at=run.resumed_at)

    return _monitor(stream, session, make)


def _monitor(stream: Stream, place: str | None, make: Callable[[], Any]) -> Iterator[Context]:
    """Write the log to a monitor if `place` is set. `make` returns the monitor."""
    if not place:
        yield from stream
        return
    monitor, last, ctx = make(), -math.inf, None
    written, row = -1, _MonitorRow()
    try:
        for ctx in stream:
            row.add(ctx)
            # a thousand rows a second would make files that no viewer can open
            if 'evaluate/mean' in ctx.logs or time.monotonic() - last >= MONITOR_SECONDS:
                monitor.write(ctx.steps, row.take(ctx))
                written, last = ctx.steps, time.monotonic()
            yield ctx
    finally:
        try:
            if ctx is not None and ctx.steps != written:
                monitor.write(ctx.steps, row.take(ctx))
        finally:
            monitor.close()
