"""Opponents of a trained policy in games: random players, the policy itself, and a person in the terminal."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from xagents.checkpoints.protocols import ActingAgent
from xagents.collecting.opponents import OpponentPool, policy_form, snapshot_of
from xagents.envs.games import Opponents, SeatEnv
from xagents.envs.interface import Envs
from xagents.envs.observations.action_masks import MASK_KEY
from xagents.options.errors import OptionError

OWN, OTHER, EMPTY = 'X', 'O', '.'


def set_opponent(agent: ActingAgent, envs: Envs, opponent: str | None) -> None:
    """Set the opponents of an agent in games.

    Args:
        agent: the agent.
        envs: the games.
        opponent: `random` for random legal actions, `policy` for the policy of the agent, `human` for a person in the
            terminal; None for `random`.

    Raises:
        OptionError: if an opponent is given for environments that are no games.
    """
    if opponent is not None and not envs.is_game:
        expected = 'expected a game of PettingZoo whose agents take turns'
        raise OptionError('opponent', f'got {opponent}, but {envs.id} is no game; {expected}')
    if opponent == 'policy':
        pool = OpponentPool(envs, policy_form(agent), agent.statistics.copy())
        pool.add(snapshot_of(agent.acting_policy, agent.statistics, 0), 1)
        envs.set_opponents(pool)
    elif opponent == 'human':
        envs.set_opponents(HumanOpponents())


class HumanOpponents(Opponents):
    """A person who types the number of an action.

    Args:
        ask: reads a line; it may raise EOFError. The default is `input`.
        say: prints a line.
    """

    def __init__(self, ask: Callable[[str], str] | None = None, say: Callable[[str], Any] = print) -> None:
        self._ask, self._say = ask or input, say

    def choose(self, rng: np.random.Generator) -> int:
        """Return -1."""
        return -1

    def act(self, name: int, observation: Any, rng: np.random.Generator) -> int:
        """Return the action that the person types.

        Raises:
            KeyboardInterrupt: if the person types q, or the input ends.
        """
        self._say(board_text(observation))
        mask = observation.get(MASK_KEY) if isinstance(observation, dict) else None
        legal = None if mask is None else np.flatnonzero(mask).tolist()
        shown = 'a whole number' if legal is None else ', '.join(map(str, legal))
        while True:
            try:
                typed = self._ask(f'Your action ({shown}; q ends): ').strip()
            except EOFError:
                raise KeyboardInterrupt from None
            if typed == 'q':
                raise KeyboardInterrupt
            if typed.isdecimal() and (legal is None or int(typed) in legal):
                return int(typed)
            self._say(f'got {typed or "nothing"}, expected one of {shown}')


def board_text(observation: Any) -> str:
    """Return the board of an observation as lines: X for the player who sees it, O for the other one.

    Empty fields show the number of their action if there is an action for each field. A board without such fields has
    the numbers of the actions of its columns above it, if there is one for each column.
    """
    board = np.asarray(observation['observation'] if isinstance(observation, dict) else observation)
    if board.ndim != 3 or board.shape[2] != 2:
        return str(board)
    height, width, _ = board.shape
    mask = observation.get(MASK_KEY) if isinstance(observation, dict) else None
    n_actions = 0 if mask is None else len(mask)
    numbered = n_actions == height * width
    lines = [' '.join(map(str, range(width)))] if n_actions == width else []
    for i in range(height):
        empty = [str(i * width + j) if numbered else EMPTY for j in range(width)]
        fields = [OWN if board[i, j, 0] else OTHER if board[i, j, 1] else empty[j] for j in range(width)]
        lines.append(' '.join(fields))
    return '\n'.join(lines)


def show_game(envs: Envs, say: Callable[[str], Any] = print) -> None:
    """Print the board that the agent sees in the first game."""
    game: SeatEnv = envs.seat_envs[0]
    say(f'{board_text(game.seen())}\n')
