"""Truncated quantile critics (Kuznetsov et al. 2020, arXiv:2005.04269)."""

from __future__ import annotations

from typing import ClassVar, cast

import keras
import tensorflow as tf

from xagents.base.batches import ReplaySamples
from xagents.base.replayed_actor_critic import critic_input, critic_inputs
from xagents.envs.interface import Envs
from xagents.networks.value_distributions import quantile_huber_loss
from xagents.options.agents import AgentOptions
from xagents.sac.agent import SAC
from xagents.tqc.cli import TQCOptions


class TQC(SAC):
    """TQC: SAC whose critics estimate quantiles of the value, of which targets leave out the largest.

    Args:
        envs: as for SAC.
        actor_model: as for SAC.
        critic_model: observations and actions to `n_quantiles` quantiles of the action value, [B, M].
        critic_model_2: as for SAC.
        buffers: as for SAC.
        options: `TQCOptions` and `RunOptions`.
    """

    Options: ClassVar[type[AgentOptions]] = TQCOptions
    options: TQCOptions
    traits = SAC.traits.changed(discrete_agents='sac or dqn')

    @classmethod
    def _units_for(cls, envs: Envs, options: AgentOptions) -> dict[str, int]:
        assert isinstance(options, TQCOptions)
        return {**cls.output_units(envs), 'quantiles': options.n_quantiles}

    def _critic_form(self, critic: keras.Model) -> tuple[list[int], list[tuple[int, ...]]]:
        return [self.options.n_quantiles], critic_inputs(critic, self.input_shape, self.n_units)

    def goal(self, batch: ReplaySamples, next_observations: tf.Tensor) -> tf.Tensor:
        """Return the targets [B, k]: the smallest quantiles of both target critics together (equations 7 to 9)."""
        outputs, noise = self.policy_outputs(next_observations, False), cast(tf.Tensor, batch.noise)
        actions, log_probs = self.distribution.sample_with_log_prob(outputs, noise[0])
        quantiles = [c(critic_input(c.n_inputs, next_observations, actions))[0] for c in self.target_critics]
        kept = len(quantiles) * (self.options.n_quantiles - self.options.dropped_quantiles)
        smallest = tf.sort(tf.concat(quantiles, 1), 1)[:, :kept]
        entropy = self.temperature() * log_probs[:, None]
        return batch.rewards[:, None] + batch.discounts[:, None] * (smallest - entropy)

    def critic_errors(
        self, observations: tf.Tensor, actions: tf.Tensor, goal: tf.Tensor
    ) -> tuple[tf.Tensor, list, list[tf.Tensor], list[tf.Tensor]]:
        """Compare the quantiles of each critic with the targets `goal` [B, k] (equation 11).

        Returns:
            As for SAC; TD errors and values [B] are those of the means.
        """
        losses, gradients, errors, q = [], [], [], []
        for critic, step in zip(self.critic_models, self.critic_steps, strict=True):
            with tf.GradientTape() as tape:
                quantiles = self.quantiles(critic, observations, actions, training=True)
                losses.append(tf.reduce_mean(quantile_huber_loss(quantiles, goal)))
            gradients.append(step.gradient(tape, losses[-1]))
            q.append(tf.reduce_mean(quantiles, 1))
            errors.append(tf.reduce_mean(goal, 1) - q[-1])
        return tf.reduce_mean(losses), gradients, errors, q

    def critic_value(
        self, critic: keras.Model, observations: tf.Tensor, actions: tf.Tensor, training: bool = False
    ) -> tf.Tensor:
        """Return the mean of the quantiles [B] of a critic."""
        return tf.reduce_mean(self.quantiles(critic, observations, actions, training), 1)

    def quantiles(self, critic: keras.Model, observations: tf.Tensor, actions: tf.Tensor, training: bool) -> tf.Tensor:
        """Return the quantiles [B, M] of a critic."""
        return tf.cast(critic(critic_input(len(critic.inputs), observations, actions), training=training), tf.float32)

    def policy_value(self, values: list[tf.Tensor]) -> tf.Tensor:
        """Return the values that the policy maximises, the mean over all critics (equation 12)."""
        return tf.reduce_mean(values, 0)
