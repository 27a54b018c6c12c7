"""Stages that collect, evaluate and learn, and end the run. Each is a function of the run and a context or stream."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from xagents.collecting.collector import ONLY
from xagents.collecting.env_stepper import CollectStats
from xagents.collecting.finite import NotFiniteError, find_nonfinite
from xagents.collecting.opponents import snapshot_of
from xagents.evaluation import playing
from xagents.pipeline.context import Context, Stream
from xagents.pipeline.recipe import for_run
from xagents.runs.info_metrics import log_infos
from xagents.runs.run import Run
from xagents.runs.saving import seconds_to_compare, target_reached
from xagents.system.interruption import Interruption, RunInterrupted

EPISODES_FOR_BEST = 10
ROLLOUT_COLUMNS = ('observations', 'actions', 'rewards', 'terminated', 'truncated', 'valid')


@for_run
def schedule(run: Run, stream: Stream) -> Iterator[Context]:
    """Set the values of schedules and curriculum. Multiply learning rates by the factor of the plateau stage."""
    schedules, length, curriculum = run.agent.schedules(), run.schedule_steps, run.curriculum
    for ctx in stream:
        if curriculum is not None:
            ctx.env_params = curriculum.params(ctx.level)
            ctx.logs |= {f'curriculum/{name}': float(value) for name, value in ctx.env_params.items()}
        for name, value in schedules.items():
            ctx.schedule[name] = value(ctx.steps, length)
            policy, slash, what = name.rpartition('/')  # each of several policies has its own schedules
            if what == 'learning_rate':
                ctx.schedule[name] *= ctx.plateau_factor
            ctx.logs[f'{policy}{slash}{"" if what == "learning_rate" else "stats/"}{what}'] = ctx.schedule[name]
        yield ctx


@for_run
def opponents(run: Run, ctx: Context) -> None:
    """Update the opponents in games: the present policy, or snapshots of it with `--self-play`."""
    agent, options, pool = run.agent, run.options, run.agent.opponents
    assert pool is not None
    if options.self_play:
        pool.latest = options.latest
        if pool.snapshots and ctx.steps - pool.snapshots[-1].name < options.snapshot_frequency:
            return
    agent.refresh()
    size = options.pool if options.self_play else 1
    pool.add(snapshot_of(agent.acting_policy, agent.statistics, ctx.steps), size)


@for_run
def ratings(run: Run, ctx: Context) -> None:
    """Rate the present policy and its opponents by the finished games, with `--self-play`."""
    pool = run.agent.opponents
    if pool is None or not run.options.self_play:
        return
    for episode in ctx.episodes:
        if episode.opponent is not None:
            pool.record_game(episode.opponent, 0.5 + 0.5 * float(np.sign(episode.reward)))
    ctx.logs |= {
        'elo': pool.rating,
        'elo/best_opponent': max(pool.ratings.values()),
        'elo/opponents': len(pool.ratings),
    }


@for_run
def collect(run: Run, ctx: Context) -> Iterator[None]:
    """Collect a rollout."""
    agent = run.agent
    start, before, collector = run.clock(), ctx.seconds, agent.collector
    stats = collector.stats = CollectStats()
    collector.env_params = ctx.env_params
    if run.options.max_time is not None:
        stats.deadline = time.perf_counter() + run.options.max_time - before
    try:
        ctx.batch.update(agent.collect(ctx.schedule))
    except NotFiniteError as error:
        error.env_id, error.step = agent.envs.id, ctx.steps + error.step
        if run.options.on_nan == 'stop':
            raise
        ctx.idle, ctx.batch = True, {}
        ctx.logs['stats/refused'] = 1.0
        ctx.messages.append(f'Skipped an iteration: {error}')
    except RunInterrupted as interruption:
        ctx.idle, ctx.batch, ctx.stop = True, {}, interruption.reason
    # learning normalises the rollout with the present statistics, even if collecting has changed them by then
    group = collector.groups.get(ONLY)
    present = agent.statistics if group is None else group.statistics
    ctx.statistics = present if present is agent.statistics else present.copy()
    for episode in stats.episodes:
        if math.isfinite(episode.reward):  # NaN or inf would stay in every later mean
            step, seconds = ctx.steps + episode.step, before + episode.time
            ctx.episodes.append(dataclasses.replace(episode, step=step, time=seconds))
    ctx.steps += stats.steps
    ctx.logs |= {f'seconds/{name}': seconds for name, seconds in stats.seconds.items()}
    ctx.logs |= stats.metrics
    ctx.messages += stats.messages
    ctx.seconds = before + run.clock() - start
    yield
    # later stages, including custom ones, count as training time
    ctx.seconds = before + run.clock() - start


@for_run
def fetch(run: Run, ctx: Context) -> Iterator[None]:
    """Sample the batches of this iteration's updates from a data set. Nothing is collected, and steps are updates."""
    agent: Any = run.agent
    start, before = run.clock(), ctx.seconds
    left = math.inf if run.options.max_steps is None else run.options.max_steps - ctx.steps
    drawn = time.perf_counter()
    n_updates = int(min(agent.max_updates, max(left, 1)))
    ctx.batch = agent.replay(n_updates, ctx.schedule)
    ctx.statistics = agent.statistics
    ctx.steps += n_updates
    ctx.logs['seconds/replay'] = time.perf_counter() - drawn
    ctx.seconds = before + run.clock() - start
    yield
    ctx.seconds = before + run.clock() - start


@for_run
def train_step(run: Run, ctx: Context) -> Iterator[None]:
    """Collect and learn in one step, for an agent that does not separate the two."""
    ctx.updates += 1
    yield from collect(run, ctx)


@for_run
def episodes(run: Run, ctx: Context) -> None:
    """Count finished episodes and update their mean. Decide whether later stages check the mean in this iteration."""
    ended, rewards = ctx.episodes, run.progress.rewards
    if run.is_of_level(ctx):
        rewards.extend(episode.reward for episode in ended)
    ctx.games += len(ended)
    if ended:
        run.episode_length = ctx.logs['episode_length'] = sum(episode.length for episode in ended) / len(ended)
        ctx.counts['episode_length'] = len(ended)
        if successes := [episode.success for episode in ended if episode.success is not None]:
            ctx.logs['success_rate'], ctx.counts['success_rate'] = sum(successes) / len(successes), len(successes)
        ctx.logs |= playing.mean_rewards_per_agent(run.agent.envs.agents, ended)
    if run.options.log_info:
        log_infos(run, ctx, run.options.log_info)
    if run.options.eval_frequency or not ended or not rewards:
        return
    ctx.mean_reward = float(np.mean(rewards))
    # means of fewer episodes count neither for the best nor for plateaus
    enough = len(rewards) >= min(EPISODES_FOR_BEST, run.agent.options.reward_buffer_size)
    if enough and ctx.games - ctx.checked_games >= (run.options.log_frequency or run.agent.envs.n_envs):
        ctx.checked, ctx.checked_games = True, ctx.games


@for_run
def evaluate(run: Run, ctx: Context) -> None:
    """Play greedy episodes every `eval_frequency` steps. Their mean decides best, plateau and target.

    With `eval_async`, a separate process plays the episodes, and the mean is that of weights some iterations older.
    """
    frequency = run.options.eval_frequency
    due = bool(frequency) and ctx.steps - ctx.evaluated_steps >= (frequency or 0)
    if due:
        ctx.evaluated_steps = ctx.steps
    if (result := _evaluated(run, ctx, due)) is None:
        return
    logged = ('mean', 'std', 'length', 'success')
    ctx.logs |= {f'evaluate/{name}': result[name] for name in logged if name in result}
    ctx.mean_reward, ctx.checked = result['mean'], True


def _evaluated(run: Run, ctx: Context, due: bool) -> dict[str, float] | None:
    """Return the result of the evaluation that is applied in this iteration, or None."""
    if run.evaluations is not None:
        due_result = run.evaluations.advance(ctx, due)
        if due_result is None:
            return None
        pending, result = due_result
        ctx.evaluated_state, ctx.logs['evaluate/steps'] = pending.state, float(pending.steps)
        return result
    if not due:
        return None
    try:
        seed = run.evaluation_seed(ctx.steps)
        return playing.evaluate(run.agent, run.options.eval_episodes, seed=seed, say=run.console.print_line)
    except RunInterrupted:
        return None


@for_run
def remember(run: Run, ctx: Context) -> None:
    """Store the rollout in the replay buffer."""
    agent: Any = run.agent
    if not ctx.idle:
        _check_collected(ctx, 'remember')
        agent.remember(ctx.batch)


@for_run
def replay(run: Run, ctx: Context) -> None:
    """Sample the batches of all updates of this iteration from the replay buffer, once it is full enough."""
    if ctx.idle:
        return
    agent: Any = run.agent
    start = time.perf_counter()
    ready, steps = _is_ready(agent.buffer, ctx), int(np.count_nonzero(ctx.batch['valid']))
    ctx.logs['stats/updates_per_step'] = ctx.updates / max(ctx.steps, 1)
    ctx.idle = not (ready and steps)
    if ctx.idle:
        return
    ctx.batch = agent.replay(agent.updates_for(steps), ctx.schedule)
    ctx.logs['seconds/replay'] = time.perf_counter() - start


def _is_ready(buffer: Any, ctx: Context) -> bool:
    """Return whether a buffer holds enough transitions to learn, and log its size."""
    ctx.logs['replay/size'], ctx.logs['replay/fill'] = len(buffer), len(buffer) / buffer.max_size
    if not buffer.ready:
        ctx.note = f'replay buffer: {buffer.stored} of {buffer.required_size}'
    return buffer.ready


@for_run
def learn(run: Run, ctx: Context) -> None:
    """Learn from the batch. The agent's `learn` receives the values of the schedules and `steps`."""
    if ctx.idle:
        return
    _check_collected(ctx, 'learn')
    start = time.perf_counter()
    ctx.logs.update(_learned(run, ctx, ctx.batch))
    if refused := ctx.logs.get('stats/refused', 0.0):
        ctx.messages.append(f'Refused {refused:.0f} updates that were not finite')
    ctx.updates += int(ctx.logs.pop('updates', 1))
    ctx.logs['seconds/learn'] = time.perf_counter() - start
    ctx.seconds += ctx.logs['seconds/learn']


def _learned(run: Run, ctx: Context, batch: Mapping[str, Any]) -> dict[str, float]:
    """Learn from a batch and return the metrics. Raise NotFiniteError on a refused update, unless they are skipped."""
    try:
        metrics = run.agent.learn(batch, {**ctx.schedule, 'steps': ctx.steps}) or {}
    except KeyError as missing:
        column = missing.args[0] if missing.args else None
        if column not in ROLLOUT_COLUMNS or column in batch:
            raise
        expected = f'expected the columns of a rollout: {", ".join(ROLLOUT_COLUMNS)}'
        after = f' after the stages {", ".join(run.stages_before_learning)}' if run.stages_before_learning else ''
        raise ValueError(f'learn got a batch without {column}{after}, {expected}') from missing
    if metrics.get('stats/refused') and run.options.on_nan == 'stop':
        what, env = find_nonfinite(batch, run.agent.output_models)
        error = NotFiniteError(what, env=env, step=ctx.steps)
        error.env_id = '' if env is None else run.agent.envs.id
        error.stages = ', '.join(run.stages_before_learning) if 'batch' in what else ''
        raise error
    return metrics


def _check_collected(ctx: Context, name: str) -> None:
    """Raise ValueError if the batch is empty."""
    if not ctx.batch:
        expected = 'expected a stage before it that fills ctx.batch, as `collect` does'
        hint = "insert your own stage with recipe.replace('collect', …)"
        raise ValueError(f'recipe: {name} got an empty batch, {expected}; {hint}')


@for_run
def relearn(run: Run, ctx: Context) -> None:
    """Learn from a random number of stored rollouts. The names of their metrics begin with `replay/`."""
    agent: Any = run.agent
    if ctx.idle or not _is_ready(agent.buffer, ctx):
        return
    start = time.perf_counter()
    metrics = [_learned(run, ctx, agent.replay()) for _ in range(agent.draw_replays())]
    made = [m for m in metrics if m.pop('updates', 1)]  # a refused update only counts as refused
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


@for_run
def plateau(run: Run, ctx: Context) -> None:
    """Reduce the learning rate of every optimiser after `plateau_reduce_patience` checks without a new best mean."""
    options, rate = run.options, run.agent.options.lr
    monitored = options.divergence_monitoring_steps is not None and ctx.steps >= options.divergence_monitoring_steps
    if not (ctx.checked and monitored):
        return
    ctx.plateau_count = 0 if ctx.new_best is not None else ctx.plateau_count + 1
    if ctx.plateau_count < options.plateau_reduce_patience:
        return
    ctx.plateau_count, ctx.early_stop_count = 0, ctx.early_stop_count + 1
    old, ctx.plateau_factor = ctx.plateau_factor, ctx.plateau_factor * options.plateau_reduce_factor
    if rate is None:  # each of several policies has its own
        ctx.messages.append(f'Learning rates reduced: {old:.3g} -> {ctx.plateau_factor:.3g} of their options')
        return
    ctx.messages.append(f'Learning rate reduced {rate * old:.3g} -> {rate * ctx.plateau_factor:.3g}')


@for_run
def until(run: Run, ctx: Context) -> None:
    """Set the reason to stop in the context if the run ends."""
    # a custom stage may have stopped the run
    ctx.stop = 'interrupted' if Interruption.requested() else ctx.stop or why_stop(run, ctx)


def why_stop(run: Run, ctx: Context) -> str:
    """Return why a run ends at these counters: target, early, steps or time. Return an empty text if it continues."""
    options = run.options
    if target_reached(run, ctx):
        return 'target'
    if options.divergence_monitoring_steps is not None and ctx.early_stop_count >= options.early_stop_patience:
        return 'early'
    if options.max_steps is not None and ctx.steps >= options.max_steps:
        return 'steps'
    if options.max_time is not None and ctx.seconds + seconds_to_compare(run, ctx) >= options.max_time:
        return 'time'
    return ''
