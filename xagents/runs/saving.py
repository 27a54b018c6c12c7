"""The stages that keep what a run has learned: the best so far, its whole state, and which of best and last stays."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Protocol

from xagents.logs.console import number
from xagents.pipeline.context import Context, Stage, Stream
from xagents.pipeline.recipe import left_by_choice, stage
from xagents.system.interruption import Interrupted, Interruption

if TYPE_CHECKING:
    from xagents.runs.learner import Learner
    from xagents.runs.state import State


# ends of a run that say nothing of how good the last weights are
SPENT = ('steps', 'time', 'early')


class Keeper(Protocol):
    """Where a run is kept."""

    def due(self, ctx: Context) -> bool:
        """Return whether something must be saved now, however short ago the last saving was."""

    def save(self, ctx: Context) -> None:
        """Save how the run stands after an iteration that has passed every stage."""

    def save_best(self) -> None:
        """Save the best weights so far, where they are not yet."""

    def end(self, ctx: Context) -> None:
        """Save how the run stands at its end."""

    def choose(self, state: State) -> None:
        """Let the weights of `state` be those that count as the best."""


class LooseFiles:
    """`--checkpoints`: the best weights, one path a model; the last ones where no mean was ever reached."""

    def __init__(self, agent: Learner):
        self.agent, self.written = agent, agent.best

    def due(self, ctx: Context) -> bool:
        """Return whether something must be saved now: it can wait."""
        return False

    def save(self, ctx: Context) -> None:
        """Write the best weights, where there are new ones."""
        self.save_best()

    def save_best(self) -> None:
        """Write the best weights, where there are new ones."""
        if self.agent.best is not None and self.agent.best is not self.written:
            self.choose(self.agent.best)

    def end(self, ctx: Context) -> None:
        """Write the best weights with the counters of the whole run."""
        self.choose(self.agent.best or self.agent.state())

    def choose(self, state: State) -> None:
        """Write the weights of `state`."""
        self.agent.write_checkpoints(state)
        self.written = state


def keepers(agent: Learner) -> list[Keeper]:
    """Return where the present run of an agent is kept."""
    kept: list[Keeper] = [LooseFiles(agent)] if agent.run.checkpoints else []
    return kept if agent.folder is None else [*kept, agent.folder]


def best(agent: Learner) -> Stage:
    """Copy the weights of a new best mean, and those that reached the target."""

    def best(ctx: Context) -> None:
        improved = ctx.checked and is_better(ctx.mean_reward, ctx.best_reward)
        if improved:
            ctx.new_best, ctx.best_reward = ctx.best_reward, ctx.mean_reward
        kept = agent.run.checkpoints or agent.folder is not None
        if kept and (improved or target_reached(agent, ctx)):
            agent.best = agent.state()
            agent.best.record['counters'] = ctx.kept()  # the agent's own are those of the iteration before

    return best


def is_better(mean: float, best: float) -> bool:
    """Return whether a mean is a new best; NaN never is, and anything is better than none."""
    return math.isfinite(mean) and not mean <= best


def checkpoint(agent: Learner) -> Stage:
    """Save the run every `save_seconds` and on the way out; nothing after an error."""

    @stage
    def checkpoint(stream: Stream) -> Iterator[Context]:
        places = keepers(agent)
        if not places:
            yield from stream
            return
        last, ctx = time.monotonic(), None
        whole, handled = False, sys.exception()
        try:
            for ctx in stream:
                yield ctx
                late = time.monotonic() - last >= agent.run.save_seconds
                for place in places:
                    if late or place.due(ctx):
                        place.save(ctx)
                if late:
                    last = time.monotonic()
            whole = ctx is not None
        except GeneratorExit as exit:
            # a loop was left: after an iteration that had passed every stage
            whole = left_by_choice(exit, handled) and ctx is not None and agent.context is ctx
            raise
        finally:
            if whole and ctx is not None and not Interruption.abandoned():
                for place in places:
                    place.end(ctx)
        if ctx is not None and ctx.stop in SPENT:
            contest(agent, places)

    return checkpoint


def contest(agent: Learner, places: list[Keeper]) -> None:
    """Let best and last play for the place of the best: the mean of training episodes lags behind."""
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
        chosen = agent.state()
        for place in places:
            place.choose(chosen)
    p = run.display_precision
    agent.console.say(
        f'Greedy mean of {run.final_episodes} episodes: best {number(first, p)}, last {number(last, p)}; '
        f'the {kept} weights are in {" ".join(run.checkpoints or [run.place("checkpoints/best") or ""])}'
    )


def target_reached(agent: Learner, ctx: Context) -> bool:
    """Return whether the mean has reached the target: that of the last evaluation, or of enough episodes."""
    target = agent.run.target_reward
    if target is None or not ctx.mean_reward >= target:
        return False
    if agent.run.eval_frequency:
        return True
    return ctx.checked_games == ctx.games and len(agent.total_rewards) == agent.total_rewards.maxlen
