"""A policy of random legal actions, for checks of environments. Does not load TensorFlow."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
from gymnasium.vector.utils import concatenate, create_empty_array

from xagents.collecting.policies import Policy
from xagents.envs.interface import Envs
from xagents.envs.spaces import ActionDecoder
from xagents.networks.acting import ILLEGAL
from xagents.networks.sampling import sampler_for


class RandomPolicy(Policy):
    """A policy that draws uniform actions, of those that are legal. Unbounded elements have a normal distribution.

    Args:
        envs: the environments, whose observations may contain action masks.
        seed: the seed of the actions.
    """

    def __init__(self, envs: Envs, seed: int = 0):
        self._space, self._decode = copy.deepcopy(envs.action_space), ActionDecoder(envs.action_space)
        self._space.seed(seed)
        self._encoder = envs.encoder
        self._sampler = sampler_for(envs.action_space) if envs.n_mask else None
        self.columns = {'actions': self._decode.action_spec}

    def __call__(self, observations: np.ndarray, noise: Any, /, **others: Any) -> dict[str, np.ndarray]:
        """Return `actions` [N, …] for noise of `draw_noise`."""
        if self._sampler is None:
            return {'actions': noise}
        masks = self._encoder.masks(observations)
        return {'actions': self._sampler.sample([np.where(masks > 0, np.float32(0), ILLEGAL)], noise)}

    def draw_noise(self, rng: np.random.Generator, shape: tuple[int, ...]) -> Any:
        """Return random actions of the policy [..., N, …], or noise for legal ones."""
        if self._sampler is not None:
            return self._sampler.draw_noise(rng, shape)
        n = int(np.prod(shape))
        empty: Any = create_empty_array(self._space, n=n)
        drawn = self._decode.inverse(concatenate(self._space, [self._space.sample() for _ in range(n)], empty))
        return drawn.reshape(*shape, *drawn.shape[1:])
