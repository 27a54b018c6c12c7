"""An iteration that was collected but not learned from yet (`--overlap`). Checkpoints contain it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from xagents.pipeline.context import Context, EndedEpisode
from xagents.system.arrays import add_prefix, strip_prefix

# fields of a context that collecting sets for learning, in addition to counters and the batch
_COLLECTED = ('schedule', 'logs', 'idle', 'note', 'messages')


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
        plain = {name: value for name, value in custom_fields.items() if _is_plain(value)}
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
        episodes = [EndedEpisode(**episode) for episode in record['episodes']]
        ctx = Context(batch=strip_prefix('batch', arrays), episodes=episodes)
        for name in _COLLECTED:
            setattr(ctx, name, record[name])
        ctx.kept_names = frozenset(record['kept_names'])
        return cls(dict(record['changed']), ctx, {**record['own'], **strip_prefix('own', arrays)})


def _is_plain(value: Any) -> bool:
    """Return whether a value is unchanged after a round trip through JSON."""
    if isinstance(value, list):
        return all(map(_is_plain, value))
    if isinstance(value, dict):
        return all(type(key) is str and _is_plain(one) for key, one in value.items())
    return value is None or type(value) in (bool, int, float, str)
