"""A trained policy as data, and what acts by it: no TensorFlow, no Keras, no agent.

The data is a plan, as JSON holds it (network, policy, spaces), and arrays: one flat vector of weights with its version,
and the statistics by which observations are normalised. On disk these are two files, `plan.json` and `policy.npz`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from gymnasium import spaces

from xagents.collecting.policies import Policy, policy_of
from xagents.collecting.policy_files import FORMAT, PolicyData, damaged, read_data
from xagents.collecting.statistics import Statistics
from xagents.envs.normalisation import ObservationNormalizer
from xagents.envs.space_records import record_of, space_of
from xagents.envs.spaces import ActionDecoder, Encoder
from xagents.networks.forward import NumpyNetwork
from xagents.networks.plan import NetworkPlan
from xagents.system.arrays import prefixed, without_prefix
from xagents.version import __version__

# what of a policy's arrays is not of the statistics
WEIGHTS, VERSION = 'weights', 'version'


class Spaces(NamedTuple):
    """What one environment shows, raw, and takes."""

    observations: spaces.Space
    actions: spaces.Space


def data_of(agent_id: str, policy: Policy, statistics: Statistics, shown: Spaces) -> PolicyData | None:
    """Return the present policy of an agent; None where a network or a policy of one's own has no plan."""
    record, network = policy.record(), policy.network
    plan: NetworkPlan | None = getattr(network, 'plan', None)
    if record is None or network is None or plan is None:
        return None
    published = network.published
    arrays = {WEIGHTS: np.array(published.weights, np.float32), VERSION: np.array(published.version)}
    if statistics.observations:
        arrays |= prefixed('observation_statistics', statistics.observations.state())
    about = {'format': FORMAT, 'xagents': __version__, 'agent': agent_id, 'policy': record, 'network': plan.record()}
    both = {'observation_space': record_of(shown.observations), 'action_space': record_of(shown.actions)}
    return PolicyData({**about, **both, 'normalizes': statistics.observations is not None}, arrays)


def read_policy(plan: Path, arrays: Path) -> TrainedPolicy:
    """Return what acts by the two files of a policy.

    Raises:
        ValueError: in one line that names the file, where one is missing, torn, or of another version.
    """
    data = read_data(plan, arrays)
    try:
        return TrainedPolicy(data)
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(damaged(plan, error)) from error


class TrainedPolicy:
    """Acts as a trained agent does; needs NumPy and Gymnasium.

    Attributes:
        agent: id of the agent that learned it.
        spaces: what one environment shows and takes.
        version: of the weights.
    """

    def __init__(self, data: PolicyData):
        plan, arrays = data
        self.agent: str = plan['agent']
        self.spaces = Spaces(space_of(plan['observation_space']), space_of(plan['action_space']))
        self.version = int(arrays[VERSION])
        network = NumpyNetwork(NetworkPlan.of(plan['network']), arrays[WEIGHTS], self.version)
        self.acting = policy_of(plan['policy'], network, self.spaces.actions)
        self.encoder, self._decode = Encoder(self.spaces.observations), ActionDecoder(self.spaces.actions)
        self.statistics = Statistics(dtype=self.encoder.space.dtype)
        if plan['normalizes']:
            self.statistics.observations = ObservationNormalizer(self.encoder.space.shape)
            self.statistics.observations.load(without_prefix('observation_statistics', arrays))
        if network.plan.input_shape != self.encoder.space.shape:
            raise ValueError(
                f'its network takes {network.plan.input_shape}, observations are {self.encoder.space.shape}'
            )
        self._rng = np.random.default_rng()

    def __call__(self, observations: Any, stochastic: bool = False) -> np.ndarray:
        """Return environment actions.

        Args:
            observations: raw, [N, …] as vector environments batch them, or those of one environment.
            stochastic: sample actions; the best ones when not.

        Returns:
            [N, …] in the shape and dtype of the action space; of one environment's observation its one action.

        Raises:
            ValueError: for observations of another shape.
        """
        alone = _is_alone(self.spaces.observations, observations)
        batch = _batched(self.spaces.observations, observations) if alone else observations
        encoded = self.encoder(batch)
        noise = self.acting.draw_noise(self._rng, (len(encoded),)) if stochastic else None
        actions = np.array(self._decode(self.acting(self.statistics.prepare(encoded), noise)['actions']))
        return actions[0] if alone else actions

    def reset(self, seed: int | None = None) -> None:
        """Begin anew, as for an episode: sampled actions follow from the seed, if one is given."""
        self._rng = np.random.default_rng(seed)


def _is_alone(space: spaces.Space, observations: Any) -> bool:
    """Return whether an observation is that of one environment."""
    if isinstance(space, spaces.Dict):
        return _is_alone(*next((part, observations[key]) for key, part in space.spaces.items()))
    if isinstance(space, spaces.Tuple):
        return _is_alone(space[0], observations[0])
    return np.ndim(observations) == len(space.shape or ())


def _batched(space: spaces.Space, observation: Any) -> Any:
    """Return one observation as a batch of one."""
    if isinstance(space, spaces.Dict):
        return {key: _batched(part, observation[key]) for key, part in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(_batched(part, one) for part, one in zip(space.spaces, observation, strict=True))
    return np.asarray(observation)[None]
