"""Collecting in a thread, exactly one iteration ahead of learning.

Stages before `overlap` run in the thread, and stages after it run in the caller's thread. The two threads meet once
per iteration and no queue is between them. The lag is therefore always one iteration, and equal seeds give equal runs.
The collector acts in the thread with its own copy of the weights. The copy is updated at the meeting, when the thread
is idle.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from typing import Any

from xagents.checkpoints.in_flight import InFlightIteration
from xagents.pipeline.context import Context, Stream
from xagents.pipeline.prefetch import Prefetcher
from xagents.pipeline.recipe import for_run
from xagents.runs.run import Run


class Overlap:
    """The overlap of one run: the collecting thread, and the counters of collecting and learning.

    Args:
        run: run of an agent with a policy network.
        stream: stages that run in the thread.
    """

    def __init__(self, run: Run, stream: Iterator[Context]):
        self.run = run
        self.base = self.latest = run.progress.context.carried_over()
        self.names = run.progress.context.kept_names
        self.last_clock = run.clock()
        agent, collector = run.agent, run.agent.collector
        assert agent.acting_policy.network is not None  # `check_overlap` has checked this
        ahead = agent.acting_policy.with_network(agent.acting_policy.network.copy()), agent.statistics.copy()
        collector.group.policy, collector.group.statistics = ahead
        collector.group.keep_rollouts(2)  # the agent learns from one while the collector writes the other
        self._ahead = Prefetcher(stream)

    def take(self) -> Context | None:
        """Return the next iteration for learning, and start collecting the iteration after it."""
        start = self.run.clock()
        if (ahead := self._ahead.take()) is None:
            return None
        waited = self.run.clock() - start
        values = self.latest | self._changed(ahead)
        ahead.kept_names |= self.names
        current = copy.copy(ahead)
        current.logs = {**ahead.logs, 'seconds/wait': waited}
        for name, value in values.items():
            setattr(current, name, value)
            setattr(ahead, name, value)  # collecting the next iteration uses the present counters
        self.base = values
        agent = self.run.agent
        if current.statistics is not None:
            agent.statistics.sync(current.statistics)
        agent.collector.sync(agent.acting_policy.published_weights)
        self._ahead.start_next()
        return current

    def finish_iteration(self, ctx: Context) -> None:
        """Copy the counters of an iteration that has passed the last stage."""
        now = self.run.clock()
        # both threads work at the same time, so elapsed time is added, not the sum of both
        ctx.seconds, self.last_clock = self.latest['seconds'] + now - self.last_clock, now
        self.latest, self.names = ctx.carried_over(), ctx.kept_names

    def in_flight(self) -> InFlightIteration | None:
        """Wait for the iteration that is being collected and return it. Return None if collecting failed."""
        ahead = self._ahead.peek()
        return None if ahead is None else InFlightIteration(self._changed(ahead), ahead)

    def close(self) -> None:
        """End the thread, and store the iteration that it has collected for the next run."""
        try:
            self._ahead.close()
            self.run.progress.in_flight = self.in_flight()
        finally:
            agent, collector = self.run.agent, self.run.agent.collector
            agent.statistics.sync(collector.statistics)
            collector.group.policy, collector.group.statistics = agent.acting_policy, agent.statistics
            collector.group.keep_rollouts(1)

    def _changed(self, ahead: Context) -> dict[str, Any]:
        """Return the counters that collecting has changed. `seconds` belongs to learning and is left out."""
        changed = {n: v for n, v in ahead.carried_over().items() if n not in self.base or not _equal(v, self.base[n])}
        changed.pop('seconds', None)
        return changed


def _equal(a: Any, b: Any) -> bool:
    return a == b or (isinstance(a, float) and isinstance(b, float) and math.isnan(a) and math.isnan(b))


@for_run
def overlap(run: Run, stream: Stream) -> Iterator[Context]:
    """Run the stages before this one in a thread, one iteration ahead."""
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
