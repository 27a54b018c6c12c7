"""Progress of an agent beyond one run: counters, recent rewards, the best weights, and the iteration in flight."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from xagents.checkpoints.in_flight import InFlightIteration, PendingEvaluation
from xagents.checkpoints.state_files import AgentState
from xagents.pipeline.context import Context


@dataclass
class Progress:
    """The progress of an agent's training.

    Attributes:
        rewards: rewards of the last episodes.
        context: counters of the last iteration.
        best: best weights so far; None before the first.
        in_flight: iteration that was collected but not learned from, or None.
        evaluations: pending evaluations, oldest first.
        run_directory: writer of the run directory, or None.
        resumed_at: step of the checkpoint that was loaded; None once a run has resumed from it.
        startup_lines: lines that the next run prints first.
        custom_counters: counters in a custom class of contexts, until a run's recipe has this class.
        custom_names: names of kept fields of such a class, likewise.
        digest: digest of the data set that the agent learns from, or None.
    """

    rewards: deque[float]
    context: Context = field(default_factory=Context)
    best: AgentState | None = None
    in_flight: InFlightIteration | None = None
    evaluations: list[PendingEvaluation] = field(default_factory=list)
    run_directory: Any = None
    resumed_at: int | None = None
    startup_lines: list[str] = field(default_factory=list)
    custom_counters: dict[str, Any] = field(default_factory=dict)
    custom_names: frozenset[str] = frozenset()
    digest: int | None = None

    def to_dict(self, counters: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Return the progress as JSON values for a checkpoint. The default counters are those of the last iteration."""
        counters = dict(self.context.carried_over() if counters is None else counters)
        record = {'counters': counters, 'kept_names': sorted(self.context.kept_names), 'rewards': list(self.rewards)}
        return record if self.digest is None else {**record, 'digest': self.digest}

    def load_counters(self, record: Mapping[str, Any]) -> None:
        """Load the counters of a record, if it has some. The mean reward becomes NaN."""
        fields, counters = Context.__dataclass_fields__, record.get('counters', {})
        known = {name: value for name, value in counters.items() if name in fields}
        self.context = Context(**{**known, 'mean_reward': math.nan})
        self.custom_counters = {name: value for name, value in counters.items() if name not in fields}
        self.custom_names = frozenset(record.get('kept_names', ()))

    def load(self, record: Mapping[str, Any]) -> None:
        """Load a whole record: counters, recent rewards and their mean."""
        self.load_counters(record)
        self.rewards.clear()
        self.rewards.extend(record['rewards'])
        self.context.mean_reward = record['counters']['mean_reward']
        self.digest = record.get('digest')

    def first_context(self, context: type[Context], evaluates: bool) -> Context:
        """Return the context with which a run starts.

        The means of training episodes and of evaluations are not comparable. They become NaN if only one of the last
        run and this run evaluates.

        Args:
            context: class of the run's contexts, which may differ from the class of the last run.
            evaluates: whether the run evaluates.
        """
        fields = set(context.__dataclass_fields__)
        values = {**self.custom_counters, **self.context.carried_over()}
        first = context(**{name: value for name, value in values.items() if name in fields})
        first.kept_names = (self.context.kept_names | self.custom_names) & fields
        if first.evaluated != evaluates:
            first.evaluated = evaluates
            first.mean_reward = first.best_reward = math.nan
        return first
