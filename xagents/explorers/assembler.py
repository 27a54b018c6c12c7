"""Putting fragments together to a rollout: by slot, never by arrival."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence

import numpy as np

from xagents.collecting.env_stepper import CollectRequest, CollectStats, FillResult, StepBlock
from xagents.collecting.rollouts import Rollout
from xagents.explorers.assignments import EnvShard, ReceivedFragment
from xagents.explorers.fragments import Fragment


class RolloutAssembler:
    """Writes fragments into rollouts, and counts what they tell.

    Args:
        shards: whose fragments they are.
        allows_lag: whether they may be of several orders, and two of one slot.
    """

    def __init__(self, shards: Sequence[EnvShard], allows_lag: bool):
        self._shards, self._allows_lag, self._n_envs = shards, allows_lag, shards[-1].range.stop
        # whose fragment each slot's columns held last, and which of it
        self._last_fragments: dict[int, tuple[int, int]] = {}
        self._last_count_time = time.perf_counter()

    def assemble(
        self,
        batch: Sequence[ReceivedFragment],
        rollout: Rollout,
        request: CollectRequest,
        stats: CollectStats,
        rollout_index: int,
        seconds: float,
    ) -> FillResult:
        """Put as many fragments as there are slots into a rollout, and count what they tell.

        Args:
            batch: the fragments, in the order in which they are learned from.
            rollout: to be written.
            request: that the rollout is filled by.
            stats: that counts.
            rollout_index: number of the rollout.
            seconds: for which they were waited for.
        """
        lost, discontinuous = np.zeros(self._n_envs, bool), np.zeros(self._n_envs, bool)
        blocks = []
        for (shard, assignment, fragment, sequence, envs_reset), target in zip(
            batch, self._target_shards(batch), strict=True
        ):
            for name, column in fragment.columns.items():
                rollout[name][:, target.range] = column
            lost[shard.range] |= envs_reset
            before = shard.index, sequence - 1
            discontinuous[target.range] = envs_reset or self._last_fragments.get(target.index, before) != before
            self._last_fragments[target.index] = shard.index, sequence
            blocks.append(StepBlock(target.range, shard.range, assignment.statistics))
            self._restore_noise_state(shard, fragment, request)
        self._count([received.fragment for received in batch], rollout, stats, seconds)
        if self._allows_lag:
            lags = [rollout_index - received.assignment.rollout_index for received in batch]
            stats.metrics |= {'explorers/lag': sum(lags) / len(lags), 'explorers/most_lag': float(max(lags))}
        return FillResult(lost if lost.any() else None, discontinuous, tuple(blocks) if self._allows_lag else ())

    def _target_shards(self, batch: Sequence[ReceivedFragment]) -> list[EnvShard]:
        """Return the slot whose columns each fragment gets: its own where that is free."""
        firsts = {received.shard.index: i for i, received in reversed([*enumerate(batch)])}
        free = iter([shard for shard in self._shards if shard.index not in firsts])
        return [a.shard if firsts[a.shard.index] == i else next(free) for i, a in enumerate(batch)]

    def _restore_noise_state(self, shard: EnvShard, fragment: Fragment, request: CollectRequest) -> None:
        """Let the policy's noise have the memory that a fragment ended with."""
        exploration, noise_state = request.policy.exploration, fragment.noise_state
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
