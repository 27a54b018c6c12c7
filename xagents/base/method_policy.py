"""Policies of custom agents: one that calls the agent's methods, and one that cannot act."""

from __future__ import annotations

import copy
import inspect
from typing import Any, Self

import numpy as np

from xagents.collecting.policies import NoisyPolicy, Policy
from xagents.collecting.rollouts import MEMORY, ColumnSpecs
from xagents.networks.acting import ActingNetwork


class NoPolicy(Policy):
    """The policy of an agent that defines none; such an agent can still train with `train_step`."""

    def __init__(self, name: str, columns: ColumnSpecs):
        self._name, self.columns = name, columns

    def __call__(self, observations: np.ndarray, noise: Any, /, **others: Any) -> dict[str, np.ndarray]:
        """Raise TypeError."""
        raise TypeError(f'{self._name} has no policy')


class MethodPolicy(Policy):
    """A policy that calls `policy` and `draw_noise` of a custom agent; the base policy does the rest of exploring.

    Args:
        agent: the agent with the methods.
        base: the policy that the class of the agent makes.
    """

    def __init__(self, agent: Any, base: Policy):
        self._agent, self._base = agent, base
        self.network, self.columns, self.exploration = agent.actor, base.columns, base.exploration
        self.noise_repeat = base.noise_repeat
        self._checked: set[bool] = set()
        parameters = inspect.signature(agent.policy).parameters
        self._accepted = None if any(p.kind is p.VAR_KEYWORD for p in parameters.values()) else frozenset(parameters)

    def __call__(
        self, observations: np.ndarray, noise: np.ndarray | None, /, *, valid: np.ndarray | None = None, **schedule: Any
    ) -> dict[str, np.ndarray]:
        """Return the result of the agent's `policy`, which receives the schedule values that its signature names."""
        if valid is not None and noise is not None:
            if self.warming_up and isinstance(self._base, NoisyPolicy):
                return {'actions': noise}
            if self.exploration is not None:
                noise = self.exploration(noise, valid)
        others = {k: v for k, v in schedule.items() if k != 'noise' and (self._accepted is None or k in self._accepted)}
        columns = self._agent.policy(observations, noise, **others)
        if (noise is None) not in self._checked:  # greedy and sampled actions may come from different lines
            self._check_actions(columns['actions'], len(observations))
            self._checked.add(noise is None)
            if self.memory_units and MEMORY not in columns:
                name = f'{type(self._agent).__name__}.policy'
                expected = 'expected an argument `memory` [N, M] for the network, and its last output as `memory`'
                raise TypeError(f'{name} returned no memory, {expected}')
        return columns

    def _check_actions(self, actions: Any, n: int) -> None:
        """Check the shape and the type of the first actions: later ones are converted without a check."""
        shape, dtype = self.columns['actions']
        got = np.asarray(actions)
        fits = np.can_cast(got.dtype, dtype, 'same_kind') or np.array_equal(got, got.astype(dtype))
        if got.shape != (n, *shape) or not fits:
            expected = f'{list((n, *shape))} of {np.dtype(dtype)}'
            name = f'{type(self._agent).__name__}.policy'
            raise TypeError(f'{name} returned actions {list(got.shape)} of {got.dtype}, expected {expected}')

    def draw_noise(self, rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray | None:
        """Return the result of the agent's `draw_noise`."""
        return self._agent.draw_noise(rng, shape)

    def draw_exploration(self, rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray | None:
        """Return the result of the agent's `draw_noise`; while warming up, the noise of the base policy."""
        self._base.warming_up = self.warming_up
        return self._base.draw_exploration(rng, shape) if self.warming_up else self.draw_noise(rng, shape)

    def parts(self) -> dict[str, Any]:
        """Return the parts of the base policy."""
        return self._base.parts()

    def with_network(self, network: ActingNetwork) -> Self:
        """Return a policy of another network; it calls the methods of a copy of the agent with that `actor`."""
        other = super().with_network(network)
        agent = other._agent = copy.copy(self._agent)
        agent.__dict__['_actor_policy'] = other._base = self._base.with_network(network)
        agent.actor = network
        return other
