"""The opponents of known strength."""

import itertools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.learning import players

SQUARES = tuple(itertools.product(range(6), range(7)))
LINES = [
    line
    for (row, column), (down, right) in itertools.product(SQUARES, ((0, 1), (1, 0), (1, 1), (1, -1)))
    if set(line := [(row + down * i, column + right * i) for i in range(4)]) <= set(SQUARES)
]


def observe(own: np.ndarray, other: np.ndarray) -> dict[str, np.ndarray]:
    return {'observation': np.stack([own, other], -1), 'action_mask': ~(own | other)[0]}


def after_games(columns: list[int]) -> tuple[np.ndarray, np.ndarray]:
    """Return the pieces, bool [6, 7], of the player to move and of the other one, after moves in some columns."""
    own, other = np.zeros((2, 6, 7), bool)
    for column in columns:
        free = np.flatnonzero(~(own | other)[:, column])
        if free.size:
            own[free[-1], column] = True
            own, other = other, own
    return own, other


@given(st.lists(st.integers(0, 6), max_size=50))
def test_lines_and_winning_columns_of_connect_four_agree_with_a_search_of_all_lines(columns):
    own, other = after_games(columns)
    numbers = players.pieces_of(own), players.pieces_of(other)
    winning = []
    for column in np.flatnonzero(~(own | other)[0]):
        row = np.flatnonzero(~(own | other)[:, column])[-1]
        more = own.copy()
        more[row, column] = True
        assert players.dropped(*numbers, int(column)) == players.pieces_of(more)
        if any(all(more[square] for square in line) for line in LINES):
            winning.append(int(column))
    assert players.winning_columns(*numbers) == winning
    assert players.has_four(numbers[0]) == any(all(own[square] for square in line) for line in LINES)


def test_the_player_that_looks_two_moves_ahead_wins_blocks_and_builds_no_step_for_the_other():
    def chosen(own, other):
        return {players.TwoSteps().act(0, observe(own, other), np.random.default_rng(seed)) for seed in range(40)}

    assert chosen(*after_games([0, 6, 0, 6, 0, 6])) == {0}  # it wins and does not block
    assert chosen(*after_games([0, 6, 1, 6, 5, 6])) == {6}
    own, other = np.zeros((2, 6, 7), bool)
    for row, column in ((5, 0), (5, 2), (5, 6), (4, 6)):
        own[row, column] = True
    for row, column in ((5, 1), (4, 0), (4, 1), (4, 2)):
        other[row, column] = True
    assert chosen(own, other) == {0, 1, 2, 4, 5, 6}  # on a piece in column 3, the other player would complete its row
