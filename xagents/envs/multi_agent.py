"""Multi-agent environments of PettingZoo as Gymnasium environments, and vectors with a row for each agent.

`ParallelEnvAdapter` turns a parallel environment into a single Gymnasium environment, so that loops, worker processes
and snapshots need no special case. `ParallelVector` steps N adapters together. `AgentRows` presents M of their agents
as N x M rows of one policy. The parallel API is that of Terry et al. 2021, arXiv:2009.14471.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, cast

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import VectorEnv
from gymnasium.vector.utils import batch_space, create_empty_array, iterate

from xagents.envs.spaces import DEFAULT_ENCODING, Encoding, ObservationEncoder
from xagents.envs.values.infos import NUMBERS, SEEN, WRONG, InfoReader
from xagents.envs.values.parameters import find_params, set_params
from xagents.envs.wrappers import SUCCESS, success_of
from xagents.options.errors import OptionError, one_line

# the key of an environment's `AgentSet` in its metadata
AGENT_SET = 'xagents_members'
# the key in infos of the summed reward of all agents of an environment; NaN except for the last agent to finish
TEAM_REWARD = 'xagents_team'
BYTE_MAX = 255


class AgentGroup(NamedTuple):
    """A group of agents of an environment with equal spaces.

    Attributes:
        agent_indices: the indices of the agents.
        observation_space: the encoded observation space of each agent, of shape D.
        action_space: the action space of each agent.
        n_mask: the number of elements of an encoded observation, its last ones, that are the action mask.
    """

    agent_indices: tuple[int, ...]
    observation_space: spaces.Box
    action_space: spaces.Space
    n_mask: int = 0


class AgentSet(NamedTuple):
    """The names of the M agents of an environment, and their groups of equal spaces."""

    names: tuple[str, ...]
    agent_groups: tuple[AgentGroup, ...]


class ParallelEnvAdapter(gymnasium.Env):
    """A Gymnasium environment that contains all agents of one of PettingZoo's parallel environments.

    Its observation is a Dict. `observations` contains the encoded observations [m, *D] of each group of m agents. The
    other entries have the shape [M]: `rewards`, `terminated`, `truncated`, `success` (NaN if the environment does not
    report it) and `team` (the summed reward of all agents, NaN except for the last agent to finish). The reward is the
    sum of the agents' rewards, and the episode ends when no agent is left. An agent that ended early repeats its last
    observation and stays terminated. The step after an agent's end has no reward for it, even if the agent is back by
    then: its next episode begins with the observation after that step.

    Attributes:
        info_reader: the reader of numbers in the infos of agents, which infos then contain; None for no numbers.

    Args:
        env: the environment.
        name: the environment's name, for messages.
        max_episode_steps: a time limit, in addition to the environment's own.
        index: whether the agent's one-hot index is appended to each observation: as elements of a vector, or as
            channels of an image.
        equal_spaces: whether all agents must have equal spaces, as a single policy requires.
        encoding: options of the encoders of observations.

    Raises:
        OptionError: if there are no agents or, for a single policy, agents with different spaces.
    """

    def __init__(
        self,
        env: Any,
        name: str,
        max_episode_steps: int | None = None,
        index: bool = False,
        equal_spaces: bool = True,
        encoding: Encoding = DEFAULT_ENCODING,
    ):
        self.env, self.name, self.limit = env, name, max_episode_steps
        self.agents = tuple(env.possible_agents)
        names = tuple(map(str, self.agents))
        if not self.agents or (index and len(self.agents) == 1):
            problem = f'{name} has {"one agent" if self.agents else "no agents"}, expected an environment with several'
            raise OptionError('agent_index' if self.agents else 'env', problem)
        if equal_spaces:
            _check_equal_spaces(env, name, self.agents)
        if encoding.critic_only:
            got = f'got {" ".join(encoding.critic_only)}, but {name} has several agents'
            raise OptionError('critic_only', f'{got}, expected an environment with one agent')
        groups, m = _group_agents(env, self.agents), len(names)
        # images among other parts become elements of the vector
        vectors = dataclasses.replace(encoding, flatten=True)
        encodings = [vectors if isinstance(seen, spaces.Dict | spaces.Tuple) else encoding for _, seen, _ in groups]
        self._encoders = [ObservationEncoder(seen, own) for (_, seen, _), own in zip(groups, encodings, strict=True)]
        encoded = [_with_agent_index(e.space, m, e.n_mask) if index else e.space for e in self._encoders]
        made = zip(groups, encoded, self._encoders, strict=True)
        agent_groups = tuple(AgentGroup(own, space, act, e.n_mask) for (own, _, act), space, e in made)
        self.render_mode = getattr(env, 'render_mode', None)
        self.metadata = {**(getattr(env, 'metadata', None) or {}), AGENT_SET: AgentSet(names, agent_groups)}
        shown = [batch_space(group.observation_space, len(group.agent_indices)) for group in agent_groups]
        self._observations = tuple(np.zeros(space.shape or (), space.dtype) for space in shown)
        pairs = zip(self._observations, self._encoders, strict=True)
        # the index of the agent stands before the mask
        cuts = [(observed, encoder.space.shape[-1] - encoder.n_mask, encoder.n_mask) for observed, encoder in pairs]
        self._observation_views = [(seen[..., :n], seen[..., seen.shape[-1] - n_mask :]) for seen, n, n_mask in cuts]
        if index:
            for group, (observed, n, _) in zip(agent_groups, cuts, strict=True):
                _write_agent_index(observed[..., n : n + m], group.agent_indices, m)
        self._rewards, self._success, self._team_reward = np.zeros(m), np.full(m, np.nan), np.full(m, np.nan)
        self._terminated, self._truncated = np.zeros(m, np.int8), np.zeros(m, np.int8)
        number, success = (spaces.Box(*bounds, (m,), np.float64) for bounds in ((-np.inf, np.inf), (0.0, 1.0)))
        flags: dict[str, Any] = {
            'terminated': spaces.MultiBinary(m),
            'truncated': spaces.MultiBinary(m),
            'success': success,
        }
        self.observation_space = spaces.Dict(observations=spaces.Tuple(shown), rewards=number, **flags, team=number)
        self.action_space = spaces.Tuple([batch_space(g.action_space, len(g.agent_indices)) for g in agent_groups])
        self._steps, self._total_reward = 0, 0.0
        self.info_reader: InfoReader | None = None

    @property
    def _agent_groups(self) -> tuple[AgentGroup, ...]:
        return self.metadata[AGENT_SET].agent_groups

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Start an episode of all agents.

        Raises:
            OptionError: if an agent is absent after the reset.
        """
        observations, _ = self.env.reset(seed=seed, options=options)
        absent = [agent for agent in self.agents if agent not in self.env.agents or agent not in observations]
        if absent:
            raise OptionError('env', f'{self.name} starts an episode without {absent[0]}, expected all agents')
        self._steps, self._total_reward = 0, 0.0
        self._write_observations(observations)
        self._rewards[:], self._success[:], self._team_reward[:] = 0.0, np.nan, np.nan
        self._terminated[:] = self._truncated[:] = False
        return self._observation(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Take a step with the actions [m, …] of each group of agents; actions of ended agents are ignored."""
        taken: dict[Any, Any] = {}
        for group, space, own in zip(self._agent_groups, cast(Any, self.action_space), action, strict=True):
            taken.update(zip((self.agents[i] for i in group.agent_indices), iterate(space, own), strict=True))
        active = set(self.env.agents)
        if not active <= taken.keys():
            unknown = next(agent for agent in self.env.agents if agent not in taken)
            raise OptionError('env', f'{self.name} has the agent {unknown}, expected one of its possible_agents')
        result = self.env.step({agent: taken[agent] for agent in self.env.agents})
        observations, rewards, terminated, truncated, infos = result
        self._steps += 1
        self._write_observations(observations)
        active -= {agent for agent, ended in zip(self.agents, self._ended(), strict=True) if ended}
        late = self.limit is not None and self._steps >= self.limit
        last = 0
        for i, agent in enumerate(self.agents):
            left = agent not in self.env.agents
            if agent in active:
                self._rewards[i] = rewards.get(agent, 0.0)
                self._truncated[i] = cut_off = truncated.get(agent, False)
                # an agent that left without a flag is terminated
                self._terminated[i] = ends = terminated.get(agent, False) or (left and not cut_off)
                self._truncated[i] |= late and not ends
                last = i if ends or self._truncated[i] else last
                self._success[i] = success_of((infos or {}).get(agent) or {})
            else:  # ended in an earlier step, or returned after that
                self._rewards[i], self._success[i] = 0.0, np.nan
                self._terminated[i] = gone = left or terminated.get(agent, False) or truncated.get(agent, False)
                self._truncated[i] = late and not gone
        self._total_reward += float(self._rewards.sum())
        over = not self.env.agents or bool(self._ended().all())
        if over:
            self._team_reward[last] = self._total_reward
        cut = over and bool(self._truncated.any())
        passed: dict[str, Any] = {}
        if self.info_reader is not None:
            own = [(infos or {}).get(agent) or {} if agent in active else {} for agent in self.agents]
            passed = self.info_reader.read_agents(own)
        return self._observation(), float(self._rewards.sum()), over and not cut, cut, passed

    def set_env_params(self, params: Mapping[str, Any]) -> str:
        """Set parameters of the environment and return a problem; see `xagents.envs.values.parameters`."""
        return set_params(self, params)

    def find_env_params(self, params: Mapping[str, Sequence[float]]) -> tuple[dict[str, str], list[str]]:
        """Return why names are no parameters of the environment, and the names of all its parameters."""
        return find_params(self, params)

    def _ended(self) -> np.ndarray:
        """Return whether each agent ended in the last step or is absent, bool [M]."""
        return (self._terminated | self._truncated).astype(bool)

    def _write_observations(self, observations: Mapping[str, Any]) -> None:
        """Store the encoded observations of all agents that are present."""
        for group, (seen, masks), encode in zip(
            self._agent_groups, self._observation_views, self._encoders, strict=True
        ):
            own = [self.agents[i] for i in group.agent_indices]
            rows = [row for row, agent in enumerate(own) if agent in observations]
            if rows:
                encoded = encode([observations[own[row]] for row in rows])
                seen[rows], masks[rows] = np.split(encoded, [seen.shape[-1]], -1)

    def _observation(self) -> dict[str, Any]:
        flags = {'terminated': self._terminated, 'truncated': self._truncated, 'success': self._success}
        return {'observations': self._observations, 'rewards': self._rewards, **flags, 'team': self._team_reward}

    def render(self) -> Any:
        """Return a frame."""
        return self.env.render()

    def close(self) -> None:
        """Close the environment."""
        self.env.close()


class ParallelVector:
    """N `ParallelEnvAdapter`s that step together, once the actions of all their agents are set.

    Attributes:
        envs: the vector of adapters.
        step_id: the number of resets and steps so far.
        latest_step: the observation of the last reset or step.
        latest_infos: the infos of the last step.

    Args:
        envs: a vector of `ParallelEnvAdapter`s, in NEXT_STEP mode.
    """

    def __init__(self, envs: VectorEnv):
        self.envs: VectorEnv = envs
        self.step_id = 0
        self.latest_step: dict[str, Any] = {}
        self.latest_infos: dict[str, Any] = {}
        self._actions: Any = create_empty_array(envs.single_action_space, n=envs.num_envs)
        self._actions_set = np.zeros(len(self.agent_set.names), bool)

    @property
    def agent_set(self) -> AgentSet:
        """The agents of each environment."""
        return self.envs.metadata[AGENT_SET]

    def set_actions(self, group: int, columns: Any, agent_indices: Sequence[int], actions: np.ndarray) -> None:
        """Set the actions [N, m, …] of some agents of a group for the next step."""
        self._actions[group][:, columns] = actions
        self._actions_set[list(agent_indices)] = True

    def reset(self, seed: Any, options: dict[str, Any] | None) -> None:
        """Start an episode in every environment."""
        self.latest_step, _ = self.envs.reset(seed=seed, options=options)
        self._actions_set[:] = False
        self.step_id += 1

    def step(self) -> None:
        """Step every environment with the actions that were set.

        Raises:
            RuntimeError: if the actions of an agent are not set.
        """
        if not self._actions_set.all():
            missing = ', '.join(itertools.compress(self.agent_set.names, ~self._actions_set))
            expected = 'a policy of a team steps together with its team only'
            raise RuntimeError(f'no actions are set for {missing}: {expected}')
        self.latest_step, *_, self.latest_infos = self.envs.step(self._actions)
        self._actions_set[:] = False
        self.step_id += 1


class AgentRows(VectorEnv):
    """A vector of N x M rows, one for each of M agents of N environments; the rows of an environment are adjacent.

    The next step overwrites the returned arrays. If several `AgentRows` share the environments, each first calls
    `set_actions` for its agents. The first call of `step` or `reset` then executes it for all; the other `AgentRows`
    return their rows of the same result.

    Args:
        parallel_vector: the environments.
        agent_indices: the indices of the agents, all of one group; None for all agents.
    """

    def __init__(self, parallel_vector: ParallelVector, agent_indices: Sequence[int] | None = None):
        envs, names = parallel_vector.envs, parallel_vector.agent_set.names
        self.parallel_vector, self.metadata, self.render_mode = parallel_vector, dict(envs.metadata), envs.render_mode
        self.agent_indices = tuple(range(len(names)) if agent_indices is None else agent_indices)
        groups = parallel_vector.agent_set.agent_groups
        self._group_index = next(i for i, g in enumerate(groups) if self.agent_indices[0] in g.agent_indices)
        group = groups[self._group_index]
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
        """The indices of these rows among the rows of all agents."""
        m = len(self.parallel_vector.agent_set.names)
        return [env * m + place for env in range(self.parallel_vector.envs.num_envs) for place in self.agent_indices]

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Start an episode in every environment; `seed` is None, a single seed, or a list with a seed for each."""
        if self._step_id == self.parallel_vector.step_id:
            self.parallel_vector.reset(seed, options)
        self._step_id = self.parallel_vector.step_id
        return self.current_observations(), {}

    def set_actions(self, actions: Any) -> None:
        """Set the actions [N x M, …] of the agents for the next step."""
        taken = np.asarray(actions)
        own = taken.reshape(self.parallel_vector.envs.num_envs, -1, *taken.shape[1:])
        self.parallel_vector.set_actions(self._group_index, self._columns, self.agent_indices, own)

    def step(self, actions: Any) -> tuple[Any, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """Step every environment with the actions [N x M, …], or reset it if its episode ended with the last step."""
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
        latest = self.parallel_vector.latest_infos
        if NUMBERS in latest:
            numbers = latest[NUMBERS][:, self._agents]
            infos[NUMBERS] = numbers.reshape(self.num_envs, numbers.shape[-1])
            infos[f'_{NUMBERS}'] = np.repeat(latest[f'_{NUMBERS}'], len(self.agent_indices))
            infos |= {key: latest[key] for key in (SEEN, WRONG) if key in latest}
        return self.current_observations(), self._rows(shown['rewards']), terminated, truncated, infos

    def current_observations(self) -> np.ndarray:
        """Return the current observations [N x M, *D]."""
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
    """Return the indices of agents with equal spaces, in the agents' order, with their observation and action space."""
    groups: list[tuple[list[int], spaces.Space, spaces.Space]] = []
    for i, agent in enumerate(agents):
        own = env.observation_space(agent), env.action_space(agent)
        group = next((group for group in groups if group[1:] == own), None)
        if group is None:
            groups.append(([i], *own))
        else:
            group[0].append(i)
    return [(tuple(agent_indices), observation, action) for agent_indices, observation, action in groups]


def _check_equal_spaces(env: Any, name: str, agents: Sequence[Any]) -> None:
    """Check that all agents have equal spaces, as a single policy requires."""
    first = agents[0]
    for agent in agents[1:]:
        for kind, space in (('observations', env.observation_space), ('actions', env.action_space)):
            if space(first) != space(agent):
                got = f'{first} has {kind} of {one_line(space(first))}, {agent} of {one_line(space(agent))}'
                expected = 'expected equal spaces for one policy, or several policies (--policies)'
                raise OptionError('env', f'{name}: {got}; {expected}')


def _write_agent_index(observed: np.ndarray, agent_indices: Sequence[int], m: int) -> None:
    """Write the one-hot index of each agent to a part [n, …, m] of the observations of n of m agents."""
    top: Any = BYTE_MAX if observed.dtype == np.uint8 else 1
    marks = np.eye(m, dtype=observed.dtype)[list(agent_indices)] * top
    observed[:] = marks.reshape(len(agent_indices), *[1] * (observed.ndim - 2), m)


def _slice(agent_indices: Sequence[int]) -> slice | list[int]:
    """Return an array index: a slice, which needs no copy, if the agents are adjacent; otherwise a list."""
    first, last = agent_indices[0], agent_indices[-1] + 1
    return slice(first, last) if list(agent_indices) == list(range(first, last)) else list(agent_indices)


def _with_agent_index(space: spaces.Box, m: int, n_mask: int) -> spaces.Box:
    """Return an encoded space with m more elements or channels, before the mask of `n_mask` elements at its end."""
    shape = (*space.shape[:-1], m)
    top: Any = BYTE_MAX if space.dtype == np.uint8 else 1
    index = np.zeros(shape, space.dtype), np.full(shape, top, space.dtype)
    ends = [np.split(bound, [space.shape[-1] - n_mask], -1) for bound in (space.low, space.high)]
    low, high = (np.concatenate([first, own, last], -1) for (first, last), own in zip(ends, index, strict=True))
    return spaces.Box(low, high, dtype=cast(Any, space.dtype))
