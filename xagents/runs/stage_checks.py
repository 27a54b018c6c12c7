"""Checks of the stages of users: shapes, which updates would silently broadcast, and logged values."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from xagents.options.errors import OptionError, format_value
from xagents.pipeline.context import Context, Stage, Stream
from xagents.pipeline.recipe import Recipe, stage
from xagents.system.values import is_number

# contexts that a stage may take before it yields one
MAX_KEPT = 100
# shape and dtype of each array by name
Shapes = Mapping[str, tuple[tuple[int, ...], np.dtype]]


def with_stage_checks(recipe: Recipe, names: Iterable[str]) -> Recipe:
    """Return a recipe that checks the batch and the log after each of the named stages."""
    for name in names:
        before, after = _checks_around(name)
        recipe = recipe.before(name, before, f'before {name}').after(name, after, f'after {name}')
    return recipe


def own_stages(recipe: Recipe) -> list[str]:
    """Return the names of the stages that are not part of xagents; the stages are not yet bound to a run."""
    functions = zip(recipe.names, recipe.stages, strict=True)
    modules = {n: getattr(f, '__module__', None) or type(f).__module__ for n, f in functions}
    return [name for name, module in modules.items() if module.partition('.')[0] != 'xagents']


def _checks_around(name: str) -> tuple[Stage, Stage]:
    """Return the stages before and after the stage `name` that compare the shapes of the batch.

    A stage that yields nothing would keep the run from ever reaching its end.
    """
    seen: dict[str, Shapes] = {}
    logged: dict[str, Any] = {}
    kept = 0  # consecutive contexts that the stage has not yielded

    @stage
    def before(stream: Stream) -> Iterator[Context]:
        nonlocal seen, logged, kept
        for ctx in stream:
            if kept == MAX_KEPT:
                raise OptionError('stages', f'{name} yields no context, expected `yield ctx` for each context it takes')
            seen, logged, kept = _shapes(ctx.batch), dict(ctx.logs), kept + 1
            yield ctx

    @stage
    def after(stream: Stream) -> Iterator[Context]:
        nonlocal kept
        for ctx in stream:
            kept = 0
            if not (isinstance(ctx.batch, dict) and isinstance(ctx.logs, dict)):
                raise OptionError('stages', f'stage {name}: ctx.batch and ctx.logs must stay dicts')
            _check_log(name, {key: x for key, x in ctx.logs.items() if key not in logged or x is not logged[key]})
            present = _shapes(ctx.batch)
            if present != seen:
                for policy in seen.keys() & present.keys():
                    _compare(name, seen[policy], present[policy])
            yield ctx

    return before, after


def _check_log(name: str, logs: Mapping[str, Any]) -> None:
    """Raise OptionError if a stage has logged a value that is no number."""
    for key, value in logs.items():
        if not is_number(value):
            got = f'got ctx.logs[{key!r}] = {format_value(value)}'
            raise OptionError('stages', f'stage {name}: {got}, expected a number')


def _rollouts(batch: Mapping[str, Any]) -> Mapping[str, Mapping[str, Any]]:
    """Return the rollout of each policy by name; the name of a single policy is ''."""
    return {name: part for name, part in batch.items() if isinstance(part, dict)} or {'': batch}


def _shapes(batch: Mapping[str, Any]) -> dict[str, Shapes]:
    """Return the shapes of the arrays of each policy by name; the name of a single policy is ''."""
    return {
        policy: {n: (tuple(x.shape), np.dtype(x.dtype)) for n, x in part.items() if isinstance(x, np.ndarray)}
        for policy, part in _rollouts(batch).items()
    }


def _compare(name: str, before: Shapes, after: Shapes) -> None:
    """Raise OptionError if a stage has changed the types or the shapes of some columns.

    A stage may replace a rollout by one with other numbers of steps or environments, and a batch by another kind of
    batch, which has other columns.
    """
    for column, (_, dtype) in before.items():
        kinds = dtype.kind if column == 'actions' else 'fiub'
        if column in after and after[column][1].kind not in kinds:
            problem = f'got {column} of {after[column][1]}, expected {dtype} as before it'
            raise OptionError('stages', f'stage {name}: {problem}')
    old, new = ({column: shape for column, (shape, _) in shapes.items()} for shapes in (before, after))
    changed = [column for column, shape in old.items() if column in new and new[column] != shape]
    if not changed or old.keys() - new.keys():
        return
    resized = {_resized(old[column], new[column]) for column in old if old[column][1:]}
    if len(resized) > 1 or None in resized:
        column = changed[0]
        got, expected = _text(new[column]), _text(old[column])
        raise OptionError('stages', f'stage {name}: got {column} of shape {got}, expected {expected} as before it')


def _resized(before: tuple[int, ...], after: tuple[int, ...]) -> tuple[int, int] | None:
    """Return the differences in steps and in environments, or None if the shapes differ otherwise."""
    if len(before) != len(after) or before[2:] != after[2:]:
        return None
    return after[0] - before[0], after[1] - before[1]


def _text(shape: tuple[int, ...]) -> str:
    return f'[{", ".join(map(str, shape))}]'
