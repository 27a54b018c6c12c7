"""Opponents of a trained policy in games: random players, the policy itself, and a person in the terminal."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from gymnasium import spaces

from xagents.checkpoints.protocols import ActingAgent
from xagents.collecting.opponents import OpponentPool, policy_form, snapshot_of
from xagents.envs.games import Opponents, RandomOpponents, SeatEnv
from xagents.envs.interface import Envs
from xagents.envs.observations.action_masks import MASK_KEY, mask_in
from xagents.options.errors import OptionError, did_you_mean, one_line

OWN, OTHER, EMPTY = 'X', 'O', '.'
HUMAN_LEGEND = f'{OWN}: you, {OTHER}: the policy'
POLICY_LEGEND = f'{OWN}: the policy, {OTHER}: its opponent'
OPPONENTS = ('random', 'policy', 'human')


@contextlib.contextmanager
def playing_against(agent: ActingAgent, envs: Envs, opponent: str | None) -> Iterator[None]:
    """Let an agent play against an opponent in games; afterwards, they have their own opponents again.

    Args:
        agent: the agent.
        envs: the games.
        opponent: `random` for random legal actions, `policy` for the policy of the agent, `human` for a person in the
            terminal; None for the opponents that the games have, which are random if nobody has set them.

    Raises:
        OptionError: for another opponent, or if an opponent is given for environments that are no games.
    """
    if opponent is None:
        yield
        return
    if not envs.is_game:
        expected = 'expected a game of PettingZoo whose agents take turns'
        raise OptionError('opponent', f'got {opponent}, but {envs.id} is no game; {expected}')
    games = envs.seat_envs
    before = [game.opponents for game in games]
    envs.set_opponents(_opponents_of(agent, envs, opponent))
    try:
        yield
    finally:
        for game, own in zip(games, before, strict=True):
            game.opponents = own


def _opponents_of(agent: ActingAgent, envs: Envs, opponent: str) -> Opponents:
    known = envs.action_space, envs.encoder.encoding.mask_key
    if opponent == 'random':
        return RandomOpponents(*known)
    if opponent == 'human':
        if not action_numbers(envs.action_space):
            got = f'got human, but actions of {envs.id} are {one_line(envs.action_space)}'
            raise OptionError('opponent', f'{got}, expected Discrete ones, which a person can type')
        return HumanOpponents(*known)
    if opponent != 'policy':
        hint = did_you_mean(opponent, OPPONENTS)
        raise OptionError('opponent', f'got {opponent}, expected {", ".join(OPPONENTS)}{hint}')
    pool = OpponentPool(envs, policy_form(agent), agent.statistics.copy())
    pool.add(snapshot_of(agent.acting_policy, agent.statistics, 0), 1)
    return pool


class HumanOpponents(Opponents):
    """A person who types the number of an action.

    Args:
        space: the action space.
        mask_key: the key of the action mask in observations.
        ask: reads a line; it may raise EOFError. The default is `input`.
        say: prints a line.
    """

    def __init__(
        self,
        space: spaces.Space,
        mask_key: str | None = MASK_KEY,
        ask: Callable[[str], str] | None = None,
        say: Callable[[str], Any] = print,
    ) -> None:
        self._actions, self._mask_key = action_numbers(space), mask_key
        self._ask, self._say = ask or input, say

    def act(self, name: int, observation: Any, rng: np.random.Generator) -> int:
        """Return the action that the person types.

        Raises:
            KeyboardInterrupt: if the person types q, or the input ends.
        """
        self._say(board_text(observation, self._actions, HUMAN_LEGEND, self._mask_key))
        mask = mask_in(observation, self._mask_key)
        legal = [action for i, action in enumerate(self._actions) if mask is None or mask[i]]
        shown = ', '.join(map(str, legal))
        while True:
            try:
                typed = self._ask(f'Your action ({shown}; q ends): ').strip()
            except EOFError:
                raise KeyboardInterrupt from None
            if typed == 'q':
                raise KeyboardInterrupt
            if typed in map(str, legal):
                return int(typed)
            self._say(f'got {typed or "nothing"}, expected one of {shown}')


def action_numbers(space: spaces.Space) -> range:
    """Return the actions of a Discrete space; empty for other spaces."""
    return range(int(space.start), int(space.start + space.n)) if isinstance(space, spaces.Discrete) else range(0)


def board_text(observation: Any, actions: Sequence[int] = (), legend: str = '', mask_key: str | None = MASK_KEY) -> str:
    """Return the board of an observation as lines: X for the player who sees it, O for the other one.

    The last line is the legend. An observation that is no board with two kinds of pieces is shown as it is.

    Empty fields show the number of their action if there is an action for each field. A board without such fields has
    the numbers of the actions of its columns above it, if there is one for each column.

    Args:
        observation: raw observation of a seat.
        actions: the numbers of all actions.
        legend: the last line.
        mask_key: the key of the action mask, which is not shown.
    """
    if isinstance(observation, dict):
        parts = {key: part for key, part in observation.items() if key != mask_key}
        observation = next(iter(parts.values())) if len(parts) == 1 else parts.get('observation', parts)
    if isinstance(observation, dict):
        return '\n'.join([*(f'{key}: {part}' for key, part in observation.items()), *filter(None, [legend])])
    board = np.asarray(observation)
    if board.ndim != 3 or board.shape[2] != 2:
        return str(board)
    height, width, _ = board.shape
    numbered = len(actions) == height * width
    lines = [' '.join(map(str, actions))] if len(actions) == width else []
    for i in range(height):
        empty = [str(actions[i * width + j]) if numbered else EMPTY for j in range(width)]
        fields = [OWN if board[i, j, 0] else OTHER if board[i, j, 1] else empty[j] for j in range(width)]
        lines.append(' '.join(fields))
    return '\n'.join([*lines, *filter(None, [legend])])


def show_game(envs: Envs, say: Callable[[str], Any] = print) -> None:
    """Print the board of the first game as the agent sees it; in a game of two, a person sees the own side instead."""
    game: SeatEnv = envs.seat_envs[0]
    of_person = isinstance(game.opponents, HumanOpponents) and len(game.agents) == 2
    seen, legend = (game.seen(1 - game.seat), HUMAN_LEGEND) if of_person else (game.seen(), POLICY_LEGEND)
    say(f'{board_text(seen, action_numbers(game.action_space), legend, envs.encoder.encoding.mask_key)}\n')


def outcome_text(reward: float) -> str:
    """Return who has won a game in which the policy has received this reward."""
    return 'The policy wins' if reward > 0 else 'The policy loses' if reward < 0 else 'A draw'
