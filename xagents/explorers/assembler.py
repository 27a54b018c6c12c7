"""Assemble fragments into a rollout, ordered by environment and not by arrival."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping, Sequence

import numpy as np

from xagents.collecting.env_stepper import CollectStats, FillResult, StepBlock
from xagents.collecting.policies import Policy
from xagents.collecting.rollouts import Rollout
from xagents.explorers.assignments import EnvShard, ReceivedFragment
from xagents.explorers.fragments import Fragment
from xagents.system.arrays import strip_prefix


class RolloutAssembler:
    """A writer of fragments into rollouts that also updates the statistics of collecting.

    Args:
        shards: all shards, in order.
        allows_lag: whether a rollout may contain fragments from different iterations, and several of one shard.
    """

    def __init__(self, shards: Sequence[EnvShard], allows_lag: bool):
        self._shards, self._allows_lag = shards, allows_lag
        self._n_rows = {name: columns.stop for name, columns in shards[-1].columns.items()}
        # by shard whose columns were written: the shard and the sequence number of the fragment that was written last
        self._last_fragments: dict[int, tuple[int, int]] = {}
        self._last_count_time = time.perf_counter()

    def assemble(
        self,
        batch: Sequence[ReceivedFragment],
        rollouts: Mapping[str, Rollout],
        policies: Mapping[str, Policy],
        stats: CollectStats,
        seconds: float,
    ) -> dict[str, FillResult]:
        """Write one fragment per shard into the rollout of each policy, and update the statistics.

        Args:
            batch: M fragments, in the order in which the learner uses them.
            rollouts: the rollouts to write.
            policies: the policies of the requests that these rollouts answer.
            stats: the statistics to update.
            seconds: the time for which the learner waited for the fragments.

        Returns:
            The results of the fill: reset rows, columns that do not continue their last rollout, and blocks.
        """
        continuous, targets = [], self._target_shards(batch)
        for received, target in zip(batch, targets, strict=True):
            before = received.shard.index, received.sequence - 1
            continuous.append(self._last_fragments.get(target.index, before) == before and not received.envs_reset)
            self._last_fragments[target.index] = received.shard.index, received.sequence
        results = {}
        for name, rollout in rollouts.items():
            lost, discontinuous = np.zeros(self._n_rows[name], bool), np.zeros(self._n_rows[name], bool)
            blocks = []
            for received, target, continues in zip(batch, targets, continuous, strict=True):
                own, columns = received.shard.columns[name], target.columns[name]
                fragment = strip_prefix(name, received.fragment.columns)
                for column in rollout:
                    rollout[column][:, columns] = fragment[column]
                lost[own] |= received.envs_reset
                discontinuous[columns] = not continues
                blocks.append(StepBlock(columns, own, received.assignment.statistics[name]))
                self._restore_noise_state(name, own, received.fragment.noise_states.get(name), policies[name])
            kept = tuple(blocks) if self._allows_lag else ()
            results[name] = FillResult(lost if lost.any() else None, discontinuous, kept)
        self._count([received.fragment for received in batch], rollouts, stats, seconds)
        return results

    def _target_shards(self, batch: Sequence[ReceivedFragment]) -> list[EnvShard]:
        """Return the shard whose columns each fragment is written to.

        The first fragment of a shard is written to its own columns. Further ones get the columns of shards that have no
        fragment in the batch.
        """
        firsts = {received.shard.index: i for i, received in reversed([*enumerate(batch)])}
        free = iter([shard for shard in self._shards if shard.index not in firsts])
        return [a.shard if firsts[a.shard.index] == i else next(free) for i, a in enumerate(batch)]

    def _restore_noise_state(self, name: str, columns: slice, noise_state: np.ndarray | None, policy: Policy) -> None:
        """Set the state of a policy's exploration noise in some columns to the state at the end of a fragment."""
        exploration = policy.exploration
        if noise_state is None or exploration is None or not len(noise_state):
            return
        x = exploration.state()['x']
        x = x if len(x) else np.zeros((self._n_rows[name], noise_state.shape[1]), np.float32)
        x[columns] = noise_state
        exploration.load({'x': x})

    def _count(
        self, fragments: Sequence[Fragment], rollouts: Mapping[str, Rollout], stats: CollectStats, seconds: float
    ) -> None:
        valid = np.concatenate([rollout['valid'] for rollout in rollouts.values()], 1)
        steps = stats.steps + np.cumsum(np.count_nonzero(valid, 1))
        for e in sorted((e for fragment in fragments for e in fragment.episodes), key=lambda e: (e.step, e.env)):
            stats.episodes.append(dataclasses.replace(e, step=int(steps[e.step])))
        stats.steps, now = int(steps[-1]), time.perf_counter()
        for name in ('env', 'act'):
            stats.seconds[name] += sum(fragment.seconds[name] for fragment in fragments) / len(fragments)
        stats.seconds['wait'] = stats.seconds.get('wait', 0.0) + seconds
        busy = sum(fragment.seconds['busy'] for fragment in fragments) / len(fragments)
        stats.metrics['explorers/busy'] = busy / (now - self._last_count_time if self._allows_lag else seconds)
        self._last_count_time = now
