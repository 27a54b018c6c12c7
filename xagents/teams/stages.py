"""The stage in which several policies learn: each agent runs its own stages on its own rollout."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from xagents.pipeline.context import Context, Stream
from xagents.pipeline.recipe import compose, for_run
from xagents.runs.run import Run


class PolicyLearning:
    """The learning stages of one policy, as a separate stream.

    Args:
        run: the run of the team.
        name: name of the policy.
        agent: agent of the policy.
    """

    def __init__(self, run: Run, name: str, agent: Any):
        self.name, self.agent, self._contexts = name, agent, list[Context]()
        own = Run(agent, run.options)
        own.stages_before_learning = run.stages_before_learning
        self._stream = compose(iter(self._contexts.pop, None), agent.learning().bind(own).stages)

    def learn(self, ctx: Context) -> None:
        """Learn from the rollout of the policy, and add counters, messages and metrics to the context of the team."""
        own = self.agent.progress.context.next_iteration()
        own.batch, own.statistics = ctx.batch[self.name], self.agent.statistics
        own.schedule = {n.partition('/')[2]: v for n, v in ctx.schedule.items() if n.startswith(f'{self.name}/')}
        own.steps += int(np.count_nonzero(own.batch['valid']))
        updates = own.updates
        self._contexts.append(own)
        next(self._stream)
        self.agent.progress.context = own
        ctx.updates += own.updates - updates
        ctx.messages += [f'{self.name}: {message}' for message in own.messages]
        ctx.note = ctx.note or (own.note and f'{self.name}: {own.note}')
        for name, value in own.logs.items():
            if name.startswith('seconds/'):  # the sum over all policies
                ctx.logs[name] = ctx.logs.get(name, 0.0) + value
            else:
                ctx.logs[f'{self.name}/{name}'] = value

    def close(self) -> None:
        """Close the stream."""
        self._stream.close()


@for_run
def learn(run: Run, stream: Stream) -> Iterator[Context]:
    """Let the policies learn from their rollouts, one after the other."""
    team: Any = run.agent
    learning: dict[str, PolicyLearning] = {}
    try:
        for ctx in stream:
            for name, agent in ({} if ctx.idle else team.members).items():
                if name not in learning or learning[name].agent is not agent:
                    learning[name] = PolicyLearning(run, name, agent)
                learning[name].learn(ctx)
            ctx.seconds += ctx.logs.get('seconds/learn', 0.0)
            try:
                yield ctx
            finally:  # before a checkpoint is written, so that it contains a changed map
                team.apply_map()
    finally:
        for own in learning.values():
            own.close()
