"""The stages that tell of a run: history, log, console and monitors; each is made for one agent."""

from __future__ import annotations

import math
import os
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from xagents.logs.console import Console, bottleneck, number
from xagents.pipeline.context import Context, Stage, Stream
from xagents.pipeline.recipe import stage

if TYPE_CHECKING:
    from xagents.runs.learner import Learner

MONITOR_SECONDS = 0.2
SECONDS_FOR_A_HINT = 2.0


def begin(agent: Learner) -> Console:
    """Return the console of a run that begins, which has said what run it is."""
    run = agent.run
    console = Console(run.quiet, run.max_steps, run.log_format, run.display_precision)
    console.start(
        {
            'agent': agent.id,
            'env': agent.envs.id,
            'seed': agent.options.seed,
            'options': settings(agent),
        }
    )
    return console


def end(agent: Learner, error: BaseException | None = None, begun: bool = True) -> None:
    """Let the console say why the run ended.

    Args:
        agent: whose run it is.
        error: what ended it; people are told of that elsewhere, machines here, too.
        begun: whether it went on at all; one that is resumed after its end does not.
    """
    ctx = agent.context
    facts = {
        'why': 'failed' if error else agent.stopped,
        'steps': ctx.steps,
        'mean_reward': ctx.mean_reward,
        'best_reward': ctx.best_reward,
        'seconds': ctx.seconds,
    }
    if error:
        facts['error'] = f'{type(error).__name__}: {error}'
    line = '' if error else closing_line(agent)
    if line and not begun:
        line += f': {agent.run.run_dir} had ended already at step {ctx.steps}; a further end, as --max-steps, goes on'
    agent.console.close(line, facts)


def settings(agent: Learner) -> dict[str, Any]:
    """Return every option of a run by name, those of its agent and those of its process."""
    return {**agent.run_record(), 'run_dir': agent.run.run_dir}


def history(agent: Learner) -> Stage:
    """Write one row an episode to the history."""

    @stage
    def history(stream: Stream) -> Iterator[Context]:
        path = agent.run.history_path
        if not path:
            yield from stream
            return
        from xagents.logs.history import HistoryWriter

        resumed = agent.resumed_at
        writer = HistoryWriter(path, resume=_goes_on(agent))
        if writer.renamed:
            agent.console.say(f'The history that was there is now {writer.renamed}')
        mean = RunningMean(agent.options.reward_buffer_size, agent.total_rewards)
        if resumed is not None:
            writer.cut(resumed)
        # best weights may be older than the history they are continued with
        steps = max((writer.last_step or 0) - agent.context.steps, 0)
        seconds = max((writer.last_time or 0.0) - agent.context.seconds, 0.0) if resumed is None else 0.0
        agent.writers.append(writer)
        try:
            for ctx in stream:
                # the best of the checks so far; this iteration's episodes came before its own check
                known = ctx.new_best if ctx.new_best is not None else ctx.best_reward
                if ctx.episodes:
                    rows = [(mean(e.reward), known, e.reward, e.step + steps, e.time + seconds) for e in ctx.episodes]
                    writer.append(rows)
                yield ctx
        finally:
            writer.close()

    return history


def _goes_on(agent: Learner) -> bool:
    """Return whether the files that are there are this run's; one that resumes may have had no checkpoint yet."""
    return agent.context.iteration > 0 or agent.resumed_at is not None


class RunningMean:
    """The mean of the last `size` rewards.

    It depends on them alone and not on how they came, as that of a running sum would by rounding: a run that was
    resumed writes the same bits. Adding up 100 takes 8 µs.
    """

    def __init__(self, size: int, rewards: Iterable[float]):
        self._rewards = deque(rewards, maxlen=size)

    def __call__(self, reward: float) -> float:
        """Add a reward and return the mean; NaN where there is none."""
        self._rewards.append(reward)
        try:
            return math.fsum(self._rewards) / len(self._rewards)
        except (ValueError, OverflowError):  # inf beside -inf, or beyond all numbers
            return math.nan


def record(agent: Learner) -> Stage:
    """Write the log to the run folder's file of metrics."""

    def make() -> Any:
        from xagents.logs.metrics import MetricsWriter

        writer = MetricsWriter(agent.run.metrics_path or '', resume=_goes_on(agent))
        if agent.resumed_at is not None:
            writer.cut(agent.resumed_at)
        agent.writers.append(writer)
        return writer

    return _monitor(lambda: agent.run.metrics_path, make)


def metrics(agent: Learner) -> Stage:
    """Complete the log with the counters and the speed."""

    @stage
    def metrics(stream: Stream) -> Iterator[Context]:
        previous, start = agent.context.steps, time.perf_counter() - agent.paused
        speed = math.nan
        for n, ctx in enumerate(stream):
            now = time.perf_counter() - agent.paused
            instant = (ctx.steps - previous) / max(now - start, 1e-9)
            # a mean over about the last ten iterations, without the first one, which compiles
            speed = instant if n <= 3 else 0.9 * speed + 0.1 * instant
            previous, start = ctx.steps, now
            ctx.logs.update(
                steps=ctx.steps, games=ctx.games, updates=ctx.updates, mean_reward=ctx.mean_reward,
                best_reward=ctx.best_reward, steps_per_second=speed,
            )  # fmt: skip
            yield ctx

    return metrics


def console(agent: Learner) -> Stage:
    """Show how the run stands, at most twice a second, and where the time went at the end."""

    @stage
    def console(stream: Stream) -> Iterator[Context]:
        run, screen, phases = agent.run, agent.console, _Phases(agent)
        old_best: float | None = None
        told = False
        try:
            for ctx in stream:
                phases.add(ctx.logs)
                if ctx.new_best is not None and old_best is None:
                    old_best = ctx.new_best
                for message in ctx.messages:
                    screen.say(message)
                if old_best is not None and not told and screen.due():
                    screen.event(best_line(old_best, ctx.best_reward, run.display_precision))
                    old_best, told = None, True  # the next line says how the run stands
                elif (ctx.checked or ctx.note or screen.bar or screen.silent) and screen.due():
                    screen.status(ctx)
                    told = False
                yield ctx
                if ctx.stop and old_best is not None:  # before what is said of the end
                    screen.say(best_line(old_best, ctx.best_reward, run.display_precision))
                    old_best = None
        finally:
            screen.stop()
            if old_best is not None:
                screen.say(best_line(old_best, agent.context.best_reward, run.display_precision))
            screen.say(phases.line())

    return console


class _Phases:
    """Adds up where the time went, without the iteration that compiles: the first one that learns."""

    def __init__(self, agent: Learner):
        self._agent = agent
        self._spent: dict[str, float] = {}
        self._total = 0.0
        self._before: float | None = None
        self._learned = False

    def add(self, logs: dict[str, float]) -> None:
        """Add an iteration's."""
        now = time.perf_counter() - self._agent.paused  # a user's own loop is none of it
        compiled = 'seconds/learn' in logs and not self._learned
        self._learned = self._learned or compiled
        if self._before is not None and not compiled:
            self._total += now - self._before
            for name in ('env', 'act', 'replay', 'learn', 'wait'):
                if f'seconds/{name}' in logs:
                    self._spent[name] = self._spent.get(name, 0.0) + logs[f'seconds/{name}']
        self._before = now

    def line(self) -> str:
        """Return what is said at the end; nothing of a short run."""
        if self._total <= SECONDS_FOR_A_HINT:
            return ''
        agent = self._agent
        return bottleneck(self._spent, self._total, not agent.NO_OVERLAP and (os.cpu_count() or 1) > 1)


def best_line(old: float, new: float, precision: int) -> str:
    """Return the line about a new best mean."""
    return f'Best reward updated: {number(old, precision)} -> {number(new, precision)}'


def tensorboard(agent: Learner) -> Stage:
    """Write the log as TensorBoard's events."""

    def make() -> Any:
        from xagents.logs.monitors import TensorBoardMonitor

        resumed = agent.resumed_at
        monitor = TensorBoardMonitor(agent.run.events_folder or '', None if resumed is None else resumed + 1)
        agent.writers.append(monitor)
        return monitor

    return _monitor(lambda: agent.run.events_folder, make)


def wandb(agent: Learner) -> Stage:
    """Send the log to the Weights & Biases run `--monitor-session`; a run folder remembers which one that is."""

    def make() -> Any:
        from xagents.logs.monitors import WandbMonitor

        run = agent.run
        config = {'agent': agent.id, **settings(agent)}
        return WandbMonitor(
            run.monitor_session or '', config, memory=run.place('wandb.json'), resumed_at=agent.resumed_at
        )

    return _monitor(lambda: agent.run.monitor_session, make)


def _monitor(wanted: Callable[[], Any], make: Callable[[], Any]) -> Stage:
    @stage
    def monitor(stream: Stream) -> Iterator[Context]:
        if not wanted():
            yield from stream
            return
        monitor, last, ctx = make(), -math.inf, None
        written = -1
        try:
            for ctx in stream:
                # a thousand iterations a second would make files that no one can open
                if 'evaluate/mean' in ctx.logs or time.monotonic() - last >= MONITOR_SECONDS:
                    monitor.write(ctx.steps, ctx.logs)
                    written, last = ctx.steps, time.monotonic()
                yield ctx
        finally:
            try:
                if ctx is not None and ctx.steps != written:
                    monitor.write(ctx.steps, ctx.logs)
            finally:
                monitor.close()

    return monitor


def closing_line(agent: Learner) -> str:
    """Return the line that says why the run ended."""
    ctx = agent.context
    return {
        'target': f'Reward achieved in {ctx.steps} steps',
        'steps': 'Maximum steps exceeded',
        'time': 'Maximum time exceeded',
        'early': 'Early stopping',
        'interrupted': agent.interrupted_line(),
    }.get(agent.stopped, '')
