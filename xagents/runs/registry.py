"""Registered stages: custom stages that recipes insert by name."""

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

# names of the stages in the built-in recipes, see recipes.py
STAGE_NAMES = (
    *('schedule', 'collect', 'checkpoint', 'episodes', 'evaluate', 'best', 'learn', 'remember', 'replay', 'plateau'),
    *('history', 'metrics', 'prune', 'record', 'console', 'tensorboard', 'wandb', 'video', 'overlap', 'until'),
)


T = TypeVar('T')


@dataclasses.dataclass(frozen=True)
class StagePart:
    """A registered stage and its position in a recipe.

    Args:
        name: name in the registry and in recipes.
        function: stage of a stream (`@stage`) or function of a context. If its first parameter is called `agent`, the
            function makes such a stage for an agent.
        position: 'after' or 'before'.
        anchor: name of the stage that this stage is inserted after or before.
    """

    name: str
    function: Callable[..., Any]
    position: str = 'after'
    anchor: str = 'collect'

    def for_agent(self, agent: Any) -> Stage:
        """Return the stage for an agent."""
        try:
            names = list(inspect.signature(self.function).parameters)
        except (TypeError, ValueError):  # the function has no signature, as some built-in functions
            names = []
        return self.function(agent) if names[:1] == ['agent'] else self.function


def register_stage(name: str, *, after: str | None = None, before: str | None = None) -> Callable[[T], T]:
    """Register a stage, so that `--stages` and `fit(stages=[…])` accept its name.

    An entry point of `xagents.stages` may name a function without this decorator. The function is then inserted after
    `collect`.

    Args:
        name: name of lower-case letters, digits and dashes.
        after: stage of the recipe after which to insert it. The default is `collect` if `before` is not given.
        before: stage of the recipe before which to insert it.

    Returns:
        A decorator for a function (see `StagePart`). It returns the function unchanged.

    Raises:
        OptionError: if the name is invalid or in use, or both `after` and `before` are given.
    """
    stage_registry._check_name(name)
    if after and before:
        raise OptionError('stages', f'{name}: got after={after!r} and before={before!r}, expected one of the two')
    position, anchor = ('before', before) if before else ('after', after or 'collect')

    def decorate(function: T) -> T:
        part = dataclasses.replace(_adopt_stage(name, function, ''), position=position, anchor=anchor)
        stage_registry.register(name, function, part)
        return function

    return decorate


def _adopt_stage(name: str, thing: Any, package: str) -> StagePart:
    if not callable(thing):
        raise OptionError('stages', f'{name}: got a {type(thing).__name__}, expected a function')
    return StagePart(name, thing)


def find_registered_stages(names: Iterable[str]) -> list[StagePart]:
    """Return the registered stages with the given names.

    Raises:
        OptionError: if a name is unknown or occurs twice.
    """
    found: list[StagePart] = []
    for name in names:
        if (part := stage_registry.find(name)) is None:
            raise stage_registry.unknown_error(name)
        if part in found:
            raise OptionError('stages', f'got {name} twice, expected every name once')
        found.append(part)
    return found


def insert_stages(recipe: Recipe, agent: Any, names: Iterable[str] | None) -> Recipe:
    """Return a recipe with registered stages inserted. Stages with the same anchor follow in the order of `names`.

    Raises:
        OptionError: if a name is unknown, or its anchor is not in the recipe.
    """
    last: dict[str, str] = {}
    for part in find_registered_stages(names or ()):
        if part.anchor not in recipe.names:
            got = f'got {part.name}, to insert {part.position} {part.anchor}'
            expected = f'a stage in the recipe of {registry.agent_id_of(type(agent))}: {", ".join(recipe.names)}'
            raise OptionError('stages', f'{got}, expected {expected}')
        if part.position == 'before':
            recipe = recipe.before(part.anchor, part.for_agent(agent), part.name)
        else:
            recipe = recipe.after(last.get(part.anchor, part.anchor), part.for_agent(agent), part.name)
            last[part.anchor] = part.name
    return recipe


stage_registry: PartRegistry[StagePart] = PartRegistry('stages', 'stages', _adopt_stage, STAGE_NAMES)
