"""Implicit Q-learning (Kostrikov et al. 2021, arXiv:2110.06169): evaluates only actions of the data."""

from __future__ import annotations

import functools
from typing import Any

import keras
import tensorflow as tf

from xagents.base.batches import ReplaySamples
from xagents.base.off_policy import OffPolicy
from xagents.collecting.policies import Policy, SamplingPolicy
from xagents.ddpg.agent import check_bounded, critic_inputs, target_value, value
from xagents.envs.interface import Envs
from xagents.envs.spaces import ActionDecoder
from xagents.iql.cli import IQLOptions
from xagents.networks.acting import ActingNetwork
from xagents.networks.distributions import Distribution, clip_log_std, distribution_for
from xagents.networks.gradient_steps import GradientStep, adopt_model_optimizer, loop_updates
from xagents.networks.models import reinitialise, with_log_std
from xagents.networks.programs import KerasNetwork, Program, float_outputs, network_input, suits_xla
from xagents.networks.targets import TargetNetwork
from xagents.options.agents import AgentOptions
from xagents.registry.agents import agent_id_of


class IQL(OffPolicy):
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
    METRICS = (
        *('updates', 'stats/refused', 'loss/value', 'loss/critic', 'loss/policy'),
        *('stats/q', 'stats/td_error', 'stats/weight', 'stats/grad_norm'),
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
        super().__init__(envs, buffers=buffers, **options)
        if value_model is None:
            raise TypeError('IQL: got no value_model, expected a network from observations to values')
        if critic_model_2 is None:
            critic_model_2 = reinitialise(critic_model, int(self.rng('networks').integers(2**31)))
        n_units = self.output_units(self.envs)['actor']
        self.actor_model = with_log_std(actor_model, self.options.log_std_init)
        self._check_model(self.actor_model, [n_units, n_units], 'actor_model')
        self.critic_models, self.value_model = [critic_model, critic_model_2], value_model
        for critic in self.critic_models:
            self._check_model(critic, [1], 'critic_model', critic_inputs(critic, self.input_shape, n_units))
        self._check_model(value_model, [1], 'value_model')
        self.output_models = [self.actor_model, *self.critic_models, value_model]
        names = ('actor_model', 'critic_model', 'critic_model', 'value_model')
        rates = [adopt_model_optimizer(model, self.options) for model in self.output_models]
        self.actor_step, *self.critic_steps, self.value_step = (
            GradientStep(model, self.traced_options, rate=rate, name=name)
            for model, rate, name in zip(self.output_models, rates, names, strict=True)
        )
        self.target_critics = [TargetNetwork(critic) for critic in self.critic_models]
        self.actor = self.make_actor(0)
        self._update = Program(self.update, jit=suits_xla(*self.output_models))

    @classmethod
    def check_envs(cls, envs: Envs, options: AgentOptions) -> None:
        """Check that actions are continuous and have bounds."""
        super().check_envs(envs, options)
        check_bounded(envs, agent_id_of(cls))

    @classmethod
    def output_units(cls, envs: Envs) -> dict[str, int]:
        """Return the sizes of possible network outputs."""
        return {'actor': ActionDecoder(envs.action_space).n_actions, 'critic': 1, 'value': 1}

    # acting

    @functools.cached_property
    def distribution(self) -> Distribution:
        """The distribution of the policy's actions."""
        return distribution_for(self.envs.action_space)

    def make_actor(self, index: int) -> KerasNetwork:
        """Return the acting network: the actor, with mean and log standard deviation."""
        return KerasNetwork(self.actor_model, self.statistics.dtype)

    def make_policy(self, network: ActingNetwork) -> Policy:
        """Return a policy that samples actions from the outputs of `network`, which has the form of `actor`."""
        return SamplingPolicy(network, self.distribution, False)

    # learning

    def learn(self, batch: dict[str, Any], learning_rate: float) -> dict[str, float]:  # type: ignore[override]
        """Make the updates of one iteration with a batch of `replay`, and return the means of their metrics."""
        acting_weights, metrics = self._update(self.replay_samples(batch), batch['n_updates'], learning_rate)
        self.actor.refresh(acting_weights)
        return self.metrics_by_name(metrics.numpy())

    def update(
        self, samples: ReplaySamples, n_updates: tf.Tensor, learning_rate: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Make an update with each of the first `n_updates` of K batches; compiled.

        Returns:
            The acting weights, and the metrics as a vector.
        """
        for step in (self.actor_step, *self.critic_steps, self.value_step):
            step.set_rate(learning_rate)
        metrics, _ = loop_updates(lambda k: self.update_once(samples.take(k)), n_updates, self.METRICS, samples.shape)
        return self.actor.flat_weights(), tf.stack([metrics[name] for name in self.METRICS])

    def update_once(self, batch: ReplaySamples) -> tuple[dict[str, tf.Tensor], tf.Tensor]:
        """Update value, actor and critics with a batch, [B, …] each (algorithm 1); return metrics and TD errors [B].

        All gradients use the weights before the update. One gradient that is not finite stops the step of every
        network.
        """
        observations, next_observations = map(network_input, (batch.observations, batch.next_observations))
        q = tf.reduce_min([target_value(critic, observations, batch.actions) for critic in self.target_critics], 0)
        goal = batch.rewards + batch.discounts * self.values(next_observations)
        with tf.GradientTape() as tape:
            v = self.values(observations)
            value_loss = tf.reduce_mean(expectile_loss(q - v, self.traced_options.expectile))
        gradients = [self.value_step.gradient(tape, value_loss)]
        weights = self.weights(q - v)
        with tf.GradientTape() as tape:
            outputs = clip_log_std(float_outputs(self.actor_model(observations, training=True)))
            policy_loss = -tf.reduce_mean(weights * self.distribution.log_prob(outputs, batch.actions))
        gradients.append(self.actor_step.gradient(tape, policy_loss))
        errors, losses = [], []
        for critic, step in zip(self.critic_models, self.critic_steps, strict=True):
            with tf.GradientTape() as tape:
                errors.append(goal - value(critic, observations, batch.actions, training=True))
                losses.append(tf.reduce_mean(errors[-1] ** 2))
            gradients.append(step.gradient(tape, losses[-1]))
        finite = tf.reduce_all([is_finite for *_, is_finite in gradients])
        steps = (self.value_step, self.actor_step, *self.critic_steps)
        for step, (gradient, norm, _) in zip(steps, gradients, strict=True):
            step.apply(gradient, norm, finite)
        updated = tf.cast(finite, tf.float32)
        for target in self.target_critics:
            target.soft_update(self.traced_options.tau * updated)
        metrics = {
            'updates': updated,
            'stats/refused': 1.0 - updated,
            'loss/value': value_loss,
            'loss/critic': tf.reduce_mean(losses),
            'loss/policy': policy_loss,
            'stats/q': tf.reduce_mean(q),
            'stats/td_error': tf.reduce_mean(tf.abs(errors[0])),
            'stats/weight': tf.reduce_mean(weights),
            'stats/grad_norm': tf.reduce_max([norm for _, norm, _ in gradients]),
        }
        return metrics, errors[0]

    def weights(self, advantages: tf.Tensor) -> tf.Tensor:
        """Return the imitation weights [B] of actions: exp(β A), limited by `max_weight` (equation 7)."""
        o = self.traced_options
        return tf.stop_gradient(tf.minimum(tf.exp(o.inverse_temperature * advantages), o.max_weight))

    def values(self, observations: tf.Tensor) -> tf.Tensor:
        """Return the values [B] of observations, which are network input."""
        return tf.cast(self.value_model(observations, training=True), tf.float32)[:, 0]

    def parts(self) -> dict[str, Any]:
        """Return the parts whose state belongs in checkpoints: also the target networks."""
        targets = {f'target_{i}': target for i, target in enumerate(self.target_critics)}
        return {**super().parts(), **targets}


def expectile_loss(differences: tf.Tensor, expectile: float) -> tf.Tensor:
    """Return |τ − 1(u < 0)| u² of differences u; the τ-expectile minimises its mean (equation 5)."""
    return tf.where(differences < 0, 1.0 - expectile, expectile) * differences**2
