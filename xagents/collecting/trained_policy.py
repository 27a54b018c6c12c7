"""Trained policies that act without TensorFlow, Keras or an agent.

A trained policy consists of a plan for JSON (network, policy, spaces) and arrays: one flat vector of weights with its
version, and the statistics that normalise observations. The files are `plan.json` and `policy.npz`.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
from gymnasium import spaces

from xagents.collecting.policies import Policy, policy_from_dict
from xagents.collecting.policy_files import FORMAT, PolicyData, damaged_policy, read_policy_data
from xagents.collecting.row_memory import RowMemory
from xagents.collecting.statistics import Statistics
from xagents.envs.interface import Envs
from xagents.envs.normalisation import ObservationNormalizer
from xagents.envs.observations.action_masks import check_masks
from xagents.envs.space_serialization import space_from_dict, space_to_dict
from xagents.envs.spaces import ActionDecoder, Encoding, ObservationEncoder, describe_space
from xagents.networks.numpy_inference import NumpyNetwork
from xagents.networks.plan import NetworkPlan
from xagents.system.arrays import add_prefix, strip_prefix
from xagents.system.trees import map_tree
from xagents.version import __version__

# the arrays of a policy that do not belong to the statistics
WEIGHTS, VERSION = 'weights', 'version'


class EnvSpaces(NamedTuple):
    """The spaces of one environment.

    Attributes:
        observations: the space of raw observations.
        actions: the space of actions.
        mask_key: the key of the action mask in observations; None without a mask.
        critic_only: the keys of the parts of observations that the policy does not need.
    """

    observations: spaces.Space
    actions: spaces.Space
    mask_key: str | None = None
    critic_only: tuple[str, ...] = ()

    @classmethod
    def of(cls, envs: Envs) -> Self:
        """Return the spaces of environments."""
        encoder, encoding = envs.encoder, envs.encoder.encoding
        mask_key = encoding.mask_key if encoder.n_mask else None
        return cls(encoder.raw_space, envs.action_space, mask_key, encoding.critic_only)


def policy_data(agent_id: str, policy: Policy, statistics: Statistics, env_spaces: EnvSpaces) -> PolicyData | None:
    """Return the current policy of an agent as data; None if a custom network or policy has no plan."""
    record, network = policy.to_dict(), policy.network
    plan: NetworkPlan | None = getattr(network, 'plan', None)
    if record is None or network is None or plan is None:
        return None
    plan, parts = plan.pruned()
    weights = np.concatenate([network.published_weights.weights[part] for part in parts], dtype=np.float32)
    arrays = {WEIGHTS: weights, VERSION: np.array(_version_of(weights))}
    if statistics.observations:
        arrays |= add_prefix('observation_statistics', statistics.observations.state())
    about = {'format': FORMAT, 'xagents': __version__, 'agent': agent_id, 'policy': record, 'network': plan.to_dict()}
    observations, actions = map(space_to_dict, env_spaces[:2])
    about |= {'observation_space': observations, 'action_space': actions}
    about |= {} if env_spaces.mask_key is None else {'mask_key': env_spaces.mask_key}
    about |= {'critic_only': list(env_spaces.critic_only)} if env_spaces.critic_only else {}
    return PolicyData({**about, 'normalizes': statistics.observations is not None}, arrays)


def _version_of(weights: np.ndarray) -> int:
    """Return a number of 63 bits that is equal for equal weights, and otherwise another one."""
    return int.from_bytes(hashlib.sha256(weights.tobytes()).digest()[:8], 'little') >> 1


def read_policy(plan: Path, arrays: Path) -> TrainedPolicy:
    """Return a policy from its two files.

    Raises:
        ValueError: if a file is missing, damaged or of another version; the one-line message names the file.
    """
    data = read_policy_data(plan, arrays)
    try:
        _check_arrays(data)
    except (ValueError, KeyError) as error:
        raise ValueError(damaged_policy(arrays, plan, error)) from error
    try:
        return TrainedPolicy(data)
    except Exception as error:  # a modified plan can cause any error
        raise ValueError(damaged_policy(plan, plan, error)) from error


def _check_arrays(data: PolicyData) -> None:
    """Check the arrays of a policy against its plan, before a network is created."""
    for name, array in data.arrays.items():
        if not (np.issubdtype(array.dtype, np.number) and np.isfinite(array).all()):
            raise ValueError(f'its {name} are no numbers, or not finite')
    weights, network = data.arrays[WEIGHTS], data.plan.get('network')
    wanted = network.get('n_parameters') if isinstance(network, dict) else None
    if wanted is not None and (weights.dtype != np.float32 or weights.shape != (wanted,)):
        raise ValueError(f'weights: got {weights.dtype} of shape {weights.shape}, expected float32 of ({wanted},)')
    if (data.arrays.get('observation_statistics/var', np.ones(1)) < 0).any():
        raise ValueError('its observation_statistics/var are below 0')


class TrainedPolicy:
    """A policy that acts like the trained agent, with NumPy and Gymnasium.

    Attributes:
        agent: id of the agent that learned the policy.
        spaces: observation and action space of one environment.
        version: number of the weights; equal weights have equal numbers.
        acting_policy: from prepared observations [N, *D] and noise to actions and other columns.
        encoder: from raw observations to [N, *D].
        statistics: statistics that normalise encoded observations.
    """

    def __init__(self, data: PolicyData):
        plan, arrays = data
        self.agent: str = plan['agent']
        observed, actions = space_from_dict(plan['observation_space']), space_from_dict(plan['action_space'])
        self.spaces = EnvSpaces(observed, actions, plan.get('mask_key'), tuple(plan.get('critic_only', ())))
        self.version = int(arrays[VERSION])
        network = NumpyNetwork(NetworkPlan.from_dict(plan['network']), arrays[WEIGHTS], self.version)
        self.acting_policy = policy_from_dict(plan['policy'], network, self.spaces.actions)
        # a network of vectors learned from flattened images, if observations are images
        flatten = len(network.plan.input_shape) == 1 and not network.plan.takes_bytes
        self.encoder = ObservationEncoder(self.spaces.observations, Encoding(flatten, *self.spaces[2:]))
        self._decode = ActionDecoder(self.spaces.actions)
        self.statistics = Statistics(raw_dtype=self.encoder.space.dtype)
        if plan['normalizes']:
            saved = strip_prefix('observation_statistics', arrays)
            shape, has_images = self.encoder.space.shape, bool(self.encoder.images)
            shape = (self.encoder.n_floats,) if has_images else shape
            n_mask = shape[0] - saved['mean'].shape[0] if len(shape) == 1 else 0
            self.statistics.observations = ObservationNormalizer(shape, n_mask, has_images)
            self.statistics.observations.load(saved)
        if network.plan.input_shape != self.encoder.space.shape:
            inputs, shape = network.plan.input_shape, self.encoder.space.shape
            raise ValueError(f'its network has inputs {inputs}, observations have {shape}')
        units = tuple(network.plan.shapes()[output][0] for output in network.plan.outputs)
        if units != self.acting_policy.output_units or not self.acting_policy.fits(self.spaces.actions):
            raise ValueError(f'its network has outputs {units}, which do not fit actions {self.spaces.actions}')
        self._rng = np.random.default_rng()
        self._memory = RowMemory()

    def __repr__(self) -> str:
        spaces = f'{describe_space(self.spaces.observations)} to {describe_space(self.spaces.actions)}'
        return f'<TrainedPolicy of {self.agent}: {spaces}>'

    def __call__(self, observations: Any, stochastic: bool = False) -> Any:
        """Return environment actions.

        A policy with memory remembers the observations of each row since the last `reset`.

        Args:
            observations: raw observations [N, …], batched as by vector environments, or those of one environment.
            stochastic: whether to sample actions; if False, actions are greedy.

        Returns:
            [N, …] in the shape and dtype of the action space; one action for the observation of one environment.

        Raises:
            ValueError: if the observations do not fit the observation space, a mask has no legal action, or the number
                of rows has changed and the policy has memory.
        """
        try:
            single = self.encoder.is_single(observations)
            encoded = self.encoder(self.encoder.as_batch(observations) if single else observations)
        except (ValueError, TypeError, KeyError, IndexError, AttributeError) as error:
            got = np.shape(observations) if isinstance(observations, np.ndarray) else type(observations).__name__
            expected = f'{describe_space(self.spaces.observations)}, or N of it ({error})'
            raise ValueError(f'observations: got {got}, expected {expected}') from error
        if self.encoder.n_mask:
            check_masks(self.encoder.masks(encoded), self.spaces.actions)
        noise = self.acting_policy.draw_noise(self._rng, (len(encoded),)) if stochastic else None
        columns = self._memory.act(self.acting_policy, self.statistics.prepare(encoded), noise)
        actions = self._decode(columns['actions'])
        return map_tree(lambda leaf: np.array(leaf)[0] if single else np.array(leaf), actions)

    def predict(
        self, observation: Any, state: Any = None, episode_start: Any = None, deterministic: bool = False
    ) -> tuple[np.ndarray, Any]:
        """Return actions and `state`, as `predict` of Stable-Baselines3 does; see `__call__`.

        Args:
            observation: as for `__call__`.
            state: the memory [N, M] before the step; None before the first step.
            episode_start: bool [N], the rows in which an episode begins, whose memory is forgotten.
            deterministic: whether to return the best actions; if False, actions are sampled.

        Returns:
            The actions, and the memory after the step; of a policy without memory, `state` unchanged.
        """
        with self._memory.replaced(self.acting_policy, state, episode_start) as memory:
            return self(observation, stochastic=not deterministic), memory.state

    def reset(self, seed: int | None = None, rows: Any = None) -> None:
        """Begin episodes: forget the memory, and restart the random generator for sampled actions.

        Args:
            seed: the seed of the generator.
            rows: the rows that begin an episode, as indices or bool [N]; all if None. Other rows keep their memory, and
                the generator continues.
        """
        self._memory.reset(rows)
        if rows is None:
            self._rng = np.random.default_rng(seed)
