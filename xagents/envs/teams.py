"""Several agents in one environment: PettingZoo's as one of Gymnasium, and vectors of these as a row for each agent.

`Team` plays for all agents at once, so that loops, worker processes and copies treat it like any environment; `Rows`
then shows N environments of M agents as N x M rows of one policy. Terry et al. 2021, arXiv:2009.14471, for the parallel
API.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, cast

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import VectorEnv
from gymnasium.vector.utils import batch_space, iterate

from xagents.envs.spaces import Encoder
from xagents.envs.wrappers import SUCCESS, says_success
from xagents.options.errors import OptionError, one_line

# where an environment's metadata tell who plays in it
MEMBERS = 'xagents_members'
ALL = 255  # of a byte


class Members(NamedTuple):
    """Who plays in an environment.

    Attributes:
        names: M of them.
        observation_space: what each of them shows, encoded and of shape D.
        action_space: what each of them takes.
    """

    names: tuple[str, ...]
    observation_space: spaces.Box
    action_space: spaces.Space


class Team(gymnasium.Env):
    """The agents of one of PettingZoo's parallel environments as one player, who sees and does everything.

    What it shows is a Dict: `observations` [M, *D] encoded, and of each agent `rewards`, `terminated`, `truncated` and
    `success` (NaN where the environment says nothing), [M]. Its own reward is their sum, and its episode ends when no
    agent is left. An agent that is gone shows what it saw last, and stays terminated.

    Args:
        env: the environment.
        name: for messages.
        max_episode_steps: a time limit, beside the environment's own.
        index: whether each observation ends with which of the agents it is of, one-hot: further numbers of a vector,
            further channels of an image.

    Raises:
        OptionError: where there are no agents, they have different spaces, or one begins without them all.
    """

    def __init__(self, env: Any, name: str, max_episode_steps: int | None = None, index: bool = False):
        self.env, self.name, self.limit = env, name, max_episode_steps
        self.agents = tuple(env.possible_agents)
        self.names = tuple(map(str, self.agents))
        if not self.agents or (index and len(self.agents) == 1):
            problem = f'{name} has {"one agent" if self.agents else "no agents"}, admits environments of several'
            raise OptionError('agent_index' if self.agents else 'env', problem)
        observation, action = _common(env, name, self.agents)
        self._encoder = Encoder(observation)
        shown = _with_index(self._encoder.space, len(self.names)) if index else self._encoder.space
        self.render_mode = getattr(env, 'render_mode', None)
        self.metadata = {**(getattr(env, 'metadata', None) or {}), MEMBERS: Members(self.names, shown, action)}
        m = len(self.names)
        self._observations = np.zeros((m, *shown.shape), shown.dtype)
        self._seen = self._observations[..., : self._encoder.space.shape[-1]]
        if index:
            mark: Any = np.eye(m, dtype=shown.dtype) * (ALL if shown.dtype == np.uint8 else 1)
            self._observations[..., self._seen.shape[-1] :] = mark.reshape(m, *[1] * (len(shown.shape) - 1), m)
        self._rewards, self._success = np.zeros(m), np.full(m, np.nan)
        self._terminated, self._truncated = np.zeros(m, np.int8), np.zeros(m, np.int8)
        self.observation_space = spaces.Dict(
            observations=cast(spaces.Box, batch_space(shown, m)),
            rewards=spaces.Box(-np.inf, np.inf, (m,), np.float64),
            terminated=spaces.MultiBinary(m),
            truncated=spaces.MultiBinary(m),
            success=spaces.Box(0.0, 1.0, (m,), np.float64),
        )
        self.action_space = batch_space(action, m)
        self._steps = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode of all agents.

        Raises:
            OptionError: where one of them is not there.
        """
        observations, _ = self.env.reset(seed=seed, options=options)
        absent = [agent for agent in self.agents if agent not in self.env.agents or agent not in observations]
        if absent:
            raise OptionError('env', f'{self.name} begins without {absent[0]}, admits that all agents are there')
        self._steps = 0
        self._see(observations)
        self._rewards[:], self._success[:] = 0.0, np.nan
        self._terminated[:] = self._truncated[:] = False
        return self._shown(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Take a step by the actions [M, …] of those who are there."""
        taken = dict(zip(self.agents, iterate(self.action_space, action), strict=True))
        there = set(self.env.agents)
        if not there <= taken.keys():
            stranger = next(agent for agent in self.env.agents if agent not in taken)
            raise OptionError('env', f'{self.name} has an agent {stranger}, which its possible_agents do not name')
        result = self.env.step({agent: taken[agent] for agent in self.env.agents})
        observations, rewards, terminated, truncated, infos = result
        self._steps += 1
        self._see(observations)
        late = self.limit is not None and self._steps >= self.limit
        for i, agent in enumerate(self.agents):
            left = agent not in self.env.agents
            if agent in there:
                self._rewards[i] = rewards.get(agent, 0.0)
                self._truncated[i] = cut_off = truncated.get(agent, False)
                # who leaves without a word is terminated
                self._terminated[i] = ends = terminated.get(agent, False) or (left and not cut_off)
                self._truncated[i] |= late and not ends
                self._success[i] = _success((infos or {}).get(agent) or {})
            else:  # gone, or back again
                self._rewards[i], self._success[i] = 0.0, np.nan
                self._terminated[i], self._truncated[i] = left, False
        over = not self.env.agents or bool(np.all(self._terminated | self._truncated))
        cut = over and bool(self._truncated.any())
        return self._shown(), float(self._rewards.sum()), over and not cut, cut, {}

    def _see(self, observations: Mapping[str, Any]) -> None:
        """Take over what agents see who are there."""
        places = [i for i, agent in enumerate(self.agents) if agent in observations]
        if places:
            self._seen[places] = self._encoder([observations[self.agents[i]] for i in places])

    def _shown(self) -> dict[str, np.ndarray]:
        return {
            'observations': self._observations,
            'rewards': self._rewards,
            'terminated': self._terminated,
            'truncated': self._truncated,
            'success': self._success,
        }

    def render(self) -> Any:
        """Return a frame."""
        return self.env.render()

    def close(self) -> None:
        """Close the environment."""
        self.env.close()


class Rows(VectorEnv):
    """N environments of M agents as N x M rows, those of an environment side by side; its arrays change with each step.

    Args:
        teams: a vector of teams, in NEXT_STEP mode.
    """

    def __init__(self, teams: VectorEnv):
        self.teams, self.metadata, self.render_mode = teams, teams.metadata, teams.render_mode
        names, observation, action = teams.metadata[MEMBERS]
        self.num_envs = teams.num_envs * len(names)
        self.single_observation_space, self.single_action_space = observation, action
        self.observation_space = batch_space(observation, self.num_envs)
        self.action_space = batch_space(action, self.num_envs)

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode in every environment, by a seed for each environment where a list is given."""
        shown, _ = self.teams.reset(seed=seed, options=options)
        return self._rows(shown['observations']), {}

    def step(self, actions: Any) -> tuple[Any, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """Step every environment by the actions [N x M, …], or reset it where its episode ended with the last step."""
        taken = np.asarray(actions)
        shown, *_ = self.teams.step(taken.reshape(self.teams.num_envs, -1, *taken.shape[1:]))
        terminated, truncated = (self._rows(shown[name]).astype(bool) for name in ('terminated', 'truncated'))
        success = self._rows(shown['success'])
        told = ~np.isnan(success)
        infos = {SUCCESS[0]: success > 0, f'_{SUCCESS[0]}': told} if told.any() else {}
        return self._rows(shown['observations']), self._rows(shown['rewards']), terminated, truncated, infos

    def _rows(self, array: np.ndarray) -> np.ndarray:
        return array.reshape(self.num_envs, *array.shape[2:])

    def render(self) -> tuple[Any, ...] | None:
        """Return a frame of each environment."""
        return self.teams.render()

    def close_extras(self, **kwargs: Any) -> None:
        """Close the environments."""
        self.teams.close(**kwargs)


def _common(env: Any, name: str, names: tuple[Any, ...]) -> tuple[spaces.Space, spaces.Space]:
    """Return the observation and action space that all agents have.

    Raises:
        OptionError: where they have different ones.
    """
    found = [(env.observation_space(agent), env.action_space(agent)) for agent in names]
    for agent, own in zip(names, found, strict=True):
        for kind, first, other in zip(('observations', 'actions'), found[0], own, strict=True):
            if first != other:
                raise OptionError(
                    'env',
                    f'{name}: {names[0]} has {kind} of {one_line(first)}, {agent} of {one_line(other)}; '
                    'admits equal ones for one policy',
                )
    return found[0]


def _with_index(space: spaces.Box, m: int) -> spaces.Box:
    """Return an encoded space with m further numbers, or channels, at its end."""
    shape = (*space.shape[:-1], m)
    top: Any = ALL if space.dtype == np.uint8 else 1
    low = np.concatenate([space.low, np.zeros(shape, space.dtype)], -1)
    high = np.concatenate([space.high, np.full(shape, top, space.dtype)], -1)
    return spaces.Box(low, high, dtype=cast(Any, space.dtype))


def _success(info: Mapping[str, Any]) -> float:
    """Return what an agent's info says about success, NaN where it says nothing."""
    return next((float(info[name]) for name in SUCCESS if says_success(info.get(name))), np.nan)
