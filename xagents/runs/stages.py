"""The stages that a run is made of; each is made for one agent and reads the options of its present run."""

from __future__ import annotations

import dataclasses
import inspect
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from xagents.collecting.finite import NotFiniteError
from xagents.options.errors import OptionError
from xagents.pipeline.context import Context, Stage, Stream
from xagents.pipeline.recipe import Recipe, stage
from xagents.runs import weight_files as checkpoints
from xagents.runs.overlap import overlap as overlap
from xagents.runs.reporting import console, history, metrics, record, tensorboard, wandb
from xagents.runs.saving import best, checkpoint, target_reached
from xagents.runs.suspect import suspect
from xagents.runs.videos import check_video, video
from xagents.system.interruption import Interrupted, Interruption

if TYPE_CHECKING:
    from xagents.runs.learner import Learner, Replayer, RolloutReplayer, TransitionReplayer

EPISODES_FOR_BEST = 10


def head(agent: Learner) -> Recipe:
    """The stages before learning. Best weights are taken there: those that earned a mean are saved for it."""
    makers = (schedule, collect, checkpoint, episodes, evaluate, best)
    return Recipe(((make.__name__, make(agent)) for make in makers), agent=agent)


def learning(agent: Learner) -> Recipe:
    """The stage of agents that learn from what they have just collected."""
    return Recipe([('learn', learn(agent))])


def replaying(agent: TransitionReplayer) -> Recipe:
    """The stages of agents that learn from a replay buffer."""
    return Recipe([('remember', remember(agent)), ('replay', replay(agent)), ('learn', learn(agent))])


def relearning(agent: RolloutReplayer) -> Recipe:
    """The stages of an agent that learns from what it has just collected and then, again, from earlier rollouts."""
    return learning(agent) + Recipe([('remember', remember(agent)), ('replay', relearn(agent))])


def tail(agent: Learner) -> Recipe:
    """The stages after learning."""
    makers = (plateau, history, metrics, record, console, tensorboard, wandb, video, until)
    return Recipe((make.__name__, make(agent)) for make in makers)


def check_run(agent: Learner) -> None:
    """Check the options of a run against the agent, before anything is written.

    Raises:
        ValueError: in one line, naming the option.
    """
    run = agent.run
    if run.checkpoints:
        models = agent.model_names or [f'model {i + 1}' for i in range(len(agent.output_models))]
        checkpoints.check_paths('checkpoints', run.checkpoints, models)
    if run.history_path and (run.history_checkpoint or agent.resumed_at is not None):
        from xagents.logs.history import check_history_path

        going_on = agent.context.iteration > 0 or agent.resumed_at is not None
        check_history_path(run.history_path, going_on, 'history_checkpoint' if run.history_checkpoint else 'resume')
    if run.metrics_path and agent.resumed_at is not None:
        from xagents.logs.metrics import read_metrics
        from xagents.logs.tailed import check_goes_on

        check_goes_on('resume', run.metrics_path, read_metrics)
    check_video(agent)
    if run.eval_frequency and not agent.envs.can_be_made_again:
        raise OptionError('eval_frequency', f'{agent.envs.id} cannot be made afresh: give create_envs a function')
    for value in agent.schedules().values():
        if value.needs_length() and agent.schedule_steps is None:
            raise OptionError(value.option, f'got {value.kind}, which needs max_steps or schedule_steps for its length')


def schedule(agent: Learner) -> Stage:
    """Set what changes during a run; the learning rate is reduced on plateaus, too."""

    @stage
    def schedule(stream: Stream) -> Iterator[Context]:
        schedules, length = agent.schedules(), agent.schedule_steps
        for ctx in stream:
            for name, value in schedules.items():
                ctx.schedule[name] = value(ctx.steps, length)
                if name != 'learning_rate':
                    ctx.logs[f'stats/{name}'] = ctx.schedule[name]
            ctx.schedule['learning_rate'] *= ctx.plateau_factor
            ctx.logs['learning_rate'] = ctx.schedule['learning_rate']
            yield ctx

    return schedule


def collect(agent: Learner) -> Stage:
    """Let the environments take some steps, with those values of the schedule that `collect` takes."""
    takes = inspect.signature(agent.collect).parameters
    return _stepping(agent, lambda ctx: ctx.batch.update(agent.collector.collect(**_named(ctx.schedule, takes))))


def _named(values: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    return {name: values[name] for name in names if name in values}


def train_step(agent: Learner) -> Stage:
    """Let an agent that is not split into collecting and learning do both."""

    def step(ctx: Context) -> None:
        agent.at_step_start()
        agent.train_step()
        agent.at_step_end()
        ctx.updates += 1

    return _stepping(agent, step)


def _stepping(agent: Learner, step: Callable[[Context], Any]) -> Stage:
    def collect(ctx: Context) -> Iterator[None]:
        # what a user's own loop does between two iterations is no training time
        start, before = time.perf_counter() - agent.paused, ctx.seconds
        collector = agent.collector
        collector.collected, collector.collected_steps = [], 0
        collector.seconds = dict.fromkeys(collector.seconds, 0.0)
        try:
            step(ctx)
        except BaseException as error:
            collector.observations = None  # the environments stand midway: they begin anew
            if not isinstance(error, NotFiniteError):
                raise
            error.env_id, error.step = agent.envs.id, ctx.steps + error.step
            if agent.run.on_nan == 'stop':
                raise
            ctx.idle, ctx.batch = True, {}
            ctx.logs['stats/refused'] = 1.0
            ctx.messages.append(f'Skipped an iteration: {error}')
        for episode in collector.collected:
            if not math.isfinite(episode.reward):  # it would be in every mean to come
                continue
            ctx.episodes.append(dataclasses.replace(episode, step=ctx.steps + episode.step, time=before + episode.time))
        ctx.steps += collector.collected_steps
        for name, seconds in collector.seconds.items():
            ctx.logs[f'seconds/{name}'] = seconds
        ctx.seconds = before + time.perf_counter() - agent.paused - start
        yield
        # what came after, also a user's own stages, is training time, too
        ctx.seconds = before + time.perf_counter() - agent.paused - start

    return collect


def episodes(agent: Learner) -> Stage:
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
        # a mean over fewer episodes is no best and no plateau
        enough = len(agent.total_rewards) >= min(EPISODES_FOR_BEST, agent.options.reward_buffer_size)
        if ended and enough and ctx.games - ctx.checked_games >= (agent.run.log_frequency or agent.n_envs):
            ctx.checked, ctx.checked_games = True, ctx.games

    return episodes


def evaluate(agent: Learner) -> Stage:
    """Play greedy episodes every `eval_frequency` steps; their mean then decides best, plateau and target."""

    def evaluate(ctx: Context) -> None:
        frequency = agent.run.eval_frequency
        if not frequency or ctx.steps - ctx.evaluated_steps < frequency:
            return
        ctx.evaluated_steps = ctx.steps
        try:
            result = agent.evaluate(agent.run.eval_episodes, seed=agent.evaluation_seed(ctx.steps))
        except Interrupted:
            return
        for name in ('mean', 'std', 'length'):
            ctx.logs[f'evaluate/{name}'] = result[name]
        ctx.mean_reward, ctx.checked = result['mean'], True

    return evaluate


def remember(agent: Replayer) -> Stage:
    """Put what was collected into the replay buffer."""

    def remember(ctx: Context) -> None:
        if not ctx.idle:
            agent.buffer.add(ctx.batch)

    return remember


def replay(agent: TransitionReplayer) -> Stage:
    """Draw from the replay buffer the batches of this iteration's updates, all in one go, once it holds enough."""

    def replay(ctx: Context) -> None:
        if ctx.idle:
            return
        start = time.perf_counter()
        buffer, steps = agent.buffer, int(np.count_nonzero(ctx.batch['valid']))
        ctx.logs['replay/size'], ctx.logs['replay/fill'] = len(buffer), len(buffer) / buffer.max_size
        ctx.logs['stats/updates_per_step'] = ctx.updates / max(ctx.steps, 1)
        if not buffer.ready:
            ctx.note = f'filling the replay buffer: {buffer.stored} of {buffer.needed}'
        ctx.idle = not (buffer.ready and steps)
        if ctx.idle:
            return
        ctx.batch = agent.replay(agent.updates_for(steps), **_named(ctx.schedule, ('beta',)))
        ctx.logs['seconds/replay'] = time.perf_counter() - start

    return replay


def learn(agent: Learner) -> Stage:
    """Learn from the batch; `learn` gets those values of the schedule that it takes, and `steps` if it takes that."""
    takes = inspect.signature(agent.learn).parameters

    def learn(ctx: Context) -> None:
        if ctx.idle:
            return
        start = time.perf_counter()
        arguments = _named({**ctx.schedule, 'steps': ctx.steps}, takes)
        ctx.logs.update(agent.learn(ctx.batch, **arguments) or {})
        refused = ctx.logs.get('stats/refused', 0.0)
        if refused:
            _check_refused(agent, ctx, ctx.batch)
            ctx.messages.append(f'Refused {refused:.0f} updates that were not finite')
        ctx.updates += int(ctx.logs.pop('updates', 1))
        ctx.logs['seconds/learn'] = time.perf_counter() - start
        ctx.seconds += ctx.logs['seconds/learn']

    return learn


def _check_refused(agent: Learner, ctx: Context, batch: Mapping[str, Any]) -> None:
    """End a run with an update that was refused, unless those are to be skipped."""
    if agent.run.on_nan == 'stop':
        what, env = suspect(agent, batch)
        error = NotFiniteError(what, env=env, step=ctx.steps)
        error.env_id = '' if env is None else agent.envs.id
        raise error


def relearn(agent: RolloutReplayer) -> Stage:
    """Draw how many stored rollouts are learned from again, and learn from them; their metrics begin with `replay/`."""
    takes = inspect.signature(agent.learn).parameters

    def replay(ctx: Context) -> None:
        if ctx.idle:
            return
        buffer = agent.buffer
        ctx.logs['replay/size'], ctx.logs['replay/fill'] = len(buffer), len(buffer) / buffer.max_size
        if not buffer.ready:
            ctx.note = f'filling the replay buffer: {buffer.stored} of {buffer.needed}'
            return
        start = time.perf_counter()
        arguments = _named({**ctx.schedule, 'steps': ctx.steps}, takes)
        metrics = []
        for _ in range(agent.draw_replays()):
            batch = agent.replay()
            metrics.append(agent.learn(batch, **arguments) or {})
            if metrics[-1].get('stats/refused'):
                _check_refused(agent, ctx, batch)
        made = [m for m in metrics if m.pop('updates', 1)]  # of one that was refused only that it was
        refused = int(sum(m.pop('stats/refused', 0) for m in metrics))
        counts = {'count': len(metrics), 'updates': len(made), 'stats/refused': refused}
        means = {name: float(np.mean([m[name] for m in made])) for name in (made[0] if made else ())}
        ctx.logs.update({f'replay/{name}': value for name, value in {**counts, **means}.items()})
        ctx.updates += len(made)
        elapsed = time.perf_counter() - start
        ctx.logs['seconds/learn'] = ctx.logs.get('seconds/learn', 0.0) + elapsed
        ctx.seconds += elapsed
        if refused:
            ctx.messages.append(f'Refused {refused} replayed updates that were not finite')

    return replay


def plateau(agent: Learner) -> Stage:
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


def until(agent: Learner) -> Stage:
    """Write why the run ends, if it does."""

    def until(ctx: Context) -> None:
        # a stage of the user's may have stopped the run
        ctx.stop = 'interrupted' if Interruption.requested() else ctx.stop or why_stop(agent, ctx)

    return until


def why_stop(agent: Learner, ctx: Context) -> str:
    """Return why a run ends at these counters: target, early, steps or time; empty where it goes on."""
    run = agent.run
    if target_reached(agent, ctx):
        return 'target'
    if run.divergence_monitoring_steps is not None and ctx.early_stop_count >= run.early_stop_patience:
        return 'early'
    if run.max_steps is not None and ctx.steps >= run.max_steps:
        return 'steps'
    if run.max_time is not None and ctx.seconds >= run.max_time:
        return 'time'
    return ''
