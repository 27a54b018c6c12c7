"""Environments as functions: small ones with each kind of space, and with known returns."""

import numpy as np
import tensorflow as tf
from gymnasium import spaces

from xagents.envs import FunctionalEnv
from xagents.envs.functional.random import integers, normal, split, uniform

N_ACTIONS = 5


class TwoLegal(FunctionalEnv):
    """Of 5 actions, two are legal in each state; a bit of the observation names the better one. The best return is 10.

    An illegal action makes the reward NaN, which ends a run.
    """

    observation_space = spaces.Dict(
        {
            'action_mask': spaces.MultiBinary(N_ACTIONS),
            'bit': spaces.Discrete(2),
            'time': spaces.Box(0, 1, (1, 1), np.float32),
        }
    )
    action_space = spaces.Discrete(N_ACTIONS)
    max_episode_steps = 10

    def draw(self, rng, n, time):
        legal, bit = split(rng, 2)
        first = integers(legal, (n,), N_ACTIONS - 1)
        return {'first': first, 'bit': integers(bit, (n,), 2), 'time': time}

    def initial(self, rng, n, params):
        return self.draw(rng, n, tf.zeros(n, tf.int32))

    def transition(self, state, action, rng, params):
        return self.draw(rng, action.shape[0], state['time'] + 1)

    def observation(self, state, params):
        first = tf.one_hot(state['first'], N_ACTIONS) + tf.one_hot(state['first'] + 1, N_ACTIONS)
        return {
            'action_mask': first,
            'bit': state['bit'],
            'time': tf.cast(state['time'], tf.float32)[:, None, None] / 10,
        }

    def reward(self, state, action, next_state, params):
        choice = tf.cast(action, tf.int32) - state['first']
        reward = tf.cast(choice == state['bit'], tf.float32)
        return tf.where((choice == 0) | (choice == 1), reward, np.nan)

    def terminal(self, state, params):
        return state['time'] < 0


class Target(FunctionalEnv):
    """A point on a line is pushed to 0: continuous actions, random steps, two kinds of ends, and parameters."""

    observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float32)
    action_space = spaces.Box(-2.0, 3.0, (2,), np.float32)
    max_episode_steps = 7
    default_params = {'noise': 0.1, 'goal': [0.0, 0.0]}

    def initial(self, rng, n, params):
        return uniform(rng, (n, 2), -1.0, 1.0)

    def transition(self, state, action, rng, params):
        return state + 0.5 * action + params['noise'] * normal(rng, state.shape)

    def observation(self, state, params):
        return state - params['goal']

    def reward(self, state, action, next_state, params):
        return -tf.reduce_sum((next_state - params['goal']) ** 2, 1)

    def terminal(self, state, params):
        return tf.reduce_any(tf.abs(state) > 3.0, 1)

    def render(self, state, params):
        frame = np.zeros((16, 16, 3), np.uint8)
        frame[8, int(np.clip(8 + 2 * state[0], 0, 15))] = 255
        return frame


class Mixed(FunctionalEnv):
    """The reward of a Dict of actions is how well it repeats the observation."""

    observation_space = spaces.Box(0, 1, (3,), np.float32)
    action_space = spaces.Dict(
        {'bits': spaces.MultiBinary(2), 'inner': spaces.Tuple((spaces.Discrete(2, start=4), spaces.Box(0, 1, (1,))))}
    )
    max_episode_steps = 5

    def initial(self, rng, n, params):
        return uniform(rng, (n, 3))

    def transition(self, state, action, rng, params):
        return uniform(rng, state.shape)

    def observation(self, state, params):
        return state

    def reward(self, state, action, next_state, params):
        which, x = action['inner']
        wanted = tf.cast(state > 0.5, tf.float32)
        right = tf.reduce_sum(tf.cast(tf.cast(action['bits'], tf.float32) == wanted[:, :2], tf.float32), 1)
        right += tf.cast(tf.cast(which - 4, tf.float32) == wanted[:, 2], tf.float32)
        return right - tf.abs(x[:, 0] - state[:, 0])

    def terminal(self, state, params):
        return state[:, 0] > 0.9
