"""Collecting in a thread, exactly one iteration ahead of learning.

What stands before the stage runs in the thread, what stands after it where the user is. It is a rendezvous with one
credit, not a queue: the lag is always one, so that equal seeds give equal runs. The thread collects with a double of
the agent, which acts by weights of its own; they are renewed at the rendezvous, when the thread is idle. Imports no
TensorFlow.
"""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from xagents.options.errors import OptionError
from xagents.pipeline.context import Context, EndedEpisode, Stage, Stream
from xagents.pipeline.prefetch import Ahead
from xagents.pipeline.recipe import stage
from xagents.system.arrays import prefixed, without_prefix

if TYPE_CHECKING:
    from xagents.runs.learner import Learner

# of a context, what collecting gives to learning, besides counters and the batch
_COLLECTED = ('schedule', 'logs', 'idle', 'note', 'messages')


@dataclass
class InFlight:
    """An iteration that is collected and not learned from yet.

    Attributes:
        changed: counters that collecting has changed, by name.
        context: the iteration's.
        own: of one that was loaded, the fresh fields that only the recipe's own class of contexts has.
    """

    changed: dict[str, Any]
    context: Context
    own: dict[str, Any] = field(default_factory=dict)

    def onto(self, carried: Context) -> Context:
        """Return the iteration's context, with the other counters of `carried`."""
        # one that was loaded is of the recipe's own class again
        fields = carried.__dataclass_fields__.keys()
        known = {name: getattr(self.context, name) for name in fields & self.context.__dataclass_fields__.keys()}
        values = {**known, **self.own, **carried.kept(), **self.changed}
        ctx = type(carried)(**{name: value for name, value in values.items() if name in fields})
        ctx.kept_names = carried.kept_names | (self.context.kept_names & fields)
        return ctx

    def state(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Return the batch and own fields as arrays, and the rest as JSON holds it.

        Raises:
            TypeError: for something in the batch, or in a field of an own class of contexts, that neither can hold.
        """
        ctx = self.context
        own = {**self.own, **_own(ctx)}
        plain = {name: value for name, value in own.items() if _is_plain(value)}
        held = prefixed('batch', ctx.batch)
        held |= prefixed('own', {name: value for name, value in own.items() if name not in plain})
        arrays = {name: np.asarray(value) for name, value in held.items()}
        for name, array in arrays.items():
            if array.dtype == object:
                raise TypeError(f'{name}: a checkpoint takes arrays of numbers, got {type(held[name]).__name__}')
        record = {name: getattr(ctx, name) for name in _COLLECTED}
        record['episodes'] = [asdict(episode) for episode in ctx.episodes]
        return arrays, {**record, 'own': plain, 'changed': self.changed, 'kept_names': sorted(ctx.kept_names)}

    @classmethod
    def load(cls, arrays: Mapping[str, np.ndarray], record: Mapping[str, Any], context: type[Context]) -> InFlight:
        """Undo `state`."""
        episodes = [EndedEpisode(**episode) for episode in record['episodes']]
        ctx = context(batch=without_prefix('batch', arrays), episodes=episodes)
        for name in _COLLECTED:
            setattr(ctx, name, record[name])
        ctx.kept_names = frozenset(record['kept_names'])
        return cls(dict(record['changed']), ctx, {**record['own'], **without_prefix('own', arrays)})


class Overlap:
    """One run's overlap: the thread, the agent's double in it, and the counters of both sides.

    Args:
        agent: who learns, and goes on from its context.
        stream: what collects.
    """

    def __init__(self, agent: Learner, stream: Iterator[Context]):
        self.agent = agent
        self.base = self.latest = agent.context.kept()
        self.names = agent.context.kept_names
        self.marked = time.perf_counter() - agent.paused
        agent.collector = agent.double()
        self._ahead = Ahead(stream)

    def take(self) -> Context | None:
        """Return the next iteration for learning, and let the thread collect the one after it."""
        start = time.perf_counter()
        theirs = self._ahead.take()
        if theirs is None:
            return None
        waited = time.perf_counter() - start
        values = self.latest | self._changed(theirs)
        theirs.kept_names |= self.names
        ours = copy.copy(theirs)
        ours.logs = {**theirs.logs, 'seconds/wait': waited}
        for ctx in (ours, theirs):  # the next iteration is collected from what is known now
            _assign(ctx, values)
        self.base = values
        self.agent.collector.follow(self.agent)
        self.agent.take_statistics(self.agent.collector)
        self._ahead.go()
        return ours

    def learned(self, ctx: Context) -> None:
        """Take over the counters of an iteration that has passed the last stage."""
        now = time.perf_counter() - self.agent.paused
        # both sides work at the same time, so the clock counts and not their sum
        ctx.seconds, self.marked = self.latest['seconds'] + now - self.marked, now
        self.latest, self.names = ctx.kept(), ctx.kept_names

    def in_flight(self) -> InFlight | None:
        """Wait for the iteration in flight and return it; None where collecting it failed."""
        theirs = self._ahead.peek()
        return None if theirs is None else InFlight(self._changed(theirs), theirs)

    def close(self) -> None:
        """End the thread; what it has collected waits for the next run."""
        try:
            self._ahead.close()
            self.agent.in_flight = self.in_flight()
        finally:
            self.agent.join(self.agent.collector)

    def _changed(self, theirs: Context) -> dict[str, Any]:
        """Return the counters that collecting has changed; the clock is the learning side's."""
        changed = {n: v for n, v in theirs.kept().items() if n not in self.base or not _equal(v, self.base[n])}
        changed.pop('seconds', None)
        return changed


def _equal(a: Any, b: Any) -> bool:
    return a == b or (isinstance(a, float) and isinstance(b, float) and math.isnan(a) and math.isnan(b))


def _own(ctx: Context) -> dict[str, Any]:
    """Return the fields of an own class of contexts: what a stage on `collect` has set."""
    return {name: getattr(ctx, name) for name in ctx.__dataclass_fields__.keys() - Context.__dataclass_fields__.keys()}


def _is_plain(value: Any) -> bool:
    """Return whether JSON gives a value back as it is."""
    if isinstance(value, list):
        return all(map(_is_plain, value))
    if isinstance(value, dict):
        return all(type(key) is str and _is_plain(one) for key, one in value.items())
    return value is None or type(value) in (bool, int, float, str)


def _assign(ctx: Context, values: Mapping[str, Any]) -> None:
    for name, value in values.items():
        setattr(ctx, name, value)


def overlap(agent: Learner) -> Stage:
    """Run what stands before it in a thread, one iteration ahead."""

    @stage
    def overlap(stream: Stream) -> Iterator[Context]:
        agent.overlapping = both = Overlap(agent, stream)
        try:
            while (ctx := both.take()) is not None:
                yield ctx
                both.learned(ctx)
                if ctx.stop:
                    return
        finally:
            agent.overlapping = None
            both.close()

    return overlap


def check_overlap(agent: Learner) -> None:
    """Check that an agent may learn from what an older policy has collected.

    Raises:
        OptionError: with the reason why not.
    """
    if agent.trains_in_one_step:
        raise OptionError(
            'overlap',
            f'{type(agent).__name__} collects and learns in train_step(), admits an agent that '
            'implements collect() and learn(batch)',
        )
    if agent.NO_OVERLAP:
        raise OptionError('overlap', f'{type(agent).__name__} {agent.NO_OVERLAP}')
