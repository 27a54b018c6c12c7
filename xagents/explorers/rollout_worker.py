"""A rollout worker: it handles the messages of the learner and does not depend on connections or processes.

The worker receives one specification (`spec`): environments, policy, network, and its range of environments. Before
each assignment, all workers receive a broadcast (`share`): weights, statistics, schedule values. Each assignment
(`order`) contains the noise, and the state of the environments if the worker does not have it.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from xagents.collecting.env_stepper import CollectRequest, CollectStats, LocalEnvStepper
from xagents.collecting.finite import NotFiniteError
from xagents.collecting.policies import policy_from_dict
from xagents.collecting.rollouts import Rollout, allocate_rollout
from xagents.collecting.statistics import Statistics
from xagents.envs.env_factory import EnvFactory
from xagents.envs.normalisation import ObservationNormalizer
from xagents.explorers.fragments import ENV_STATE, EXPLORATION, STATISTICS, pack_env_state, unpack_env_state
from xagents.explorers.messages import Message, WireError, pack
from xagents.explorers.versions import version_differences, versions
from xagents.networks.acting import PublishedWeights
from xagents.networks.numpy_inference import NumpyNetwork
from xagents.networks.plan import NetworkPlan
from xagents.pipeline.context import EpisodeEnd
from xagents.system.arrays import add_prefix, strip_prefix

MAX_ENVS = 2**16


@dataclass
class FragmentStats(CollectStats):
    """Statistics of a fragment, with the row and the environment of each finished episode for the learner."""

    finished_episodes: list[tuple[float, int, bool | None, int, int, float, float | None]] = field(default_factory=list)

    def add(self, episodes: list[EpisodeEnd], seconds: float) -> None:
        """Add episodes that ended in the present row."""
        self.finished_episodes += [(e.reward, e.length, e.success, e.env, self.row, seconds, e.team) for e in episodes]


class RolloutWorker:
    """The environments of a shard and the policy that acts in them.

    Args:
        spec: the specification of the run; see `xagents.runs.run_workers.worker_spec`.
        first: the index of the first environment of the worker among all.
        n_envs: the number of environments of the worker.

    Raises:
        ValueError: If `n_envs` is out of range, or package versions differ from the learner's.
    """

    def __init__(self, spec: Mapping[str, Any], first: int, n_envs: int):
        if not 0 < n_envs <= MAX_ENVS:
            raise ValueError(f'got {n_envs} environments, expected 1 to {MAX_ENVS}')
        factory = EnvFactory.from_dict(spec['environment'])
        self.first, envs = first, factory(n_envs=n_envs, vector='sync', render_mode=None)
        others = version_differences(versions(spec['environment']['env']), spec['versions'])
        if others:
            envs.close()
            raise ValueError(f'package versions of explorer and learner differ: {others}')
        self.stepper = LocalEnvStepper(envs)
        plan = NetworkPlan.from_dict(spec['network'])
        network = NumpyNetwork(plan, np.zeros(plan.n_parameters, np.float32))
        self.policy = policy_from_dict(spec['policy'], network, envs.action_space)
        normalizer = ObservationNormalizer(envs.observation_space.shape) if spec['normalizes'] else None
        self.statistics = Statistics(normalizer, raw_dtype=envs.observation_space.dtype)
        self._rollout: Rollout | None = None
        self._broadcast: Message | None = None
        self._stats = FragmentStats()
        self._steps = 0

    @property
    def steps(self) -> int:
        """Steps so far, including those of an unfinished fragment; can be read from another thread."""
        return self._steps + self._stats.steps

    def receive_broadcast(self, message: Message) -> None:
        """Store the broadcast for the next assignments."""
        self._broadcast = message

    def collect(self, assignment: Message) -> bytes:
        """Return the fragment of an assignment as a message.

        Raises:
            WireError: If no broadcast was received.
            Exception: Any exception of an environment.
        """
        if self._broadcast is None:
            raise WireError('an assignment arrived before its broadcast')
        header = {**self._broadcast.header, **assignment.header}
        arrays = {**self._broadcast.arrays, **assignment.arrays}
        start = time.perf_counter()
        self._prepare(header, arrays)
        self._steps += self._stats.steps
        rollout = self._rollout_buffer(header['n_steps'])
        stats = self._stats = FragmentStats()
        request = CollectRequest(self.policy, self.statistics, arrays.get('noise'), header['schedule'])
        with contextlib.suppress(NotFiniteError):  # the learner finds the number as well and handles it
            self.stepper.fill(rollout, request, stats)
        rollout['valid'][stats.row + 1 :] = False  # rows after an error are not valid
        result: dict[str, Any] = {'number': header['number'], 'episodes': stats.finished_episodes}
        exploration = self.policy.exploration
        noise_state = {} if exploration is None else add_prefix(EXPLORATION, exploration.state())
        sent = {**rollout, **noise_state, **self._env_state(result)}
        result['seconds'] = {**stats.seconds, 'busy': time.perf_counter() - start}
        return pack('fragment', result, sent)

    def _prepare(self, header: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> None:
        if 'weights' in arrays:
            self.policy.sync(PublishedWeights(header['version'], arrays['weights'], header['warming_up']))
        self.policy.warming_up = header['warming_up']
        if self.statistics.observations:
            self.statistics.observations.load(strip_prefix(STATISTICS, arrays))
        if self.policy.exploration is not None:
            self.policy.exploration.load(strip_prefix(EXPLORATION, arrays))
        if 'seed' in header:
            self.stepper.observations = self.stepper.envs.reset(header['seed'], self.first)
        elif ENV_STATE in header:
            copies, observations = unpack_env_state((dict(header), dict(arrays)))
            self.stepper.envs.restore_each(copies)
            self.stepper.observations = observations

    def _rollout_buffer(self, n_steps: int) -> Rollout:
        if self._rollout is None or len(self._rollout['valid']) != n_steps:
            self._rollout = allocate_rollout(self.stepper.envs, n_steps, self.policy.columns)
        return self._rollout

    def _env_state(self, result: dict[str, Any]) -> dict[str, np.ndarray]:
        """Return the arrays of the state of the environments, and add its header to `result`.

        If the environments cannot be copied, return no arrays and add only the reason.
        """
        copies = None if self.stepper.observations is None else self.stepper.envs.snapshot_each()
        result['uncopied'] = self.stepper.envs.snapshot_problem
        if copies is None:
            return {}
        header, arrays = pack_env_state(copies)  # the last row of the fragment has the observations
        result |= header
        return arrays

    def close(self) -> None:
        """Close the environments."""
        self.stepper.envs.close()
