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
        own, other = (pieces_of(observation['observation'][:, :, plane]) for plane in (0, 1))
        legal = np.flatnonzero(observation['action_mask'])
        if wins := winning_columns(own, other):
            return int(rng.choice(wins))
        safe = [column for column in legal if not winning_columns(other, dropped(own, other, int(column)))]
        return int(rng.choice(safe or legal))


# Pieces of connect four are bits of a number. A column has seven: its six rows from the bottom, and one that stays
# empty, so that no line goes on in the next column.
ROWS, COLUMNS, STRIDE = 6, 7, 7


def pieces_of(plane: np.ndarray) -> int:
    """Return the pieces of a player from a plane [rows, columns] of an observation, whose first row is the top."""
    rows, columns = np.nonzero(plane)
    return sum(1 << STRIDE * int(column) + ROWS - 1 - int(row) for row, column in zip(rows, columns, strict=True))


def dropped(own: int, other: int, column: int) -> int:
    """Return the pieces of a player after one more in a column that is not full."""
    taken = own | other
    # the carry of an addition stops at the lowest free row
    return own | (taken + (1 << STRIDE * column)) & ~taken


def winning_columns(own: int, other: int) -> list[int]:
    """Return the columns in which a player completes four in a row."""
    free = (column for column in range(COLUMNS) if not (own | other) >> STRIDE * column + ROWS - 1 & 1)
    return [column for column in free if has_four(dropped(own, other, column))]


def has_four(pieces: int) -> bool:
    """Return whether four pieces are in a row, a column or a diagonal."""
    for step in (1, STRIDE - 1, STRIDE, STRIDE + 1):
        pairs = pieces & pieces >> step
        if pairs & pairs >> 2 * step:
            return True
    return False
