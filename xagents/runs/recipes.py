"""Recipes: the stages of a run, in order."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from xagents.evaluation import videos
from xagents.pipeline.context import Stage
from xagents.pipeline.recipe import Recipe
from xagents.runs import overlap, reporting, saving, stages
from xagents.runs.curriculum import curriculum
from xagents.runs.registry import insert_stages


def _recipe_of(*members: Callable[..., Stage | Any]) -> Recipe:
    return Recipe((stage.__name__, stage) for stage in members)


# before learning: `best` copies the weights that the mean was measured with, before `learn` changes them
HEAD = _recipe_of(stages.schedule, stages.collect, saving.checkpoint, stages.episodes, stages.evaluate, saving.best)
TAIL = _recipe_of(stages.plateau, reporting.history, reporting.metrics)
TAIL += Recipe([('record', reporting.write_metrics)])  # users type the names of stages
TAIL += _recipe_of(reporting.console, reporting.tensorboard, reporting.wandb, reporting.trackio)
TAIL += _recipe_of(videos.video, stages.until)

# for agents that learn from the rollout that they have just collected
LEARNING = _recipe_of(stages.learn)
# for agents that learn from a replay buffer
REPLAYING = _recipe_of(stages.remember, stages.replay, stages.learn)
# for an agent that learns from the rollout that it has just collected, then from earlier rollouts
RELEARNING = _recipe_of(stages.learn, stages.remember) + Recipe([('replay', stages.relearn)])


def complete_recipe(
    agent: Any, learning: Recipe | None, overlapping: bool, names: Iterable[str] | None, has_curriculum: bool = False
) -> Recipe:
    """Return the recipe of an agent, with registered stages inserted.

    Args:
        agent: agent whose methods the stages call.
        learning: stages between head and tail. None if the agent collects and learns in one step.
        overlapping: whether to collect in a thread, one iteration ahead.
        names: names of registered stages to insert.
        has_curriculum: whether to insert the stage that begins levels of the curriculum.

    Returns:
        The recipe, bound to the agent.

    Raises:
        OptionError: if a name is unknown, or its anchor is not in the recipe.
    """
    head = HEAD.before('checkpoint', overlap.overlap) if overlapping else HEAD
    if agent.envs.is_game:
        head = head.before('collect', stages.opponents).before('evaluate', stages.ratings)
    body = head.replace('collect', stages.train_step) if learning is None else head + learning
    tail = TAIL.before('until', curriculum) if has_curriculum else TAIL
    return insert_stages((body + tail).with_agent(agent), agent, names)


def dataset_recipe(agent: Any, names: Iterable[str] | None) -> Recipe:
    """Return the recipe of an agent that learns from a data set: `fetch` replaces `collect`."""
    return insert_stages((HEAD.replace('collect', stages.fetch) + LEARNING + TAIL).with_agent(agent), agent, names)
