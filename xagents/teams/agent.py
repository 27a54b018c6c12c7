"""The agent of a team: several policies that act in the same environments and learn at the same time."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from xagents.base.agent import BaseAgent
from xagents.checkpoints.agent_state import capture_state
from xagents.checkpoints.protocols import BufferNeeds
from xagents.checkpoints.state_files import AgentState
from xagents.collecting.collector import Collector
from xagents.collecting.random_streams import RandomStreams
from xagents.collecting.rollouts import MEMORY, OBSERVATIONS, ColumnSpecs, RowState
from xagents.collecting.statistics import Statistics
from xagents.envs.multi_policy import MultiPolicyEnvs
from xagents.options.agents import AgentOptions
from xagents.options.errors import OptionError
from xagents.pipeline.recipe import Recipe
from xagents.pipeline.schedules import Schedule
from xagents.registry.traits import Traits
from xagents.teams import stages
from xagents.teams.cli import TeamOptions, policy_seed


class TeamAgent(BaseAgent):
    """Several policies in the same environments; each acts for some agents of an environment.

    Each member is a complete xagents agent with its own algorithm, networks, options, statistics and random generators.
    In every iteration, all members act for the same number of steps, and then each learns from its own rows.

    Args:
        envs: the environments, with a part for each policy.
        members: the xagents agents, by the names of their policies.
        remake: creates the agent of a policy for another part of the environments.
        options: `TeamOptions` and `RunOptions`.

    Attributes:
        members: the xagents agents, by the names of their policies.
        map: the name of the policy of each agent of an environment. A stage may change the map between two iterations;
            episodes continue, and policies keep their weights.

    Raises:
        OptionError: if the members do not collect the same number of steps.
    """

    Options: ClassVar[type[AgentOptions]] = TeamOptions
    options: TeamOptions
    envs: MultiPolicyEnvs  # type: ignore[assignment]
    traits = Traits(no_overlap_reason='collects for several policies at once, expected a single one')

    def __init__(
        self, envs: MultiPolicyEnvs, members: Mapping[str, BaseAgent], remake: Callable[..., BaseAgent], **options: Any
    ):
        super().__init__(envs, **options)
        self._members = dict(members)
        self._remake = remake
        self.map = {agent: name for name, part in envs.groups.items() for agent in part.agents}
        self.streams = TeamRandomStreams(self.streams.seed, self.members)
        self._collect_models()
        self._check_steps()

    def _make_statistics(self) -> Statistics:
        return Statistics()

    def _policy_columns(self) -> ColumnSpecs:
        return {}  # each member has its own

    def _collect_models(self) -> None:
        self.output_models = [model for member in self.members.values() for model in member.output_models]

    def _check_steps(self) -> None:
        """Check that all members collect the same number of steps per iteration."""
        steps = {name: member.n_steps for name, member in self.members.items()}
        first, n_steps = next(iter(steps.items()))
        for name, own in steps.items():
            if own != n_steps:
                got = f'{first} collects {n_steps} steps an iteration and {name} {own}'
                options = 'n_steps of what learns from rollouts, fragment_steps of what has a replay buffer'
                raise OptionError('policies', f'{got}, expected equal numbers: {options}')

    # the interface of a run

    @property
    def members(self) -> dict[str, BaseAgent]:
        """The xagents agents, by the names of their policies."""
        return self._members

    @property
    def n_steps(self) -> int:
        """T, the number of steps of each environment per iteration."""
        return next(iter(self.members.values())).n_steps

    @functools.cached_property
    def collector(self) -> Collector:
        """The collector of all policies."""
        groups = {name: member.collector.group for name, member in self.members.items()}
        return Collector(self.envs, groups, self.streams)

    def collect(self, schedule: Mapping[str, float]) -> dict[str, Any]:
        """Collect `n_steps` steps with all policies, and return a rollout per policy, by name."""
        self.apply_map()
        schedules: dict[str, dict[str, Any]] = {name: {} for name in self.members}
        for name, value in schedule.items():
            member, _, own = name.partition('/')
            schedules[member][own] = value
        return self.collector.collect_groups(self.n_steps, schedules)

    def learning(self) -> Recipe:
        """Return the stage in which each policy learns."""
        return Recipe([('learn', stages.learn)])

    def schedules(self) -> dict[str, Schedule]:
        """Return the schedules of all policies, with the name of the policy as a prefix.

        The length of a schedule with its own `steps` counts steps of the policy's agents.
        """
        found = {}
        for name, member in self.members.items():
            share = self.envs.n_envs / member.envs.n_envs
            for what, schedule in member.schedules().items():
                steps = None if schedule.steps is None else round(schedule.steps * share)
                found[f'{name}/{what}'] = dataclasses.replace(schedule, steps=steps)
        return found

    def parts(self) -> dict[str, Any]:
        """Return the parts whose state belongs in checkpoints: parts and counters of the members."""
        parts: dict[str, Any] = {}
        for name, member in self.members.items():
            own = {**member.parts(), 'counters': PolicyCounters(member)}
            parts |= {f'{name}/{part}': value for part, value in own.items()}
        return parts

    def buffer_needs(self) -> BufferNeeds | None:
        """Return the total needs of the members' empty replay buffers; None if there are none."""
        needs = [own for member in self.members.values() if (own := member.buffer_needs()) is not None]
        if not needs:
            return None
        most = max(own.min_transitions for own in needs)
        return BufferNeeds(most, sum(own.capacity for own in needs), sum(own.n_bytes for own in needs), needs[0].verb)

    def refresh(self) -> None:
        """Update the acting networks of all members to their current weights."""
        for member in self.members.values():
            member.refresh()

    def evaluate(self, *arguments: Any, **options: Any) -> dict[str, float]:
        """Play whole episodes; see `BaseAgent.evaluate`."""
        self.apply_map()
        return super().evaluate(*arguments, **options)

    def play(self, *arguments: Any, **options: Any) -> float:
        """Play one episode; see `BaseAgent.play`."""
        self.apply_map()
        return super().play(*arguments, **options)

    def act(self, *arguments: Any, **options: Any) -> np.ndarray:
        """Raise TypeError, because each member acts for its own agents."""
        raise TypeError(f'each policy of a team acts for its own agents: use `members`, with {", ".join(self.members)}')

    # the map from agents to policies

    def apply_map(self) -> None:
        """Assign agents to policies according to `map`.

        Raises:
            OptionError: if an agent or a policy does not exist, or a policy would have no agents.
        """
        unknown_agents = {*self.map} - {*self.envs.agents}
        if unknown_agents:
            got, expected = min(map(str, unknown_agents)), ', '.join(self.envs.agents)
            raise OptionError('policies', f'map: got {got}, expected {expected}')
        missing = [agent for agent in self.envs.agents if agent not in self.map]
        if missing:
            raise OptionError('policies', f'map: {missing[0]} has no policy, expected one of {", ".join(self.members)}')
        policy_mapping = {name: tuple(a for a in self.envs.agents if self.map.get(a) == name) for name in self.members}
        unknown = {*self.map.values()} - {*self.members}
        if unknown:
            raise OptionError('policies', f'map: got {min(map(str, unknown))}, expected {", ".join(self.members)}')
        if policy_mapping == self.envs.policy_mapping:
            return
        if self.collector.is_remote:
            raise OptionError('policies', 'map: cannot change during a run with explorers, expected a run without them')
        counts = {name: len(own) * self.envs.n_whole_envs for name, own in policy_mapping.items()}
        for name, member in self.members.items():
            if not counts[name]:
                raise OptionError('policies', f'map: no agent is assigned to {name}, expected at least one')
            if counts[name] != member.envs.n_envs and hasattr(member, 'buffer'):
                problem = f'map: {name} has a replay buffer of {member.envs.n_envs} agents, expected equally many'
                raise OptionError('policies', problem)
        states = self.collector.stepper.row_states
        groups = () if states is None else zip(self.envs.groups.items(), states, strict=True)
        seen = {
            row: (name, {key: x[i] for key, x in own.items()})
            for (name, part), own in groups
            for i, row in enumerate(part.env_indices)
        }
        self.envs.set_policy_mapping(policy_mapping)
        for name, member in list(self.members.items()):
            if self.envs.groups[name] is not member.envs:
                self.members[name] = self._reassigned(name, member)
        policies = self.options.policies or {}
        policies = {n: {**policy, 'agents': list(policy_mapping[n])} for n, policy in policies.items()}
        self.options = self.options.changed(policies=policies)
        self._collect_models()
        assert isinstance(self.streams, TeamRandomStreams)
        self.streams.members = self.members
        self.collector.groups = {name: member.collector.group for name, member in self.members.items()}
        if states is not None:
            self.collector.stepper.row_states = [
                self._row_state(name, [seen[row] for row in part.env_indices])
                for name, part in self.envs.groups.items()
            ]

    def _row_state(self, name: str, rows: Sequence[tuple[str, RowState]]) -> RowState:
        """Return the state of the rows of a policy.

        Args:
            name: the policy.
            rows: of each row, its former policy, and its observation and memory. A new policy begins without memory.
        """
        state = {OBSERVATIONS: np.stack([own[OBSERVATIONS] for _, own in rows])}
        if units := self.members[name].acting_policy.memory_units:
            fresh = np.zeros(units, np.float32)
            state[MEMORY] = np.stack([own.get(MEMORY, fresh) if before == name else fresh for before, own in rows])
        return state

    def _reassigned(self, name: str, member: BaseAgent) -> BaseAgent:
        """Return a member for other agents of the environments; its state of individual agents is reset."""
        part = self.envs.groups[name]
        if part.n_envs == member.envs.n_envs:
            new, new.envs = member, part
            del new.__dict__['collector']
            new.statistics.reset_returns(np.ones(part.n_envs, bool))
        else:
            new = self._remake(name, part)
            state, fresh = capture_state(member), capture_state(new).arrays
            fitting = {n: x for n, x in state.arrays.items() if n in fresh and x.shape == fresh[n].shape}
            new.load_state(AgentState(state.weights, {**fresh, **fitting}, state.record))
        new.collector.group.restarted = True
        return new


class TeamRandomStreams(RandomStreams):
    """The random generators of a team; their state includes the generators of the members."""

    def __init__(self, seed: int, members: Mapping[str, BaseAgent]):
        super().__init__(seed)
        self.members = members

    def state(self) -> dict[str, Any]:
        """Return the states of all generators, for JSON."""
        return {'members': {n: member.streams.state() for n, member in self.members.items()}, 'own': super().state()}

    def load(self, state: Mapping[str, Any]) -> None:
        """Load states of all generators."""
        super().load(state['own'])
        for name, member in self.members.items():
            member.streams.load(state['members'][name])

    def restart(self, seed: int) -> None:
        """Restart every generator from another seed."""
        super().restart(seed)
        for name, member in self.members.items():
            member.streams.restart(policy_seed(seed, name))


class PolicyCounters:
    """The counters of a member, as a part with a state: iterations, steps of its agents, and updates."""

    NAMES = ('iteration', 'steps', 'updates')

    def __init__(self, member: BaseAgent):
        self._member = member

    def state(self) -> dict[str, np.ndarray]:
        """Return the counters."""
        return {name: np.array(getattr(self._member.progress.context, name)) for name in self.NAMES}

    def load(self, state: Mapping[str, np.ndarray]) -> None:
        """Load counters."""
        for name in self.NAMES:
            setattr(self._member.progress.context, name, int(state[name]))
