"""Deep deterministic policy gradient (Lillicrap et al. 2016, arXiv:1509.02971)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from xagents.base.batches import ReplaySamples
from xagents.base.replayed_actor_critic import ReplayedActorCritic, target_value
from xagents.collecting.noise_process import OrnsteinUhlenbeckNoise
from xagents.collecting.policies import NoisyPolicy, Policy
from xagents.ddpg.cli import DDPGOptions
from xagents.networks.acting import ActingNetwork
from xagents.networks.optimisation.gradient_steps import zero_if_not_finite
from xagents.networks.optimisation.targets import TargetNetwork
from xagents.networks.programs import network_input
from xagents.pipeline.schedules import Schedule


class DDPG(ReplayedActorCritic):
    """DDPG: a deterministic policy that maximises the values of a critic, learned from replayed transitions.

    Args:
        envs: the result of `create_envs`, a Gymnasium vector environment, or a list of environments.
        actor_model: observations [B, *D] to actions [B, A], from −1 to 1.
        critic_model: observations and actions to action values [B, 1]. The input is one vector [B, D + A] of both, or
            the two inputs [B, *D] and [B, A].
        buffers: a replay buffer to use; by default the options define it.
        options: `DDPGOptions` and `RunOptions`.
    """

    Options = DDPGOptions
    options: DDPGOptions
    traits = ReplayedActorCritic.traits.changed(n_critics=1)
    METRICS = ('loss/value', 'loss/policy', 'stats/q', 'stats/td_error', 'stats/grad_norm', 'policy_updates')

    def __init__(
        self, envs: Any, actor_model: keras.Model, critic_model: keras.Model, *, buffers: Any = None, **options: Any
    ):
        super().__init__(envs, actor_model, critic_model, buffers=buffers, **options)

    def set_networks(self, actor: keras.Model, critics: Sequence[keras.Model], *others: keras.Model) -> None:
        """Set the networks; see `ReplayedActorCritic`. The actor has a target network, too."""
        super().set_networks(actor, critics, *others)
        self.target_actor = TargetNetwork(self.actor_model)

    # acting

    def make_policy(self, network: ActingNetwork) -> Policy:
        """Return the policy with its exploration noise."""
        exploration = None if self.options.noise == 'gaussian' else OrnsteinUhlenbeckNoise()
        policy = NoisyPolicy(network, self.n_units, self.options.step_noise_coef, exploration)
        policy.warming_up = self.warming_up
        return policy

    def schedules(self) -> dict[str, Schedule]:
        """Return the schedules: also the scale of the exploration noise, which is constant."""
        return {**super().schedules(), 'noise': Schedule(self.options.step_noise_coef)}

    # learning

    def update_once(self, batch: ReplaySamples) -> tuple[dict[str, tf.Tensor], tf.Tensor]:
        """Update the critics, then the actor, with a batch, [B, …] each; return metrics and TD errors [B]."""
        observations, next_observations = map(network_input, (batch.observations, batch.next_observations))
        goal = batch.rewards + batch.discounts * self.next_values(next_observations, batch.noise)
        metrics, errors = self.update_critics(observations, batch.actions, goal)
        policy = self.update_policy(observations, batch.actions, metrics['updates'])
        refused = tf.maximum(metrics['stats/refused'], policy['stats/refused'])
        return {**metrics, **policy, 'stats/refused': refused}, errors

    def next_values(self, observations: tf.Tensor, noise: tf.Tensor | tuple[()]) -> tf.Tensor:
        """Return Q'(s', μ'(s')), the values [B] of the next observations by the target networks."""
        (actions,) = self.target_actor(observations)
        return target_value(self.target_critics[0], observations, actions)

    def update_policy(
        self, observations: tf.Tensor, buffer_actions: tf.Tensor, critics_updated: tf.Tensor
    ) -> dict[str, tf.Tensor]:
        """Update the actor, then the target networks; return metrics.

        Args:
            observations: [B, *D], network input.
            buffer_actions: [B, A], the sampled actions for these observations.
            critics_updated: 1 if the critics made their step, else 0.
        """
        with tf.GradientTape() as tape:
            actions = tf.cast(self.actor_model(observations, training=True), tf.float32)
            q = self.critic_value(self.critic_models[0], observations, actions)
            loss = self.policy_loss(q, actions, buffer_actions)
        _, updated, refused = self.actor_step(tape, loss, critics_updated > 0)
        for target in self.targets():
            target.soft_update(self.traced_options.tau * updated)
        return {'loss/policy': zero_if_not_finite(loss), 'policy_updates': updated, 'stats/refused': refused}

    def policy_loss(self, q: tf.Tensor, actions: tf.Tensor, buffer_actions: tf.Tensor) -> tf.Tensor:
        """Return the loss of the actor, the negative mean value by the first critic (equation 6).

        Args:
            q: [B], values of the actor's actions by the first critic.
            actions: [B, A], the actions of the actor.
            buffer_actions: [B, A], the sampled actions.
        """
        return -tf.reduce_mean(q)

    def targets(self) -> list[TargetNetwork]:
        """Return the target networks: also that of the actor."""
        return [self.target_actor, *super().targets()]
