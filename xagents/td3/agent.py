"""Twin delayed deep deterministic policy gradient (Fujimoto et al. 2018, arXiv:1802.09477)."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from xagents.base.replayed_actor_critic import ReplayedActorCritic, target_value
from xagents.ddpg.agent import DDPG
from xagents.td3.cli import TD3Options


class TD3(DDPG):
    """TD3: DDPG with the minimum of two critics, noise on target actions, and delayed policy updates.

    Args:
        envs: as for DDPG.
        actor_model: as for DDPG.
        critic_model: as for DDPG.
        critic_model_2: the second critic; by default a copy of the first with other initial weights.
        buffers: as for DDPG.
        options: `TD3Options` and `RunOptions`.
    """

    Options = TD3Options
    options: TD3Options
    traits = DDPG.traits.changed(n_critics=2)

    __init__ = ReplayedActorCritic.__init__  # DDPG has one critic

    def learning_noise(self, shape: tuple[int, ...]) -> np.ndarray:
        """Return the clipped noise, of `shape` [K, B, A], on the actions of the target policy (equation 14)."""
        o = self.options
        noise = np.float32(o.policy_noise_coef) * self.rng('learn').standard_normal(shape, np.float32)
        return noise.clip(-o.noise_clip, o.noise_clip)

    def next_values(self, observations: tf.Tensor, noise: tf.Tensor | tuple[()]) -> tf.Tensor:
        """Return the minimum of the values [B] of both target critics (algorithm 1)."""
        (actions,) = self.target_actor(observations)
        actions = tf.clip_by_value(actions + noise, -1.0, 1.0)
        return tf.reduce_min([target_value(critic, observations, actions) for critic in self.target_critics], 0)

    def update_policy(
        self, observations: tf.Tensor, buffer_actions: tf.Tensor, critics_updated: tf.Tensor
    ) -> dict[str, tf.Tensor]:
        """Update the actor and the target networks after every `policy_delay` steps of the critics; return metrics."""
        update = super().update_policy
        return self.delayed(lambda: update(observations, buffer_actions, critics_updated), critics_updated)
