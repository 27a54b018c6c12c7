"""Several agents in one environment: PettingZoo's as one of Gymnasium, and vectors of these as a row for each agent.

`ParallelEnvAdapter` plays for all agents at once, so that loops, worker processes and copies treat it like any
environment; at a
`ParallelVector` N of these step together, and `AgentRows` shows M of their agents as N x M rows of one policy. Terry
et al. 2021,
arXiv:2009.14471, for the parallel API.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, cast

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import VectorEnv
from gymnasium.vector.utils import batch_space, create_empty_array, iterate

from xagents.envs.spaces import ObservationEncoder
from xagents.envs.wrappers import SUCCESS, success_of
from xagents.options.errors import OptionError, one_line

# where an environment's metadata tell who plays in it
AGENT_SET = 'xagents_members'
# in infos: what all agents of an environment got together, NaN for all but the last of them to end
TEAM_REWARD = 'xagents_team'
BYTE_MAX = 255  # of a byte


class AgentGroup(NamedTuple):
    """Agents of an environment that have equal spaces.

    Attributes:
        agent_indices: which they are.
        observation_space: what each of them shows, encoded and of shape D.
        action_space: what each of them takes.
    """

    agent_indices: tuple[int, ...]
    observation_space: spaces.Box
    action_space: spaces.Space


class AgentSet(NamedTuple):
    """Who plays in an environment: M agents by their names, and of what kinds they are."""

    names: tuple[str, ...]
    agent_groups: tuple[AgentGroup, ...]


class ParallelEnvAdapter(gymnasium.Env):
    """The agents of one of PettingZoo's parallel environments as one player, who sees and does everything.

    What it shows is a Dict: `observations`, encoded, [m, *D] for each kind of agents; and of each agent `rewards`,
    `terminated`, `truncated`, `success` (NaN where the environment says nothing) and `team` (what all got together, NaN
    for all but the last of them to end), [M]. Its own reward is the sum of theirs, and its episode ends when no agent
    is left. An agent that is gone shows what it saw last, and stays terminated.

    Args:
        env: the environment.
        name: for messages.
        max_episode_steps: a time limit, in addition to the environment's own.
        index: whether each observation ends with which of the agents it is of, one-hot: further numbers of a vector,
            further channels of an image.
        equal_spaces: whether all agents must be of one kind, as one policy needs them.

    Raises:
        OptionError: where there are no agents, they have different spaces, or one begins without them all.
    """

    def __init__(
        self, env: Any, name: str, max_episode_steps: int | None = None, index: bool = False, equal_spaces: bool = True
    ):
        self.env, self.name, self.limit = env, name, max_episode_steps
        self.agents = tuple(env.possible_agents)
        names = tuple(map(str, self.agents))
        if not self.agents or (index and len(self.agents) == 1):
            problem = f'{name} has {"one agent" if self.agents else "no agents"}, expected environments of several'
            raise OptionError('agent_index' if self.agents else 'env', problem)
        groups = _group_agents(env, self.agents)
        if equal_spaces and len(groups) > 1:
            raise OptionError('env', _space_mismatch(env, name, self.agents))
        self._encoders = [ObservationEncoder(observation) for _, observation, _ in groups]
        agent_groups = tuple(
            AgentGroup(agent_indices, _with_agent_index(encoder.space, len(names)) if index else encoder.space, action)
            for encoder, (agent_indices, _, action) in zip(self._encoders, groups, strict=True)
        )
        self.render_mode = getattr(env, 'render_mode', None)
        self.metadata = {**(getattr(env, 'metadata', None) or {}), AGENT_SET: AgentSet(names, agent_groups)}
        shown = [batch_space(group.observation_space, len(group.agent_indices)) for group in agent_groups]
        self._observations = tuple(np.zeros(space.shape or (), space.dtype) for space in shown)
        self._observation_views = [
            observed[..., : encoder.space.shape[-1]]
            for observed, encoder in zip(self._observations, self._encoders, strict=True)
        ]
        if index:
            for group, observed in zip(agent_groups, self._observations, strict=True):
                _append_agent_index(observed, group.agent_indices, len(names))
        m = len(names)
        self._rewards, self._success, self._team_reward = np.zeros(m), np.full(m, np.nan), np.full(m, np.nan)
        self._terminated, self._truncated = np.zeros(m, np.int8), np.zeros(m, np.int8)
        number = spaces.Box(-np.inf, np.inf, (m,), np.float64)
        self.observation_space = spaces.Dict(
            observations=spaces.Tuple(shown),
            rewards=number,
            terminated=spaces.MultiBinary(m),
            truncated=spaces.MultiBinary(m),
            success=spaces.Box(0.0, 1.0, (m,), np.float64),
            team=number,
        )
        self.action_space = spaces.Tuple(
            [batch_space(group.action_space, len(group.agent_indices)) for group in agent_groups]
        )
        self._steps, self._total_reward = 0, 0.0

    @property
    def _agent_groups(self) -> tuple[AgentGroup, ...]:
        return self.metadata[AGENT_SET].agent_groups

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode of all agents.

        Raises:
            OptionError: where one of them is not there.
        """
        observations, _ = self.env.reset(seed=seed, options=options)
        absent = [agent for agent in self.agents if agent not in self.env.agents or agent not in observations]
        if absent:
            raise OptionError('env', f'{self.name} begins without {absent[0]}, expected that all agents are there')
        self._steps, self._total_reward = 0, 0.0
        self._write_observations(observations)
        self._rewards[:], self._success[:], self._team_reward[:] = 0.0, np.nan, np.nan
        self._terminated[:] = self._truncated[:] = False
        return self._observation(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Take a step by the actions [m, …] of each kind of agents; those of who is gone are ignored."""
        taken: dict[Any, Any] = {}
        for group, space, own in zip(self._agent_groups, cast(Any, self.action_space), action, strict=True):
            taken.update(zip((self.agents[i] for i in group.agent_indices), iterate(space, own), strict=True))
        there = set(self.env.agents)
        if not there <= taken.keys():
            stranger = next(agent for agent in self.env.agents if agent not in taken)
            raise OptionError('env', f'{self.name} has an agent {stranger}, which its possible_agents do not name')
        result = self.env.step({agent: taken[agent] for agent in self.env.agents})
        observations, rewards, terminated, truncated, infos = result
        self._steps += 1
        self._write_observations(observations)
        late = self.limit is not None and self._steps >= self.limit
        last = 0
        for i, agent in enumerate(self.agents):
            left = agent not in self.env.agents
            if agent in there:
                self._rewards[i] = rewards.get(agent, 0.0)
                self._truncated[i] = cut_off = truncated.get(agent, False)
                # who leaves without a word is terminated
                self._terminated[i] = ends = terminated.get(agent, False) or (left and not cut_off)
                self._truncated[i] |= late and not ends
                last = i if ends or self._truncated[i] else last
                self._success[i] = success_of((infos or {}).get(agent) or {})
            else:  # gone, or back again
                self._rewards[i], self._success[i] = 0.0, np.nan
                self._terminated[i], self._truncated[i] = left, False
        self._total_reward += float(self._rewards.sum())
        over = not self.env.agents or bool(np.all(self._terminated | self._truncated))
        if over:
            self._team_reward[last] = self._total_reward
        cut = over and bool(self._truncated.any())
        return self._observation(), float(self._rewards.sum()), over and not cut, cut, {}

    def _write_observations(self, observations: Mapping[str, Any]) -> None:
        """Take over what agents see who are there."""
        for group, seen, encode in zip(self._agent_groups, self._observation_views, self._encoders, strict=True):
            here = [
                (row, self.agents[i]) for row, i in enumerate(group.agent_indices) if self.agents[i] in observations
            ]
            if here:
                seen[[row for row, _ in here]] = encode([observations[agent] for _, agent in here])

    def _observation(self) -> dict[str, Any]:
        return {
            'observations': self._observations,
            'rewards': self._rewards,
            'terminated': self._terminated,
            'truncated': self._truncated,
            'success': self._success,
            'team': self._team_reward,
        }

    def render(self) -> Any:
        """Return a frame."""
        return self.env.render()

    def close(self) -> None:
        """Close the environment."""
        self.env.close()


class ParallelVector:
    """N teams that step at once: when everyone who has a part in them has said what his agents do.

    Args:
        envs: a vector of teams, in NEXT_STEP mode.
    """

    def __init__(self, envs: VectorEnv):
        self.envs: VectorEnv = envs
        self.step_id = 0  # counts what was shown
        self.latest_step: dict[str, Any] = {}
        self._actions: tuple[Any, ...] = tuple(
            create_empty_array(batch_space(group.action_space, len(group.agent_indices)), n=envs.num_envs)
            for group in self.agent_set.agent_groups
        )
        self._actions_set = np.zeros(len(self.agent_set.names), bool)

    @property
    def agent_set(self) -> AgentSet:
        """Who plays in each of the environments."""
        return self.envs.metadata[AGENT_SET]

    def set_actions(self, group: int, columns: Any, agent_indices: Sequence[int], actions: np.ndarray) -> None:
        """Let some agents of a kind do this with the next step: actions [N, m, …]."""
        self._actions[group][:, columns] = actions
        self._actions_set[list(agent_indices)] = True

    def reset(self, seed: Any, options: dict[str, Any] | None) -> None:
        """Begin an episode in every environment."""
        self.latest_step, _ = self.envs.reset(seed=seed, options=options)
        self._actions_set[:] = False
        self.step_id += 1

    def step(self) -> None:
        """Step every environment by what was said.

        Raises:
            RuntimeError: where somebody has said nothing.
        """
        if not self._actions_set.all():
            silent = ', '.join(
                name for name, said in zip(self.agent_set.names, self._actions_set, strict=True) if not said
            )
            raise RuntimeError(f'nobody has said what {silent} are to do: a policy of a team acts with its team only')
        self.latest_step, *_ = self.envs.step(self._actions)
        self._actions_set[:] = False
        self.step_id += 1


class AgentRows(VectorEnv):
    """N environments of M agents as N x M rows, those of an environment side by side; its arrays change with each step.

    Where others have a part in the environments, too, each first says by `set_actions` what its agents do; the first
    of them
    to `step`, or `reset`, does it for all, and the others then get what was shown to them.

    Args:
        parallel_vector: the environments.
        agent_indices: which of their agents, all of one kind; all of them when not given.
    """

    def __init__(self, parallel_vector: ParallelVector, agent_indices: Sequence[int] | None = None):
        envs, names = parallel_vector.envs, parallel_vector.agent_set.names
        self.parallel_vector, self.metadata, self.render_mode = parallel_vector, dict(envs.metadata), envs.render_mode
        self.agent_indices = tuple(range(len(names)) if agent_indices is None else agent_indices)
        self._group_index = next(
            i
            for i, group in enumerate(parallel_vector.agent_set.agent_groups)
            if self.agent_indices[0] in group.agent_indices
        )
        group = parallel_vector.agent_set.agent_groups[self._group_index]
        self.metadata[AGENT_SET] = AgentSet(tuple(names[i] for i in self.agent_indices), (group,))
        self._columns = _slice([group.agent_indices.index(i) for i in self.agent_indices])
        self._agents = _slice(self.agent_indices)
        self.num_envs = envs.num_envs * len(self.agent_indices)
        self.single_observation_space, self.single_action_space = group.observation_space, group.action_space
        self.observation_space = batch_space(group.observation_space, self.num_envs)
        self.action_space = batch_space(group.action_space, self.num_envs)
        self._step_id = parallel_vector.step_id

    @property
    def row_indices(self) -> list[int]:
        """Which of the rows of all agents these are."""
        m = len(self.parallel_vector.agent_set.names)
        return [env * m + place for env in range(self.parallel_vector.envs.num_envs) for place in self.agent_indices]

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode in every environment, by a seed for each environment where a list is given."""
        if self._step_id == self.parallel_vector.step_id:
            self.parallel_vector.reset(seed, options)
        self._step_id = self.parallel_vector.step_id
        return self.current_observations(), {}

    def set_actions(self, actions: Any) -> None:
        """Let the agents do this with the next step: actions [N x M, …]."""
        taken = np.asarray(actions)
        own = taken.reshape(self.parallel_vector.envs.num_envs, -1, *taken.shape[1:])
        self.parallel_vector.set_actions(self._group_index, self._columns, self.agent_indices, own)

    def step(self, actions: Any) -> tuple[Any, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """Step every environment by the actions [N x M, …], or reset it where its episode ended with the last step."""
        if self._step_id == self.parallel_vector.step_id:
            self.set_actions(actions)
            self.parallel_vector.step()
        self._step_id = self.parallel_vector.step_id
        shown = self.parallel_vector.latest_step
        terminated, truncated = (self._rows(shown[name]).astype(bool) for name in ('terminated', 'truncated'))
        success, team = self._rows(shown['success']), self._rows(shown['team'])
        reported, infos = ~np.isnan(success), dict[str, Any]()
        if reported.any():
            infos |= {SUCCESS[0]: success > 0, f'_{SUCCESS[0]}': reported}
        if not np.isnan(team).all():
            infos[TEAM_REWARD] = team
        return self.current_observations(), self._rows(shown['rewards']), terminated, truncated, infos

    def current_observations(self) -> np.ndarray:
        """Return what was shown last, [N x M, *D]."""
        observed = self.parallel_vector.latest_step['observations'][self._group_index][:, self._columns]
        return observed.reshape(self.num_envs, *observed.shape[2:])

    def _rows(self, array: np.ndarray) -> np.ndarray:
        return array[:, self._agents].reshape(self.num_envs)

    def render(self) -> tuple[Any, ...] | None:
        """Return a frame of each environment."""
        return self.parallel_vector.envs.render()

    def close_extras(self, **kwargs: Any) -> None:
        """Close the environments."""
        self.parallel_vector.envs.close(**kwargs)


def _group_agents(env: Any, agents: Sequence[Any]) -> list[tuple[tuple[int, ...], spaces.Space, spaces.Space]]:
    """Return which agents have equal spaces, in their order, with their observation and action space."""
    groups: list[tuple[list[int], spaces.Space, spaces.Space]] = []
    for i, agent in enumerate(agents):
        own = env.observation_space(agent), env.action_space(agent)
        group = next((group for group in groups if group[1:] == own), None)
        if group is None:
            groups.append(([i], *own))
        else:
            group[0].append(i)
    return [(tuple(agent_indices), observation, action) for agent_indices, observation, action in groups]


def _space_mismatch(env: Any, name: str, agents: Sequence[Any]) -> str:
    """Return what refuses agents with different spaces, where one policy is to play for all."""
    first = agents[0]
    for agent in agents[1:]:
        for kind, space in (('observations', env.observation_space), ('actions', env.action_space)):
            if space(first) != space(agent):
                return (
                    f'{name}: {first} has {kind} of {one_line(space(first))}, {agent} of {one_line(space(agent))}; '
                    'expected equal ones for one policy, or several policies (--policies)'
                )
    raise AssertionError


def _append_agent_index(observed: np.ndarray, agent_indices: Sequence[int], m: int) -> None:
    """Let observations [n, …, D + m] of some of m agents end with which of them each is of."""
    top: Any = BYTE_MAX if observed.dtype == np.uint8 else 1
    marks = np.eye(m, dtype=observed.dtype)[list(agent_indices)] * top
    observed[..., -m:] = marks.reshape(len(agent_indices), *[1] * (observed.ndim - 2), m)


def _slice(agent_indices: Sequence[int]) -> slice | list[int]:
    """Return an index of places, without a copy where they stand side by side."""
    first, last = agent_indices[0], agent_indices[-1] + 1
    return slice(first, last) if list(agent_indices) == list(range(first, last)) else list(agent_indices)


def _with_agent_index(space: spaces.Box, m: int) -> spaces.Box:
    """Return an encoded space with m further numbers, or channels, at its end."""
    shape = (*space.shape[:-1], m)
    top: Any = BYTE_MAX if space.dtype == np.uint8 else 1
    low = np.concatenate([space.low, np.zeros(shape, space.dtype)], -1)
    high = np.concatenate([space.high, np.full(shape, top, space.dtype)], -1)
    return spaces.Box(low, high, dtype=cast(Any, space.dtype))
