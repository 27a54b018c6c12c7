"""Gymnasium's classic control as functions: the same spaces, dynamics, rewards and initial states, in float32.

Sources of the dynamics: Barto, Sutton and Anderson (1983) for CartPole, Moore (1990) for the mountain cars, and Sutton
(1996) for Acrobot. The constants are those of Gymnasium.
"""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np
import tensorflow as tf
from gymnasium import spaces

from xagents.envs.functional.interface import FunctionalEnv, Params
from xagents.envs.functional.random import uniform

INFINITY = float('inf')


def _box(*high: float) -> spaces.Box:
    bound = np.array(high, np.float32)
    return spaces.Box(-bound, bound, dtype=np.float32)


class CartPole(FunctionalEnv):
    """CartPole: a state is position, velocity, angle and angular velocity, [n, 4]."""

    X_LIMIT, ANGLE_LIMIT = 2.4, 12 * 2 * math.pi / 360  # m, rad
    GRAVITY, CART_MASS, POLE_MASS, HALF_LENGTH = 9.8, 1.0, 0.1, 0.5  # m/s², kg, kg, m
    FORCE, SECONDS = 10.0, 0.02  # N; of a step

    observation_space = _box(2 * X_LIMIT, INFINITY, 2 * ANGLE_LIMIT, INFINITY)
    action_space = spaces.Discrete(2)
    metadata = {'render_fps': 50}
    max_episode_steps = 500

    def initial(self, rng: tf.Tensor, n: int, params: Params) -> tf.Tensor:
        """Return states with elements between −0.05 and 0.05."""
        return uniform(rng, (n, 4), -0.05, 0.05)

    def transition(self, state: tf.Tensor, action: tf.Tensor, rng: tf.Tensor, params: Params) -> tf.Tensor:
        """Return the states after an Euler step with the force to the left (0) or right (1)."""
        _, x_dot, angle, angle_dot = tf.unstack(state, axis=1)
        force = tf.where(tf.equal(action, 1), self.FORCE, -self.FORCE)
        sin, cos, total = tf.sin(angle), tf.cos(angle), self.CART_MASS + self.POLE_MASS
        moment = self.POLE_MASS * self.HALF_LENGTH
        push = (force + moment * angle_dot**2 * sin) / total
        inertia = self.HALF_LENGTH * (4.0 / 3.0 - self.POLE_MASS * cos**2 / total)
        angle_acceleration = (self.GRAVITY * sin - cos * push) / inertia
        acceleration = push - moment * angle_acceleration * cos / total
        derivatives = (x_dot, acceleration, angle_dot, angle_acceleration)
        return state + self.SECONDS * tf.stack(derivatives, 1)

    def observation(self, state: tf.Tensor, params: Params) -> tf.Tensor:
        """Return the states."""
        return state

    def reward(self, state: tf.Tensor, action: tf.Tensor, next_state: tf.Tensor, params: Params) -> tf.Tensor:
        """Return 1 for each step."""
        return tf.ones_like(state[:, 0])

    def terminal(self, state: tf.Tensor, params: Params) -> tf.Tensor:
        """Return whether the cart or the pole left its limits."""
        return (tf.abs(state[:, 0]) > self.X_LIMIT) | (tf.abs(state[:, 2]) > self.ANGLE_LIMIT)


class Pendulum(FunctionalEnv):
    """Pendulum: a state is angle and angular velocity, [n, 2]; the angle is not wrapped."""

    SPEED_LIMIT, TORQUE_LIMIT, SECONDS = 8.0, 2.0, 0.05

    observation_space = _box(1.0, 1.0, SPEED_LIMIT)
    action_space = _box(TORQUE_LIMIT)
    metadata = {'render_fps': 30}
    max_episode_steps = 200
    default_params: ClassVar[Params] = {'g': 10.0}

    def initial(self, rng: tf.Tensor, n: int, params: Params) -> tf.Tensor:
        """Return angles between −π and π with velocities between −1 and 1."""
        return uniform(rng, (n, 2), -1.0, 1.0) * tf.constant([math.pi, 1.0])

    def transition(self, state: tf.Tensor, action: tf.Tensor, rng: tf.Tensor, params: Params) -> tf.Tensor:
        """Return the states after a step with the torque, of a rod of 1 kg and 1 m."""
        angle, speed = tf.unstack(state, axis=1)
        acceleration = 1.5 * params['g'] * tf.sin(angle) + 3.0 * self._torque(action)
        speed = tf.clip_by_value(speed + acceleration * self.SECONDS, -self.SPEED_LIMIT, self.SPEED_LIMIT)
        return tf.stack([angle + speed * self.SECONDS, speed], 1)

    def observation(self, state: tf.Tensor, params: Params) -> tf.Tensor:
        """Return cosine and sine of the angle, and the angular velocity."""
        return tf.stack([tf.cos(state[:, 0]), tf.sin(state[:, 0]), state[:, 1]], 1)

    def reward(self, state: tf.Tensor, action: tf.Tensor, next_state: tf.Tensor, params: Params) -> tf.Tensor:
        """Return the negative costs of angle, velocity and torque before the step."""
        angle = tf.math.floormod(state[:, 0] + math.pi, 2 * math.pi) - math.pi
        return -(angle**2 + 0.1 * state[:, 1] ** 2 + 0.001 * self._torque(action) ** 2)

    def terminal(self, state: tf.Tensor, params: Params) -> tf.Tensor:
        """Return False."""
        return tf.zeros_like(state[:, 0], tf.bool)

    def _torque(self, action: tf.Tensor) -> tf.Tensor:
        return tf.clip_by_value(action[:, 0], -self.TORQUE_LIMIT, self.TORQUE_LIMIT)


class Acrobot(FunctionalEnv):
    """Acrobot: a state is both angles and both angular velocities, [n, 4]. Lengths, masses and inertias are 1."""

    SPEED_LIMITS, GRAVITY, SECONDS = (4 * math.pi, 9 * math.pi), 9.8, 0.2

    observation_space = _box(1.0, 1.0, 1.0, 1.0, *SPEED_LIMITS)
    action_space = spaces.Discrete(3)
    metadata = {'render_fps': 15}
    max_episode_steps = 500

    def initial(self, rng: tf.Tensor, n: int, params: Params) -> tf.Tensor:
        """Return states with elements between −0.1 and 0.1."""
        return uniform(rng, (n, 4), -0.1, 0.1)

    def transition(self, state: tf.Tensor, action: tf.Tensor, rng: tf.Tensor, params: Params) -> tf.Tensor:
        """Return the states after one Runge-Kutta step of fourth order with the torque −1, 0 or 1."""
        torque, h = tf.cast(action, tf.float32) - 1.0, self.SECONDS
        k1 = self._derivatives(state, torque)
        k2 = self._derivatives(state + h / 2 * k1, torque)
        k3 = self._derivatives(state + h / 2 * k2, torque)
        k4 = self._derivatives(state + h * k3, torque)
        after = state + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
        limits = tf.constant(self.SPEED_LIMITS)
        return tf.concat([_wrapped(after[:, :2]), tf.clip_by_value(after[:, 2:], -limits, limits)], 1)

    def _derivatives(self, state: tf.Tensor, torque: tf.Tensor) -> tf.Tensor:
        """Return the time derivatives [n, 4] of states, by the equations of Sutton and Barto's book."""
        first, second, first_dot, second_dot = tf.unstack(state, axis=1)
        g, cos, sin = self.GRAVITY, tf.cos(second), tf.sin(second)
        d1 = 3.5 + cos
        d2 = 1.25 + 0.5 * cos
        phi2 = 0.5 * g * tf.sin(first + second)  # the cosine of an angle less π / 2 is its sine
        phi1 = -0.5 * second_dot**2 * sin - second_dot * first_dot * sin + 1.5 * g * tf.sin(first) + phi2
        second_acceleration = (torque + d2 / d1 * phi1 - 0.5 * first_dot**2 * sin - phi2) / (1.25 - d2**2 / d1)
        first_acceleration = -(d2 * second_acceleration + phi1) / d1
        return tf.stack([first_dot, second_dot, first_acceleration, second_acceleration], 1)

    def observation(self, state: tf.Tensor, params: Params) -> tf.Tensor:
        """Return cosine and sine of both angles, and the angular velocities."""
        cos, sin = tf.cos(state[:, :2]), tf.sin(state[:, :2])
        return tf.stack([cos[:, 0], sin[:, 0], cos[:, 1], sin[:, 1], state[:, 2], state[:, 3]], 1)

    def reward(self, state: tf.Tensor, action: tf.Tensor, next_state: tf.Tensor, params: Params) -> tf.Tensor:
        """Return −1, and 0 for the step that reaches the height."""
        return tf.where(self.terminal(next_state, params), 0.0, -1.0)

    def terminal(self, state: tf.Tensor, params: Params) -> tf.Tensor:
        """Return whether the tip is more than one link above the axle."""
        return -tf.cos(state[:, 0]) - tf.cos(state[:, 0] + state[:, 1]) > 1.0


def _wrapped(angles: tf.Tensor) -> tf.Tensor:
    """Return angles from −π to π; angles within these bounds do not change."""
    turns = tf.round(angles / (2 * math.pi))
    inside = tf.abs(angles) <= math.pi
    return tf.where(inside, angles, angles - turns * (2 * math.pi))


class _MountainCarBase(FunctionalEnv):
    """A car in a valley: a state is position and velocity, [n, 2]."""

    POSITION_LIMITS, SPEED_LIMIT, GRAVITY, GOAL = (-1.2, 0.6), 0.07, 0.0025, 0.5

    observation_space = spaces.Box(np.array([-1.2, -0.07], np.float32), np.array([0.6, 0.07], np.float32))
    metadata = {'render_fps': 30}
    default_params: ClassVar[Params] = {'goal_velocity': 0.0}

    def initial(self, rng: tf.Tensor, n: int, params: Params) -> tf.Tensor:
        """Return positions between −0.6 and −0.4, at rest."""
        return tf.stack([uniform(rng, (n,), -0.6, -0.4), tf.zeros(n)], 1)

    def transition(self, state: tf.Tensor, action: tf.Tensor, rng: tf.Tensor, params: Params) -> tf.Tensor:
        """Return the states after a step; a car that hits the left bound stops."""
        position, speed = tf.unstack(state, axis=1)
        speed = speed + self._acceleration(action) - self.GRAVITY * tf.cos(3 * position)
        speed = tf.clip_by_value(speed, -self.SPEED_LIMIT, self.SPEED_LIMIT)
        low, high = self.POSITION_LIMITS
        position = tf.clip_by_value(position + speed, low, high)
        return tf.stack([position, tf.where((position <= low) & (speed < 0), 0.0, speed)], 1)

    def _acceleration(self, action: tf.Tensor) -> tf.Tensor:
        """Return the accelerations [n] of the motor."""
        raise NotImplementedError

    def observation(self, state: tf.Tensor, params: Params) -> tf.Tensor:
        """Return the states."""
        return state

    def terminal(self, state: tf.Tensor, params: Params) -> tf.Tensor:
        """Return whether the car has reached the goal with at least the goal velocity."""
        return (state[:, 0] >= self.GOAL) & (state[:, 1] >= params['goal_velocity'])


class MountainCar(_MountainCarBase):
    """MountainCar with the actions left, none and right."""

    action_space = spaces.Discrete(3)
    max_episode_steps = 200

    def _acceleration(self, action: tf.Tensor) -> tf.Tensor:
        return 0.001 * (tf.cast(action, tf.float32) - 1.0)

    def reward(self, state: tf.Tensor, action: tf.Tensor, next_state: tf.Tensor, params: Params) -> tf.Tensor:
        """Return −1 for each step."""
        return -tf.ones_like(state[:, 0])


class MountainCarContinuous(_MountainCarBase):
    """MountainCar with a continuous force."""

    GOAL = 0.45
    action_space = _box(1.0)
    max_episode_steps = 999

    def _acceleration(self, action: tf.Tensor) -> tf.Tensor:
        return 0.0015 * tf.clip_by_value(action[:, 0], -1.0, 1.0)

    def reward(self, state: tf.Tensor, action: tf.Tensor, next_state: tf.Tensor, params: Params) -> tf.Tensor:
        """Return 100 at the goal, less a cost of the force."""
        return 100.0 * tf.cast(self.terminal(next_state, params), tf.float32) - 0.1 * action[:, 0] ** 2
