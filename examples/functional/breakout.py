"""Breakout of MinAtar as functions of tensors, written from its rules (Young and Tian 2019, arXiv:1903.03176).

    xagents train pqn --env breakout:Breakout --n-envs 256 --flatten --net 128 --max-steps 2000000

The README next to this file has the settings that learn fastest.
"""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

import numpy as np
import tensorflow as tf
from gymnasium import spaces

from xagents.envs.functional import FunctionalEnv
from xagents.envs.functional.random import integers, uniform

SIZE = 10
WALL = np.zeros((SIZE, SIZE), np.float32)
WALL[1:4] = 1
COLOURS = np.array([(80, 160, 255), (255, 255, 255), (110, 110, 110), (230, 90, 60)], np.uint8)


class State(NamedTuple):
    """States of n games. The row 0 is the top row, the column 0 is the left column.

    Attributes:
        paddle: int32 [n], the column of the paddle in the bottom row.
        ball: int32 [n, 2], row and column.
        trail: int32 [n, 2], row and column of the ball before the last step.
        velocity: int32 [n, 2], rows and columns per step, −1 or 1 each.
        bricks: float32 [n, 10, 10], 1 at bricks, else 0.
        inside: bool [n], whether the ball moved into a brick. Then it hits no further brick until it has moved out.
        action: int32 [n], the last action, which a sticky action repeats.
        lost: bool [n], whether the ball missed the paddle.
    """

    paddle: Any
    ball: Any
    trail: Any
    velocity: Any
    bricks: Any
    inside: Any
    action: Any
    lost: Any


class Breakout(FunctionalEnv):
    """Breakout on 10 x 10 cells: a paddle reflects a ball into a wall of 30 bricks, each of which gives a reward of 1.

    Observations are four planes: paddle, ball, the last position of the ball, and bricks; 255 marks a cell, because
    networks divide uint8 observations by 255. Actions are none, left and right: MinAtar's minimal set. If no brick is
    left, the wall is rebuilt when the ball reaches the bottom row. The game ends when the ball misses the paddle.

    The parameter `sticky` is the probability that a step repeats the last action instead of the given one.

    Episodes of MinAtar have no time limit; here they are truncated after 1000 steps.
    """

    observation_space = spaces.Box(0, 255, (SIZE, SIZE, 4), np.uint8)
    action_space = spaces.Discrete(3)
    max_episode_steps = 1000
    default_params: ClassVar[Any] = {'sticky': 0.1}
    metadata: ClassVar[Any] = {'render_fps': 10}

    def initial(self, rng: tf.Tensor, n: int, params: Any) -> State:
        """Return games whose ball starts at the left or right end of the lowest bricks, and moves down and inwards."""
        right = integers(rng, (n,), 2)
        ball = tf.stack([tf.fill((n,), 3), (SIZE - 1) * right], 1)
        velocity = tf.stack([tf.ones(n, tf.int32), 1 - 2 * right], 1)
        bricks = tf.tile(WALL[None], (n, 1, 1))
        no = tf.zeros(n, tf.bool)
        return State(tf.fill((n,), 4), ball, ball, velocity, bricks, no, tf.zeros(n, tf.int32), no)

    def transition(self, state: State, action: tf.Tensor, rng: tf.Tensor, params: Any) -> State:
        """Return the games after the paddle, then the ball has moved."""
        sticks = uniform(rng, state.action.shape) < params['sticky']
        action = tf.where(sticks, state.action, tf.cast(action, tf.int32))
        move = tf.cast(action == 2, tf.int32) - tf.cast(action == 1, tf.int32)
        paddle = tf.clip_by_value(state.paddle + move, 0, SIZE - 1)

        free = state.ball + state.velocity  # the next position, if nothing is in the way
        ball = tf.clip_by_value(free, 0, SIZE - 1)
        row, column = tf.unstack(ball, axis=1)
        top, side = free[:, 0] < 0, free[:, 1] != column

        bricks_at_ball = _plane(ball) * state.bricks
        inside = tf.reduce_any(bricks_at_ball > 0, (1, 2))
        hit = inside & ~state.inside
        bricks = state.bricks - tf.where(hit[:, None, None], bricks_at_ball, 0.0)

        bottom = row == SIZE - 1
        above = bottom & (state.ball[:, 1] == paddle)  # the ball was above the paddle
        corner = bottom & ~above & (column == paddle)  # the ball moves onto the paddle diagonally
        rebuilt = bottom & ~tf.reduce_any(state.bricks > 0, (1, 2))
        bricks = tf.where(rebuilt[:, None, None], WALL, bricks)

        turns = tf.stack([top | hit | above | corner, side ^ corner], 1)
        row = tf.where(hit | above | corner, state.ball[:, 0], row)
        velocity = tf.where(turns, -state.velocity, state.velocity)
        lost = bottom & ~above & ~corner
        return State(paddle, tf.stack([row, column], 1), state.ball, velocity, bricks, inside, action, lost)

    def observation(self, state: State, params: Any) -> tf.Tensor:
        """Return the planes paddle, ball, trail and bricks."""
        paddle = _plane(tf.stack([tf.fill(state.paddle.shape, SIZE - 1), state.paddle], 1))
        return 255 * tf.stack([paddle, _plane(state.ball), _plane(state.trail), state.bricks], 3)

    def reward(self, state: State, action: tf.Tensor, next_state: State, params: Any) -> tf.Tensor:
        """Return 1 if the ball hit a brick. A rebuilt wall has more bricks than before, and gives no reward."""
        return tf.nn.relu(tf.reduce_sum(state.bricks - next_state.bricks, (1, 2)))

    def terminal(self, state: State, params: Any) -> tf.Tensor:
        """Return whether the ball missed the paddle."""
        return state.lost

    def render(self, state: State, params: Any) -> np.ndarray:
        """Return a frame of 16 x 16 pixels per cell."""
        frame = np.zeros((SIZE, SIZE, 3), np.uint8)
        frame[state.bricks > 0] = COLOURS[3]
        for cell, colour in ((state.trail, 2), (state.ball, 1), ((SIZE - 1, state.paddle), 0)):
            frame[tuple(cell)] = COLOURS[colour]
        return frame.repeat(16, 0).repeat(16, 1)


def _plane(cell: tf.Tensor) -> tf.Tensor:
    """Return planes, float32 [n, 10, 10], with 1 at cells, int32 [n, 2], and 0 elsewhere."""
    row, column = tf.unstack(tf.one_hot(cell, SIZE), axis=1)
    return row[:, :, None] * column[:, None, :]
