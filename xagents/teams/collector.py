"""The collector of several policies: each has its own collector, and all of them step the same environments."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from xagents.collecting.collector import Collector, EnvOwner
from xagents.collecting.env_stepper import CollectStats
from xagents.collecting.policies import Policy
from xagents.collecting.random_streams import RandomStreams
from xagents.collecting.rollouts import Rollout
from xagents.collecting.statistics import Statistics
from xagents.envs.multi_policy import MultiPolicyEnvs
from xagents.system.arrays import add_prefix, strip_prefix


class TeamCollector(EnvOwner):
    """A collector of several policies that share environments.

    It has the interface of `Collector`; its rows are the agents of all policies.

    Args:
        envs: the environments.
        members: a collector for each policy, with the part of the environments that the policy acts in.
        streams: random generators by purpose.
    """

    is_remote = False
    recorder_state = None

    def __init__(self, envs: MultiPolicyEnvs, members: Mapping[str, Collector], streams: RandomStreams):
        super().__init__()
        self.envs, self.members, self.streams = envs, dict(members), streams
        self.statistics = Statistics()
        self.ended_episodes: list[Any] = []
        self.stats = CollectStats()

    def collect(self, n_steps: int, schedules: Mapping[str, Mapping[str, Any]]) -> dict[str, Rollout]:
        """Take steps in every environment, and return a rollout for each policy; see `Collector.collect`.

        Args:
            n_steps: T, the number of steps in each environment.
            schedules: current values of the schedules, for each policy.
        """
        members = self.members
        if any(member.observations is None for member in members.values()):
            for member in members.values():  # all are reset together
                member.observations = None
        rollouts: dict[str, Rollout] = {}
        with contextlib.ExitStack() as stack:
            generators = {}
            for name, member in members.items():
                member.stats = self.stats
                steps = member.iter_collect(n_steps, **schedules[name])
                generators[name] = stack.enter_context(contextlib.closing(steps))
            while len(rollouts) < len(members):
                for name, steps in generators.items():
                    try:
                        next(steps)
                    except StopIteration as end:
                        rollouts[name] = end.value
        return rollouts

    # single steps

    def reset(self, seed: int | None = None) -> None:
        """Reset every environment; the default seed is drawn from the `env` generator."""
        seed = int(self.streams('env').integers(2**31)) if seed is None else seed
        for member in self.members.values():
            member.reset(seed)

    def act(self, rng: np.random.Generator | None = None) -> list[np.ndarray]:
        """Return the environment actions of each policy: sampled with `rng`, or greedy without it."""
        return [member.act(rng) for member in self.members.values()]

    def step(self, actions: Iterable[np.ndarray]) -> tuple[None, np.ndarray, None, None]:
        """Take one step in every environment with the actions of each policy; the second result is the rewards [N]."""
        members, rewards = self.members.values(), np.zeros(self.envs.n_envs)
        member_actions = list(zip(members, actions, strict=True))
        for member, own in member_actions:
            member.envs.set_actions(own)
        self.ended_episodes = []
        for member, own in member_actions:
            rewards[list(member.envs.env_indices)] = member.step(own)[1]
            self.ended_episodes += member.ended_episodes
        return None, rewards, None, None

    def with_envs(self, envs: MultiPolicyEnvs, policy: Policy, statistics: Statistics) -> TeamCollector:
        """Return a collector of the same policies in other environments."""
        own = self.members.items()
        members = {n: member.with_envs(envs.parts[n], member.policy, member.statistics) for n, member in own}
        return TeamCollector(envs, members, self.streams)

    def evaluation_envs(self, n_envs: int, render_mode: str | None = None) -> MultiPolicyEnvs:
        """Return separate environments of the same kind, for evaluations and videos; later calls return the same."""
        envs = self._evaluation_envs.get((n_envs, render_mode))
        if envs is not None and envs.policy_mapping != self.envs.policy_mapping:
            envs.close()
            del self._evaluation_envs[n_envs, render_mode]
        return super().evaluation_envs(n_envs, render_mode)

    # state

    def state(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Return the state of collecting: arrays by name, and a dict for JSON."""
        whole = all(member.observations is not None for member in self.members.values())
        snapshot = self.envs.snapshot() if whole else None
        arrays, record = self._env_state(snapshot)
        record['collectors'] = {}
        for name, member in self.members.items():
            own, record['collectors'][name] = member.state_with_snapshot(None)
            arrays |= add_prefix(name, own)
            if snapshot is not None:
                arrays[f'{name}/observations'] = np.array(member.observations)
        return arrays, record

    def load(self, arrays: Mapping[str, np.ndarray], record: Mapping[str, Any], environments: bool = True) -> bool:
        """Load a state; see `Collector.load`."""
        for name, member in self.members.items():
            member.load(strip_prefix(name, arrays), record['collectors'][name], environments=False)
        self.streams.load(record['rngs'])
        if not self._restored(arrays, record, environments):
            return False
        for name, member in self.members.items():
            member.observations = np.array(arrays[f'{name}/observations'])
        return True
