"""The collector of several policies: each acts for its agents by a collector of its own, and all step together."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from xagents.collecting.collector import Collector, EnvOwner
from xagents.collecting.explorer import Tally
from xagents.collecting.policies import Policy
from xagents.collecting.rollouts import Rollout
from xagents.collecting.statistics import Statistics
from xagents.collecting.streams import Streams
from xagents.envs.shared import SharedEnvs
from xagents.system.arrays import prefixed, without_prefix


class TeamCollector(EnvOwner):
    """Lets several policies act in the environments that they share.

    What it is asked is what a `Collector` is asked; rows are those of all agents.

    Args:
        envs: the environments.
        members: a collector for each policy, in its part of the environments.
        streams: random generators by purpose.
    """

    away = False
    witnessed = None

    def __init__(self, envs: SharedEnvs, members: Mapping[str, Collector], streams: Streams):
        super().__init__()
        self.envs, self.members, self.streams = envs, dict(members), streams
        self.statistics = Statistics()
        self.ended: list[Any] = []
        self.tally = Tally()

    def collect(self, n_steps: int, schedules: Mapping[str, Mapping[str, Any]]) -> dict[str, Rollout]:
        """Take steps in every environment, and return a rollout for each policy; see `Collector.collect`.

        Args:
            n_steps: T, in each environment.
            schedules: for each policy the values that its schedules have now.
        """
        members = self.members
        if any(member.observations is None for member in members.values()):
            for member in members.values():  # they begin anew together
                member.observations = None
        rollouts: dict[str, Rollout] = {}
        with contextlib.ExitStack() as stack:
            going = {}
            for name, member in members.items():
                member.tally = self.tally
                steps = member.collecting(n_steps, **schedules[name])
                going[name] = stack.enter_context(contextlib.closing(steps))
            while len(rollouts) < len(members):
                for name, steps in going.items():
                    try:
                        next(steps)
                    except StopIteration as end:
                        rollouts[name] = end.value
        return rollouts

    # steps by themselves

    def reset(self, seed: int | None = None) -> None:
        """Begin a new episode in every environment; the seed is drawn when not given."""
        seed = int(self.streams('env').integers(2**31)) if seed is None else seed
        for member in self.members.values():
            member.reset(seed)

    def act(self, rng: np.random.Generator | None = None) -> list[np.ndarray]:
        """Return the environment actions of each policy: drawn by `rng`, greedy without."""
        return [member.act(rng) for member in self.members.values()]

    def step(self, actions: Iterable[np.ndarray]) -> tuple[None, np.ndarray, None, None]:
        """Take one step in every environment by each policy's actions; return rewards [N] at the second place."""
        members, rewards = self.members.values(), np.zeros(self.envs.n_envs)
        said = list(zip(members, actions, strict=True))
        for member, own in said:
            member.envs.say(own)
        self.ended = []
        for member, own in said:
            rewards[list(member.envs.numbers)] = member.step(own)[1]
            self.ended += member.ended
        return None, rewards, None, None

    def like(self, envs: SharedEnvs, policy: Policy, statistics: Statistics) -> TeamCollector:
        """Return a collector of the same policies in other environments."""
        members = {
            name: member.like(envs.parts[name], member.policy, member.statistics)
            for name, member in self.members.items()
        }
        return TeamCollector(envs, members, self.streams)

    def beside(self, n_envs: int, render_mode: str | None = None) -> SharedEnvs:
        """Return other environments of the same kind, to evaluate or record in; they are kept for the next time."""
        kept = self._beside.get((n_envs, render_mode))
        if kept is not None and kept.division != self.envs.division:
            kept.close()
            del self._beside[n_envs, render_mode]
        return super().beside(n_envs, render_mode)

    # state

    def state(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Return where collecting stands, as arrays by name and a record for JSON."""
        whole = all(member.observations is not None for member in self.members.values())
        snapshot = self.envs.snapshot() if whole else None
        arrays: dict[str, np.ndarray] = {}
        record: dict[str, Any] = {'environments': None, 'uncopied': self.envs.uncopied, 'rngs': self.streams.state()}
        record['collectors'] = {}
        for name, member in self.members.items():
            own, record['collectors'][name] = member.state_with(None)
            arrays |= prefixed(name, own)
            if snapshot is not None:
                arrays[f'{name}/standing'] = np.array(member.observations)
        if snapshot is not None:
            record['environments'] = snapshot.record
            arrays |= prefixed('environments', snapshot.arrays)
        return arrays, record

    def load(self, arrays: Mapping[str, np.ndarray], record: Mapping[str, Any], environments: bool = True) -> bool:
        """Go on where `state` was taken; see `Collector.load`."""
        for name, member in self.members.items():
            member.load(without_prefix(name, arrays), record['collectors'][name], environments=False)
        self.streams.load(record['rngs'])
        if not self._restored(arrays, record, environments):
            return False
        for name, member in self.members.items():
            member.observations = np.array(arrays[f'{name}/standing'])
        return True
