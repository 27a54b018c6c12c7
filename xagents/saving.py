"""The stages that keep an agent's weights: the best so far, and which of best and last stays in the end."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from xagents.console import number
from xagents.interruption import Interrupted, Interruption
from xagents.pipeline import Context, Stage, Stream, left_by_choice, stage

if TYPE_CHECKING:
    from xagents.base import BaseAgent


def best(agent: BaseAgent) -> Stage:
    """Copy the weights of a new best mean, and those that reached the target."""

    def best(ctx: Context) -> None:
        improved = ctx.checked and is_better(ctx.mean_reward, ctx.best_reward)
        if improved:
            ctx.new_best, ctx.best_reward = ctx.best_reward, ctx.mean_reward
        if agent.run.checkpoints and (improved or target_reached(agent, ctx)):
            agent.best = agent.state()

    return best


def is_better(mean: float, best: float) -> bool:
    """Return whether a mean is a new best; NaN never is, and anything is better than none."""
    return math.isfinite(mean) and not mean <= best


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
                yield ctx
                if agent.best is not written and time.monotonic() - last >= agent.run.save_seconds:
                    agent.write_checkpoints(agent.best)  # type: ignore[arg-type]
                    written, last = agent.best, time.monotonic()
            whole = ctx is not None
        except GeneratorExit as exit:
            # a loop was left: after an iteration that had passed every stage
            whole = left_by_choice(exit) and ctx is not None and agent.context is ctx
            raise
        finally:
            if whole and not Interruption.abandoned():
                agent.write_checkpoints(agent.best or agent.state())
        if ctx is not None and ctx.stop in ('steps', 'time', 'early'):
            _contest(agent)

    return checkpoint


def _contest(agent: BaseAgent) -> None:
    """Let best and last play for the place in `--checkpoints`: the mean of training episodes lags behind."""
    run = agent.run
    if run.eval_frequency or not run.final_episodes or agent.best is None:
        return
    if not agent.envs.can_be_made_again:
        agent.console.say(f'{agent.envs.id} cannot be made afresh for a last evaluation: the best weights stay')
        return
    try:
        last = agent.evaluate(run.final_episodes)['mean']
        with agent.with_weights(agent.best):
            first = agent.evaluate(run.final_episodes)['mean']
    except Interrupted:
        return
    kept = 'last' if last >= first else 'best'
    if kept == 'last':
        agent.best = agent.state()
        agent.write_checkpoints(agent.best)
    p = run.display_precision
    agent.console.say(
        f'Greedy mean of {run.final_episodes} episodes: best {number(first, p)}, last {number(last, p)}; '
        f'the {kept} weights are in {" ".join(run.checkpoints or ())}'
    )


def target_reached(agent: BaseAgent, ctx: Context) -> bool:
    """Return whether the mean has reached the target: that of the last evaluation, or of enough episodes."""
    target = agent.run.target_reward
    if target is None or not ctx.mean_reward >= target:
        return False
    if agent.run.eval_frequency:
        return True
    return ctx.checked_games == ctx.games and len(agent.total_rewards) == agent.total_rewards.maxlen
