"""Putting fragments together to a rollout: by slot, never by arrival."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence

import numpy as np

from xagents.collecting.explorer import Block, Filled, Order, Tally
from xagents.collecting.rollouts import Rollout
from xagents.explorers.fragments import Fragment
from xagents.explorers.slots import Arrived, Slot


class Joiner:
    """Writes fragments into rollouts, and counts what they tell.

    Args:
        slots: whose fragments they are.
        lags: whether they may be of several orders, and two of one slot.
    """

    def __init__(self, slots: Sequence[Slot], lags: bool):
        self._slots, self._lags, self._n_envs = slots, lags, slots[-1].range.stop
        # whose fragment each slot's columns held last, and which of it
        self._held: dict[int, tuple[int, int]] = {}
        self._counted = time.perf_counter()

    def join(
        self, batch: Sequence[Arrived], rollout: Rollout, order: Order, tally: Tally, fill: int, seconds: float
    ) -> Filled:
        """Put as many fragments as there are slots into a rollout, and count what they tell.

        Args:
            batch: the fragments, in the order in which they are learned from.
            rollout: to be written.
            order: that the rollout is filled by.
            tally: that counts.
            fill: number of the rollout.
            seconds: for which they were waited for.
        """
        lost, moved = np.zeros(self._n_envs, bool), np.zeros(self._n_envs, bool)
        blocks = []
        for (slot, given, fragment, sequence, anew), place in zip(batch, self._places(batch), strict=True):
            for name, column in fragment.columns.items():
                rollout[name][:, place.range] = column
            lost[slot.range] |= anew
            before = slot.index, sequence - 1
            moved[place.range] = anew or self._held.get(place.index, before) != before
            self._held[place.index] = slot.index, sequence
            blocks.append(Block(place.range, slot.range, given.statistics))
            self._drift(slot, fragment, order)
        self._count([arrived.fragment for arrived in batch], rollout, tally, seconds)
        if self._lags:
            lags = [fill - arrived.order.fill for arrived in batch]
            tally.metrics |= {'explorers/lag': sum(lags) / len(lags), 'explorers/most_lag': float(max(lags))}
        return Filled(lost if lost.any() else None, moved, tuple(blocks) if self._lags else ())

    def _places(self, batch: Sequence[Arrived]) -> list[Slot]:
        """Return the slot whose columns each fragment gets: its own where that is free."""
        firsts = {arrived.slot.index: i for i, arrived in reversed([*enumerate(batch)])}
        free = iter([slot for slot in self._slots if slot.index not in firsts])
        return [a.slot if firsts[a.slot.index] == i else next(free) for i, a in enumerate(batch)]

    def _drift(self, slot: Slot, fragment: Fragment, order: Order) -> None:
        """Let the policy's noise have the memory that a fragment ended with."""
        exploration, drift = order.policy.exploration, fragment.drift
        if drift is None or exploration is None or not len(drift):
            return
        x = exploration.state()['x']
        x = x if len(x) else np.zeros((self._n_envs, drift.shape[1]), np.float32)
        x[slot.range] = drift
        exploration.load({'x': x})

    def _count(self, fragments: Sequence[Fragment], rollout: Rollout, tally: Tally, seconds: float) -> None:
        steps = tally.steps + np.cumsum(np.count_nonzero(rollout['valid'], 1))
        for e in sorted((e for fragment in fragments for e in fragment.episodes), key=lambda e: (e.step, e.env)):
            tally.episodes.append(dataclasses.replace(e, step=int(steps[e.step])))
        tally.steps, now = int(steps[-1]), time.perf_counter()
        for name in ('env', 'act'):
            tally.seconds[name] += sum(fragment.seconds[name] for fragment in fragments) / len(fragments)
        tally.seconds['wait'] = tally.seconds.get('wait', 0.0) + seconds
        busy = sum(fragment.seconds['busy'] for fragment in fragments) / len(fragments)
        tally.metrics['explorers/busy'] = busy / (now - self._counted if self._lags else seconds)
        self._counted = now
