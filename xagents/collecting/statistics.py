"""Running statistics of observations and rewards, and scaling with them."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from xagents.collecting.rollouts import Rollout
from xagents.envs.interface import Envs
from xagents.envs.normalisation import ObservationNormalizer, RewardNormalizer
from xagents.options.agents import AgentOptions


def normalizer_for(envs: Envs) -> ObservationNormalizer:
    """Return an empty normaliser of the observations of environments."""
    encoder = envs.encoder
    shape = (encoder.n_floats,) if encoder.images else envs.observation_space.shape
    return ObservationNormalizer(shape, envs.n_mask, has_images=bool(encoder.images))


@dataclass(eq=False)
class Statistics:
    """Running statistics of observations and rewards; each is None if the agent does not normalise it.

    Args:
        observations: the normaliser of observations.
        rewards: the normaliser of rewards.
        reward_scale: factor on every reward.
        raw_dtype: dtype of raw observations.
    """

    observations: ObservationNormalizer | None = None
    rewards: RewardNormalizer | None = None
    reward_scale: float = 1.0
    raw_dtype: Any = np.float32

    @classmethod
    def from_options(cls, envs: Envs, options: AgentOptions) -> Self:
        """Return empty statistics for the options of an agent."""
        observations = normalizer_for(envs) if options.normalize_obs else None
        rewards = RewardNormalizer(envs.n_envs, options.gamma) if options.normalize_reward else None
        return cls(observations, rewards, options.reward_scale, envs.observation_space.dtype)

    @property
    def dtype(self) -> Any:
        """The dtype of the result of `prepare`."""
        # bytes of a vector and images stay bytes
        return np.float32 if self.observations and self.raw_dtype != np.int8 else self.raw_dtype

    @property
    def is_empty(self) -> bool:
        """Whether the statistics have no data yet."""
        return not any(part.statistics.count for part in self.parts().values())

    def parts(self) -> dict[str, Any]:
        """Return the parts that have a state, by their names in checkpoints."""
        pairs = {'observation_statistics': self.observations, 'reward_statistics': self.rewards}
        return {name: part for name, part in pairs.items() if part is not None}

    def copy(self) -> Self:
        """Return an independent copy."""
        return copy.deepcopy(self)

    def sync(self, other: Statistics) -> None:
        """Load the state of other statistics of the same kind."""
        if other is not self:
            source_parts = other.parts()
            for name, part in self.parts().items():
                part.load(source_parts[name].state())

    def prepare(self, observations: np.ndarray) -> np.ndarray:
        """Return encoded observations [..., *D] as network input, normalised if there is a normaliser."""
        return self.observations(observations) if self.observations else observations

    def scale_rewards(self, rewards: np.ndarray) -> np.ndarray:
        """Return scaled and normalised rewards, for raw rewards of any shape."""
        if self.reward_scale != 1.0:
            rewards = rewards * np.float32(self.reward_scale)
        return self.rewards(rewards) if self.rewards else rewards

    def reset_returns(self, lost: np.ndarray) -> None:
        """Reset the discounted returns of lost environments, bool [N], whose episodes ended early."""
        if self.rewards:
            self.rewards.returns[lost] = 0.0

    def observe_rewards(self, rollout: Rollout, envs: slice = slice(None)) -> None:
        """Update with the raw rewards of a rollout, whose columns are the environments `envs`."""
        if self.rewards:
            ended = rollout['terminated'] | rollout['truncated']
            self.rewards.update(rollout['rewards'] * self.reward_scale, ended, rollout['valid'], envs)

    def observe(self, rollout: Rollout) -> None:
        """Update with the raw observations of a rollout."""
        if self.observations:
            self.observations.update(rollout['observations'][:-1])
