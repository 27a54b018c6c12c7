"""What collecting learns of observations and rewards: running statistics, and scaling by them."""

from __future__ import annotations

import copy
from typing import Any, Self

import numpy as np

from xagents.collecting.rollouts import Rollout
from xagents.envs.interface import Envs
from xagents.envs.normalisation import ObservationNormalizer, RewardNormalizer
from xagents.options.agents import AgentOptions


class Statistics:
    """Running statistics of observations and rewards, each None where the agent does not normalise them.

    Args:
        observations: normalises observations.
        rewards: normalises rewards.
        reward_scale: factor on every reward.
        dtype: of observations as the environments give them.
    """

    def __init__(
        self,
        observations: ObservationNormalizer | None = None,
        rewards: RewardNormalizer | None = None,
        reward_scale: float = 1.0,
        dtype: Any = np.float32,
    ):
        self.observations, self.rewards, self.reward_scale, self._dtype = observations, rewards, reward_scale, dtype

    @classmethod
    def from_options(cls, envs: Envs, options: AgentOptions) -> Self:
        """Return the empty statistics that an agent's options ask for."""
        observations = ObservationNormalizer(envs.observation_space.shape) if options.normalize_obs else None
        rewards = RewardNormalizer(envs.n_envs, options.gamma) if options.normalize_reward else None
        return cls(observations, rewards, options.reward_scale, envs.observation_space.dtype)

    @property
    def dtype(self) -> Any:
        """The dtype of what `prepare` returns."""
        return np.float32 if self.observations else self._dtype

    @property
    def is_empty(self) -> bool:
        """Whether nothing was learned yet."""
        return not any(part.statistics.count for part in self.parts().values())

    def parts(self) -> dict[str, Any]:
        """Return what has a state, by the names that it has in checkpoints."""
        pairs = {'observation_statistics': self.observations, 'reward_statistics': self.rewards}
        return {name: part for name, part in pairs.items() if part is not None}

    def copy(self) -> Self:
        """Return statistics that know the same and go on by themselves."""
        return copy.deepcopy(self)

    def sync(self, other: Statistics) -> None:
        """Take over what other statistics of the same kind know."""
        if other is not self:
            source_parts = other.parts()
            for name, part in self.parts().items():
                part.load(source_parts[name].state())

    def prepare(self, observations: np.ndarray) -> np.ndarray:
        """Return encoded observations [..., *D] as networks see them."""
        return self.observations(observations) if self.observations else observations

    def scale_rewards(self, rewards: np.ndarray) -> np.ndarray:
        """Return raw rewards, of any shape, as they are learned from."""
        if self.reward_scale != 1.0:
            rewards = rewards * np.float32(self.reward_scale)
        return self.rewards(rewards) if self.rewards else rewards

    def reset_returns(self, lost: np.ndarray) -> None:
        """Begin the discounted returns of environments, bool [N], anew: their episodes were broken off."""
        if self.rewards:
            self.rewards.returns[lost] = 0.0

    def observe_rewards(self, rollout: Rollout, envs: slice = slice(None)) -> None:
        """Learn from the raw rewards of a rollout, whose columns are these environments."""
        if self.rewards:
            ended = rollout['terminated'] | rollout['truncated']
            self.rewards.update(rollout['rewards'] * self.reward_scale, ended, rollout['valid'], envs)

    def observe(self, rollout: Rollout) -> None:
        """Learn from the raw observations of a rollout."""
        if self.observations:
            self.observations.update(rollout['observations'][:-1])
