"""A rollout worker: it handles the messages of the learner and does not depend on connections or processes.

The worker receives one specification (`spec`): environments, policy, network, and its range of environments. Before
each assignment, all workers receive a broadcast (`share`): weights, statistics, schedule values. Each assignment
(`order`) contains the noise, and the state of the environments if the worker does not have it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from xagents.collecting.env_stepper import CollectRequest, CollectStats, LocalEnvStepper
from xagents.collecting.finite import NotFiniteError
from xagents.collecting.opponents import OPPONENTS, OpponentPool, PolicyForm
from xagents.collecting.policies import Policy, policy_from_dict
from xagents.collecting.rollouts import OBSERVATIONS, Rollout, allocate_rollout
from xagents.collecting.statistics import Statistics, normalizer_for
from xagents.envs.env_factory import EnvFactory
from xagents.envs.interface import Envs
from xagents.envs.multi_policy import make_envs
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

    finished_episodes: list[tuple[Any, ...]] = field(default_factory=list)

    def add(self, episodes: list[EpisodeEnd], seconds: float) -> None:
        """Add episodes that ended in the present row."""
        self.finished_episodes += [
            (e.reward, e.length, e.success, e.env, self.row, seconds, e.team, e.opponent, e.info) for e in episodes
        ]


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
        factory = dataclasses.replace(EnvFactory.from_dict(spec['environment']), n_envs=n_envs)
        self.first, envs = first, make_envs(factory, spec['policy_mapping'])
        others = version_differences(versions(spec['environment']['env']), spec['versions'])
        if others:
            envs.close()
            raise ValueError(f'package versions of explorer and learner differ: {others}')
        envs.select_infos(spec['infos'])
        self.stepper = LocalEnvStepper(envs)
        self.policies: dict[str, Policy] = {}
        self.statistics: dict[str, Statistics] = {}
        for name, own in spec['policies'].items():
            plan, rows = NetworkPlan.from_dict(own['network']), envs.groups[name]
            network = NumpyNetwork(plan, np.zeros(plan.n_parameters, np.float32))
            self.policies[name] = policy_from_dict(own['policy'], network, rows.action_space)
            normalizer = normalizer_for(rows) if own['normalizes'] else None
            self.statistics[name] = Statistics(normalizer, raw_dtype=rows.observation_space.dtype)
        self.opponents: OpponentPool | None = None
        if isinstance(envs, Envs) and envs.is_game:
            own = spec['policies']['']
            form = PolicyForm(own['policy'], NetworkPlan.from_dict(own['network']))
            self.opponents = OpponentPool(envs, form, self.statistics[''].copy())
            envs.set_opponents(self.opponents)
        self._rollouts: dict[str, Rollout] = {}
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
        rollouts = self._rollout_buffers(header['n_steps'])
        stats = self._stats = FragmentStats()
        noise = {name: strip_prefix(name, arrays).get('noise') for name in rollouts}
        requests = [
            CollectRequest(
                *(policy, self.statistics[name], noise[name], header['policies'][name]['schedule']),
                env_params=header['env_params'],
            )
            for name, policy in self.policies.items()
        ]
        with contextlib.suppress(NotFiniteError):  # the learner finds the number as well and handles it
            self.stepper.fill([*rollouts.values()], requests, stats)
        result: dict[str, Any] = {'number': header['number'], 'episodes': stats.finished_episodes}
        if seen := self.stepper.envs.seen_infos:
            result['seen_infos'] = sorted(seen)
        sent: dict[str, np.ndarray] = {}
        for name, rollout in rollouts.items():
            rollout['valid'][stats.row + 1 :] = False  # rows after an error are not valid
            exploration = self.policies[name].exploration
            noise_state = {} if exploration is None else add_prefix(EXPLORATION, exploration.state())
            sent |= add_prefix(name, {**rollout, **noise_state})
        sent |= self._env_state(result)
        result['seconds'] = {**stats.seconds, 'busy': time.perf_counter() - start}
        return pack('fragment', result, sent)

    def _prepare(self, header: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> None:
        for name, policy in self.policies.items():
            own, about = strip_prefix(name, arrays), header['policies'][name]
            if 'weights' in own:
                policy.sync(PublishedWeights(about['version'], own['weights'], about['warming_up']))
            policy.warming_up = about['warming_up']
            normalizer = self.statistics[name].observations
            if normalizer:
                normalizer.load(strip_prefix(STATISTICS, own))
            if policy.exploration is not None:
                policy.exploration.load(strip_prefix(EXPLORATION, own))
        if self.opponents is not None and (state := strip_prefix(OPPONENTS, arrays)):
            self.opponents.load(state)
        stepper = self.stepper
        if 'seed' in header:
            stepper.set_params(header['env_params'])  # the first episodes begin with them
            groups = stepper.envs.groups.values()
            stepper.row_states = [{OBSERVATIONS: group.reset(header['seed'], self.first)} for group in groups]
        elif ENV_STATE in header:
            copies, row_states = unpack_env_state((dict(header), dict(arrays)), self.policies)
            stepper.envs.restore_each(copies)
            stepper.row_states = row_states

    def _rollout_buffers(self, n_steps: int) -> dict[str, Rollout]:
        for name, policy in self.policies.items():
            if name not in self._rollouts or len(self._rollouts[name]['valid']) != n_steps:
                rows = self.stepper.envs.groups[name]
                self._rollouts[name] = allocate_rollout(rows, n_steps, policy.columns, policy.memory_units)
        return self._rollouts

    def _env_state(self, result: dict[str, Any]) -> dict[str, np.ndarray]:
        """Return the arrays of the state of the environments, and add its header to `result`.

        If the environments cannot be copied, return no arrays and add only the reason.
        """
        copies = None if self.stepper.row_states is None else self.stepper.envs.snapshot_each()
        result['uncopied'] = self.stepper.envs.snapshot_problem
        if copies is None:
            return {}
        header, arrays = pack_env_state(copies)  # the last row of the fragment has observations and memory
        result |= header
        return arrays

    def close(self) -> None:
        """Close the environments."""
        self.stepper.envs.close()
