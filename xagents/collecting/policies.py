"""What acts: from observations and noise to actions, by one call of a network. Loads no TensorFlow.

A draw is a function of outputs and noise, so that the noise of a whole rollout is drawn in one call, and whoever has
the same weights, noise and observations acts the same.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, Self

import numpy as np
from gymnasium import spaces

from xagents.collecting.noise_process import OrnsteinUhlenbeckNoise
from xagents.collecting.rollouts import ColumnSpecs
from xagents.envs.spaces import ActionDecoder
from xagents.networks.acting import ActingNetwork, PublishedWeights
from xagents.networks.sampling import ActionSampler, StateDependentSampler, sampler_for


class Policy(ABC):
    """Chooses actions.

    Attributes:
        network: what it asks; None where it asks none.
        columns: shape and dtype, for one environment, of each column that a rollout keeps of it; `actions` is one.
        warming_up: whether any action is as good as another, because nothing is learned yet.
        self_contained: whether its agent acts, plays and evaluates by it alone, so that it can do so without the agent.
        output_units: sizes of its network's outputs.
        noise_repeat: for how many steps of a rollout each row of its noise stands, from the rollout's first step on.
    """

    network: ActingNetwork | None = None
    columns: ColumnSpecs
    warming_up: bool = False
    self_contained: bool = False
    output_units: tuple[int, ...] = ()
    noise_repeat: int = 1
    # what gives its noise a memory while collecting
    exploration: OrnsteinUhlenbeckNoise | None = None

    @abstractmethod
    def __call__(
        self, observations: np.ndarray, noise: np.ndarray | None, /, *, valid: np.ndarray | None = None, **schedule: Any
    ) -> dict[str, np.ndarray]:
        """Return the columns [N, …] by name.

        Args:
            observations: [N, *D], prepared.
            noise: of `draw_noise`, [N, …]; None for greedy actions.
            valid: bool [N], which environments are within an episode, for exploration that has a memory; only
                collecting gives it.
            schedule: the values that a run's schedules have now, by name.
        """

    def draw_noise(self, rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray | None:
        """Return the randomness of `shape` actions; None where a policy needs none."""
        return None

    def draw_exploration(self, rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray | None:
        """Return the randomness of `shape` actions while collecting; `draw_noise` where there is no other."""
        return self.draw_noise(rng, shape)

    @property
    def published_weights(self) -> PublishedWeights:
        """What a policy of the same form takes over by `sync`."""
        assert self.network is not None
        return self.network.published_weights._replace(warming_up=self.warming_up)

    def sync(self, published_weights: PublishedWeights) -> None:
        """Act by what was published, with a network of its own."""
        assert self.network is not None
        self.network.sync(published_weights)
        self.warming_up = published_weights.warming_up

    def parts(self) -> dict[str, Any]:
        """Return what has a state of its own, by the names that it has in checkpoints."""
        return {}

    def to_dict(self) -> dict[str, Any] | None:
        """Return the arguments of `policy_from_dict` for an equal policy, for JSON; None if there are none."""
        return None

    def fits(self, action_space: spaces.Space) -> bool:
        """Return whether its actions are of a space."""
        return True

    def with_network(self, network: ActingNetwork) -> Self:
        """Return the same policy by another network of the same form; its exploration is shared."""
        other = copy.copy(self)
        other.network = network
        return other


class SamplingPolicy(Policy):
    """Draws actions from the distribution that a network describes.

    Args:
        network: from observations to the distribution's parameters.
        distribution: of the actions.
        keeps_outputs: whether a rollout keeps the parameters: all that an update may want to know of the policy that
            acted.
        noise_repeat: for how many steps of a rollout noise stays the same.
    """

    def __init__(self, network: ActingNetwork, distribution: ActionSampler, keeps_outputs: bool, noise_repeat: int = 1):
        self.network, self.distribution, self.keeps_outputs, self.noise_repeat = (
            network,
            distribution,
            keeps_outputs,
            noise_repeat,
        )
        self.output_units = distribution.output_units
        columns: dict[str, Any] = {'actions': (distribution.action_shape, distribution.action_dtype)}
        if keeps_outputs:
            columns |= {name: ((distribution.n_units,), np.dtype(np.float32)) for name in distribution.output_names}
        self.columns = columns

    def __call__(
        self, observations: np.ndarray, noise: np.ndarray | None, /, *, valid: np.ndarray | None = None, **schedule: Any
    ) -> dict[str, np.ndarray]:
        """Return `actions` [N, …], the most probable ones without noise, and the distribution's parameters."""
        assert self.network is not None
        outputs = self.network(observations)
        actions = self.distribution.mode(outputs) if noise is None else self.distribution.sample(outputs, noise)
        return {'actions': actions, **self.distribution.parameters(outputs)}

    def draw_noise(self, rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
        """Return the noise of `shape` actions, [*shape, …]."""
        return self.distribution.draw_noise(rng, shape)

    def to_dict(self) -> dict[str, Any]:
        """Return what makes an equal policy."""
        record = {'kind': 'sampling', 'keeps': self.keeps_outputs}
        if isinstance(self.distribution, StateDependentSampler):
            record |= {'n_features': self.distribution.n_features, 'hold': self.noise_repeat}
        return record


class EpsilonGreedyPolicy(Policy):
    """Takes the action of the highest value, or with probability ε any.

    Args:
        network: from observations to a value for each action.
        n_actions: how many there are.
        epsilon: ε where no schedule gives one.
        ladder: whether environment i of N collects with ε^(1 + 7 i / (N − 1)), from much exploration to next to none
            (Horgan et al. 2018, arXiv:1803.00933, section 4).
    """

    columns: ColumnSpecs = {'actions': ((), np.int32)}

    def __init__(self, network: ActingNetwork, n_actions: int, epsilon: float, ladder: bool = False):
        self.network, self.n_actions, self.epsilon, self.ladder = network, n_actions, epsilon, ladder
        self.output_units = (n_actions,)

    def __call__(
        self, observations: np.ndarray, noise: np.ndarray | None, /, *, valid: np.ndarray | None = None, **schedule: Any
    ) -> dict[str, np.ndarray]:
        """Return `actions` [N], with a draw for each environment; noise is uniform, [N, 2]."""
        assert self.network is not None
        actions = self.network(observations)[0].argmax(1)
        if noise is not None:
            random_actions = np.minimum((noise[:, 1] * self.n_actions).astype(np.int64), self.n_actions - 1)
            actions = np.where(noise[:, 0] < schedule.get('epsilon', self.epsilon), random_actions, actions)
        return {'actions': actions}

    def draw_noise(self, rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
        """Return uniform numbers [*shape, 2]: whether to act at random, and how."""
        return rng.random((*shape, 2), np.float32)

    def draw_exploration(self, rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
        """Return uniform numbers [*shape, 2], the last of `shape` the environments; on a ladder roots of the first."""
        noise = self.draw_noise(rng, shape)
        if self.ladder:
            # u < ε^k where its k-th root is below ε; so who acts need not know which environment it is
            exponents = 1.0 + 7.0 * np.arange(shape[-1]) / max(shape[-1] - 1, 1)
            noise[..., 0] **= (1.0 / exponents).astype(np.float32)
        return noise

    def fits(self, action_space: spaces.Space) -> bool:
        """Return whether its actions are of a space."""
        return isinstance(action_space, spaces.Discrete) and action_space.n == self.n_actions

    def to_dict(self) -> dict[str, Any]:
        """Return what makes an equal policy."""
        return {'kind': 'epsilon-greedy', 'n_actions': self.n_actions, 'epsilon': self.epsilon}


class NoisyPolicy(Policy):
    """Adds noise to what a network says, within [−1, 1]; while a buffer fills, any action is as good as another.

    Args:
        network: from observations to actions [N, A], from −1 to 1.
        n_units: A.
        scale: standard deviation of the noise where no schedule gives one.
        exploration: gives the noise a memory while collecting; it has none when not given.
    """

    def __init__(
        self, network: ActingNetwork, n_units: int, scale: float, exploration: OrnsteinUhlenbeckNoise | None = None
    ):
        self.network, self.n_units, self.scale, self.exploration = network, n_units, scale, exploration
        self.output_units = (n_units,)
        self.columns = {'actions': ((n_units,), np.float32)}

    def __call__(
        self, observations: np.ndarray, noise: np.ndarray | None, /, *, valid: np.ndarray | None = None, **schedule: Any
    ) -> dict[str, np.ndarray]:
        """Return `actions` [N, A]; the schedule's `noise` is a factor on white noise [N, A]."""
        if self.warming_up and valid is not None and noise is not None:
            return {'actions': noise}
        assert self.network is not None
        actions = self.network(observations)[0]
        if noise is None:
            return {'actions': actions.copy()}
        if valid is not None and self.exploration is not None:
            noise = self.exploration(noise, valid)
        return {'actions': np.clip(actions + np.float32(schedule.get('noise', self.scale)) * noise, -1.0, 1.0)}

    def draw_noise(self, rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
        """Return white noise [*shape, A]."""
        return rng.standard_normal((*shape, self.n_units), np.float32)

    def draw_exploration(self, rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
        """Return white noise [*shape, A]; uniform actions while warming up."""
        if self.warming_up:
            return rng.uniform(-1.0, 1.0, (*shape, self.n_units)).astype(np.float32)
        return self.draw_noise(rng, shape)

    def parts(self) -> dict[str, Any]:
        """Return the exploration, if it has a memory."""
        return {} if self.exploration is None else {'exploration': self.exploration}

    def fits(self, action_space: spaces.Space) -> bool:
        """Return whether its actions are of a space."""
        return isinstance(action_space, spaces.Box) and int(np.prod(action_space.shape)) == self.n_units

    def to_dict(self) -> dict[str, Any]:
        """Return what makes an equal policy."""
        drifts = self.exploration is not None
        return {'kind': 'noisy', 'n_units': self.n_units, 'scale': self.scale, 'drifts': drifts}


class EpsilonRandomPolicy(Policy):
    """Acts by another policy, and for a share of the actions at random.

    Args:
        policy: the other one.
        action_space: of the actions that are drawn; unbounded ones are drawn from a normal distribution.
        probability: of the actions.
        stochastic: whether the other policy samples, and does not take the best.
    """

    def __init__(self, policy: Policy, action_space: spaces.Space, probability: float, stochastic: bool):
        self.policy, self.probability, self.stochastic = policy, probability, stochastic
        self.network, self.columns = policy.network, policy.columns
        self._space, self._decode = copy.deepcopy(action_space), ActionDecoder(action_space)
        self._seeded = False

    def __call__(
        self, observations: np.ndarray, noise: Any, /, *, valid: np.ndarray | None = None, **schedule: Any
    ) -> dict[str, np.ndarray]:
        """Return `actions` [N, …]; noise is that of the other policy, a truth value each, and what is drawn."""
        if noise is None:
            return self.policy(observations, None)
        policy_noise, is_random, random_actions = noise
        actions = self.policy(observations, policy_noise)['actions']
        where = is_random.reshape(-1, *(1,) * (actions.ndim - 1))
        return {'actions': np.where(where, random_actions, actions)}

    def draw_noise(self, rng: np.random.Generator, shape: tuple[int, ...]) -> Any:
        """Return what `shape` [N] actions need."""
        if not self._seeded:
            self._space.seed(int(rng.integers(2**31)))
            self._seeded = True
        policy_noise = self.policy.draw_noise(rng, shape) if self.stochastic else None
        random_actions = np.stack([np.asarray(self._space.sample()) for _ in range(shape[0])])
        return policy_noise, rng.random(shape) < self.probability, self._decode.inverse(random_actions)


def policy_from_dict(record: Mapping[str, Any], network: ActingNetwork, action_space: spaces.Space) -> Policy:
    """Return the policy by a network that `Policy.record` tells of.

    Raises:
        ValueError: in one line, for a record that is no policy's.
    """
    try:
        if record['kind'] == 'sampling':
            sampler = sampler_for(action_space, record.get('n_features'))
            return SamplingPolicy(network, sampler, record['keeps'], record.get('hold', 1))
        if record['kind'] == 'epsilon-greedy':
            return EpsilonGreedyPolicy(network, record['n_actions'], record['epsilon'])
        if record['kind'] == 'noisy':
            exploration = OrnsteinUhlenbeckNoise() if record['drifts'] else None
            return NoisyPolicy(network, record['n_units'], record['scale'], exploration)
        raise KeyError(record['kind'])
    except (KeyError, TypeError) as error:
        raise ValueError(f'it is no record of a policy ({type(error).__name__}: {error})') from error
