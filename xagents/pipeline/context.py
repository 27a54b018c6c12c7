"""What one iteration carries through the stages."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Iterator
from typing import Any

Stream = Iterator['Context']


Stage = Callable[..., Any]


def kept(default: Any) -> Any:
    """Declare a field of a context that the next iteration's context takes over."""
    return dataclasses.field(default=default, metadata={'kept': True})


@dataclasses.dataclass(slots=True)
class EndedEpisode:
    """An episode that ended while collecting.

    Attributes:
        reward: sum of its raw rewards.
        length: its steps.
        success: what the environment said of it, or None.
        step: steps of the collection until then, later of the whole run.
        time: seconds, as `step`.
        env: index of the environment; with several agents in one, of the agent among all.
        team: what all of its environment's agents got, with the last of them to end; else None.
    """

    reward: float
    length: int
    success: bool | None
    step: int
    time: float
    env: int = 0
    team: float | None = None


@dataclasses.dataclass(slots=True)
class Context:
    """What one iteration carries: counters that are kept, and data that is fresh each time.

    An own one is a `@dataclass(slots=True)` subclass, given to `Recipe(..., context=Own)`.

    Attributes:
        iteration: number of this iteration, from 1.
        steps: environment steps since the run began, all environments together, without reset rows.
        games: episodes that ended.
        updates: optimiser steps.
        seconds: time spent training, in seconds, earlier sessions included.
        mean_reward: mean of the last episodes, or of the last evaluation where there are any; NaN before the first.
        best_reward: the best `mean_reward` so far that counted; NaN before the first.
        checked_games: `games` at the last check of the mean.
        plateau_count: checks without a new best.
        early_stop_count: reductions of the learning rate.
        plateau_factor: product of those reductions.
        evaluated_steps: `steps` at the last evaluation.
        evaluated: whether means are those of evaluations.
        batch: the data that was collected, arrays by name.
        statistics: of observations and rewards, as they were once that was collected.
        episodes: the episodes that ended in this iteration.
        checked: whether the mean is looked at in this iteration.
        evaluated_state: the weights that earned the mean which is looked at, where they are not the present ones.
        new_best: the best before this one, where this iteration set a new one.
        schedule: the values that `schedule` set for this iteration.
        idle: whether there is nothing to learn from in this iteration.
        note: what stands at the end of the status line.
        messages: lines for the console.
        logs: what the user's loop and the monitors get, floats by name.
        stop: why the run ends after this iteration; empty where it goes on.
    """

    iteration: int = kept(0)
    steps: int = kept(0)
    games: int = kept(0)
    updates: int = kept(0)
    seconds: float = kept(0.0)
    mean_reward: float = kept(math.nan)
    best_reward: float = kept(math.nan)
    checked_games: int = kept(0)
    plateau_count: int = kept(0)
    early_stop_count: int = kept(0)
    plateau_factor: float = kept(1.0)
    evaluated_steps: int = kept(0)
    evaluated: bool = kept(False)
    batch: dict[str, Any] = dataclasses.field(default_factory=dict)
    statistics: Any = None
    episodes: list[EndedEpisode] = dataclasses.field(default_factory=list)
    checked: bool = False
    evaluated_state: Any = None
    new_best: float | None = None
    schedule: dict[str, float] = dataclasses.field(default_factory=dict)
    idle: bool = False
    note: str = ''
    messages: list[str] = dataclasses.field(default_factory=list)
    logs: dict[str, float] = dataclasses.field(default_factory=dict)
    stop: str = ''
    kept_names: frozenset[str] = dataclasses.field(default=frozenset(), metadata={'kept': True}, repr=False)

    def keep(self, *names: str) -> None:
        """Let the fields `names` live on in the contexts of later iterations.

        Raises:
            AttributeError: for a field that does not exist.
            TypeError: for a value that is not a number, a string, a bool or None.
        """
        for name in names:
            _check_scalar(name, getattr(self, name))
        self.kept_names = self.kept_names | frozenset(names)

    def carried_over(self) -> dict[str, Any]:
        """Return what the next iteration takes over, as scalars by name (`kept_names` apart).

        Raises:
            TypeError: for a value that is not a number, a string, a bool or None.
        """
        names = _carried_fields(type(self))  # type: ignore[arg-type]
        values = {name: getattr(self, name) for name in (names | self.kept_names if self.kept_names else names)}
        for name, value in values.items():
            if value.__class__ not in _SCALARS:
                _check_scalar(name, value)
        return values

    def next_iteration(self) -> Context:
        """Return the next iteration's context."""
        new = type(self)(**self.carried_over())
        new.kept_names = self.kept_names
        new.iteration += 1
        return new


_SCALARS = frozenset((bool, int, float, str, type(None)))


def _check_scalar(name: str, value: Any) -> None:
    if not isinstance(value, (bool, int, float, str, type(None))):
        raise TypeError(f'{name}: only numbers, strings and bools outlive an iteration, got {type(value).__name__}')


@functools.cache
def _carried_fields(context: Any) -> frozenset[str]:
    fields = dataclasses.fields(context)
    return frozenset(f.name for f in fields if f.metadata.get('kept') and f.name != 'kept_names')


def check_context(context: type) -> type[Context]:
    """Return `context` if it can be a run's context.

    Raises:
        TypeError: where it is no dataclass with slots that extends Context; a misspelt field would go unnoticed.
    """
    if not (isinstance(context, type) and issubclass(context, Context)):
        raise TypeError(f'context: got {context!r}, takes a subclass of Context')
    if any('__dict__' in vars(c) for c in context.__mro__) or not dataclasses.is_dataclass(context):
        raise TypeError(f'context: {context.__name__} needs @dataclass(slots=True)')
    return context
