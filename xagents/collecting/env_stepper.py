"""Steppers: objects that step environments as a request describes. Does not load TensorFlow.

A request and the state of the environments determine the rollout completely: a stepper draws no random numbers and
updates no statistics.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

import numpy as np

from xagents.collecting.finite import check_rollout
from xagents.collecting.opponents import OpponentPool
from xagents.collecting.policies import Policy
from xagents.collecting.rollouts import OBSERVATIONS, Rollout, RowState
from xagents.collecting.statistics import Statistics
from xagents.envs.interface import info_column
from xagents.envs.snapshots.write import Snapshot
from xagents.envs.spaces import ActionDecoder
from xagents.pipeline.context import EpisodeEnd


class CollectRequest(NamedTuple):
    """All inputs of a rollout except the state of the environments.

    Attributes:
        policy: the policy.
        statistics: statistics that normalise observations for the policy; a stepper does not update them.
        noise: noise of all actions, [⌈T / k⌉, N, …] with k = `policy.noise_repeat`; None if the policy needs none.
        schedule: current values of the run's schedules.
        opponents: players of the other seats in games; None for other environments.
        env_params: parameters of the environments by name, from the first step on; the others stay as they are.
    """

    policy: Policy
    statistics: Statistics
    noise: np.ndarray | None
    schedule: Mapping[str, Any]
    opponents: OpponentPool | None = None
    env_params: Mapping[str, Any] = MappingProxyType({})


@dataclass
class CollectStats:
    """Counts and messages of collecting, since this object was created.

    Attributes:
        episodes: episodes that ended; their `step` and `time` count from the creation of this object.
        steps: environment steps of all environments, without rows that only reset.
        seconds: seconds in environments and in the policy.
        row: index of the current row of the rollout.
        metrics: metrics of remote explorers, by name.
        messages: messages about remote explorers, one line each.
        deadline: value of `time.perf_counter` at which collecting stops waiting for missing explorers.
    """

    episodes: list[EpisodeEnd] = field(default_factory=list)
    steps: int = 0
    row: int = 0
    metrics: dict[str, float] = field(default_factory=dict)
    messages: list[str] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=lambda: {'env': 0.0, 'act': 0.0})
    deadline: float = math.inf

    def add(self, episodes: list[EpisodeEnd], seconds: float) -> None:
        """Add episodes that ended at the current step, after `seconds`."""
        self.episodes += [replace(episode, step=self.steps, time=seconds) for episode in episodes]


class StepBlock(NamedTuple):
    """Columns of a rollout that one explorer collected for one request.

    Attributes:
        columns: range of the columns in the rollout.
        envs: range of the environments. Two blocks may have the same range, but from different times.
        statistics: statistics that normalised the observations for acting.
    """

    columns: slice
    envs: slice
    statistics: Statistics


class FillResult(NamedTuple):
    """How a rollout was filled.

    Attributes:
        lost: bool [N], environments that were lost and reset before the rollout; None if there are none.
        discontinuous: bool [N], columns that do not continue the same column of the last rollout; None if there are
            none.
        blocks: the blocks of a rollout of several requests, in the order of learning; empty if one request made the
            whole rollout, with one column per environment.
    """

    lost: np.ndarray | None = None
    discontinuous: np.ndarray | None = None
    blocks: tuple[StepBlock, ...] = ()


class EnvStepper(Protocol):
    """The interface between a collector and the object that steps its environments, locally or in explorers."""

    # the current observations and memory of each group; None if the environments must be reset
    row_states: list[RowState] | None

    def reset(self, seed: int) -> None:
        """Reset every environment."""

    def fill(
        self, rollouts: Sequence[Rollout], requests: Sequence[CollectRequest], stats: CollectStats
    ) -> Sequence[FillResult]:
        """Fill the rollout of each group with raw data for its request, and count steps and episodes."""

    def snapshot(self) -> Snapshot | None:
        """Return a snapshot of the environments; None if they must be reset or cannot be copied."""


class LocalEnvStepper:
    """A stepper of environments in this process.

    Args:
        envs: the environments, an `Envs` or `MultiPolicyEnvs`.
    """

    def __init__(self, envs: Any):
        self.envs = envs
        self.row_states: list[RowState] | None = None

    def reset(self, seed: int) -> None:
        """Reset every environment."""
        self.row_states = [{OBSERVATIONS: group.reset(seed)} for group in self.envs.groups.values()]

    def snapshot(self) -> Snapshot | None:
        """Return a snapshot of the environments; None if they must be reset or cannot be copied."""
        return None if self.row_states is None else self.envs.snapshot()

    def set_params(self, params: Mapping[str, Any]) -> None:
        """Set parameters of the environments."""
        if params:
            self.envs.set_params(**params)

    def fill(
        self, rollouts: Sequence[Rollout], requests: Sequence[CollectRequest], stats: CollectStats
    ) -> list[FillResult]:
        """Fill the rollout of each group with raw data for its request, and count steps and episodes.

        Raises:
            NotFiniteError: if an observation or reward is not finite; the environments must then be reset.
        """
        clock, envs = time.perf_counter, self.envs
        self.set_params(requests[0].env_params)
        groups = list(zip(envs.groups.values(), rollouts, requests, strict=True))
        decoders = [ActionDecoder(group.action_space) for group, *_ in groups]
        assert self.row_states is not None
        # None: after an error, they must be reset
        states, self.row_states = (
            [request.policy.start(own) for own, request in zip(self.row_states, requests, strict=True)],
            None,
        )
        acting, stepping, start = 0.0, 0.0, clock()
        t = 0
        try:
            for t in range(len(rollouts[0]['valid'])):
                before = clock()
                stats.row, actions = t, []
                for (group, rollout, request), decode, own in zip(groups, decoders, states, strict=True):
                    policy, statistics, noise, schedule, *_ = request
                    rollout['valid'][t] = group.valid
                    for name, x in own.items():
                        rollout[name][t] = x
                    row = None if noise is None else noise[t // policy.noise_repeat]
                    seen = statistics.prepare(own[OBSERVATIONS])
                    chosen, after = policy.step(seen, row, own, group.valid, valid=group.valid, **schedule)
                    own |= after
                    for name in policy.columns:
                        rollout[name][t] = chosen[name]
                    actions.append(decode(chosen['actions']))
                between = clock()
                acting += between - before
                results = envs.step_groups(actions)
                for (group, rollout, _), (_, *given) in zip(groups, results, strict=True):
                    rollout['rewards'][t], rollout['terminated'][t], rollout['truncated'][t] = given
                    for name in group.infos.names:
                        rollout[info_column(name)][t] = group.infos.numbers[name]
                    stats.steps += int(np.count_nonzero(rollout['valid'][t]))
                if episodes := envs.pop_episodes():
                    stats.add(episodes, clock() - start)
                for own, result in zip(states, results, strict=True):
                    own[OBSERVATIONS] = result[0]
                stepping += clock() - between
        except Exception:
            for rollout in rollouts:
                check_rollout(rollout, t)  # a NaN is the likely cause of another error
            raise
        self.row_states = states
        for rollout, own in zip(rollouts, states, strict=True):
            for name, x in own.items():
                rollout[name][-1] = x
        stats.seconds['act'] += acting
        stats.seconds['env'] += stepping
        for rollout in rollouts:
            check_rollout(rollout)
        return [FillResult()] * len(groups)
