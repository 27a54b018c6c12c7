"""What outlives a run: counters, recent rewards, the best weights, and what was collected and not learned from."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from xagents.checkpoints.in_flight import InFlightIteration
from xagents.checkpoints.pending_evaluation import PendingEvaluation
from xagents.checkpoints.state_files import AgentState
from xagents.pipeline.context import Context


@dataclass
class Progress:
    """How far an agent's training has come.

    Attributes:
        rewards: of the last episodes.
        context: counters of the last iteration.
        best: the best weights so far; None before the first.
        in_flight: an iteration that was collected and not learned from.
        evaluations: that were asked for and not taken yet, oldest first.
        run_directory: keeps the run; None where nothing does.
        resumed_at: the step of the checkpoint that it was read from; None once a run has gone on from there.
        startup_lines: what the next run says first.
        custom_counters: counters of a class of contexts that only a recipe knows, until a run has that recipe.
        custom_names: what was kept by name, likewise.
        digest: of the data set that it learns from; None where there is none.
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
        """Return what a checkpoint holds of it, as JSON holds it; counters are the last iteration's when not given."""
        return {
            'counters': dict(self.context.carried_over() if counters is None else counters),
            'kept_names': sorted(self.context.kept_names),
            'rewards': list(self.rewards),
            **({} if self.digest is None else {'digest': self.digest}),
        }

    def load_counters(self, record: Mapping[str, Any]) -> None:
        """Take over the counters of a record, where it has some; the mean starts anew."""
        fields, counters = Context.__dataclass_fields__, record.get('counters', {})
        known = {name: value for name, value in counters.items() if name in fields}
        self.context = Context(**{**known, 'mean_reward': math.nan})
        self.custom_counters = {name: value for name, value in counters.items() if name not in fields}
        self.custom_names = frozenset(record.get('kept_names', ()))

    def load(self, record: Mapping[str, Any]) -> None:
        """Take over a whole record: counters, recent rewards and their mean."""
        self.load_counters(record)
        self.rewards.clear()
        self.rewards.extend(record['rewards'])
        self.context.mean_reward = record['counters']['mean_reward']
        self.digest = record.get('digest')

    def first_context(self, context: type[Context], evaluates: bool) -> Context:
        """Return the context that a run goes on from, of the run's class, which may be another one than the last run's.

        Where the run evaluates, means are those of evaluations: those of training episodes are not compared with them.
        """
        fields = set(context.__dataclass_fields__)
        values = {**self.custom_counters, **self.context.carried_over()}
        first = context(**{name: value for name, value in values.items() if name in fields})
        first.kept_names = (self.context.kept_names | self.custom_names) & fields
        if first.evaluated != evaluates:
            first.evaluated = evaluates
            first.mean_reward = first.best_reward = math.nan
        return first
