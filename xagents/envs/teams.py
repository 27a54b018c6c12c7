"""Several agents in one environment: PettingZoo's as one of Gymnasium, and vectors of these as a row for each agent.

`Team` plays for all agents at once, so that loops, worker processes and copies treat it like any environment; at a
`Table` N of these step together, and `Rows` shows M of their agents as N x M rows of one policy. Terry et al. 2021,
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

from xagents.envs.spaces import Encoder
from xagents.envs.wrappers import SUCCESS, success_of
from xagents.options.errors import OptionError, one_line

# where an environment's metadata tell who plays in it
MEMBERS = 'xagents_members'
# in infos: what all agents of an environment got together, NaN for all but the last of them to end
TEAM = 'xagents_team'
ALL = 255  # of a byte


class Kind(NamedTuple):
    """Agents of an environment that have equal spaces.

    Attributes:
        places: which they are.
        observation_space: what each of them shows, encoded and of shape D.
        action_space: what each of them takes.
    """

    places: tuple[int, ...]
    observation_space: spaces.Box
    action_space: spaces.Space


class Members(NamedTuple):
    """Who plays in an environment: M agents by their names, and of what kinds they are."""

    names: tuple[str, ...]
    kinds: tuple[Kind, ...]


class Team(gymnasium.Env):
    """The agents of one of PettingZoo's parallel environments as one player, who sees and does everything.

    What it shows is a Dict: `observations`, encoded, [m, *D] for each kind of agents; and of each agent `rewards`,
    `terminated`, `truncated`, `success` (NaN where the environment says nothing) and `team` (what all got together, NaN
    for all but the last of them to end), [M]. Its own reward is the sum of theirs, and its episode ends when no agent
    is left. An agent that is gone shows what it saw last, and stays terminated.

    Args:
        env: the environment.
        name: for messages.
        max_episode_steps: a time limit, beside the environment's own.
        index: whether each observation ends with which of the agents it is of, one-hot: further numbers of a vector,
            further channels of an image.
        alike: whether all agents must be of one kind, as one policy needs them.

    Raises:
        OptionError: where there are no agents, they have different spaces, or one begins without them all.
    """

    def __init__(
        self, env: Any, name: str, max_episode_steps: int | None = None, index: bool = False, alike: bool = True
    ):
        self.env, self.name, self.limit = env, name, max_episode_steps
        self.agents = tuple(env.possible_agents)
        names = tuple(map(str, self.agents))
        if not self.agents or (index and len(self.agents) == 1):
            problem = f'{name} has {"one agent" if self.agents else "no agents"}, admits environments of several'
            raise OptionError('agent_index' if self.agents else 'env', problem)
        groups = _groups(env, self.agents)
        if alike and len(groups) > 1:
            raise OptionError('env', _difference(env, name, self.agents))
        self._encoders = [Encoder(observation) for _, observation, _ in groups]
        kinds = tuple(
            Kind(places, _with_index(encoder.space, len(names)) if index else encoder.space, action)
            for encoder, (places, _, action) in zip(self._encoders, groups, strict=True)
        )
        self.render_mode = getattr(env, 'render_mode', None)
        self.metadata = {**(getattr(env, 'metadata', None) or {}), MEMBERS: Members(names, kinds)}
        shown = [batch_space(kind.observation_space, len(kind.places)) for kind in kinds]
        self._observations = tuple(np.zeros(space.shape or (), space.dtype) for space in shown)
        self._seen = [
            observed[..., : encoder.space.shape[-1]]
            for observed, encoder in zip(self._observations, self._encoders, strict=True)
        ]
        if index:
            for kind, observed in zip(kinds, self._observations, strict=True):
                _mark(observed, kind.places, len(names))
        m = len(names)
        self._rewards, self._success, self._team = np.zeros(m), np.full(m, np.nan), np.full(m, np.nan)
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
        self.action_space = spaces.Tuple([batch_space(kind.action_space, len(kind.places)) for kind in kinds])
        self._steps, self._earned = 0, 0.0

    @property
    def _kinds(self) -> tuple[Kind, ...]:
        return self.metadata[MEMBERS].kinds

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode of all agents.

        Raises:
            OptionError: where one of them is not there.
        """
        observations, _ = self.env.reset(seed=seed, options=options)
        absent = [agent for agent in self.agents if agent not in self.env.agents or agent not in observations]
        if absent:
            raise OptionError('env', f'{self.name} begins without {absent[0]}, admits that all agents are there')
        self._steps, self._earned = 0, 0.0
        self._see(observations)
        self._rewards[:], self._success[:], self._team[:] = 0.0, np.nan, np.nan
        self._terminated[:] = self._truncated[:] = False
        return self._shown(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Take a step by the actions [m, …] of each kind of agents; those of who is gone are ignored."""
        taken: dict[Any, Any] = {}
        for kind, space, own in zip(self._kinds, cast(Any, self.action_space), action, strict=True):
            taken.update(zip((self.agents[i] for i in kind.places), iterate(space, own), strict=True))
        there = set(self.env.agents)
        if not there <= taken.keys():
            stranger = next(agent for agent in self.env.agents if agent not in taken)
            raise OptionError('env', f'{self.name} has an agent {stranger}, which its possible_agents do not name')
        result = self.env.step({agent: taken[agent] for agent in self.env.agents})
        observations, rewards, terminated, truncated, infos = result
        self._steps += 1
        self._see(observations)
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
        self._earned += float(self._rewards.sum())
        over = not self.env.agents or bool(np.all(self._terminated | self._truncated))
        if over:
            self._team[last] = self._earned
        cut = over and bool(self._truncated.any())
        return self._shown(), float(self._rewards.sum()), over and not cut, cut, {}

    def _see(self, observations: Mapping[str, Any]) -> None:
        """Take over what agents see who are there."""
        for kind, seen, encode in zip(self._kinds, self._seen, self._encoders, strict=True):
            here = [(row, self.agents[i]) for row, i in enumerate(kind.places) if self.agents[i] in observations]
            if here:
                seen[[row for row, _ in here]] = encode([observations[agent] for _, agent in here])

    def _shown(self) -> dict[str, Any]:
        return {
            'observations': self._observations,
            'rewards': self._rewards,
            'terminated': self._terminated,
            'truncated': self._truncated,
            'success': self._success,
            'team': self._team,
        }

    def render(self) -> Any:
        """Return a frame."""
        return self.env.render()

    def close(self) -> None:
        """Close the environment."""
        self.env.close()


class Table:
    """N teams that step at once: when everyone who has a part in them has said what his agents do.

    Args:
        teams: a vector of teams, in NEXT_STEP mode.
    """

    def __init__(self, teams: VectorEnv):
        self.teams: VectorEnv = teams
        self.turn = 0  # counts what was shown
        self.shown: dict[str, Any] = {}
        self._actions: tuple[Any, ...] = tuple(
            create_empty_array(batch_space(kind.action_space, len(kind.places)), n=teams.num_envs)
            for kind in self.members.kinds
        )
        self._said = np.zeros(len(self.members.names), bool)

    @property
    def members(self) -> Members:
        """Who plays in each of the environments."""
        return self.teams.metadata[MEMBERS]

    def say(self, kind: int, columns: Any, places: Sequence[int], actions: np.ndarray) -> None:
        """Let some agents of a kind do this with the next step: actions [N, m, …]."""
        self._actions[kind][:, columns] = actions
        self._said[list(places)] = True

    def reset(self, seed: Any, options: dict[str, Any] | None) -> None:
        """Begin an episode in every environment."""
        self.shown, _ = self.teams.reset(seed=seed, options=options)
        self._said[:] = False
        self.turn += 1

    def step(self) -> None:
        """Step every environment by what was said.

        Raises:
            RuntimeError: where somebody has said nothing.
        """
        if not self._said.all():
            silent = ', '.join(name for name, said in zip(self.members.names, self._said, strict=True) if not said)
            raise RuntimeError(f'nobody has said what {silent} are to do: a policy of a team acts with its team only')
        self.shown, *_ = self.teams.step(self._actions)
        self._said[:] = False
        self.turn += 1


class Rows(VectorEnv):
    """N environments of M agents as N x M rows, those of an environment side by side; its arrays change with each step.

    Where others have a part in the environments, too, each first says by `say` what its agents do; the first of them
    to `step`, or `reset`, does it for all, and the others then get what was shown to them.

    Args:
        table: the environments.
        places: which of their agents, all of one kind; all of them when not given.
    """

    def __init__(self, table: Table, places: Sequence[int] | None = None):
        teams, names = table.teams, table.members.names
        self.table, self.metadata, self.render_mode = table, dict(teams.metadata), teams.render_mode
        self.places = tuple(range(len(names)) if places is None else places)
        self._kind = next(i for i, kind in enumerate(table.members.kinds) if self.places[0] in kind.places)
        kind = table.members.kinds[self._kind]
        self.metadata[MEMBERS] = Members(tuple(names[i] for i in self.places), (kind,))
        self._columns = _slice([kind.places.index(i) for i in self.places])
        self._agents = _slice(self.places)
        self.num_envs = teams.num_envs * len(self.places)
        self.single_observation_space, self.single_action_space = kind.observation_space, kind.action_space
        self.observation_space = batch_space(kind.observation_space, self.num_envs)
        self.action_space = batch_space(kind.action_space, self.num_envs)
        self._turn = table.turn

    @property
    def rows(self) -> list[int]:
        """Which of the rows of all agents these are."""
        m = len(self.table.members.names)
        return [env * m + place for env in range(self.table.teams.num_envs) for place in self.places]

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode in every environment, by a seed for each environment where a list is given."""
        if self._turn == self.table.turn:
            self.table.reset(seed, options)
        self._turn = self.table.turn
        return self.seen(), {}

    def say(self, actions: Any) -> None:
        """Let the agents do this with the next step: actions [N x M, …]."""
        taken = np.asarray(actions)
        own = taken.reshape(self.table.teams.num_envs, -1, *taken.shape[1:])
        self.table.say(self._kind, self._columns, self.places, own)

    def step(self, actions: Any) -> tuple[Any, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """Step every environment by the actions [N x M, …], or reset it where its episode ended with the last step."""
        if self._turn == self.table.turn:
            self.say(actions)
            self.table.step()
        self._turn = self.table.turn
        shown = self.table.shown
        terminated, truncated = (self._rows(shown[name]).astype(bool) for name in ('terminated', 'truncated'))
        success, team = self._rows(shown['success']), self._rows(shown['team'])
        told, infos = ~np.isnan(success), dict[str, Any]()
        if told.any():
            infos |= {SUCCESS[0]: success > 0, f'_{SUCCESS[0]}': told}
        if not np.isnan(team).all():
            infos[TEAM] = team
        return self.seen(), self._rows(shown['rewards']), terminated, truncated, infos

    def seen(self) -> np.ndarray:
        """Return what was shown last, [N x M, *D]."""
        observed = self.table.shown['observations'][self._kind][:, self._columns]
        return observed.reshape(self.num_envs, *observed.shape[2:])

    def _rows(self, array: np.ndarray) -> np.ndarray:
        return array[:, self._agents].reshape(self.num_envs)

    def render(self) -> tuple[Any, ...] | None:
        """Return a frame of each environment."""
        return self.table.teams.render()

    def close_extras(self, **kwargs: Any) -> None:
        """Close the environments."""
        self.table.teams.close(**kwargs)


def _groups(env: Any, agents: Sequence[Any]) -> list[tuple[tuple[int, ...], spaces.Space, spaces.Space]]:
    """Return which agents have equal spaces, in their order, with their observation and action space."""
    groups: list[tuple[list[int], spaces.Space, spaces.Space]] = []
    for i, agent in enumerate(agents):
        own = env.observation_space(agent), env.action_space(agent)
        group = next((group for group in groups if group[1:] == own), None)
        if group is None:
            groups.append(([i], *own))
        else:
            group[0].append(i)
    return [(tuple(places), observation, action) for places, observation, action in groups]


def _difference(env: Any, name: str, agents: Sequence[Any]) -> str:
    """Return what refuses agents with different spaces, where one policy is to play for all."""
    first = agents[0]
    for agent in agents[1:]:
        for kind, space in (('observations', env.observation_space), ('actions', env.action_space)):
            if space(first) != space(agent):
                return (
                    f'{name}: {first} has {kind} of {one_line(space(first))}, {agent} of {one_line(space(agent))}; '
                    'admits equal ones for one policy, or several policies (--policies)'
                )
    raise AssertionError


def _mark(observed: np.ndarray, places: Sequence[int], m: int) -> None:
    """Let observations [n, …, D + m] of some of m agents end with which of them each is of."""
    top: Any = ALL if observed.dtype == np.uint8 else 1
    marks = np.eye(m, dtype=observed.dtype)[list(places)] * top
    observed[..., -m:] = marks.reshape(len(places), *[1] * (observed.ndim - 2), m)


def _slice(places: Sequence[int]) -> slice | list[int]:
    """Return an index of places, without a copy where they stand side by side."""
    first, last = places[0], places[-1] + 1
    return slice(first, last) if list(places) == list(range(first, last)) else list(places)


def _with_index(space: spaces.Box, m: int) -> spaces.Box:
    """Return an encoded space with m further numbers, or channels, at its end."""
    shape = (*space.shape[:-1], m)
    top: Any = ALL if space.dtype == np.uint8 else 1
    low = np.concatenate([space.low, np.zeros(shape, space.dtype)], -1)
    high = np.concatenate([space.high, np.full(shape, top, space.dtype)], -1)
    return spaces.Box(low, high, dtype=cast(Any, space.dtype))
