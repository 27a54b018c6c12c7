"""The recipes: which stages a run has, in order."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from xagents.evaluation import videos
from xagents.pipeline.context import Stage
from xagents.pipeline.recipe import Recipe
from xagents.runs import overlap, reporting, saving, stages
from xagents.runs.registry import insert_stages


def _recipe_of(*members: Callable[..., Stage | Any]) -> Recipe:
    return Recipe((stage.__name__, stage) for stage in members)


# before learning: best weights are taken here, those that earned a mean are saved for it
HEAD = _recipe_of(stages.schedule, stages.collect, saving.checkpoint, stages.episodes, stages.evaluate, saving.best)
TAIL = _recipe_of(stages.plateau, reporting.history, reporting.metrics)
TAIL += Recipe([('record', reporting.write_metrics)])  # people type the names of stages
TAIL += _recipe_of(reporting.console, reporting.tensorboard, reporting.wandb, videos.video, stages.until)

# of agents that learn from what they have just collected
LEARNING = _recipe_of(stages.learn)
# of agents that learn from a replay buffer
REPLAYING = _recipe_of(stages.remember, stages.replay, stages.learn)
# of one that learns from what it has just collected and then, again, from earlier rollouts
RELEARNING = _recipe_of(stages.learn, stages.remember) + Recipe([('replay', stages.relearn)])


def complete_recipe(agent: Any, learning: Recipe | None, overlapping: bool, names: Iterable[str] | None) -> Recipe:
    """Return the recipe of an agent, with the registered stages of `names` in their places.

    `learning` are the stages between head and tail; None of an agent that collects and learns in one step.
    """
    head = HEAD.before('checkpoint', overlap.overlap) if overlapping else HEAD
    body = head.replace('collect', stages.train_step) if learning is None else head + learning
    return insert_stages((body + TAIL).with_agent(agent), agent, names)


def dataset_recipe(agent: Any, names: Iterable[str] | None) -> Recipe:
    """Return the recipe of an agent that learns from a data set: the stage that collects is another one."""
    return insert_stages((HEAD.replace('collect', stages.fetch) + LEARNING + TAIL).with_agent(agent), agent, names)
