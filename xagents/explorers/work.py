"""An explorer's own side: what it is told, and what it makes of an order. No connection, no process.

Told once (`spec`): environments, policy, network, and which of the environments are its own. Told before an order, to
all explorers alike (`share`): weights, statistics, the schedule's values. Told with each order: noise, and where the
environments stand if they do not stand there already.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from xagents.collecting.explorer import Explorer, Order, Tally
from xagents.collecting.finite import NotFiniteError
from xagents.collecting.policies import policy_of
from xagents.collecting.rollouts import Rollout, allocate
from xagents.collecting.statistics import Statistics
from xagents.envs.create import create_envs
from xagents.envs.face import Episode
from xagents.envs.normalisation import ObservationNormalizer
from xagents.explorers.fragments import EXPLORATION, STATISTICS, stand_of, told_stand
from xagents.explorers.messages import Message, WireError, pack
from xagents.explorers.versions import differing, versions
from xagents.networks.acting import Published
from xagents.networks.forward import NumpyNetwork
from xagents.networks.plan import NetworkPlan
from xagents.system.arrays import prefixed, without_prefix

MOST_ENVS = 2**16


@dataclass
class Noted(Tally):
    """Notes of each episode what the learner needs to put it among those of others."""

    notes: list[tuple[float, int, bool | None, int, int, float, float | None]] = field(default_factory=list)

    def add(self, episodes: list[Episode], seconds: float) -> None:
        """Add episodes that ended with the row that is being written."""
        self.notes += [(e.reward, e.length, e.success, e.env, self.row, seconds, e.team) for e in episodes]


class Worker:
    """Environments of a slot, and the policy that acts in them.

    Args:
        spec: what the learner says of a run; see `xagents.explorers.fleet.specification`.
        first: index of the first of its environments among all.
        n_envs: how many of them are its own.
    """

    def __init__(self, spec: Mapping[str, Any], first: int, n_envs: int):
        if not 0 < n_envs <= MOST_ENVS:
            raise ValueError(f'it is to make {n_envs} environments')
        self.first, envs = first, create_envs(**{**spec['environment'], 'n_envs': n_envs, 'vector': 'sync'})
        others = differing(versions(spec['environment']['env']), spec['versions'])
        if others:
            envs.close()
            raise ValueError(f"an explorer's environments are others than the learner's: {others}")
        self.explorer = Explorer(envs)
        plan = NetworkPlan.of(spec['network'])
        network = NumpyNetwork(plan, np.zeros(plan.n_parameters, np.float32))
        self.policy = policy_of(spec['policy'], network, envs.action_space)
        normalizer = ObservationNormalizer(envs.observation_space.shape) if spec['normalizes'] else None
        self.statistics = Statistics(normalizer, dtype=envs.observation_space.dtype)
        self._rollout: Rollout | None = None
        self._share: Message | None = None
        self._tally = Noted()
        self._steps = 0

    @property
    def steps(self) -> int:
        """Steps so far, also of a fragment that is not done; another thread may ask."""
        return self._steps + self._tally.steps

    def share(self, message: Message) -> None:
        """Keep what the orders to come have in common."""
        self._share = message

    def collect(self, order: Message) -> bytes:
        """Return the fragment of an order, as a message.

        Raises:
            Exception: whatever an environment raises.
        """
        if self._share is None:
            raise WireError('an order came without what it shares with others')
        header, arrays = {**self._share.header, **order.header}, {**self._share.arrays, **order.arrays}
        start = time.perf_counter()
        self._prepare(header, arrays)
        self._steps += self._tally.steps
        rollout, tally = self._next(header['n_steps']), Noted()
        self._tally = tally
        given = Order(self.policy, self.statistics, arrays.get('noise'), header['schedule'])
        with contextlib.suppress(NotFiniteError):  # the learner finds it, too, and knows what to do
            self.explorer.fill(rollout, given, tally)
        rollout['valid'][tally.row + 1 :] = False  # of what was broken off nothing follows
        told: dict[str, Any] = {'number': header['number'], 'episodes': tally.notes}
        sent = {**rollout, **self._exploration(), **self._stand(told)}
        told['seconds'] = {**tally.seconds, 'busy': time.perf_counter() - start}
        return pack('fragment', told, sent)

    def _prepare(self, header: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> None:
        if 'weights' in arrays:
            self.policy.sync(Published(header['version'], arrays['weights'], header['warming_up']))
        self.policy.warming_up = header['warming_up']
        if self.statistics.observations:
            self.statistics.observations.load(without_prefix(STATISTICS, arrays))
        if self.policy.exploration is not None:
            self.policy.exploration.load(without_prefix(EXPLORATION, arrays))
        if 'seed' in header:
            self.explorer.observations = self.explorer.envs.reset(header['seed'], self.first)
        elif 'stand' in header:
            copies, observations = stand_of((dict(header), dict(arrays)))
            self.explorer.envs.restore_each(copies)
            self.explorer.observations = observations

    def _next(self, n_steps: int) -> Rollout:
        if self._rollout is None or len(self._rollout['valid']) != n_steps:
            self._rollout = allocate(self.explorer.envs, n_steps, self.policy.columns)
        return self._rollout

    def _exploration(self) -> dict[str, np.ndarray]:
        return {} if self.policy.exploration is None else prefixed(EXPLORATION, self.policy.exploration.state())

    def _stand(self, told: dict[str, Any]) -> dict[str, np.ndarray]:
        """Return where the environments stand now, and tell the rest of it; nothing where they cannot be copied."""
        copies = None if self.explorer.observations is None else self.explorer.envs.snapshots()
        told['uncopied'] = self.explorer.envs.uncopied
        if copies is None:
            return {}
        header, arrays = told_stand(copies)  # the learner has the observations: a rollout ends with them
        told |= header
        return arrays

    def close(self) -> None:
        """Close the environments."""
        self.explorer.envs.close()
