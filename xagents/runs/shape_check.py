"""A check that stages of users keep the shapes of the collected arrays, which updates would silently broadcast."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from xagents.options.errors import OptionError
from xagents.pipeline.context import Context, Stage, Stream
from xagents.pipeline.recipe import Recipe, stage

# contexts that a stage may take before it yields one
MAX_KEPT = 100
Shapes = Mapping[str, tuple[int, ...]]


def with_shape_checks(recipe: Recipe) -> Recipe:
    """Return a recipe that compares the shapes of the batch before and after each stage that is not part of xagents."""
    for name, function in zip(recipe.names, recipe.stages, strict=True):
        module = getattr(function, '__module__', None) or type(function).__module__
        if module.partition('.')[0] != 'xagents':
            before, after = _checks_around(name)
            recipe = recipe.before(name, before, f'before {name}').after(name, after, f'after {name}')
    return recipe


def _checks_around(name: str) -> tuple[Stage, Stage]:
    """Return the stages before and after the stage `name` that compare the shapes of the batch.

    A stage that yields nothing would keep the run from ever reaching its end.
    """
    seen: dict[str, Shapes] = {}
    kept = 0  # consecutive contexts that the stage has not yielded

    @stage
    def before(stream: Stream) -> Iterator[Context]:
        nonlocal seen, kept
        for ctx in stream:
            if kept == MAX_KEPT:
                raise OptionError('stages', f'{name} yields no context, expected `yield ctx` for each context it takes')
            seen, kept = _shapes(ctx.batch), kept + 1
            yield ctx

    @stage
    def after(stream: Stream) -> Iterator[Context]:
        nonlocal kept
        for ctx in stream:
            kept = 0
            present = _shapes(ctx.batch)
            if present != seen:
                for policy in seen.keys() & present.keys():
                    _compare(name, seen[policy], present[policy])
            yield ctx

    return before, after


def _shapes(batch: Mapping[str, Any]) -> dict[str, Shapes]:
    """Return the shapes of the arrays of each policy by name; the name of a single policy is ''."""
    several: dict[str, Any] = {name: part for name, part in batch.items() if isinstance(part, dict)}
    rollouts = several or {'': batch}
    return {policy: {n: x.shape for n, x in part.items() if hasattr(x, 'shape')} for policy, part in rollouts.items()}


def _compare(name: str, before: Shapes, after: Shapes) -> None:
    """Raise OptionError if a stage has changed the shapes of some columns.

    A stage may replace a rollout by one with other numbers of steps or environments, and a batch by another kind of
    batch, which has other columns.
    """
    changed = [column for column, shape in before.items() if column in after and after[column] != shape]
    if not changed or before.keys() - after.keys():
        return
    resized = {_resized(before[column], after[column]) for column in before if before[column][1:]}
    if len(resized) > 1 or None in resized:
        column = changed[0]
        got, expected = _text(after[column]), _text(before[column])
        raise OptionError('stages', f'stage {name}: got {column} of shape {got}, expected {expected} as before it')


def _resized(before: tuple[int, ...], after: tuple[int, ...]) -> tuple[int, int] | None:
    """Return the differences in steps and in environments, or None if the shapes differ otherwise."""
    if len(before) != len(after) or before[2:] != after[2:]:
        return None
    return after[0] - before[0], after[1] - before[1]


def _text(shape: tuple[int, ...]) -> str:
    return f'[{", ".join(map(str, shape))}]'
