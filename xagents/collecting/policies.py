"""Policies: from observations and noise to actions, with one call of a network. Does not load TensorFlow.

An action is a deterministic function of weights, observations and noise. The noise of a whole rollout can therefore be
drawn in one call, and remote workers can repeat actions exactly.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
from gymnasium import spaces
from gymnasium.vector.utils import concatenate, create_empty_array

from xagents.collecting.noise_process import OrnsteinUhlenbeckNoise
from xagents.collecting.rollouts import MEMORY, OBSERVATIONS, ColumnSpecs, RowState
from xagents.envs.spaces import ActionDecoder
from xagents.networks.acting import ILLEGAL, LEGAL_FROM, ActingNetwork, PublishedWeights
from xagents.networks.sampling import (
    ActionSampler,
    SquashedGaussianSampler,
    StateDependentSampler,
    factorised_noise,
    sampler_for,
)
from xagents.system.array_functions import functions_for


class Policy(ABC):
    """The base class of policies, which choose actions.

    Attributes:
        network: the acting network; None if the policy uses none.
        columns: shape and dtype, for one environment, of each rollout column that the policy fills, with `actions`.
        warming_up: whether actions may be random, because nothing is learned yet.
        self_contained: whether acting, playing and evaluating need only the policy and not its agent.
        output_units: sizes of the network's outputs.
        noise_repeat: number of steps that use the same row of noise, from the first step of a rollout on.
        masked: whether the network returns `ILLEGAL` for illegal actions.
        is_pure: whether a call has no state, and also takes tensors if its network does, so that it can be compiled.
    """

    masked: bool = False
    is_pure: bool = False
    network: ActingNetwork | None = None
    columns: ColumnSpecs
    warming_up: bool = False
    self_contained: bool = False
    output_units: tuple[int, ...] = ()
    noise_repeat: int = 1
    # correlates the noise in time while collecting
    exploration: OrnsteinUhlenbeckNoise | None = None

    def __init_subclass__(cls, **keywords: Any) -> None:
        """Regard a class with its own call as one that cannot be compiled, unless it says otherwise."""
        super().__init_subclass__(**keywords)
        if '__call__' in vars(cls) and 'is_pure' not in vars(cls):
            cls.is_pure = False

    @abstractmethod
    def __call__(
        self, observations: np.ndarray, noise: np.ndarray | None, /, *, valid: np.ndarray | None = None, **schedule: Any
    ) -> dict[str, np.ndarray]:
        """Return the columns [N, …] by name; of a policy with memory, also `memory` [N, M] after the step.

        Args:
            observations: prepared observations [N, *D].
            noise: result of `draw_noise`, [N, …]; None for greedy actions.
            valid: bool [N], whether the environment is within an episode, for noise that is correlated in time. Only
                collecting passes it.
            schedule: current values of the run's schedules, by name; of a policy with memory, also `memory` [N, M]
                before the step, by default zeros.
        """

    def draw_noise(self, rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray | None:
        """Return the noise of `shape` actions; None if the policy needs none."""
        return None

    def draw_exploration(self, rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray | None:
        """Return the noise of `shape` actions while collecting; by default that of `draw_noise`."""
        return self.draw_noise(rng, shape)

    @property
    def memory_units(self) -> int:
        """M, the length of the memory of one row; 0 if actions depend on the present observation only."""
        return getattr(self.network, 'memory_units', 0)

    def start(self, row_state: RowState) -> RowState:
        """Return a copy of the state of rows for the next step; a missing memory is that before an episode, zeros."""
        state = {name: np.array(x) for name, x in row_state.items()}
        if self.memory_units and MEMORY not in state:
            state[MEMORY] = np.zeros((len(state[OBSERVATIONS]), self.memory_units), np.float32)
        return state

    def step(
        self,
        observations: np.ndarray,
        noise: np.ndarray | None,
        row_state: RowState,
        in_episode: np.ndarray,
        /,
        **others: Any,
    ) -> tuple[dict[str, np.ndarray], RowState]:
        """Return the columns [N, …] by name, and the memory after the step.

        Args:
            observations: prepared observations [N, *D].
            noise: as for a call.
            row_state: the state of the rows; its memory, if there is one, is that before the step.
            in_episode: bool [N], False in rows that only reset, whose memory becomes zeros.
            others: further arguments of a call.

        Returns:
            The columns, and a dict with `memory` [N, M] if the policy has memory.
        """
        if not self.memory_units:
            return self(observations, noise, **others), {}
        columns = self(observations, noise, memory=row_state[MEMORY], **others)
        return columns, {MEMORY: columns[MEMORY] * in_episode[:, None]}

    def run_network(
        self, observations: np.ndarray, noise: np.ndarray | None = None, memory: np.ndarray | None = None
    ) -> tuple[Sequence[np.ndarray], dict[str, np.ndarray]]:
        """Return the outputs of the network, and a dict with `memory` after the step if the policy has memory."""
        assert self.network is not None
        if not self.memory_units:
            given = () if noise is None else (noise,)
            return self.network(observations, *given), {}
        *outputs, after = self.network(observations, noise, memory)
        return outputs, {MEMORY: after}

    @property
    def published_weights(self) -> PublishedWeights:
        """The weights that `sync` loads into another policy of the same form."""
        assert self.network is not None
        return self.network.published_weights._replace(warming_up=self.warming_up)

    def sync(self, published_weights: PublishedWeights) -> None:
        """Load published weights; the policy must have its own network."""
        assert self.network is not None
        self.network.sync(published_weights)
        self.warming_up = published_weights.warming_up

    def parts(self) -> dict[str, Any]:
        """Return the parts that have a state, by their names in checkpoints."""
        return {}

    def to_dict(self) -> dict[str, Any] | None:
        """Return the arguments of `policy_from_dict` for an equal policy, for JSON; None if there are none."""
        return None

    def _mask_record(self) -> dict[str, bool]:
        """Return the part of `to_dict` about action masks, which is empty without masks."""
        return {'masked': True} if self.masked else {}

    def fits(self, action_space: spaces.Space) -> bool:
        """Return whether the actions of the policy belong to a space."""
        return True

    def with_network(self, network: ActingNetwork) -> Self:
        """Return the policy with another network of the same form; both share the exploration noise process."""
        other = copy.copy(self)
        other.network = network
        return other


class SamplingPolicy(Policy):
    """A policy that samples actions from a distribution whose parameters a network returns.

    Args:
        network: from observations to the parameters of the distribution.
        distribution: the distribution of actions.
        keeps_outputs: whether rollouts contain the parameters, which describe the policy that acted completely.
        noise_repeat: number of steps that use the same row of noise.
        masked: whether the network returns `ILLEGAL` for illegal actions.
    """

    is_pure = True

    def __init__(
        self,
        network: ActingNetwork,
        distribution: ActionSampler,
        keeps_outputs: bool,
        noise_repeat: int = 1,
        masked: bool = False,
    ):
        self.network, self.distribution, self.masked = network, distribution, masked
        self.keeps_outputs, self.noise_repeat = keeps_outputs, noise_repeat
        self.output_units = distribution.output_units
        kept = zip(distribution.output_names, distribution.parameter_units, strict=True) if keeps_outputs else ()
        outputs = {name: ((units,), np.dtype(np.float32)) for name, units in kept}
        self.columns = {'actions': (distribution.action_shape, distribution.action_dtype), **outputs}

    def __call__(
        self,
        observations: np.ndarray,
        noise: np.ndarray | None,
        /,
        *,
        valid: np.ndarray | None = None,
        memory: np.ndarray | None = None,
        **others: Any,
    ) -> dict[str, np.ndarray]:
        """Return `actions` [N, …] and the parameters of the distribution; without noise, the most probable actions.

        While the policy warms up, the noise of collecting is the actions themselves, or selects a legal action.
        """
        random = self.warming_up and valid is not None
        if random and noise is not None and not self.masked:
            return {'actions': noise}
        outputs, after = self.run_network(observations, memory=memory)
        if random and self.masked:
            outputs = [uniform_logits(outputs[0])]
        actions = self.distribution.mode(outputs) if noise is None else self.distribution.sample(outputs, noise)
        return {'actions': actions, **self.distribution.parameters(outputs), **after}

    def draw_noise(self, rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
        """Return the noise of `shape` actions, [*shape, …]."""
        return self.distribution.draw_noise(rng, shape)

    def draw_exploration(self, rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
        """Return the noise of `shape` actions, or random actions while warming up without action masks."""
        random = self.warming_up and not self.masked
        return self.distribution.draw_random(rng, shape) if random else self.draw_noise(rng, shape)

    def to_dict(self) -> dict[str, Any]:
        """Return the arguments of `policy_from_dict` for an equal policy."""
        record = {'kind': 'sampling', 'keeps': self.keeps_outputs, **self._mask_record()}
        if isinstance(self.distribution, SquashedGaussianSampler):
            record['squashed'] = True
        if isinstance(self.distribution, StateDependentSampler):
            record |= {'n_features': self.distribution.n_features, 'hold': self.noise_repeat}
        return record


class EpsilonGreedyPolicy(Policy):
    """A policy that takes the action of highest value, or with probability ε a random action.

    Args:
        network: from observations to a value per action.
        n_actions: number of actions.
        epsilon: ε if the schedule has none.
        ladder: whether environment i of N collects with ε^(1 + 7 i / (N − 1)), so that environments explore from much
            to hardly at all (Horgan et al. 2018, arXiv:1803.00933, section 4).
        masked: whether the network returns `ILLEGAL` for illegal actions; random actions are then legal.
        n_noise: length of the noise that the network takes for one action; 0 without noisy layers.
    """

    columns: ColumnSpecs = {'actions': ((), np.int32)}
    is_pure = True

    def __init__(
        self,
        network: ActingNetwork,
        n_actions: int,
        epsilon: float,
        ladder: bool = False,
        masked: bool = False,
        n_noise: int = 0,
    ):
        self.network, self.n_actions, self.epsilon, self.ladder = network, n_actions, epsilon, ladder
        self.masked, self.n_noise = masked, n_noise
        self.output_units = (n_actions,)

    def __call__(
        self,
        observations: np.ndarray,
        noise: np.ndarray | None,
        /,
        *,
        memory: np.ndarray | None = None,
        **schedule: Any,
    ) -> dict[str, np.ndarray]:
        """Return `actions` [N]; the noise is [N, 2 + n_noise], as `draw_noise` returns it."""
        of_network = noise[:, 2:] if noise is not None and self.n_noise else None
        (values, *_), after = self.run_network(observations, of_network, memory)
        xp = functions_for(values)
        actions = xp.argmax(values, 1)
        if noise is not None:
            if self.masked:
                random_actions = choose_legal(values, noise[:, 1])
            else:
                random_actions = xp.minimum(xp.astype(noise[:, 1] * self.n_actions, np.int64), self.n_actions - 1)
            actions = xp.where(noise[:, 0] < schedule.get('epsilon', self.epsilon), random_actions, actions)
        return {'actions': actions, **after}

    def draw_noise(self, rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
        """Return noise [*shape, 2 + n_noise].

        The first number decides if the action is random, the second selects it, and the network takes the others.
        """
        uniform = rng.random((*shape, 2), np.float32)
        if not self.n_noise:
            return uniform
        return np.concatenate([uniform, factorised_noise(rng, (*shape, self.n_noise))], -1)

    def draw_exploration(self, rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
        """Return the noise while collecting; a ladder changes it per environment, the last of `shape`."""
        noise = self.draw_noise(rng, shape)
        if self.ladder:
            # u < ε^k if and only if the k-th root of u is below ε: acting does not depend on the environment's index
            exponents = 1.0 + 7.0 * np.arange(shape[-1]) / max(shape[-1] - 1, 1)
            noise[..., 0] **= (1.0 / exponents).astype(np.float32)
        return noise

    def fits(self, action_space: spaces.Space) -> bool:
        """Return whether the actions of the policy belong to a space."""
        return isinstance(action_space, spaces.Discrete) and action_space.n == self.n_actions

    def to_dict(self) -> dict[str, Any]:
        """Return the arguments of `policy_from_dict` for an equal policy."""
        own = {'n_noise': self.n_noise} if self.n_noise else {}
        return {
            'kind': 'epsilon-greedy',
            'n_actions': self.n_actions,
            'epsilon': self.epsilon,
            **own,
            **self._mask_record(),
        }


class NoisyPolicy(Policy):
    """A deterministic policy with noise on its actions, clipped to [−1, 1]; actions are uniform while warming up.

    Args:
        network: from observations to actions [N, A], from −1 to 1.
        n_units: A.
        scale: standard deviation of the noise if the schedule has none.
        exploration: correlates the noise in time while collecting; None for white noise.
    """

    def __init__(
        self, network: ActingNetwork, n_units: int, scale: float, exploration: OrnsteinUhlenbeckNoise | None = None
    ):
        self.network, self.n_units, self.scale, self.exploration = network, n_units, scale, exploration
        self.is_pure = exploration is None
        self.output_units = (n_units,)
        self.columns = {'actions': ((n_units,), np.float32)}

    def __call__(
        self, observations: np.ndarray, noise: np.ndarray | None, /, *, valid: np.ndarray | None = None, **schedule: Any
    ) -> dict[str, np.ndarray]:
        """Return `actions` [N, A]; the schedule value `noise` is a factor on the noise [N, A]."""
        if self.warming_up and valid is not None and noise is not None:
            return {'actions': noise}
        assert self.network is not None
        actions = self.network(observations)[0]
        if noise is None:
            return {'actions': actions.copy()}
        if valid is not None and self.exploration is not None:
            noise = self.exploration(noise, valid)
        xp = functions_for(actions)
        scale = xp.asarray(schedule.get('noise', self.scale), np.float32)
        return {'actions': xp.clip(actions + scale * noise, -1.0, 1.0)}

    def draw_noise(self, rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
        """Return white noise [*shape, A]."""
        return rng.standard_normal((*shape, self.n_units), np.float32)

    def draw_exploration(self, rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
        """Return white noise [*shape, A], or uniform actions while warming up."""
        if self.warming_up:
            return rng.uniform(-1.0, 1.0, (*shape, self.n_units)).astype(np.float32)
        return self.draw_noise(rng, shape)

    def parts(self) -> dict[str, Any]:
        """Return the noise process, if there is one."""
        return {} if self.exploration is None else {'exploration': self.exploration}

    def fits(self, action_space: spaces.Space) -> bool:
        """Return whether the actions of the policy belong to a space."""
        return isinstance(action_space, spaces.Box) and int(np.prod(action_space.shape)) == self.n_units

    def to_dict(self) -> dict[str, Any]:
        """Return the arguments of `policy_from_dict` for an equal policy."""
        drifts = self.exploration is not None
        return {'kind': 'noisy', 'n_units': self.n_units, 'scale': self.scale, 'drifts': drifts}


class EpsilonRandomPolicy(Policy):
    """A policy that acts with another policy, or with a given probability at random.

    Args:
        policy: the other policy.
        action_space: space of the random actions; unbounded dimensions are drawn from a normal distribution.
        probability: probability of a random action.
        stochastic: whether the other policy samples its actions; if False, they are greedy.
    """

    def __init__(self, policy: Policy, action_space: spaces.Space, probability: float, stochastic: bool):
        self.policy, self.probability, self.stochastic = policy, probability, stochastic
        self.network, self.columns = policy.network, policy.columns
        self._space, self._decode = copy.deepcopy(action_space), ActionDecoder(action_space)
        self._seeded, self.masked = False, policy.masked
        self._sampler = sampler_for(action_space) if policy.masked else None

    def __call__(self, observations: np.ndarray, noise: Any, /, **others: Any) -> dict[str, np.ndarray]:
        """Return `actions` [N, …]; `noise` is the noise of the other policy, bool [N], and random actions [N, …]."""
        memory = {name: x for name, x in others.items() if name == MEMORY}
        if noise is None:
            return self.policy(observations, None, **memory)
        policy_noise, is_random, random_actions = noise
        columns = self.policy(observations, policy_noise, **memory)
        actions, after = columns['actions'], {name: np.array(x) for name, x in columns.items() if name == MEMORY}
        if self._sampler is not None:
            outputs = self.run_network(observations, **memory)[0]
            random_actions = self._sampler.sample([uniform_logits(outputs[0])], random_actions)
        is_random = is_random.reshape(-1, *(1,) * (actions.ndim - 1))
        return {'actions': np.where(is_random, random_actions, actions), **after}

    def draw_noise(self, rng: np.random.Generator, shape: tuple[int, ...]) -> Any:
        """Return the noise of `shape` = [N] actions."""
        if not self._seeded:
            self._space.seed(int(rng.integers(2**31)))
            self._seeded = True
        policy_noise = self.policy.draw_noise(rng, shape) if self.stochastic else None
        if self._sampler is not None:
            return policy_noise, rng.random(shape) < self.probability, self._sampler.draw_noise(rng, shape)
        empty: Any = create_empty_array(self._space, n=shape[0])
        random_actions = concatenate(self._space, [self._space.sample() for _ in range(shape[0])], empty)
        return policy_noise, rng.random(shape) < self.probability, self._decode.inverse(random_actions)


def uniform_logits(outputs: np.ndarray) -> np.ndarray:
    """Return logits [N, n] of a uniform distribution over the actions that are legal by the outputs of a network."""
    return functions_for(outputs).where(outputs > LEGAL_FROM, np.float32(0), ILLEGAL)


def choose_legal(values: np.ndarray, uniform: np.ndarray) -> np.ndarray:
    """Return random legal actions [N] for values [N, n] of a network, and uniform numbers [N] from 0 to 1."""
    xp, legal = functions_for(values), values > LEGAL_FROM
    n_legal = xp.astype(xp.sum(legal, 1), np.int32)
    # a number may be rounded to 1
    order = xp.minimum(xp.astype(uniform * xp.astype(n_legal, np.float32), np.int32), n_legal - 1)
    return xp.argmax(xp.cumsum(legal, 1) > order[:, None], 1)


def policy_from_dict(record: Mapping[str, Any], network: ActingNetwork, action_space: spaces.Space) -> Policy:
    """Return a policy from the dict of `Policy.to_dict`, with a network.

    Raises:
        ValueError: if the dict does not describe a policy; one line.
    """
    try:
        masked = record.get('masked', False)
        if record['kind'] == 'sampling':
            sampler = sampler_for(action_space, record.get('n_features'), record.get('squashed', False))
            return SamplingPolicy(network, sampler, record['keeps'], record.get('hold', 1), masked)
        if record['kind'] == 'epsilon-greedy':
            n_noise = record.get('n_noise', 0)
            return EpsilonGreedyPolicy(network, record['n_actions'], record['epsilon'], masked=masked, n_noise=n_noise)
        if record['kind'] == 'noisy':
            exploration = OrnsteinUhlenbeckNoise() if record['drifts'] else None
            return NoisyPolicy(network, record['n_units'], record['scale'], exploration)
        raise KeyError(record['kind'])
    except (KeyError, TypeError) as error:
        raise ValueError(f'it is no record of a policy ({type(error).__name__}: {error})') from error
