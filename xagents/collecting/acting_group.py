"""A policy and the rows of environments in which it acts. Does not load TensorFlow."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from xagents.collecting.env_stepper import CollectRequest, FillResult
from xagents.collecting.opponents import OpponentPool
from xagents.collecting.policies import Policy
from xagents.collecting.random_streams import RandomStreams
from xagents.collecting.rollouts import OBSERVATIONS, Rollout, RowState, allocate_rollout
from xagents.collecting.statistics import Statistics
from xagents.envs.interface import INFO, Envs, info_column
from xagents.envs.spaces import ActionDecoder
from xagents.system.arrays import add_prefix, strip_prefix

# columns of a rollout that update the statistics of rewards
REWARD_COLUMNS = ('rewards', 'terminated', 'truncated', 'valid')


class ActingGroup:
    """The rows of one policy: how it acts in them, and what is known of their observations and rewards.

    Args:
        envs: the rows, one of the groups of the environments (`Envs.groups`).
        policy: the policy.
        statistics: running statistics of observations and rewards; each rollout updates them.
        streams: random generators by purpose; the group uses `act`.
        raw_rollouts: whether rollouts contain raw observations and rewards, which the agent normalises at each update.
            If False, `finish` normalises observations with the statistics that the policy acted with.

    Attributes:
        restarted: whether the rows do not continue those of the last rollout.
        opponents: players of the other seats in games; None for other environments.
    """

    def __init__(
        self, envs: Envs, policy: Policy, statistics: Statistics, streams: RandomStreams, raw_rollouts: bool = False
    ):
        self.envs, self.policy, self.statistics = envs, policy, statistics
        self.streams, self.raw_rollouts = streams, raw_rollouts
        self.decode = ActionDecoder(envs.action_space)
        self.restarted = False
        self.opponents: OpponentPool | None = None
        self._rollouts: list[Rollout | None] = [None]

    def act(self, row_state: RowState, rng: np.random.Generator | None = None) -> tuple[np.ndarray, RowState]:
        """Return environment actions [N, …] and the memory after them: sampled with `rng`, or greedy without it.

        Args:
            row_state: the current observations and memory.
            rng: the generator of the noise.

        Returns:
            The actions, and a dict with `memory` [N, M] if the policy has memory.
        """
        observations = row_state[OBSERVATIONS]
        noise = None if rng is None else self.policy.draw_noise(rng, (len(observations),))
        columns, after = self.policy.step(self.statistics.prepare(observations), noise, row_state, self.envs.valid)
        return self.decode(columns['actions']), after

    def begin(
        self, n_steps: int, schedule: Mapping[str, Any], env_params: Mapping[str, Any]
    ) -> tuple[Rollout, CollectRequest]:
        """Return the arrays of the next rollout, and the request for it with its noise."""
        rows = math.ceil(n_steps / self.policy.noise_repeat)
        noise = self.policy.draw_exploration(self.streams('act'), (rows, self.envs.n_envs))
        acting = self.policy, self.statistics
        return self._next_arrays(n_steps), CollectRequest(*acting, noise, schedule, self.opponents, env_params)

    def finish(self, rollout: Rollout, result: FillResult) -> Rollout:
        """Update the statistics with a rollout, and return the rollout for learning."""
        statistics = self.statistics
        if result.lost is not None:
            statistics.reset_returns(result.lost)
        self._observe_rewards(rollout, result)
        if self.raw_rollouts:
            restarted = np.full(self.envs.n_envs, self.restarted)
            for others in (result.lost, result.discontinuous):
                restarted |= False if others is None else others
            batch = {**rollout, 'restarted': restarted}
            self.restarted = False
        else:
            prepared = self._prepare_observations(rollout['observations'], result)
            batch = {**rollout, 'observations': prepared, 'rewards': statistics.scale_rewards(rollout['rewards'])}
        statistics.observe(rollout)
        return batch

    def _observe_rewards(self, rollout: Rollout, result: FillResult) -> None:
        """Update the statistics with the rewards, one block after the other."""
        if not result.blocks:
            self.statistics.observe_rewards(rollout)
        for block in result.blocks:
            columns = {name: rollout[name][:, block.columns] for name in REWARD_COLUMNS}
            self.statistics.observe_rewards(columns, block.envs)

    def _prepare_observations(self, observations: np.ndarray, result: FillResult) -> np.ndarray:
        """Return observations [T + 1, N, *D], normalised as for acting."""
        if not result.blocks:
            return self.statistics.prepare(observations)
        prepared = np.empty(observations.shape, self.statistics.dtype)
        for block in result.blocks:
            prepared[:, block.columns] = block.statistics.prepare(observations[:, block.columns])
        return prepared

    def keep_rollouts(self, n: int) -> None:
        """Keep the arrays of the last `n` rollouts; `begin` returns only older arrays."""
        self._rollouts = [*[None] * (n - 1), self._rollouts[-1]]

    def _next_arrays(self, n_steps: int) -> Rollout:
        """Return the arrays of the oldest rollout, to be overwritten."""
        oldest = self._rollouts.pop(0)
        if oldest is None or len(oldest['valid']) != n_steps or not self._has_infos(oldest):
            oldest = allocate_rollout(self.envs, n_steps, self.policy.columns, self.policy.memory_units)
        self._rollouts.append(oldest)
        return oldest

    def _has_infos(self, rollout: Rollout) -> bool:
        """Return whether a rollout has exactly the columns of infos that are selected now."""
        return [info_column(name) for name in self.envs.infos.names] == [n for n in rollout if n.startswith(INFO)]

    def parts(self) -> dict[str, Any]:
        """Return the parts that have a state, by their names in checkpoints."""
        return {**self.statistics.parts(), **self.policy.parts()}

    def state(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Return the state of the group: arrays by name, and a dict for JSON."""
        arrays: dict[str, np.ndarray] = {}
        for name, part in self.parts().items():
            arrays |= add_prefix(name, {key: np.array(value) for key, value in part.state().items()})
        return arrays, {'rngs': self.streams.state(), 'restarted': self.restarted}

    def load(self, arrays: Mapping[str, np.ndarray], record: Mapping[str, Any]) -> None:
        """Load a state; parts without a saved state do not change."""
        for name, part in self.parts().items():
            saved = strip_prefix(name, arrays)
            if saved:
                part.load(saved)
        self.streams.load(record['rngs'])
        self.restarted = record['restarted']
