"""Collecting in a thread, exactly one iteration ahead of learning.

What stands before the stage runs in the thread, what stands after it where the user is. It is a rendezvous with one
credit, not a queue: the lag is always one, so that equal seeds give equal runs. The agent's collector moves into the
thread and acts by weights of its own there, which are renewed at the rendezvous, when the thread is idle.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Mapping
from typing import Any

from xagents.checkpoints.in_flight import InFlightIteration
from xagents.pipeline.context import Context, Stream
from xagents.pipeline.prefetch import Prefetcher
from xagents.pipeline.recipe import for_run
from xagents.runs.run import Run


class Overlap:
    """One run's overlap: the thread, which collects by a stream, and the counters of both sides."""

    def __init__(self, run: Run, stream: Iterator[Context]):
        self.run = run
        self.base = self.latest = run.progress.context.carried_over()
        self.names = run.progress.context.kept_names
        self.last_clock = run.clock()
        agent, collector = run.agent, run.agent.collector
        assert agent.acting_policy.network is not None  # `check_overlap` has looked
        ahead = agent.acting_policy.with_network(agent.acting_policy.network.copy()), agent.statistics.copy()
        collector.policy, collector.statistics = ahead
        collector.keep_rollouts(2)  # one is learned from while the next one is written
        self._ahead = Prefetcher(stream)

    def take(self) -> Context | None:
        """Return the next iteration for learning, and let the thread collect the one after it."""
        start = self.run.clock()
        ahead = self._ahead.take()
        if ahead is None:
            return None
        waited = self.run.clock() - start
        values = self.latest | self._changed(ahead)
        ahead.kept_names |= self.names
        current = copy.copy(ahead)
        current.logs = {**ahead.logs, 'seconds/wait': waited}
        for ctx in (current, ahead):  # the next iteration is collected from what is known now
            _assign(ctx, values)
        self.base = values
        agent = self.run.agent
        if current.statistics is not None:
            agent.statistics.sync(current.statistics)
        agent.collector.sync(agent.acting_policy.published_weights)
        self._ahead.start_next()
        return current

    def finish_iteration(self, ctx: Context) -> None:
        """Take over the counters of an iteration that has passed the last stage."""
        now = self.run.clock()
        # both sides work at the same time, so the clock counts and not their sum
        ctx.seconds, self.last_clock = self.latest['seconds'] + now - self.last_clock, now
        self.latest, self.names = ctx.carried_over(), ctx.kept_names

    def in_flight(self) -> InFlightIteration | None:
        """Wait for the iteration under way and return it; None where collecting it failed."""
        ahead = self._ahead.peek()
        return None if ahead is None else InFlightIteration(self._changed(ahead), ahead)

    def close(self) -> None:
        """End the thread; what it has collected waits for the next run."""
        try:
            self._ahead.close()
            self.run.progress.in_flight = self.in_flight()
        finally:
            agent, collector = self.run.agent, self.run.agent.collector
            agent.statistics.sync(collector.statistics)
            collector.policy, collector.statistics = agent.acting_policy, agent.statistics
            collector.keep_rollouts(1)

    def _changed(self, ahead: Context) -> dict[str, Any]:
        """Return the counters that collecting has changed; the clock is the learning side's."""
        changed = {n: v for n, v in ahead.carried_over().items() if n not in self.base or not _equal(v, self.base[n])}
        changed.pop('seconds', None)
        return changed


def _equal(a: Any, b: Any) -> bool:
    return a == b or (isinstance(a, float) and isinstance(b, float) and math.isnan(a) and math.isnan(b))


def _assign(ctx: Context, values: Mapping[str, Any]) -> None:
    for name, value in values.items():
        setattr(ctx, name, value)


@for_run
def overlap(run: Run, stream: Stream) -> Iterator[Context]:
    """Run what stands before it in a thread, one iteration ahead."""
    run.overlap = overlapped = Overlap(run, stream)
    try:
        while (ctx := overlapped.take()) is not None:
            yield ctx
            overlapped.finish_iteration(ctx)
            if ctx.stop:
                return
    finally:
        run.overlap = None
        overlapped.close()
