"""Traits of an agent's class, which other packages read."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any


@dataclass(frozen=True)
class Traits:
    """Properties that all agents of a class share.

    A subclass changes some of them with `traits = A2C.traits.changed(keeps_outputs=True)`.

    Attributes:
        no_overlap_reason: why the agent cannot learn from rollouts of an older policy; empty if it can.
        no_batch_statistics_reason: why updates do not admit networks that normalise over batches; empty if they do.
        raw_rollouts: whether rollouts contain raw observations and rewards, which are normalised at each update.
        keeps_outputs: whether rollouts contain the outputs of the policy that acted.
        buffer_use: past participle for a message: with too little data, nothing is 'replayed', or 'learned'.
        model_names: names of the networks in messages; by default they are numbered.
        n_critics: number of critics of an actor-critic with a replay buffer, 1 or 2.
        actor_outputs: number of outputs of the actor for each component of an action.
        discrete_agents: agents for discrete actions, for messages of agents that accept only continuous ones.
        policy_metrics: metrics of updates of the policy, which may be fewer than those of the critics.
    """

    no_overlap_reason: str = ''
    no_batch_statistics_reason: str = ''
    raw_rollouts: bool = False
    keeps_outputs: bool = False
    buffer_use: str = 'replayed'
    model_names: tuple[str, ...] = ()
    n_critics: int = 2
    actor_outputs: int = 1
    discrete_agents: str = 'dqn or ppo'
    policy_metrics: tuple[str, ...] = ('loss/policy',)

    def changed(self, **fields: Any) -> Traits:
        """Return a copy with other values of some fields."""
        known = self.__dataclass_fields__
        if unknown := next((name for name in fields if name not in known), None):
            raise TypeError(f'traits: got {unknown}, expected one of {", ".join(known)}')
        return replace(self, **fields)
