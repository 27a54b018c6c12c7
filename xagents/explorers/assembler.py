"""Assemble fragments into a rollout, ordered by environment and not by arrival."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence

import numpy as np

from xagents.collecting.env_stepper import CollectStats, FillResult, StepBlock
from xagents.collecting.policies import Policy
from xagents.collecting.rollouts import Rollout
from xagents.explorers.assignments import EnvShard, ReceivedFragment
from xagents.explorers.fragments import Fragment


class RolloutAssembler:
    """A writer of fragments into rollouts that also updates the statistics of collecting.

    Args:
        shards: all shards, in order.
        allows_lag: whether a rollout may contain fragments from different iterations, and several of one shard.
    """

    def __init__(self, shards: Sequence[EnvShard], allows_lag: bool):
        self._shards, self._allows_lag, self._n_envs = shards, allows_lag, shards[-1].range.stop
        # by shard whose columns were written: the shard and the sequence number of the fragment that was written last
        self._last_fragments: dict[int, tuple[int, int]] = {}
        self._last_count_time = time.perf_counter()

    def assemble(
        self, batch: Sequence[ReceivedFragment], rollout: Rollout, policy: Policy, stats: CollectStats, seconds: float
    ) -> FillResult:
        """Write one fragment per shard into a rollout and update the statistics.

        Args:
            batch: M fragments, in the order in which the learner uses them.
            rollout: the rollout to write.
            policy: the policy of the request that this rollout answers.
            stats: the statistics to update.
            seconds: the time for which the learner waited for the fragments.

        Returns:
            The result of the fill: reset environments, columns that do not continue their last rollout, and blocks.
        """
        lost, discontinuous = np.zeros(self._n_envs, bool), np.zeros(self._n_envs, bool)
        blocks = []
        for received, target in zip(batch, self._target_shards(batch), strict=True):
            shard, assignment, fragment, sequence, envs_reset = received
            for name, column in fragment.columns.items():
                rollout[name][:, target.range] = column
            lost[shard.range] |= envs_reset
            before = shard.index, sequence - 1
            discontinuous[target.range] = envs_reset or self._last_fragments.get(target.index, before) != before
            self._last_fragments[target.index] = shard.index, sequence
            blocks.append(StepBlock(target.range, shard.range, assignment.statistics))
            self._restore_noise_state(shard, fragment, policy)
        self._count([received.fragment for received in batch], rollout, stats, seconds)
        return FillResult(lost if lost.any() else None, discontinuous, tuple(blocks) if self._allows_lag else ())

    def _target_shards(self, batch: Sequence[ReceivedFragment]) -> list[EnvShard]:
        """Return the shard whose columns each fragment is written to.

        The first fragment of a shard is written to its own columns. Further ones get the columns of shards that have no
        fragment in the batch.
        """
        firsts = {received.shard.index: i for i, received in reversed([*enumerate(batch)])}
        free = iter([shard for shard in self._shards if shard.index not in firsts])
        return [a.shard if firsts[a.shard.index] == i else next(free) for i, a in enumerate(batch)]

    def _restore_noise_state(self, shard: EnvShard, fragment: Fragment, policy: Policy) -> None:
        """Set the state of the policy's exploration noise to the state at the end of a fragment."""
        exploration, noise_state = policy.exploration, fragment.noise_state
        if noise_state is None or exploration is None or not len(noise_state):
            return
        x = exploration.state()['x']
        x = x if len(x) else np.zeros((self._n_envs, noise_state.shape[1]), np.float32)
        x[shard.range] = noise_state
        exploration.load({'x': x})

    def _count(self, fragments: Sequence[Fragment], rollout: Rollout, stats: CollectStats, seconds: float) -> None:
        steps = stats.steps + np.cumsum(np.count_nonzero(rollout['valid'], 1))
        for e in sorted((e for fragment in fragments for e in fragment.episodes), key=lambda e: (e.step, e.env)):
            stats.episodes.append(dataclasses.replace(e, step=int(steps[e.step])))
        stats.steps, now = int(steps[-1]), time.perf_counter()
        for name in ('env', 'act'):
            stats.seconds[name] += sum(fragment.seconds[name] for fragment in fragments) / len(fragments)
        stats.seconds['wait'] = stats.seconds.get('wait', 0.0) + seconds
        busy = sum(fragment.seconds['busy'] for fragment in fragments) / len(fragments)
        stats.metrics['explorers/busy'] = busy / (now - self._last_count_time if self._allows_lag else seconds)
        self._last_count_time = now
