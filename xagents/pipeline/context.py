"""Contexts: the data of one iteration, which all stages read and change."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Iterator
from typing import Any

Stream = Iterator['Context']


Stage = Callable[..., Any]


def kept(default: Any) -> Any:
    """Declare a field of a context whose value the context of the next iteration inherits."""
    return dataclasses.field(default=default, metadata={'kept': True})


@dataclasses.dataclass(slots=True)
class EpisodeEnd:
    """Statistics of a finished episode.

    Attributes:
        reward: sum of the environment's raw rewards, before wrappers and clipping.
        length: number of the agent's steps.
        env: index of the environment; with several agents per environment, index of the agent among all agents.
        success: the `is_success` or `success` that the environment reported; None if it reported neither.
        team: summed reward of all agents of the environment; None except for the last agent to finish.
        step: environment steps of the rollout at the end of the episode; later, of the whole run.
        time: seconds of the rollout at the end of the episode; later, of the whole run.
        opponent: name of the opponent of a game, a whole number; None for other environments.
        info: sums of the numbers of infos that `--log-info` selects, by name; None without the option.
    """

    reward: float
    length: int
    env: int
    success: bool | None
    team: float | None = None
    step: int = 0
    time: float = 0.0
    opponent: int | None = None
    info: dict[str, float] | None = None


@dataclasses.dataclass(slots=True)
class Context:
    """The data of one iteration: counters that the next iteration inherits, and fields that start empty.

    A custom context is a `@dataclass(slots=True)` subclass, passed as `Recipe(..., context=Own)`.

    Attributes:
        iteration: number of this iteration, from 1.
        steps: environment steps of all environments since the start of the run, without reset rows.
        games: number of finished episodes.
        updates: number of optimiser steps.
        seconds: training time in seconds, including earlier sessions.
        mean_reward: mean of the last episodes, or of the last evaluation if the run evaluates; NaN before the first.
        best_reward: best `mean_reward` of all checks so far; NaN before the first.
        checked_games: `games` at the last check of the mean.
        plateau_count: number of checks without a new best.
        early_stop_count: number of reductions of the learning rate.
        plateau_factor: product of the reductions of the learning rate.
        evaluated_steps: `steps` at the last evaluation.
        evaluated: whether means are means of evaluations.
        level: level of the curriculum, from 0.
        level_games: `games` at the start of the level.
        level_mean: mean of the metric of `--curriculum-when` in this level; NaN before the first episode.
        batch: the collected data, arrays by name.
        statistics: statistics of observations and rewards after this batch was collected.
        episodes: episodes that ended in this iteration.
        checked: whether this iteration checks the mean.
        evaluated_state: weights that belong to the checked mean; None if they are the current weights.
        new_best: the previous best, if this iteration set a new best; else None.
        schedule: values of the schedules for this iteration.
        env_params: parameters of the environments by name, which `collect` sets before its first step.
        idle: whether this iteration has nothing to learn from.
        note: text in the status line, instead of the mean reward.
        messages: lines for the console.
        logs: metrics for the user's loop and the monitors, floats by name.
        counts: number of values whose mean is in `logs`, by the name of the metric. A row of a monitor contains the
            mean of all these values since its last row; most other metrics of a row are those of one iteration.
        stop: reason why the run ends after this iteration; empty if it continues.
        kept_names: names of further fields that the next iteration inherits (see `keep`).
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
    level: int = kept(0)
    level_games: int = kept(0)
    level_mean: float = kept(math.nan)
    batch: dict[str, Any] = dataclasses.field(default_factory=dict)
    statistics: Any = None
    episodes: list[EpisodeEnd] = dataclasses.field(default_factory=list)
    checked: bool = False
    evaluated_state: Any = None
    new_best: float | None = None
    schedule: dict[str, float] = dataclasses.field(default_factory=dict)
    env_params: dict[str, Any] = dataclasses.field(default_factory=dict)
    idle: bool = False
    note: str = ''
    messages: list[str] = dataclasses.field(default_factory=list)
    logs: dict[str, float] = dataclasses.field(default_factory=dict)
    counts: dict[str, int] = dataclasses.field(default_factory=dict)
    stop: str = ''
    kept_names: frozenset[str] = dataclasses.field(default=frozenset(), metadata={'kept': True}, repr=False)

    def keep(self, *names: str) -> None:
        """Let the contexts of later iterations inherit the fields `names`.

        Raises:
            AttributeError: if a field does not exist.
            TypeError: if a value is not a number, a string, a bool or None.
        """
        for name in names:
            _check_scalar(name, getattr(self, name))
        self.kept_names = self.kept_names | frozenset(names)

    def carried_over(self) -> dict[str, Any]:
        """Return the values that the next iteration inherits, scalars by name, without `kept_names`.

        Raises:
            TypeError: if a value is not a number, a string, a bool or None.
        """
        names = _carried_fields(type(self))  # type: ignore[arg-type]
        values = {name: getattr(self, name) for name in (names | self.kept_names if self.kept_names else names)}
        for name, value in values.items():
            if value.__class__ not in _SCALARS:
                _check_scalar(name, value)
        return values

    def next_iteration(self) -> Context:
        """Return the context of the next iteration."""
        new = type(self)(**self.carried_over())
        new.kept_names = self.kept_names
        new.iteration += 1
        return new


_SCALARS = frozenset((bool, int, float, str, type(None)))


def _check_scalar(name: str, value: Any) -> None:
    if not isinstance(value, (bool, int, float, str, type(None))):
        expected = 'a number, a string, a bool or None in a kept field'
        raise TypeError(f'{name}: got {type(value).__name__}, expected {expected}')


@functools.cache
def _carried_fields(context: Any) -> frozenset[str]:
    fields = dataclasses.fields(context)
    return frozenset(f.name for f in fields if f.metadata.get('kept') and f.name != 'kept_names')


def check_context(context: type) -> type[Context]:
    """Return `context` if it is a valid context class.

    Raises:
        TypeError: if `context` is not a dataclass with slots that extends Context. Without slots, a misspelt field
            would go unnoticed.
    """
    if not (isinstance(context, type) and issubclass(context, Context)):
        raise TypeError(f'context: got {context!r}, expected a subclass of Context')
    if any('__dict__' in vars(c) for c in context.__mro__) or not dataclasses.is_dataclass(context):
        raise TypeError(f'context: {context.__name__} needs @dataclass(slots=True)')
    return context
