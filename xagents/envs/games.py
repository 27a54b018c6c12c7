"""Games in which agents take turns, as environments of one seat: the other seats are played by opponents.

The games are PettingZoo's AEC environments (Terry et al. 2021, arXiv:2009.14471). A step of the environment is the
agent's move and the moves of its opponents until it is the agent's turn once more. The seat changes at random from game
to game, so one policy learns all seats.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from xagents.envs.observations.action_masks import MASK_KEY, mask_in, sample_legal
from xagents.envs.snapshots.attributes import ConstantPart
from xagents.envs.wrappers import OPPONENT
from xagents.options.errors import OptionError, one_line

# the key in the metadata of a game
SEATS = 'xagents_seats'
# games without a turn of the agent, after which its environment is refused
MAX_SKIPPED_GAMES = 100
MAX_MOVES = 100_000


class Opponents(ConstantPart, ABC):
    """Players of the other seats. Snapshots of environments do not contain them."""

    def choose(self, rng: np.random.Generator) -> int:
        """Return the name of the opponent of a new game, a whole number: -1 for a player without snapshots."""
        return -1

    @abstractmethod
    def act(self, name: int, observation: Any, rng: np.random.Generator) -> Any:
        """Return the action of an opponent for a raw observation of its seat."""


class RandomOpponents(Opponents):
    """Opponents that choose random legal actions.

    Args:
        space: the action space.
        mask_key: the key of the action mask in observations.
    """

    def __init__(self, space: spaces.Space, mask_key: str | None = MASK_KEY) -> None:
        self._space, self._mask_key = copy.deepcopy(space), mask_key

    def act(self, name: int, observation: Any, rng: np.random.Generator) -> Any:
        """Return a random legal action."""
        self._space.seed(int(rng.integers(2**31)))
        return sample_legal(self._space, mask_in(observation, self._mask_key))


class SeatEnv(gymnasium.Env):
    """A game as the environment of one seat.

    The reward of a step is the sum of the rewards of the seat until its next turn; that of the first step includes the
    rewards of moves before it. An episode ends with the game, or when the seat has left it. The info of the last step
    contains the name of the opponent, and whether the agent has won: a sum of rewards above 0.

    Args:
        env: an AEC environment of PettingZoo.
        name: name of the environment, for messages.
        max_episode_steps: a time limit in moves of the agent, in addition to the game's own.
        mask_key: the key of action masks in observations and infos; None if there are no masks.

    Attributes:
        opponents: the players of the other seats; random ones by default.
        seat: the agent's seat in the present game, an index in `possible_agents`.
        fixed_seat: the seat of all further games; None for a random one.

    Raises:
        OptionError: if the seats have different spaces.
    """

    def __init__(
        self, env: Any, name: str, max_episode_steps: int | None = None, mask_key: str | None = MASK_KEY
    ) -> None:
        self.env, self.name, self._limit, self._mask_key = env, name, max_episode_steps, mask_key
        self.agents = tuple(env.possible_agents)
        for kind in ('observation_space', 'action_space'):
            found = [getattr(env, kind)(agent) for agent in self.agents]
            if other := next((space for space in found[1:] if space != found[0]), None):
                got = (
                    f'has an {kind} of {one_line(found[0])} for {self.agents[0]}, and of {one_line(other)} for another'
                )
                raise OptionError('env', f'{name} {got}, expected equal spaces for one policy')
            setattr(self, kind, found[0])
        self.metadata = {**(getattr(env, 'metadata', None) or {}), SEATS: len(self.agents)}
        self.render_mode = getattr(env, 'render_mode', None)
        self.opponents: Opponents = RandomOpponents(self.action_space, mask_key)
        self.fixed_seat: int | None = None
        self.seat = self._opponent = self._steps = 0
        # rewards of the opponents' moves before the agent's first one, and of the whole game
        self._opening = self._total = 0.0

    @property
    def opponent(self) -> int:
        """The name of the opponent in the present game."""
        return self._opponent

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Start a game, and let the opponents move until it is the agent's turn."""
        super().reset(seed=seed)
        for _ in range(MAX_SKIPPED_GAMES):
            self.env.reset(seed=int(self.np_random.integers(2**31)), options=options)
            seats = len(self.agents)
            self.seat = int(self.np_random.integers(seats)) if self.fixed_seat is None else self.fixed_seat
            self._opponent = self.opponents.choose(self.np_random)
            self._steps, self._total = 0, 0.0
            self._opening = self._play_opponents()
            if not self._is_over:
                return self._observation(), self._info()
        raise OptionError('env', f'{self.name} ends {MAX_SKIPPED_GAMES} games without a turn of {self._agent}')

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Move, and let the opponents move until it is the agent's turn, or the game is over."""
        reward = self._opening + self._move(action) + self._play_opponents()
        self._steps, self._opening = self._steps + 1, 0.0
        self._total += reward
        terminated = bool(self.env.terminations.get(self._agent, True))
        late = self._limit is not None and self._steps >= self._limit
        truncated = bool(self.env.truncations.get(self._agent, False)) or late
        info = self._info()
        if terminated or truncated:
            info |= {OPPONENT: self._opponent, 'is_success': self._total > 0}
        return self._observation(), reward, terminated, truncated and not terminated, info

    @property
    def _agent(self) -> Any:
        return self.agents[self.seat]

    @property
    def _is_over(self) -> bool:
        agent, env = self._agent, self.env
        return agent not in env.agents or bool(env.terminations[agent] or env.truncations[agent])

    def _move(self, action: Any) -> float:
        """Take the action of the seat whose turn it is, and return the reward of the agent."""
        self.env.step(action)
        return float(self.env.rewards.get(self._agent, 0.0))

    def _play_opponents(self) -> float:
        """Let the opponents move until it is the agent's turn or the game is over; return the agent's reward."""
        env, reward = self.env, 0.0
        for _ in range(MAX_MOVES):
            agent = env.agent_selection
            if self._is_over or agent == self._agent:
                return reward
            gone = env.terminations[agent] or env.truncations[agent]
            action = None if gone else self.opponents.act(self._opponent, self._seen_by(agent), self.np_random)
            reward += self._move(action)
        raise OptionError('env', f'{self.name} has no turn of {self._agent} in {MAX_MOVES} moves')

    def _seen_by(self, agent: Any) -> Any:
        """Return the observation of a seat; an action mask of its info is a part of it."""
        seen, key = self.env.observe(agent), self._mask_key
        mask = None if key is None else (self.env.infos.get(agent) or {}).get(key)
        if mask is None or (isinstance(seen, dict) and key in seen):
            return seen
        return {**(seen if isinstance(seen, dict) else {'observation': seen}), key: np.asarray(mask, np.int8)}

    def _observation(self) -> Any:
        return self.env.observe(self._agent)

    def _info(self) -> dict[str, Any]:
        return dict(self.env.infos.get(self._agent) or {})

    def seen(self, seat: int | None = None) -> Any:
        """Return the observation of a seat, by default the agent's, with the action mask if there is one."""
        return self._seen_by(self._agent if seat is None else self.agents[seat])

    def render(self) -> Any:
        """Return a frame."""
        return self.env.render()

    def close(self) -> None:
        """Close the environment."""
        self.env.close()
