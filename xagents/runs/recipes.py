"""The recipes: which stages a run has, in order."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from xagents.pipeline.context import Stage
from xagents.pipeline.recipe import Recipe
from xagents.runs import overlap, reporting, saving, stages, videos
from xagents.runs.named import with_stages


def _of(*members: Callable[..., Stage | Any]) -> Recipe:
    return Recipe((stage.__name__, stage) for stage in members)


# before learning: best weights are taken here, those that earned a mean are saved for it
HEAD = _of(stages.schedule, stages.collect, saving.checkpoint, stages.episodes, stages.evaluate, saving.best)
TAIL = _of(
    *(stages.plateau, reporting.history, reporting.metrics, reporting.record, reporting.console),
    *(reporting.tensorboard, reporting.wandb, videos.video, stages.until),
)
# of agents that learn from what they have just collected
LEARNING = _of(stages.learn)
# of agents that learn from a replay buffer
REPLAYING = _of(stages.remember, stages.replay, stages.learn)
# of one that learns from what it has just collected and then, again, from earlier rollouts
RELEARNING = _of(stages.learn, stages.remember) + Recipe([('replay', stages.relearn)])


def complete(agent: Any, learning: Recipe | None, overlapping: bool, names: Iterable[str] | None) -> Recipe:
    """Return the recipe of an agent, with the registered stages of `names` in their places.

    `learning` are the stages between head and tail; None of an agent that collects and learns in one step.
    """
    head = HEAD.before('checkpoint', overlap.overlap) if overlapping else HEAD
    body = head.replace('collect', stages.train_step) if learning is None else head + learning
    return with_stages((body + TAIL).of(agent), agent, names)


def of_dataset(agent: Any, names: Iterable[str] | None) -> Recipe:
    """Return the recipe of an agent that learns from a data set: the stage that collects is another one."""
    return with_stages((HEAD.replace('collect', stages.fetch) + LEARNING + TAIL).of(agent), agent, names)
