"""Stages of one's own, by name."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from xagents.options.errors import OptionError
from xagents.pipeline.context import Stage
from xagents.pipeline.recipe import Recipe
from xagents.registry import agents as registry
from xagents.registry.parts import PartRegistry

# names of the stages of our recipes, see stages.py
STAGE_NAMES = (
    *('schedule', 'collect', 'checkpoint', 'episodes', 'evaluate', 'best', 'learn', 'remember', 'replay', 'plateau'),
    *('history', 'metrics', 'prune', 'record', 'console', 'tensorboard', 'wandb', 'video', 'overlap', 'until'),
)


T = TypeVar('T')


@dataclasses.dataclass(frozen=True)
class StagePart:
    """A stage, and where it stands.

    Args:
        name: that it is registered under, and has in a recipe.
        function: a stage of a stream (`@stage`), a function of a context, or, where its parameter is called `agent`, a
            function that makes one of these for an agent.
        position: 'after' or 'before'.
        anchor: the stage that it is put after or before.
    """

    name: str
    function: Callable[..., Any]
    position: str = 'after'
    anchor: str = 'collect'

    def for_agent(self, agent: Any) -> Stage:
        """Return the stage for an agent."""
        try:
            names = list(inspect.signature(self.function).parameters)
        except (TypeError, ValueError):  # nothing tells what it takes
            names = []
        return self.function(agent) if names[:1] == ['agent'] else self.function


def register_stage(name: str, *, after: str | None = None, before: str | None = None) -> Callable[[T], T]:
    """Register a stage; `--stages` and `fit(stages=[…])` then take its name.

    An entry point of `xagents.stages` that names a function without this decorator puts it after `collect`.

    Args:
        name: lowercase letters, digits and dashes.
        after: the stage of the recipe that it stands behind; `collect` when neither is given.
        before: or the one that it stands in front of.

    Returns:
        A decorator of a function (see `StagePart`), which returns it.

    Raises:
        OptionError: for a name that is none or is taken, or two places.
    """
    stage_registry._check_name(name)
    if after and before:
        raise OptionError('stages', f'{name} got after={after!r} and before={before!r}, expected one of the two')
    position, anchor = ('before', before) if before else ('after', after or 'collect')

    def decorate(function: T) -> T:
        part = dataclasses.replace(_adopt_stage(name, function, ''), position=position, anchor=anchor)
        stage_registry.register(name, function, part)
        return function

    return decorate


def _adopt_stage(name: str, thing: Any, package: str) -> StagePart:
    if not callable(thing):
        raise OptionError('stages', f'{name} is a {type(thing).__name__}, expected a function')
    return StagePart(name, thing)


def find_registered_stages(names: Iterable[str]) -> list[StagePart]:
    """Return the stages of names.

    Raises:
        OptionError: for a name that no stage has, or that stands twice.
    """
    found: list[StagePart] = []
    for name in names:
        part = stage_registry.find(name)
        if part is None:
            raise stage_registry.unknown_error(name)
        if part in found:
            raise OptionError('stages', f'got {name} twice, expected each once')
        found.append(part)
    return found


def insert_stages(recipe: Recipe, agent: Any, names: Iterable[str] | None) -> Recipe:
    """Return a recipe with registered stages in their places; those of one place stand in the order of `names`.

    Raises:
        OptionError: for a name that no stage has, or a place that the recipe has not.
    """
    last: dict[str, str] = {}
    for part in find_registered_stages(names or ()):
        if part.anchor not in recipe.names:
            raise OptionError(
                'stages',
                f'{part.name} stands {part.position} {part.anchor}, '
                f'the recipe of {registry.agent_id_of(type(agent))} has {", ".join(recipe.names)}',
            )
        if part.position == 'before':
            recipe = recipe.before(part.anchor, part.for_agent(agent), part.name)
        else:
            recipe = recipe.after(last.get(part.anchor, part.anchor), part.for_agent(agent), part.name)
            last[part.anchor] = part.name
    return recipe


stage_registry: PartRegistry[StagePart] = PartRegistry('stages', 'stages', _adopt_stage, STAGE_NAMES)
