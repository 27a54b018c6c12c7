"""Unfinished work in checkpoints: an iteration to learn from (`--overlap`), and evaluations (`--eval-async`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from xagents.checkpoints.state_files import AgentState, state_from_arrays, state_to_arrays
from xagents.pipeline.context import Context, EpisodeEnd
from xagents.system.arrays import add_prefix, strip_prefix
from xagents.system.values import survives_json

# fields of a context that collecting sets for learning, in addition to counters and the batch
_COLLECTED = ('schedule', 'env_params', 'logs', 'idle', 'note', 'messages')


@dataclass
class InFlightIteration:
    """A collected iteration.

    Attributes:
        changed_counters: counters that collecting has changed, by name.
        context: the context of the iteration.
        custom_fields: of a loaded iteration, the values of fields that only a recipe's own context class has.
    """

    changed_counters: dict[str, Any]
    context: Context
    custom_fields: dict[str, Any] = field(default_factory=dict)

    def to_context(self, previous: Context) -> Context:
        """Return the iteration's context, with the other counters of `previous`."""
        # a loaded iteration gets the recipe's own context class
        fields = previous.__dataclass_fields__.keys()
        known = {name: getattr(self.context, name) for name in fields & self.context.__dataclass_fields__.keys()}
        values = {**known, **self.custom_fields, **previous.carried_over(), **self.changed_counters}
        ctx = type(previous)(**{name: value for name, value in values.items() if name in fields})
        ctx.kept_names = previous.kept_names | (self.context.kept_names & fields)
        return ctx

    def state(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Return the batch and custom fields as arrays by name, and the rest as a record for JSON.

        Raises:
            TypeError: for a value of the batch or of a custom field that neither an array nor JSON can represent.
        """
        ctx = self.context
        fields = ctx.__dataclass_fields__.keys() - Context.__dataclass_fields__.keys()
        # what a stage on `collect` has set
        custom_fields = self.custom_fields | {name: getattr(ctx, name) for name in fields}
        plain = {name: value for name, value in custom_fields.items() if survives_json(value)}
        held = add_prefix('batch', ctx.batch)
        held |= add_prefix('own', {name: value for name, value in custom_fields.items() if name not in plain})
        arrays = {name: np.asarray(value) for name, value in held.items()}
        for name, array in arrays.items():
            if array.dtype == object:
                raise TypeError(f'{name}: a checkpoint takes arrays of numbers, got {type(held[name]).__name__}')
        record = {name: getattr(ctx, name) for name in _COLLECTED}
        record['episodes'] = [asdict(episode) for episode in ctx.episodes]
        return arrays, {**record, 'own': plain, 'changed': self.changed_counters, 'kept_names': sorted(ctx.kept_names)}

    @classmethod
    def load(cls, arrays: Mapping[str, np.ndarray], record: Mapping[str, Any]) -> InFlightIteration:
        """Return the iteration from the results of `state`."""
        episodes = [EpisodeEnd(**episode) for episode in record['episodes']]
        ctx = Context(batch=strip_prefix('batch', arrays), episodes=episodes)
        for name in _COLLECTED:
            setattr(ctx, name, record[name])
        ctx.kept_names = frozenset(record['kept_names'])
        return cls(dict(record['changed']), ctx, {**record['own'], **strip_prefix('own', arrays)})


@dataclass
class PendingEvaluation:
    """An evaluation that was requested and whose result is not applied yet.

    Attributes:
        state: the evaluated weights, with the counters at the time of the request.
        seed: the seed of the episodes.
        episodes: the number of episodes.
        age: iterations since the request.
    """

    state: AgentState
    seed: int
    episodes: int
    age: int = 0

    @property
    def steps(self) -> int:
        """The step of the weights."""
        return self.state.record['counters']['steps']

    def to_state(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Return arrays by name and a record for JSON, from which the evaluation can be repeated."""
        counters = {'seed': self.seed, 'episodes': self.episodes, 'age': self.age}
        return state_to_arrays(self.state), {'state': self.state.record, **counters}

    @classmethod
    def load(cls, arrays: dict[str, np.ndarray], record: Mapping[str, Any]) -> PendingEvaluation:
        """Return the evaluation from the results of `to_state`, without its policy as data."""
        counters = {name: record[name] for name in ('seed', 'episodes', 'age')}
        return cls(state_from_arrays(arrays, record['state']), **counters)
