"""A server with three queues, as functions of tensors: which queue shall it serve next?

    xagents train ppo --env queueing:Queueing --n-envs 4096 --n-steps 8 --max-steps 20000000

The README next to this file has the settings that learn fastest; `queueing_rules.py` measures simple rules.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import tensorflow as tf
from gymnasium import spaces

from xagents.envs.functional import FunctionalEnv
from xagents.envs.functional.random import uniform

QUEUES = 3


class Queueing(FunctionalEnv):
    """A server that serves one of three queues in each step: a state is the numbers of waiting jobs, float32 [n, 3].

    The first job of the served queue leaves with the probability `service` of its queue. Then a job arrives in each
    queue with the probability `arrival` of this queue. Each job that waits costs `cost` of its queue per step.

    The action that serves queue i has the index i. To serve an empty queue has no effect.
    """

    observation_space = spaces.Box(0, float('inf'), (QUEUES,), np.float32)
    action_space = spaces.Discrete(QUEUES)
    max_episode_steps = 200
    default_params: ClassVar[Any] = {
        'arrival': (0.08, 0.12, 0.3),
        'service': (0.25, 0.5, 0.9),
        'cost': (3.0, 1.0, 2.0),
    }
    metadata: ClassVar[Any] = {'render_fps': 10}

    def initial(self, rng: tf.Tensor, n: int, params: Any) -> tf.Tensor:
        """Return empty queues."""
        return tf.zeros((n, QUEUES))

    def transition(self, state: tf.Tensor, action: tf.Tensor, rng: tf.Tensor, params: Any) -> tf.Tensor:
        """Return the queues after a service and arrivals."""
        draws = uniform(rng, (state.shape[0], 2, QUEUES))
        served = tf.one_hot(action, QUEUES) * tf.cast(draws[:, 0] < params['service'], tf.float32)
        arrived = tf.cast(draws[:, 1] < params['arrival'], tf.float32)
        return tf.nn.relu(state - served) + arrived

    def observation(self, state: tf.Tensor, params: Any) -> tf.Tensor:
        """Return the numbers of waiting jobs."""
        return state

    def reward(self, state: tf.Tensor, action: tf.Tensor, next_state: tf.Tensor, params: Any) -> tf.Tensor:
        """Return the negative costs of the jobs that wait after the step."""
        return -tf.reduce_sum(next_state * params['cost'], 1)

    def terminal(self, state: tf.Tensor, params: Any) -> tf.Tensor:
        """Return False: only the time limit ends an episode."""
        return tf.zeros(state.shape[0], tf.bool)

    def render(self, state: np.ndarray, params: Any) -> np.ndarray:
        """Return a frame of three bars, each as long as its queue, for at most 20 jobs."""
        frame = np.full((QUEUES, 20, 3), 30, np.uint8)
        frame[np.arange(20) < state[:, None]] = 220, 160, 60
        return frame.repeat(16, 0).repeat(8, 1)
