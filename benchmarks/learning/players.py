"""Opponents of known strength: a perfect player of tic-tac-toe, and one of connect four that looks two moves ahead."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from xagents.envs.games import Opponents

LINES = [(0, 1, 2), (3, 4, 5), (6, 7, 8), (0, 3, 6), (1, 4, 7), (2, 5, 8), (0, 4, 8), (2, 4, 6)]


@functools.cache
def value(own: int, other: int) -> int:
    """Return 1, 0 or -1 if the player to move wins, draws or loses a game of tic-tac-toe in which both play perfectly.

    Args:
        own: the squares of the player to move, one bit for each.
        other: the squares of the other player.
    """
    if any(all(other >> square & 1 for square in line) for line in LINES):
        return -1
    free = [square for square in range(9) if not (own | other) >> square & 1]
    return max((-value(other, own | 1 << square) for square in free), default=0)


class Perfect(Opponents):
    """Plays tic-tac-toe without a mistake: one of the best moves at random."""

    def act(self, name: int, observation: Any, rng: np.random.Generator) -> int:
        """Return a square."""
        planes = observation['observation'].reshape(9, 2)
        own, other = (sum(1 << int(square) for square in np.flatnonzero(planes[:, plane])) for plane in (0, 1))
        legal = np.flatnonzero(observation['action_mask'])
        values = np.array([-value(other, own | 1 << int(square)) for square in legal])
        return int(rng.choice(legal[values == values.max()]))


class TwoSteps(Opponents):
    """Plays connect four by looking two moves ahead, its own and the answer.

    It wins if it can. Otherwise, it avoids moves after which the other player can win at once. Equal moves are drawn.
    """

    def act(self, name: int, observation: Any, rng: np.random.Generator) -> int:
        """Return a column."""
        own, other = (observation['observation'][:, :, plane].astype(bool) for plane in (0, 1))
        legal = np.flatnonzero(observation['action_mask'])
        if len(wins := winning_columns(own, other)):
            return int(rng.choice(wins))
        safe = [column for column in legal if not len(winning_columns(other, dropped(own, other, column)))]
        return int(rng.choice(safe or legal))


def dropped(own: np.ndarray, other: np.ndarray, column: int) -> np.ndarray:
    """Return the pieces of a player after one more in a column; row 0 is the top."""
    row = np.flatnonzero(~(own | other)[:, column])[-1]
    after = own.copy()
    after[row, column] = True
    return after


def winning_columns(own: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Return the columns in which a player completes four in a row."""
    free = np.flatnonzero(~(own | other)[0])
    return np.array([column for column in free if has_four(dropped(own, other, column))], int)


def has_four(pieces: np.ndarray) -> bool:
    """Return whether four pieces are in a row, a column or a diagonal."""
    rows, columns = pieces.shape
    for down, right in ((0, 1), (1, 0), (1, 1), (1, -1)):
        line = np.ones((rows, columns), bool)
        for i in range(4):
            shifted = np.zeros_like(line)
            to = slice(max(-right * i, 0), columns - max(right * i, 0))
            source = slice(max(right * i, 0), columns + min(right * i, 0))
            shifted[: rows - down * i, to] = pieces[down * i :, source]
            line &= shifted
        if line.any():
            return True
    return False
