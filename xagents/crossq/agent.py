"""CrossQ (Bhatt et al. 2024, arXiv:1902.05605v4)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, cast

import keras
import tensorflow as tf

from xagents.base.batches import ReplaySamples
from xagents.crossq.cli import CrossQOptions
from xagents.networks.optimisation.gradient_steps import apply_together
from xagents.networks.optimisation.targets import TargetNetwork
from xagents.networks.programs import network_input
from xagents.options.agents import AgentOptions
from xagents.sac.agent import SAC


class CrossQ(SAC):
    """CrossQ: SAC whose critics normalise present and next pairs in one batch, and need no target networks.

    Args:
        envs: as for SAC.
        actor_model: as for SAC.
        critic_model: as for SAC; with batch normalisation.
        critic_model_2: as for SAC.
        buffers: as for SAC.
        options: `CrossQOptions` and `RunOptions`.
    """

    Options: ClassVar[type[AgentOptions]] = CrossQOptions
    options: CrossQOptions
    traits = SAC.traits.changed(discrete_agents='sac or dqn')

    def set_networks(self, actor: keras.Model, critics: Sequence[keras.Model], *others: keras.Model) -> None:
        """Set the networks; see `ReplayedActorCritic`. There are no target networks."""
        super().set_networks(actor, critics, *others)
        self.target_critics: list[TargetNetwork] = []

    def update_once(self, batch: ReplaySamples) -> tuple[dict[str, tf.Tensor], tf.Tensor]:
        """Update the critics with a batch, [B, …] each, and every `policy_delay` steps the actor and the temperature.

        Returns:
            The metrics by name, and the TD errors [B].
        """
        observations, next_observations = map(network_input, (batch.observations, batch.next_observations))
        next_outputs, noise = self.policy_outputs(next_observations, False), cast(tf.Tensor, batch.noise)
        next_actions, log_probs = self.distribution.sample_with_log_prob(next_outputs, noise[0])
        both = tf.concat([observations, next_observations], 0), tf.concat([batch.actions, next_actions], 0)
        with tf.GradientTape(persistent=True) as tape:
            values = [self.critic_value(critic, *both, training=True) for critic in self.critic_models]
            q, next_q = zip(*(tf.split(value, 2) for value in values), strict=True)
            next_values = tf.stop_gradient(tf.reduce_min(next_q, 0)) - self.temperature() * log_probs
            errors = [batch.rewards + batch.discounts * next_values - one for one in q]  # algorithm 1
            losses = [tf.reduce_mean(error**2) for error in errors]
        gradients = [step.gradient(tape, loss) for step, loss in zip(self.critic_steps, losses, strict=True)]
        made, norm = apply_together(self.critic_steps, gradients)
        metrics = self.critic_metrics(tf.reduce_mean(losses), errors, q, made, norm)
        policy = self.delayed(lambda: self.update_policy(observations, noise, made), made)
        refused = tf.maximum(metrics['stats/refused'], policy['stats/refused'])
        return {**metrics, **policy, 'stats/refused': refused}, errors[0]
