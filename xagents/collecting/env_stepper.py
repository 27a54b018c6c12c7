"""Who explores: environments that collect when they are ordered to. Loads no TensorFlow.

An order is the whole cause of what is collected: whoever has the same order, and environments that stand where these
stood, collects the same. An explorer draws no random numbers and keeps no statistics.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np

from xagents.collecting.finite import check_rollout
from xagents.collecting.policies import Policy
from xagents.collecting.rollouts import Rollout
from xagents.collecting.statistics import Statistics
from xagents.envs.interface import Envs, EpisodeEnd
from xagents.envs.snapshots.write import Snapshot
from xagents.envs.spaces import ActionDecoder
from xagents.pipeline.context import EndedEpisode

T = TypeVar('T')
# what stops before each step of the environments, and returns something at its end
StepGenerator = Generator[None, None, T]


class CollectRequest(NamedTuple):
    """What makes a rollout, together with where the environments stand.

    Attributes:
        policy: chooses the actions.
        statistics: through which it looks at observations; they learn nothing here.
        noise: of all actions, [⌈T / k⌉, N, …], where k is the policy's `noise_repeat`; None where it takes none.
        schedule: the values that a run's schedules have now.
    """

    policy: Policy
    statistics: Statistics
    noise: np.ndarray | None
    schedule: Mapping[str, Any]


@dataclass
class CollectStats:
    """What collecting counts, until somebody begins a new tally.

    Attributes:
        episodes: that ended; `step` and `time` are those since the tally began.
        steps: environment steps, all environments together, without rows that only reset.
        seconds: that environments and acting took.
        row: of the rollout that is being written.
        metrics: what explorers elsewhere tell of themselves, by name.
        messages: what is said of them, a line each.
    """

    episodes: list[EndedEpisode] = field(default_factory=list)
    steps: int = 0
    row: int = 0
    metrics: dict[str, float] = field(default_factory=dict)
    messages: list[str] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=lambda: {'env': 0.0, 'act': 0.0})

    def add(self, episodes: list[EpisodeEnd], seconds: float) -> None:
        """Add episodes that ended, at the present step and after `seconds`."""
        self.episodes += [
            EndedEpisode(e.reward, e.length, e.success, self.steps, seconds, e.env, e.team) for e in episodes
        ]


class StepBlock(NamedTuple):
    """Columns of a rollout that one explorer has collected, by an order of its own.

    Attributes:
        columns: which they are.
        envs: of which environments; none is in two blocks at the same time, and a range may be in two of them.
        statistics: through which it looked at observations.
    """

    columns: slice
    envs: slice
    statistics: Statistics


class FillResult(NamedTuple):
    """How a rollout was filled.

    Attributes:
        lost: bool [N], environments that were lost and began anew before it; None where none was.
        discontinuous: bool [N], columns that do not go on where those of the last rollout ended; None where all do.
        blocks: of a rollout of several orders, in the order in which they are learned from; empty where one order has
            made all of it, a column for each environment.
    """

    lost: np.ndarray | None = None
    discontinuous: np.ndarray | None = None
    blocks: tuple[StepBlock, ...] = ()


class EnvStepper(Protocol):
    """What a collector needs of who explores for it, in this process or elsewhere."""

    # [N, *D], what the environments show now; None where they begin anew
    observations: np.ndarray | None

    def reset(self, seed: int) -> None:
        """Begin a new episode in every environment."""

    def fill(self, rollout: Rollout, request: CollectRequest, stats: CollectStats) -> FillResult:
        """Write what an order makes into a rollout, raw, and count it."""

    def snapshot(self) -> Snapshot | None:
        """Return a copy of the environments as they stand; None where they begin anew, or cannot be copied."""


class LocalEnvStepper:
    """Environments in this process."""

    def __init__(self, envs: Envs):
        self.envs, self.decode = envs, ActionDecoder(envs.action_space)
        self.observations: np.ndarray | None = None

    def reset(self, seed: int) -> None:
        """Begin a new episode in every environment."""
        self.observations = self.envs.reset(seed)

    def snapshot(self) -> Snapshot | None:
        """Return a copy of the environments as they stand; None where they begin anew, or cannot be copied."""
        return None if self.observations is None else self.envs.snapshot()

    def fill(self, rollout: Rollout, request: CollectRequest, stats: CollectStats) -> FillResult:
        """Write what an order makes into a rollout, raw, and count it.

        Raises:
            NotFiniteError: where observations or rewards are not finite; the environments begin anew then.
        """
        return run_to_end(self.iter_fill(rollout, request, stats))

    def iter_fill(self, rollout: Rollout, request: CollectRequest, stats: CollectStats) -> StepGenerator[FillResult]:
        """Do as `fill`, and stop before each step until those who share the environments have said theirs, too."""
        envs, clock = self.envs, time.perf_counter
        policy, statistics, noise, schedule = request
        assert self.observations is not None
        observations, self.observations = np.array(self.observations), None  # after an error they begin anew
        acting, stepping, start = 0.0, 0.0, clock()
        t = 0
        try:
            for t in range(len(rollout['valid'])):
                before = clock()
                rollout['observations'][t], stats.row = observations, t
                prepared = statistics.prepare(observations)
                row = None if noise is None else noise[t // policy.noise_repeat]
                chosen = policy(prepared, row, valid=envs.valid, **schedule)
                for name in policy.columns:
                    rollout[name][t] = chosen[name]
                actions = self.decode(chosen['actions'])
                rollout['valid'][t] = envs.valid
                envs.set_actions(actions)
                acting += clock() - before
                yield
                before = clock()
                observations, *given = envs.step(actions)
                rollout['rewards'][t], rollout['terminated'][t], rollout['truncated'][t] = given
                stats.steps += int(np.count_nonzero(rollout['valid'][t]))
                episodes = envs.pop_episodes()
                if episodes:
                    stats.add(episodes, clock() - start)
                stepping += clock() - before
        except Exception:
            check_rollout(rollout, t)  # an error after a NaN is the NaN's
            raise
        self.observations = rollout['observations'][-1] = observations
        stats.seconds['act'] += acting
        stats.seconds['env'] += stepping
        check_rollout(rollout)
        return FillResult()


def run_to_end(steps: StepGenerator[T]) -> T:
    """Go on to the end of something that is done step by step, and return what it returns."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value
