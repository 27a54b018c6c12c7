"""The stages that tell of a run: history, log, console and monitors; each is made for one agent."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from xagents.console import bottleneck, number, status_line
from xagents.pipeline import Context, Stage, Stream, stage

if TYPE_CHECKING:
    from xagents.base import BaseAgent

MONITOR_SECONDS = 0.2
SECONDS_FOR_A_HINT = 2.0


def history(agent: BaseAgent) -> Stage:
    """Write one row an episode to `history_checkpoint`."""

    @stage
    def history(stream: Stream) -> Iterator[Context]:
        if not agent.run.history_checkpoint:
            yield from stream
            return
        from xagents.history import HistoryWriter

        writer = HistoryWriter(agent.run.history_checkpoint, resume=agent.context.iteration > 0)
        if writer.renamed:
            agent.console.say(f'The history that was there is now {writer.renamed}')
        means = _RunningMean(agent.options.reward_buffer_size, list(agent.total_rewards))
        # best weights may be older than the history they are continued with
        steps = max((writer.last_step or 0) - agent.context.steps, 0)
        seconds = max((writer.last_time or 0.0) - agent.context.seconds, 0.0)
        try:
            for ctx in stream:
                # the best of the checks so far; this iteration's episodes came before its own check
                known = ctx.new_best if ctx.new_best is not None else ctx.best_reward
                if ctx.episodes:
                    rows = [(means(e.reward), known, e.reward, e.step + steps, e.time + seconds) for e in ctx.episodes]
                    writer.append(rows)
                yield ctx
        finally:
            writer.close()

    return history


class _RunningMean:
    """The mean of the last rewards, in constant time; summed anew now and then against rounding."""

    def __init__(self, size: int, rewards: list[float]):
        self.size = size
        self.rewards = list(rewards)[-size:]
        self._sum = math.fsum(self.rewards)
        self._next = 0

    def __call__(self, reward: float) -> float:
        if len(self.rewards) < self.size:
            self.rewards.append(reward)
        else:
            self._sum -= self.rewards[self._next]
            self.rewards[self._next] = reward
            self._next = (self._next + 1) % self.size
        self._sum += reward
        if self._next == 0:
            self._sum = math.fsum(self.rewards)
        return self._sum / len(self.rewards)


def metrics(agent: BaseAgent) -> Stage:
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


def console(agent: BaseAgent) -> Stage:
    """Show how the run stands, at most twice a second, and where the time went at the end."""

    @stage
    def console(stream: Stream) -> Iterator[Context]:
        run, screen = agent.run, agent.console
        spent: dict[str, float] = {}
        total = 0.0
        before: float | None = None
        learned = False
        old_best: float | None = None
        told = False
        try:
            for ctx in stream:
                now = time.perf_counter()
                compiled = 'seconds/learn' in ctx.logs and not learned  # the first time that something is learned
                learned = learned or compiled
                if before is not None and not compiled:
                    total += now - before
                    for name in ('env', 'act', 'replay', 'learn'):
                        if f'seconds/{name}' in ctx.logs:
                            spent[name] = spent.get(name, 0.0) + ctx.logs[f'seconds/{name}']
                before = now
                if ctx.new_best is not None and old_best is None:
                    old_best = ctx.new_best
                for message in ctx.messages:
                    screen.say(message)
                if old_best is not None and not told and screen.due():
                    screen.event(best_line(old_best, ctx.best_reward, run.display_precision))
                    old_best, told = None, True  # the next line says how the run stands
                elif (ctx.checked or ctx.note or screen.bar or screen.silent) and screen.due():
                    screen.status(status_line(ctx, run.display_precision), ctx.steps)
                    told = False
                yield ctx
                if ctx.stop and old_best is not None:  # before what is said of the end
                    screen.say(best_line(old_best, ctx.best_reward, run.display_precision))
                    old_best = None
        finally:
            screen.stop()
            if old_best is not None:
                screen.say(best_line(old_best, agent.context.best_reward, run.display_precision))
            spent['rest'] = max(total - sum(spent.values()), 0.0)
            if sum(spent.values()) > SECONDS_FOR_A_HINT:
                screen.say(bottleneck(spent))

    return console


def best_line(old: float, new: float, precision: int) -> str:
    """Return the line about a new best mean."""
    return f'Best reward updated: {number(old, precision)} -> {number(new, precision)}'


def tensorboard(agent: BaseAgent) -> Stage:
    """Write the log to `--tensorboard`."""

    def make() -> Any:
        from xagents.monitors import TensorBoardMonitor

        return TensorBoardMonitor(agent.run.tensorboard or '')

    return _monitor(lambda: agent.run.tensorboard, make)


def wandb(agent: BaseAgent) -> Stage:
    """Send the log to the Weights & Biases run `--monitor-session`."""

    def make() -> Any:
        from xagents.monitors import WandbMonitor

        return WandbMonitor(agent.run.monitor_session or '', agent.options_record())

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
            if ctx is not None and ctx.steps != written:
                monitor.write(ctx.steps, ctx.logs)
            monitor.close()

    return monitor


def closing_line(agent: BaseAgent) -> str:
    """Return the line that says why the run ended."""
    ctx = agent.context
    return {
        'target': f'Reward achieved in {ctx.steps} steps',
        'steps': 'Maximum steps exceeded',
        'time': 'Maximum time exceeded',
        'early': 'Early stopping',
        'interrupted': agent.interrupted_line(),
    }.get(agent.stopped, '')
