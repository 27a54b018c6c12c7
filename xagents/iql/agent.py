"""Implicit Q-learning (Kostrikov et al. 2021, arXiv:2110.06169): evaluates only actions of the data."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from xagents.base.batches import ReplaySamples
from xagents.base.replayed_actor_critic import ReplayedActorCritic, target_value
from xagents.collecting.policies import Policy, SamplingPolicy
from xagents.iql.cli import IQLOptions
from xagents.networks.acting import ActingNetwork
from xagents.networks.distributions import Distribution, clip_log_std, distribution_for
from xagents.networks.models import with_log_std
from xagents.networks.optimisation.gradient_steps import apply_together
from xagents.networks.programs import float_outputs, network_input


class IQL(ReplayedActorCritic):
    """IQL: learns an expectile of the action values in the data, and imitates actions better than the expectile.

    Args:
        envs: the result of `create_envs`, a Gymnasium vector environment, or a list of environments.
        actor_model: observations [B, *D] to mean actions [B, A], from −1 to 1; the log standard deviation is added
            if the model lacks it.
        critic_model: action values [B, 1], as for DDPG.
        critic_model_2: the second critic; by default a copy of the first with other initial weights.
        value_model: observations [B, *D] to values [B, 1].
        buffers: a replay buffer to use; by default the options define it.
        options: `IQLOptions` and `RunOptions`.
    """

    Options = IQLOptions
    options: IQLOptions
    # the outputs are mean and log standard deviation
    traits = ReplayedActorCritic.traits.changed(actor_outputs=2, discrete_agents='dqn --conservative or bc')
    METRICS = (
        *('loss/value', 'loss/critic', 'loss/policy', 'stats/q', 'stats/td_error', 'stats/weight', 'stats/grad_norm'),
    )

    def __init__(
        self,
        envs: Any,
        actor_model: keras.Model,
        critic_model: keras.Model,
        critic_model_2: keras.Model | None = None,
        value_model: keras.Model | None = None,
        *,
        buffers: Any = None,
        **options: Any,
    ):
        if value_model is None:
            raise TypeError('IQL: got no value_model, expected a network from observations to values')
        self.value_model = value_model
        super().__init__(envs, actor_model, critic_model, critic_model_2, buffers=buffers, **options)

    def set_networks(self, actor: keras.Model, critics: Sequence[keras.Model], *others: keras.Model) -> None:
        """Set the networks, also the value network; see `ReplayedActorCritic`."""
        super().set_networks(with_log_std(actor, self.options.log_std_init), critics, *others, self.value_model)
        self.value_step = self.network_steps[-1]

    # acting

    @functools.cached_property
    def distribution(self) -> Distribution:
        """The distribution of the policy's actions."""
        return distribution_for(self.envs.action_space)

    def make_policy(self, network: ActingNetwork) -> Policy:
        """Return a policy that samples actions from the outputs of `network`, which has the form of `actor`."""
        return SamplingPolicy(network, self.distribution, False)

    # learning

    def update_once(self, batch: ReplaySamples) -> tuple[dict[str, tf.Tensor], tf.Tensor]:
        """Update value, actor and critics with a batch, [B, …] each (algorithm 1); return metrics and TD errors [B].

        All gradients use the weights before the update. One gradient that is not finite stops the step of every
        network.
        """
        observations, next_observations = map(network_input, (batch.observations, batch.next_observations))
        q = tf.reduce_min([target_value(critic, observations, batch.actions) for critic in self.target_critics], 0)
        goal = batch.rewards + batch.discounts * self.values(next_observations, training=False)
        with tf.GradientTape() as tape:
            v = self.values(observations)
            value_loss = tf.reduce_mean(expectile_loss(q - v, self.traced_options.expectile))
        gradients = [self.value_step.gradient(tape, value_loss)]
        weights = self.weights(q - v)
        with tf.GradientTape() as tape:
            outputs = clip_log_std(float_outputs(self.actor_model(observations, training=True)))
            policy_loss = -tf.reduce_mean(weights * self.distribution.log_prob(outputs, batch.actions))
        gradients.append(self.actor_step.gradient(tape, policy_loss))
        loss, critic_gradients, errors, _ = self.critic_errors(observations, batch.actions, goal)
        steps = (self.value_step, self.actor_step, *self.critic_steps)
        updated, norm = apply_together(steps, gradients + critic_gradients)
        for target in self.target_critics:
            target.soft_update(self.traced_options.tau * updated)
        metrics = {
            'updates': updated,
            'stats/refused': 1.0 - updated,
            'loss/value': value_loss,
            'loss/critic': loss,
            'loss/policy': policy_loss,
            'stats/q': tf.reduce_mean(q),
            'stats/td_error': tf.reduce_mean(tf.abs(errors[0])),
            'stats/weight': tf.reduce_mean(weights),
            'stats/grad_norm': norm,
        }
        return metrics, errors[0]

    def weights(self, advantages: tf.Tensor) -> tf.Tensor:
        """Return the imitation weights [B] of actions: exp(β A), limited by `max_weight` (equation 7)."""
        o = self.traced_options
        return tf.stop_gradient(tf.minimum(tf.exp(o.inverse_temperature * advantages), o.max_weight))

    def values(self, observations: tf.Tensor, training: bool = True) -> tf.Tensor:
        """Return the values [B] of observations, which are network input."""
        return tf.cast(self.value_model(observations, training=training), tf.float32)[:, 0]


def expectile_loss(differences: tf.Tensor, expectile: float) -> tf.Tensor:
    """Return |τ − 1(u < 0)| u² of differences u; the τ-expectile minimises its mean (equation 5)."""
    return tf.where(differences < 0, 1.0 - expectile, expectile) * differences**2
