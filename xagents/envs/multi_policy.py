"""Multi-agent environments that several policies share: one interface for each policy, and one for all policies."""

from __future__ import annotations

import dataclasses
import fnmatch
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from xagents.envs.env_factory import EnvFactory
from xagents.envs.interface import Copyable, Envs, StepResult
from xagents.envs.multi_agent import AgentRows, AgentSet, ParallelVector
from xagents.envs.values.infos import InfoSums
from xagents.envs.vectors import make_base_vector
from xagents.options.errors import OptionError, did_you_mean
from xagents.pipeline.context import EpisodeEnd

# the agents of each policy, by the policy's name
PolicyMapping = Mapping[str, Sequence[str]]


class MultiPolicyEnvs(Copyable):
    """N environments of M agents, in which each of several policies acts for some of the agents.

    Properties of whole environments have the names that they have in `Envs`. The observations and actions of a policy
    are in its group.

    Attributes:
        groups: the rows of each policy's agents, by the policy's name.
        agents: the names of the M agents of each environment.
        agents_per_env: M.
        can_snapshot_each: whether each environment can be copied individually.
        can_render: whether `render` returns frames.
        frames_per_second: the natural frame rate of a video.
        snapshot_problem: the reason why the last `snapshot` failed; '' if it succeeded.

    Args:
        factory: the factory of N environments of PettingZoo. Options of Atari games and `flatten` have no effect, and
            'auto' is a loop.
        policy_mapping: the agents of each policy; patterns such as adversary_* include all agents that match.

    Raises:
        OptionError: for an environment of another kind, an unknown agent, an agent with no policy or several policies,
            or a policy whose agents have different spaces.
    """

    recorder = None
    functional_vector = None
    is_game = False
    can_recreate = True
    spec = None

    def __init__(self, factory: EnvFactory, policy_mapping: PolicyMapping):
        if not (isinstance(factory.env, str) or callable(factory.env)):
            expected = 'expected pettingzoo:NAME or a function for several policies'
            raise OptionError('env', f'got a {type(factory.env).__name__}, {expected}')
        if factory.vector in ('envpool', 'compiled', 'native'):
            expected = 'expected auto, sync or async for environments of several agents'
            raise OptionError('vector', f'got {factory.vector}, {expected}')
        maker = dataclasses.replace(factory.maker(), equal_spaces=False, atari=None)
        maker = dataclasses.replace(maker, encoding=dataclasses.replace(maker.encoding, flatten=False))
        self.factory, self.id = factory, maker.name
        self._parallel_vector = ParallelVector(make_base_vector(maker, factory.n_envs, factory.vector))
        self.agents = self._parallel_vector.agent_set.names
        self.agents_per_env = len(self.agents)
        self.n_envs = factory.n_envs * self.agents_per_env
        self.groups: dict[str, Envs] = {}
        try:
            self.groups = self._make_groups(policy_mapping)
        except BaseException:
            self.close()
            raise
        first = self._first_part()
        self.can_render, self.frames_per_second = first.can_render, first.frames_per_second
        self.can_snapshot_each = first.can_snapshot_each

    @property
    def draws_pictures(self) -> bool:
        """Whether environments of this kind can return frames if they are made for it."""
        return self._first_part().draws_pictures

    def _first_part(self) -> Envs:
        return next(iter(self.groups.values()))

    def _make_groups(self, policy_mapping: PolicyMapping) -> dict[str, Envs]:
        agent_indices = assign_agents(self.id, self._parallel_vector.agent_set, policy_mapping)
        return {policy: self._part(policy, own) for policy, own in agent_indices.items()}

    def _part(self, policy: str, agent_indices: tuple[int, ...]) -> Envs:
        kept = self.groups.get(policy)
        if kept is not None and kept.agents == tuple(self.agents[i] for i in agent_indices):
            return kept
        reason = f'{policy} acts with its team only: evaluate, play and train the whole team'
        return Envs(AgentRows(self._parallel_vector, agent_indices), id=self.id, not_recreated_because=reason)

    @property
    def policy_mapping(self) -> dict[str, tuple[str, ...]]:
        """The agents of each policy."""
        return {policy: part.agents for policy, part in self.groups.items()}

    @property
    def valid(self) -> np.ndarray:
        """Bool [N x M]: False if the next step only resets."""
        return self._gather('valid', bool)

    def _gather(self, name: str, dtype: Any) -> np.ndarray:
        """Return a counter of all parts, in the order of all agents."""
        whole = np.zeros(self.n_envs, dtype)
        for part in self.groups.values():
            whole[list(part.env_indices)] = part.state()[name]
        return whole

    def _gather_sums(self, name: str) -> np.ndarray:
        """Return the sums of a number of infos, in the order of all agents."""
        whole = np.full(self.n_envs, np.nan)
        for part in self.groups.values():
            whole[list(part.env_indices)] = part.infos.sums[name]
        return whole

    def select_infos(self, names: Iterable[str]) -> None:
        """Select numbers of the agents' infos; see `Envs.select_infos`."""
        for part in self.groups.values():
            part.select_infos(names)

    def set_params(self, **params: Any) -> None:
        """Change parameters of the environments; see `Envs.set_params`."""
        self._first_part().set_params(**params)

    def check_params(self, params: Mapping[str, Sequence[float]]) -> None:
        """Check that the environments have parameters; see `Envs.check_params`."""
        self._first_part().check_params(params)

    @property
    def infos(self) -> InfoSums:
        """The numbers of infos of the first policy's agents; those of the others have the same names."""
        return self._first_part().infos

    @property
    def seen_infos(self) -> frozenset[str]:
        """The names of all numbers in infos so far, if some are selected."""
        return frozenset().union(*(part.seen_infos for part in self.groups.values()))

    def add_seen_infos(self, names: Iterable[str]) -> None:
        """Add names of numbers in infos of environments that explorers step."""
        self._first_part().add_seen_infos(names)

    def set_policy_mapping(self, policy_mapping: PolicyMapping) -> None:
        """Assign agents to other policies; running episodes continue.

        Raises:
            OptionError: as for `MultiPolicyEnvs`; the mapping then stays unchanged.
        """
        state, infos = self._first_part().state(), self._first_part().infos
        whole = {name: self._gather(name, state[name].dtype) for name in ('valid', 'totals', 'lengths')}
        sums = {name: self._gather_sums(name) for name in infos.names}
        before, self.groups = self.groups, self._make_groups(policy_mapping)
        for policy, part in self.groups.items():
            if part is not before.get(policy):
                rows = list(part.env_indices)
                own = {name: array[rows] for name, array in whole.items()}
                infos_of_part = {name: array[rows] for name, array in sums.items()}
                part.load_counters({**own, 'infos': infos_of_part, 'seeds': state['seeds'], 'episodes': []})
                part.infos.select(infos.names)

    def reset(self, seed: int | None = None) -> None:
        """Start an episode in every environment."""
        for part in self.groups.values():
            part.reset(seed)

    def step_groups(self, actions: Sequence[np.ndarray]) -> list[StepResult]:
        """Take one step with the actions of each group, and return the result of each group; see `Envs.step`."""
        groups = self.groups.values()
        for group, own in zip(groups, actions, strict=True):
            group.set_actions(own)
        return [group.step(own) for group, own in zip(groups, actions, strict=True)]

    def pop_episodes(self) -> list[EpisodeEnd]:
        """Return the episodes of all agents that ended since the last call, ordered by row."""
        ended = [episode for part in self.groups.values() for episode in part.pop_episodes()]
        return sorted(ended, key=lambda episode: episode.env)

    def load_counters(self, state: Mapping[str, Any]) -> None:
        """Restore the counters of each policy from a restored state."""
        for policy, part in self.groups.items():
            part.load_counters(state[policy])
        # the snapshot made a new object, which the parts share: parts of a later mapping must have it, too
        rows = self._first_part()._vector
        assert isinstance(rows, AgentRows)
        self._parallel_vector = rows.parallel_vector

    @property
    def _base_vector(self) -> Any:
        return self._parallel_vector.envs

    def counters_of(self, i: int) -> dict[str, Any]:
        """Return the counters of the agents of environment `i`, by the name of their policy."""
        return {policy: group.counters_of(i) for policy, group in self.groups.items()}

    def load_counters_of(self, i: int, state: Mapping[str, Any]) -> None:
        """Restore the counters of the agents of environment `i`, and forget ended episodes."""
        for policy, group in self.groups.items():
            group.load_counters_of(i, state[policy])

    def state(self) -> dict[str, Any]:
        """Return the state that changes: the vector and the counters of each policy."""
        return {policy: part.state() for policy, part in self.groups.items()}

    def compatibility_key(self) -> list[Any]:
        """Return the properties that must be equal in environments that exchange snapshots."""
        return [[policy, list(part.agents), part.compatibility_key()] for policy, part in self.groups.items()]

    def recreate(
        self, n_envs: int, *, render_mode: str | None = None, training: bool = False, in_process: bool = False
    ) -> MultiPolicyEnvs:
        """Make `n_envs` new environments with the same policy mapping; see `Envs.recreate`."""
        vector = 'sync' if in_process else self.factory.vector
        factory = dataclasses.replace(self.factory, n_envs=n_envs, render_mode=render_mode, vector=vector)
        return MultiPolicyEnvs(factory, self.policy_mapping)

    def render(self) -> list[Any]:
        """Return a frame of each environment."""
        return self._first_part().render()

    def close(self) -> None:
        """Close the environments."""
        self._parallel_vector.envs.close()

    def __repr__(self) -> str:
        return f'<MultiPolicyEnvs {self.id} x {self.n_envs}>'


def make_envs(factory: EnvFactory, policy_mapping: PolicyMapping) -> Any:
    """Make environments whose rows belong to policies, as in `Envs.policy_mapping`."""
    # all rows of an `Envs` belong to a policy without a name
    return factory() if '' in policy_mapping else MultiPolicyEnvs(factory, policy_mapping)


def assign_agents(name: str, agent_set: AgentSet, policy_mapping: PolicyMapping) -> dict[str, tuple[int, ...]]:
    """Return the indices of each policy's agents.

    Raises:
        OptionError: for an unknown agent, an agent with no policy or several policies, or a policy whose agents have
            different spaces.
    """
    names = agent_set.names
    agent_indices = {policy: _match_agents(name, names, policy, own) for policy, own in policy_mapping.items()}
    for i, agent in enumerate(names):
        policies = [policy for policy, own in agent_indices.items() if i in own]
        if len(policies) != 1:
            got = f'has the policies {" and ".join(policies)}' if policies else 'has no policy'
            problem = f'{agent} of {name} {got}, expected one policy for each of {", ".join(names)}'
            raise OptionError('policies', problem)
    for policy, own in agent_indices.items():
        agent_groups = [group for group in agent_set.agent_groups if set(group.agent_indices) & set(own)]
        if len(agent_groups) > 1:
            first, other = (names[min(set(group.agent_indices) & set(own))] for group in agent_groups[:2])
            problem = f'{policy} has the agents {first} and {other}, whose spaces differ in {name}'
            raise OptionError('policies', f'{problem}; expected equal spaces for one policy')
    return agent_indices


def _match_agents(name: str, names: Sequence[str], policy: str, patterns: Sequence[str]) -> tuple[int, ...]:
    """Return the indices of the agents that match any of the patterns."""
    found: set[int] = set()
    for pattern in patterns:
        matching = {i for i, agent in enumerate(names) if agent == pattern or fnmatch.fnmatchcase(agent, pattern)}
        if not matching:
            expected = f'expected agents of {name}: {", ".join(names)}{did_you_mean(pattern, names)}'
            raise OptionError('policies', f'{policy}: got {pattern}, {expected}')
        found |= matching
    return tuple(sorted(found))
