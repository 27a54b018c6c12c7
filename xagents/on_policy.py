"""What agents share that learn from the rollout which their present policy has just collected."""

from __future__ import annotations

import functools

import numpy as np

from xagents.agent import BaseAgent
from xagents.rollouts import Columns, Rollout, allocate, fill


class OnPolicy(BaseAgent):
    """Agents that learn from the rollout that their present policy has just collected."""

    def columns(self) -> Columns:
        """Shape and dtype of each column that `policy` returns for one environment."""
        raise NotImplementedError

    @functools.cached_property
    def rollout(self) -> Rollout:
        """The arrays that every rollout is written into."""
        return allocate(self.envs, self.options.n_steps, self.columns())  # type: ignore[attr-defined]

    def collect(self) -> Rollout:
        """Take `n_steps` steps in every environment.

        Returns:
            `observations` [T + 1, N, *D], normalised where asked for; `actions` and the policy's other columns,
            `rewards` (scaled and normalised), `terminated`, `truncated` and `valid` [T, N, …]. A row that is not valid
            only reset its environment. The arrays are overwritten by the next call.
        """
        rollout = self.rollout
        noise = self.draw_noise(self.rng('act'), rollout['valid'].shape)

        def choose(t: int, observations: np.ndarray) -> dict[str, np.ndarray]:
            return self.policy(self.prepare(observations), None if noise is None else noise[t])

        fill(self, rollout, self.columns(), choose)
        return self._normalised(rollout)

    def _normalised(self, rollout: Rollout) -> Rollout:
        """Scale rewards and normalise; observations by the statistics that acting saw, which learn afterwards."""
        self.observe_rewards(rollout)
        rollout['rewards'][...] = self.scale_rewards(rollout['rewards'])
        batch = dict(rollout)
        if self.normalize_observations:
            batch['observations'] = self.prepare(rollout['observations'])
            self.normalize_observations.update(rollout['observations'][:-1])
        return batch
