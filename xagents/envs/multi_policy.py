"""Environments of several agents in which several policies play: a face for each policy, and one for all of them."""

from __future__ import annotations

import dataclasses
import fnmatch
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from xagents.envs.interface import Copyable, Envs, EpisodeEnd
from xagents.envs.maker import EnvMaker, find_maker, load_wrapper
from xagents.envs.multi_agent import AgentRows, AgentSet, ParallelVector
from xagents.envs.snapshots.write import Snapshot
from xagents.envs.vectors import make_base_vector
from xagents.options.errors import OptionError, did_you_mean

# which agents each policy plays for, by its name
PolicyMapping = Mapping[str, Sequence[str]]


class MultiPolicyEnvs(Copyable):
    """N environments of M agents in which each of several policies plays for some of them.

    What belongs to all of them is that of `Envs`; what a policy sees and does is in its part. A step is made by all
    parts: each says its actions first, and then takes its step.

    Attributes:
        parts: the rows of each policy's agents, by its name.
        snapshot_problem: what the last `snapshot` could not copy; '' if it copied all.

    Args:
        maker: makes one environment.
        n_envs: N.
        vector: how they run side by side.
        policy_mapping: which agents each policy plays for; patterns such as adversary_* stand for all that match.

    Raises:
        OptionError: for agents that do not exist, have no policy or several, or have not the spaces of their policy.
    """

    recorder = None
    can_recreate = True
    can_snapshot_each = False
    spec = None

    def __init__(self, maker: EnvMaker, n_envs: int, vector: str, policy_mapping: PolicyMapping):
        self._maker, self._vector, self.id = maker, vector, maker.name
        self._parallel_vector = ParallelVector(make_base_vector(maker, n_envs, vector))
        self.n_envs = n_envs * self.agents_per_env
        self.parts: dict[str, Envs] = {}
        try:
            self.parts = self._parts(policy_mapping)
        except BaseException:
            self.close()
            raise

    def _parts(self, policy_mapping: PolicyMapping) -> dict[str, Envs]:
        agent_indices = assign_agents(self.id, self._parallel_vector.agent_set, policy_mapping)
        return {policy: self._part(policy, own) for policy, own in agent_indices.items()}

    def _part(self, policy: str, agent_indices: tuple[int, ...]) -> Envs:
        def factory(*_: Any) -> Envs:
            raise OptionError('env', f'{policy} plays with its team only: evaluate, play and train the whole team')

        kept = self.parts.get(policy)
        if kept is not None and kept.agents == tuple(self.agents[i] for i in agent_indices):
            return kept
        return Envs(AgentRows(self._parallel_vector, agent_indices), id=self.id, factory=factory)

    @property
    def agents(self) -> tuple[str, ...]:
        """The names of the M agents of each environment."""
        return self._parallel_vector.agent_set.names

    @property
    def agents_per_env(self) -> int:
        """M."""
        return len(self.agents)

    @property
    def policy_mapping(self) -> dict[str, tuple[str, ...]]:
        """Which agents each policy plays for."""
        return {policy: part.agents for policy, part in self.parts.items()}

    @property
    def valid(self) -> np.ndarray:
        """Bool [N x M], whose next step is one of an episode."""
        return self._gather('valid', bool)

    @property
    def can_render(self) -> bool:
        """Whether `render` returns frames."""
        return self._first_part.can_render

    @property
    def frames_per_second(self) -> float:
        """How fast a video of it looks natural."""
        return self._first_part.frames_per_second

    @property
    def _first_part(self) -> Envs:
        return next(iter(self.parts.values()))

    def _counters(self) -> dict[str, np.ndarray]:
        state = self._first_part.state()
        return {name: state[name] for name in ('valid', 'totals', 'lengths')}

    def _gather(self, name: str, dtype: Any) -> np.ndarray:
        """Return what the parts count, in the order of all agents."""
        whole = np.zeros(self.n_envs, dtype)
        for part in self.parts.values():
            whole[list(part.env_indices)] = part.state()[name]
        return whole

    def set_policy_mapping(self, policy_mapping: PolicyMapping) -> None:
        """Let policies play for other agents from now on; episodes go on.

        Raises:
            OptionError: as for `MultiPolicyEnvs`; all stays as it was then.
        """
        whole = {name: self._gather(name, array.dtype) for name, array in self._counters().items()}
        before, seeds, self.parts = self.parts, self._first_part.state()['seeds'], self._parts(policy_mapping)
        for policy, part in self.parts.items():
            if part is not before.get(policy):
                own = {name: array[list(part.env_indices)] for name, array in whole.items()}
                part.load_counters({**own, 'seeds': seeds, 'episodes': []})

    def reset(self, seed: int | None = None) -> None:
        """Begin an episode in every environment."""
        for part in self.parts.values():
            part.reset(seed)

    def pop_episodes(self) -> list[EpisodeEnd]:
        """Return the episodes of all agents that ended since the last call."""
        return [episode for part in self.parts.values() for episode in part.pop_episodes()]

    def snapshot(self) -> Snapshot | None:
        """Copy the state of the environments, and of what is counted of them; None where that cannot be."""
        copies = self._take([self._state()])
        if copies is None:
            return None
        copies[0].record['kind'] = self._compatibility_key()
        return copies[0]

    def restore(self, snapshot: Snapshot) -> None:
        """Go on from a snapshot of environments of the same kind, divided in the same way.

        Raises:
            ValueError: if it is that of others, or damaged.
        """
        if snapshot.record.get('kind') != self._compatibility_key():
            raise ValueError('snapshot: it is that of other environments, or of other policies in them')
        (states,) = self._assign(lambda: [self._state()], [snapshot])
        for policy, part in self.parts.items():
            part.load_counters(states[policy])

    def _state(self) -> dict[str, Any]:
        return {policy: part.state() for policy, part in self.parts.items()}

    def _compatibility_key(self) -> list[Any]:
        return [[policy, list(part.agents), part.compatibility_key()] for policy, part in self.parts.items()]

    def recreate(
        self, n_envs: int, *, render_mode: str | None = None, training: bool = False, in_process: bool = False
    ) -> MultiPolicyEnvs:
        """Make so many of the same environment afresh, divided in the same way; see `Envs.recreate`."""
        maker = dataclasses.replace(self._maker, render_mode=render_mode)
        return MultiPolicyEnvs(maker, n_envs, 'sync' if in_process else self._vector, self.policy_mapping)

    def render(self) -> list[Any]:
        """Return a frame of each environment."""
        return self._first_part.render()

    def close(self) -> None:
        """Close the environments."""
        self._parallel_vector.envs.close()

    def __repr__(self) -> str:
        return f'<MultiPolicyEnvs {self.id} x {self.n_envs}>'


def create_multi_policy_envs(
    policy_mapping: PolicyMapping,
    env: str | Callable[..., Any],
    n_envs: int = 1,
    *,
    max_episode_steps: int | None = None,
    env_kwargs: dict[str, Any] | None = None,
    vector: str = 'auto',
    wrapper: Sequence[str | Callable[..., Any]] = (),
    agent_index: bool = False,
    **others: Any,
) -> MultiPolicyEnvs:
    """Make environments in which several policies play; see `create_envs` for the options.

    Args:
        policy_mapping: which agents each policy plays for, by its name.
        env: 'pettingzoo:NAME', or a function that makes one of PettingZoo's environments.
        n_envs: how many.
        max_episode_steps: a time limit.
        env_kwargs: arguments of the environment.
        vector: 'async' for worker processes; else they are a loop in this one.
        wrapper: wrappers of PettingZoo's environments.
        agent_index: whether each agent sees which of all agents it is.
        others: those of Atari games, which have no effect here.

    Raises:
        OptionError: in one line, for what `MultiPolicyEnvs` and `create_envs` refuse.
    """
    if not (isinstance(env, str) or callable(env)):
        raise OptionError('env', f'got a {type(env).__name__}, expected pettingzoo:NAME or a function for policies')
    if vector == 'envpool':
        raise OptionError('vector', 'got envpool, expected auto, sync or async for environments of several agents')
    wrappers = tuple(load_wrapper(w) for w in ([wrapper] if isinstance(wrapper, str) else wrapper))
    maker = find_maker(env, kwargs=dict(env_kwargs or {}), max_episode_steps=max_episode_steps, wrappers=wrappers)
    maker = dataclasses.replace(maker, agent_index=bool(agent_index), equal_spaces=False)
    return MultiPolicyEnvs(maker, n_envs, vector, policy_mapping)


def assign_agents(name: str, agent_set: AgentSet, policy_mapping: PolicyMapping) -> dict[str, tuple[int, ...]]:
    """Return which of an environment's agents each policy plays for, by their places.

    Raises:
        OptionError: for agents that do not exist, have no policy or several, or have not the spaces of their policy.
    """
    names = agent_set.names
    agent_indices = {
        policy: _match_agents(name, names, policy, patterns) for policy, patterns in policy_mapping.items()
    }
    for i, agent in enumerate(names):
        policies = [policy for policy, own in agent_indices.items() if i in own]
        if len(policies) != 1:
            got = f'is of {" and ".join(policies)}' if policies else 'has no policy'
            raise OptionError(
                'policies', f'{agent} of {name} {got}, expected one policy for each of {", ".join(names)}'
            )
    for policy, own in agent_indices.items():
        agent_groups = [group for group in agent_set.agent_groups if set(group.agent_indices) & set(own)]
        if len(agent_groups) > 1:
            first, other = (names[min(set(group.agent_indices) & set(own))] for group in agent_groups[:2])
            problem = f'{policy} is to play for {first} and {other}, whose spaces differ in {name}'
            raise OptionError('policies', f'{problem}; expected equal ones for one policy')
    return agent_indices


def _match_agents(name: str, names: Sequence[str], policy: str, patterns: Sequence[str]) -> tuple[int, ...]:
    """Return the places of the agents that some patterns name."""
    found: set[int] = set()
    for pattern in patterns:
        matching = {i for i, agent in enumerate(names) if agent == pattern or fnmatch.fnmatchcase(agent, pattern)}
        if not matching:
            admits = f'expected agents of {name}: {", ".join(names)}{did_you_mean(pattern, names)}'
            raise OptionError('policies', f'{policy}: got {pattern}, {admits}')
        found |= matching
    return tuple(sorted(found))
