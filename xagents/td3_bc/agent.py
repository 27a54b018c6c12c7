"""TD3 with behaviour cloning (Fujimoto & Gu 2021, arXiv:2106.06860), for data sets."""

from __future__ import annotations

import tensorflow as tf

from xagents.td3.agent import TD3
from xagents.td3_bc.cli import TD3BCOptions

# lower bound of the mean |Q| in the denominator: all values may be 0 at the start
MIN_MEAN_Q = 1e-6


class TD3BC(TD3):
    """TD3+BC: TD3 with an actor loss that also imitates the actions of the data.

    Args:
        envs: as for TD3.
        actor_model: as for TD3.
        critic_model: as for TD3.
        critic_model_2: as for TD3.
        buffers: as for TD3.
        options: `TD3BCOptions` and `RunOptions`.
    """

    Options = TD3BCOptions
    options: TD3BCOptions
    traits = TD3.traits.changed(discrete_agents='dqn --conservative or bc')

    def policy_loss(self, q: tf.Tensor, actions: tf.Tensor, buffer_actions: tf.Tensor) -> tf.Tensor:
        """Return −λ mean Q(s, π(s)) + mean (π(s) − a)², where λ = α / mean |Q| (equations 3 and 5)."""
        scale = self.traced_options.alpha / tf.maximum(tf.stop_gradient(tf.reduce_mean(tf.abs(q))), MIN_MEAN_Q)
        return scale * super().policy_loss(q, actions, buffer_actions) + tf.reduce_mean((actions - buffer_actions) ** 2)
