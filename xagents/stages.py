"""The stages that a run is made of; each is made for one agent and reads the options of its present run."""

from __future__ import annotations

import dataclasses
import inspect
import math
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from xagents import checkpoints
from xagents.console import bottleneck, number, status_line
from xagents.interruption import Interruption
from xagents.optimisation import scheduled
from xagents.options import OptionError
from xagents.pipeline import Context, Recipe, Stage, Stream, stage

if TYPE_CHECKING:
    from xagents.base import BaseAgent

# a mean over fewer episodes is no best and no plateau
EPISODES_FOR_BEST = 10
MONITOR_SECONDS = 0.2


def head(agent: BaseAgent) -> Recipe:
    """The stages before learning. Best weights are taken there: those that earned a mean are saved for it."""
    makers = (schedule, collect, checkpoint, episodes, evaluate, best)
    return Recipe((make.__name__, make(agent)) for make in makers)


def tail(agent: BaseAgent) -> Recipe:
    """The stages after learning."""
    makers = (plateau, history, metrics, console, tensorboard, wandb, until)
    return Recipe((make.__name__, make(agent)) for make in makers)


def check_run(agent: BaseAgent) -> None:
    """Check the options of a run against the agent, before anything is written.

    Raises:
        ValueError: in one line, naming the option.
    """
    run = agent.run
    if run.checkpoints:
        models = agent.model_names or [f'model {i + 1}' for i in range(len(agent.output_models))]
        checkpoints.check_paths('checkpoints', run.checkpoints, models)
    if run.history_checkpoint:
        from xagents.history import check_history_path

        check_history_path(run.history_checkpoint)
    if run.monitor_session:
        from xagents.monitors import check_wandb

        check_wandb()
    for name, (_, kind) in agent.schedules().items():
        if kind != 'constant' and agent.schedule_steps is None:
            option = 'lr_schedule' if name == 'learning_rate' else name.replace('norm', 'schedule')
            raise OptionError(option, f'got {kind}, which needs max_steps or schedule_steps for its length')


def schedule(agent: BaseAgent) -> Stage:
    """Set what changes during a run: base value x schedule x plateau factor."""

    def schedule(ctx: Context) -> None:
        progress = ctx.steps / (agent.schedule_steps or 1)
        for name, (base, kind) in agent.schedules().items():
            ctx.schedule[name] = base * scheduled(kind, progress)
        ctx.schedule['learning_rate'] *= ctx.plateau_factor
        ctx.logs['learning_rate'] = ctx.schedule['learning_rate']

    return schedule


def collect(agent: BaseAgent) -> Stage:
    """Let the environments take some steps."""
    return _stepping(agent, lambda ctx: ctx.batch.update(agent.collect()))


def train_step(agent: BaseAgent) -> Stage:
    """Let an agent that is not split into collecting and learning do both."""

    def step(ctx: Context) -> None:
        agent.at_step_start()
        agent.train_step()
        agent.at_step_end()
        ctx.updates += 1

    return _stepping(agent, step)


def _stepping(agent: BaseAgent, step: Callable[[Context], Any]) -> Stage:
    def collect(ctx: Context) -> Iterator[None]:
        start, before = time.perf_counter(), ctx.seconds
        agent.collected, agent.collected_steps = [], 0
        agent.seconds = dict.fromkeys(agent.seconds, 0.0)
        step(ctx)
        for episode in agent.collected:
            ctx.episodes.append(dataclasses.replace(episode, step=ctx.steps + episode.step, time=before + episode.time))
        ctx.steps += agent.collected_steps
        for name, seconds in agent.seconds.items():
            ctx.logs[f'seconds/{name}'] = seconds
        ctx.seconds = before + time.perf_counter() - start
        yield
        # what came after, also a user's own stages, is training time, too
        ctx.seconds = before + time.perf_counter() - start

    return collect


def checkpoint(agent: BaseAgent) -> Stage:
    """Write the best weights every `save_seconds` and on the way out; nothing after an error."""

    @stage
    def checkpoint(stream: Stream) -> Iterator[Context]:
        if not agent.run.checkpoints:
            yield from stream
            return
        written, last, ctx = agent.best, time.monotonic(), None
        whole = False
        try:
            for ctx in stream:
                whole = False
                yield ctx
                whole = True
                if agent.best is not written and time.monotonic() - last >= agent.run.save_seconds:
                    agent.write_checkpoints(agent.best)  # type: ignore[arg-type]
                    written, last = agent.best, time.monotonic()
            if ctx is not None and ctx.stop in ('steps', 'time', 'early'):
                _contest(agent)
        except GeneratorExit:
            # a loop was left after an iteration that had passed every stage, or a later stage failed
            whole = agent.context is ctx
            raise
        finally:
            if whole and not Interruption.abandoned():
                agent.write_checkpoints(agent.best or agent.state())

    return checkpoint


def _contest(agent: BaseAgent) -> None:
    """Let best and last play for the place in `--checkpoints`: the mean of training episodes lags behind."""
    run = agent.run
    if run.eval_frequency or not run.final_episodes or agent.best is None:
        return
    agent.refresh()
    last = agent.evaluate(run.final_episodes)['mean']
    with agent.with_weights(agent.best):
        first = agent.evaluate(run.final_episodes)['mean']
    kept = 'last' if last >= first else 'best'
    if kept == 'last':
        agent.best = agent.state()
    p = run.display_precision
    agent.console.say(
        f'Greedy mean of {run.final_episodes} episodes: best {number(first, p)}, last {number(last, p)}; '
        f'the {kept} weights are in {" ".join(run.checkpoints or ())}'
    )


def episodes(agent: BaseAgent) -> Stage:
    """Count the episodes that ended and take their mean; decide whether it is looked at in this iteration."""

    def episodes(ctx: Context) -> None:
        ended = ctx.episodes
        agent.total_rewards.extend(episode.reward for episode in ended)
        ctx.games += len(ended)
        if ended:
            ctx.logs['episode_length'] = sum(episode.length for episode in ended) / len(ended)
            successes = [episode.success for episode in ended if episode.success is not None]
            if successes:
                ctx.logs['success_rate'] = sum(successes) / len(successes)
        if agent.run.eval_frequency:
            return
        if ended:
            ctx.mean_reward = float(np.mean(agent.total_rewards))
        if ended and ctx.games - ctx.checked_games >= (agent.run.log_frequency or agent.n_envs):
            ctx.checked, ctx.checked_games = True, ctx.games

    return episodes


def evaluate(agent: BaseAgent) -> Stage:
    """Play greedy episodes every `eval_frequency` steps; their mean then decides best, plateau and target."""

    def evaluate(ctx: Context) -> None:
        frequency = agent.run.eval_frequency
        if not frequency or ctx.steps - ctx.evaluated_steps < frequency:
            return
        ctx.evaluated_steps = ctx.steps
        result = agent.evaluate(agent.run.eval_episodes, seed=agent.evaluation_seed(ctx.steps))
        for name in ('mean', 'std', 'length'):
            ctx.logs[f'evaluate/{name}'] = result[name]
        ctx.mean_reward, ctx.checked = result['mean'], True

    return evaluate


def best(agent: BaseAgent) -> Stage:
    """Copy the weights of a new best mean, and those that reached the target."""

    def best(ctx: Context) -> None:
        enough = agent.run.eval_frequency or len(agent.total_rewards) >= min(
            EPISODES_FOR_BEST, agent.options.reward_buffer_size
        )
        improved = ctx.checked and enough and not ctx.mean_reward <= ctx.best_reward
        if improved:
            ctx.new_best, ctx.best_reward = ctx.best_reward, ctx.mean_reward
        if agent.run.checkpoints and (improved or _target_reached(agent, ctx)):
            agent.best = agent.state()

    return best


def learn(agent: BaseAgent) -> Stage:
    """Learn from the batch; what the schedule set goes to those of its values that `learn` takes."""
    takes = set(inspect.signature(agent.learn).parameters)

    def learn(ctx: Context) -> None:
        start = time.perf_counter()
        arguments = {name: value for name, value in ctx.schedule.items() if name in takes}
        ctx.logs.update(agent.learn(ctx.batch, **arguments) or {})
        ctx.updates += int(ctx.logs.pop('updates', 1))
        ctx.logs['seconds/learn'] = time.perf_counter() - start

    return learn


def plateau(agent: BaseAgent) -> Stage:
    """Reduce the learning rate of every optimiser when the mean has found no new best for a while."""

    def plateau(ctx: Context) -> None:
        run = agent.run
        monitored = run.divergence_monitoring_steps is not None and ctx.steps >= run.divergence_monitoring_steps
        if not (ctx.checked and monitored):
            return
        ctx.plateau_count = 0 if ctx.new_best is not None else ctx.plateau_count + 1
        if ctx.plateau_count < run.plateau_reduce_patience:
            return
        ctx.plateau_count, ctx.early_stop_count = 0, ctx.early_stop_count + 1
        old = agent.options.lr * ctx.plateau_factor
        ctx.plateau_factor *= run.plateau_reduce_factor
        ctx.messages.append(f'Learning rate reduced {old:.3g} -> {agent.options.lr * ctx.plateau_factor:.3g}')

    return plateau


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
        previous, start = agent.context.steps, time.perf_counter()
        speed = math.nan
        for ctx in stream:
            now = time.perf_counter()
            instant = (ctx.steps - previous) / max(now - start, 1e-9)
            # a mean over about the last ten iterations, without the first one, which compiles
            speed = instant if math.isnan(speed) or ctx.iteration <= 3 else 0.9 * speed + 0.1 * instant
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
        spent = {'env': 0.0, 'act': 0.0, 'learn': 0.0, 'rest': 0.0}
        before, first = agent.context.seconds, True
        old_best: float | None = None
        told = False
        try:
            for ctx in stream:
                if not first:  # the first iteration compiles
                    spent['rest'] += ctx.seconds - before
                    for name in ('env', 'act', 'learn'):
                        spent[name] += ctx.logs.get(f'seconds/{name}', 0.0)
                before, first = ctx.seconds, False
                if ctx.new_best is not None and old_best is None:
                    old_best = ctx.new_best
                for message in ctx.messages:
                    screen.say(message)
                if old_best is not None and not told and screen.due():
                    p = run.display_precision
                    screen.event(f'Best reward updated: {number(old_best, p)} -> {number(ctx.best_reward, p)}')
                    old_best, told = None, True  # the next line says how the run stands
                elif (ctx.checked or screen.bar) and screen.due():
                    screen.status(status_line(ctx, run.display_precision), ctx.steps)
                    told = False
                yield ctx
        finally:
            screen.stop()
            spent['rest'] = max(spent['rest'] - spent['env'] - spent['act'] - spent['learn'], 0.0)
            screen.say(bottleneck(spent))

    return console


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

        return WandbMonitor(agent.run.monitor_session or '', agent.state().record['options'])

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


def until(agent: BaseAgent) -> Stage:
    """Write why the run ends, if it does."""

    def until(ctx: Context) -> None:
        ctx.stop = 'interrupted' if Interruption.requested() else why_stop(agent, ctx)

    return until


def why_stop(agent: BaseAgent, ctx: Context) -> str:
    """Return why a run ends at these counters: target, early, steps or time; empty where it goes on."""
    run = agent.run
    if _target_reached(agent, ctx):
        return 'target'
    if run.divergence_monitoring_steps is not None and ctx.early_stop_count >= run.early_stop_patience:
        return 'early'
    if run.max_steps is not None and ctx.steps >= run.max_steps:
        return 'steps'
    if run.max_time is not None and ctx.seconds >= run.max_time:
        return 'time'
    return ''


def _target_reached(agent: BaseAgent, ctx: Context) -> bool:
    target = agent.run.target_reward
    if target is None or not ctx.mean_reward >= target:
        return False
    if agent.run.eval_frequency:
        return True
    return ctx.checked_games == ctx.games and len(agent.total_rewards) == agent.total_rewards.maxlen


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
