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

from xagents.collecting.exploration import OrnsteinUhlenbeckNoise
from xagents.collecting.rollouts import Columns
from xagents.envs.spaces import ActionDecoder
from xagents.networks.acting import Network, Published
from xagents.networks.sampling import Sampler, StateDependentSampler, sampler_for


class Policy(ABC):
    """Chooses actions.

    Attributes:
        network: what it asks; None where it asks none.
        columns: shape and dtype, for one environment, of each column that a rollout keeps of it; `actions` is one.
        warming_up: whether any action is as good as another, because nothing is learned yet.
        alone: whether its agent acts, plays and evaluates by it alone, so that it can do so without the agent.
        output_units: sizes of its network's outputs.
        hold: for how many steps of a rollout each row of its noise stands, from the rollout's first step on.
    """

    network: Network | None = None
    columns: Columns
    warming_up: bool = False
    alone: bool = False
    output_units: tuple[int, ...] = ()
    hold: int = 1
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
    def published(self) -> Published:
        """What a policy of the same form takes over by `sync`."""
        assert self.network is not None
        return self.network.published._replace(warming_up=self.warming_up)

    def sync(self, published: Published) -> None:
        """Act by what was published, with a network of its own."""
        assert self.network is not None
        self.network.sync(published)
        self.warming_up = published.warming_up

    def parts(self) -> dict[str, Any]:
        """Return what has a state of its own, by the names that it has in checkpoints."""
        return {}

    def record(self) -> dict[str, Any] | None:
        """Return what makes an equal policy of a network (see `policy_of`), for JSON; None where nothing does."""
        return None

    def fits(self, action_space: spaces.Space) -> bool:
        """Return whether its actions are of a space."""
        return True

    def by(self, network: Network) -> Self:
        """Return the same policy by another network of the same form; its exploration is shared."""
        other = copy.copy(self)
        other.network = network
        return other


class Sampling(Policy):
    """Draws actions from the distribution that a network describes.

    Args:
        network: from observations to the distribution's parameters.
        distribution: of the actions.
        keeps: whether a rollout keeps the parameters: all that an update may want to know of the policy that acted.
        hold: for how many steps of a rollout noise stays the same.
    """

    def __init__(self, network: Network, distribution: Sampler, keeps: bool, hold: int = 1):
        self.network, self.distribution, self.keeps, self.hold = network, distribution, keeps, hold
        self.output_units = distribution.output_units
        columns: dict[str, Any] = {'actions': (distribution.action_shape, distribution.action_dtype)}
        if keeps:
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

    def record(self) -> dict[str, Any]:
        """Return what makes an equal policy."""
        record = {'kind': 'sampling', 'keeps': self.keeps}
        if isinstance(self.distribution, StateDependentSampler):
            record |= {'n_features': self.distribution.n_features, 'hold': self.hold}
        return record


class EpsilonGreedy(Policy):
    """Takes the action of the highest value, or with probability ε any.

    Args:
        network: from observations to a value for each action.
        n_actions: how many there are.
        epsilon: ε where no schedule gives one.
        ladder: whether environment i of N collects with ε^(1 + 7 i / (N − 1)), from much exploration to next to none
            (Horgan et al. 2018, arXiv:1803.00933, section 4).
    """

    columns: Columns = {'actions': ((), np.int32)}

    def __init__(self, network: Network, n_actions: int, epsilon: float, ladder: bool = False):
        self.network, self.n_actions, self.epsilon, self.ladder = network, n_actions, epsilon, ladder
        self.output_units = (n_actions,)

    def __call__(
        self, observations: np.ndarray, noise: np.ndarray | None, /, *, valid: np.ndarray | None = None, **schedule: Any
    ) -> dict[str, np.ndarray]:
        """Return `actions` [N], with a draw for each environment; noise is uniform, [N, 2]."""
        assert self.network is not None
        actions = self.network(observations)[0].argmax(1)
        if noise is not None:
            anything = np.minimum((noise[:, 1] * self.n_actions).astype(np.int64), self.n_actions - 1)
            actions = np.where(noise[:, 0] < schedule.get('epsilon', self.epsilon), anything, actions)
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

    def record(self) -> dict[str, Any]:
        """Return what makes an equal policy."""
        return {'kind': 'epsilon-greedy', 'n_actions': self.n_actions, 'epsilon': self.epsilon}


class Noisy(Policy):
    """Adds noise to what a network says, within [−1, 1]; while a buffer fills, any action is as good as another.

    Args:
        network: from observations to actions [N, A], from −1 to 1.
        n_units: A.
        scale: standard deviation of the noise where no schedule gives one.
        exploration: gives the noise a memory while collecting; it has none when not given.
    """

    def __init__(self, network: Network, n_units: int, scale: float, exploration: OrnsteinUhlenbeckNoise | None = None):
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

    def record(self) -> dict[str, Any]:
        """Return what makes an equal policy."""
        drifts = self.exploration is not None
        return {'kind': 'noisy', 'n_units': self.n_units, 'scale': self.scale, 'drifts': drifts}


class Distracted(Policy):
    """Acts by another policy, and for a share of the actions at random.

    Args:
        policy: the other one.
        action_space: of the actions that are drawn; unbounded ones are drawn from a normal distribution.
        share: of the actions.
        stochastic: whether the other policy samples, and does not take the best.
    """

    def __init__(self, policy: Policy, action_space: spaces.Space, share: float, stochastic: bool):
        self.policy, self.share, self.stochastic = policy, share, stochastic
        self.network, self.columns = policy.network, policy.columns
        self._space, self._decode = copy.deepcopy(action_space), ActionDecoder(action_space)
        self._seeded = False

    def __call__(
        self, observations: np.ndarray, noise: Any, /, *, valid: np.ndarray | None = None, **schedule: Any
    ) -> dict[str, np.ndarray]:
        """Return `actions` [N, …]; noise is that of the other policy, a truth value each, and what is drawn."""
        if noise is None:
            return self.policy(observations, None)
        theirs, distracted, drawn = noise
        actions = self.policy(observations, theirs)['actions']
        where = distracted.reshape(-1, *(1,) * (actions.ndim - 1))
        return {'actions': np.where(where, drawn, actions)}

    def draw_noise(self, rng: np.random.Generator, shape: tuple[int, ...]) -> Any:
        """Return what `shape` [N] actions need."""
        if not self._seeded:
            self._space.seed(int(rng.integers(2**31)))
            self._seeded = True
        theirs = self.policy.draw_noise(rng, shape) if self.stochastic else None
        drawn = np.stack([np.asarray(self._space.sample()) for _ in range(shape[0])])
        return theirs, rng.random(shape) < self.share, self._decode.inverse(drawn)


def policy_of(record: Mapping[str, Any], network: Network, action_space: spaces.Space) -> Policy:
    """Return the policy by a network that `Policy.record` tells of.

    Raises:
        ValueError: in one line, for a record that is no policy's.
    """
    try:
        if record['kind'] == 'sampling':
            sampler = sampler_for(action_space, record.get('n_features'))
            return Sampling(network, sampler, record['keeps'], record.get('hold', 1))
        if record['kind'] == 'epsilon-greedy':
            return EpsilonGreedy(network, record['n_actions'], record['epsilon'])
        if record['kind'] == 'noisy':
            exploration = OrnsteinUhlenbeckNoise() if record['drifts'] else None
            return Noisy(network, record['n_units'], record['scale'], exploration)
        raise KeyError(record['kind'])
    except (KeyError, TypeError) as error:
        raise ValueError(f'it is no record of a policy ({type(error).__name__}: {error})') from error
