"""The stage that begins the next level of `--curriculum`."""

from __future__ import annotations

import math
from typing import Any

from xagents.logs.console import format_number
from xagents.options.curriculum import LATER, Condition
from xagents.pipeline.context import Context
from xagents.pipeline.recipe import for_run
from xagents.runs.run import Run

# episodes of a level before its condition is checked
MIN_EPISODES = 10
# prefix of the metrics of evaluations
EVALUATE = 'evaluate/'


@for_run
def curriculum(run: Run, ctx: Context) -> None:
    """Begin the next level of the curriculum if its condition holds, or according to the steps.

    A new level forgets the rewards of earlier episodes, their mean and the best mean: a level may be harder.
    """
    plan = run.curriculum
    if plan is None:
        return
    if not run.is_of_level(ctx):
        ctx.level_games = ctx.games
        return
    if plan.condition is None:
        level = plan.n_levels * ctx.steps // (run.schedule_steps or 1)
    else:
        _check_metric(run, ctx, plan.condition)
        level = ctx.level + _condition_holds(run, ctx, plan.condition)
    if min(level, plan.n_levels - 1) <= ctx.level:
        return
    ctx.level = min(level, plan.n_levels - 1)
    ctx.level_games, ctx.level_mean, ctx.plateau_count = ctx.games, math.nan, 0
    ctx.mean_reward = ctx.best_reward = math.nan
    run.progress.rewards.clear()
    params = plan.params(ctx.level)
    run.agent.collector.evaluation_params = params
    values = ', '.join(f'{name}={format_number(value, 6)}' for name, value in params.items())
    run.console.print_line(f'Curriculum: level {ctx.level + 1} of {plan.n_levels} from step {ctx.steps}: {values}')


def _condition_holds(run: Run, ctx: Context, condition: Condition) -> bool:
    """Return whether the condition holds in the present level, and update the mean of its metric."""
    enough = ctx.games - ctx.level_games >= min(MIN_EPISODES, run.agent.options.reward_buffer_size)
    if condition.metric.startswith(EVALUATE):
        return condition.holds(ctx.logs.get(condition.metric, math.nan))
    if condition.metric == 'mean_reward':
        return (enough or bool(run.options.eval_frequency)) and condition.holds(ctx.mean_reward)
    value, n = ctx.logs.get(condition.metric, math.nan), len(ctx.episodes)
    if n and math.isfinite(value):
        # about the mean of the last `reward_buffer_size` episodes, in two numbers that checkpoints contain
        share = n / min(max(ctx.games - ctx.level_games, 1), run.agent.options.reward_buffer_size)
        old = value if math.isnan(ctx.level_mean) else ctx.level_mean
        ctx.level_mean = old + (value - old) * min(share, 1.0)
    return enough and condition.holds(ctx.level_mean)


def _check_metric(run: Run, ctx: Context, condition: Condition) -> None:
    """Check in the first iteration that the run logs the metric of the condition, now or later."""
    if ctx.iteration > 1 or condition.metric.startswith((EVALUATE, 'info/')):
        return
    members: dict[str, Any] = dict(run.agent.members)
    own = {f'{policy}/{name}'.lstrip('/') for policy, member in members.items() for name in member.METRICS}
    known = {*ctx.logs, *LATER, *own}
    condition.check_known(sorted(known))
