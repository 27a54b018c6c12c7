"""Advantage actor-critic (Mnih et al. 2016, arXiv:1602.01783, in its synchronous form)."""

from __future__ import annotations

from typing import Any, ClassVar

import keras
import tensorflow as tf

from xagents.a2c.cli import A2COptions, ActorCriticOptions
from xagents.base.actor_critic import ActorCritic
from xagents.base.batches import RolloutBatch, RolloutSamples, flatten
from xagents.base.returns import explained_variance, masked_mean, masked_normalise, vtrace
from xagents.networks.programs import model_outputs, network_input
from xagents.options.agents import AgentOptions


class A2C(ActorCritic):
    """A2C: one gradient step on each rollout.

    Args:
        envs: the result of `create_envs`, a Gymnasium vector environment, or a list of environments.
        model: observations [B, *D] to [policy outputs [B, units], values [B, 1]], compiled with an optimizer or not.
            For continuous actions the last output is the log standard deviation; it is added if the model lacks it.
        options: `A2COptions` and `RunOptions`.
    """

    traits = ActorCritic.traits.changed(
        no_overlap_reason=(
            'learns from the rollouts of its present policy and has no correction for a policy that is one update '
            'older (PPO, ACER and agents with a replay buffer have)'
        ),
    )
    Options: ClassVar[type[AgentOptions]] = A2COptions
    options: ActorCriticOptions
    # whether updates use V-trace, which corrects for rollouts of an older policy
    _uses_vtrace: bool = False
    METRICS: ClassVar[tuple[str, ...]] = (
        *('loss/policy', 'loss/value', 'loss/entropy', 'stats/grad_norm', 'stats/explained_variance'),
    )

    def __init__(self, envs: Any, model: keras.Model, **options: Any):
        super().__init__(envs, model, **options)
        if isinstance(self.options, A2COptions) and self.options.v_trace:
            self._uses_vtrace, self.traits = True, self.traits.changed(keeps_outputs=True, no_overlap_reason='')
        self.critic = keras.Model(self.model.input, self.model.outputs[1])

    def update(self, steps: RolloutBatch, learning_rate: tf.Tensor) -> dict[str, tf.Tensor]:
        """Return the metrics of the whole update; compiled."""
        options, data = self.traced_options, self.transitions(steps)
        advantages = data.advantages
        if options.normalize_advantage:
            advantages = masked_normalise(advantages, data.valid, 1e-8)
        self.step.set_rate(learning_rate)
        with tf.GradientTape() as tape:
            outputs, value = self.evaluate_actions(data.observations, *data.sequence)
            policy_loss = self.policy_loss(outputs, data.actions, advantages, data.valid)
            value_loss = masked_mean((data.returns - value) ** 2, data.valid)
            entropy = masked_mean(self.distribution.entropy(outputs), data.valid)
            loss = policy_loss + options.value_loss_coef * value_loss - options.entropy_coef * entropy
        norm, applied, refused = self.step(tape, loss, tf.reduce_any(data.valid > 0))
        return {
            'updates': applied,
            'stats/refused': refused,
            'loss/policy': policy_loss,
            'loss/value': value_loss,
            'loss/entropy': entropy,
            'stats/grad_norm': norm,
            'stats/explained_variance': explained_variance(data.values, data.returns, data.valid),
        }

    def transitions(self, steps: RolloutBatch) -> RolloutSamples:
        """Return the transitions with their GAE advantages and returns; with `v_trace`, those of V-trace."""
        if not self._uses_vtrace:
            return super().transitions(steps)
        terminated, truncated, valid = steps.flags()
        observations, actions = flatten(steps.observations[:-1]), flatten(steps.actions)
        # one sequence for each environment
        memory: Any = flatten(steps.memory) if steps.sequence else ()
        outputs, _ = self.evaluate_actions(observations, *((memory, flatten(valid)) if steps.sequence else ()))
        behaviour_log_probs = self.distribution.log_prob([flatten(x) for x in steps.outputs], actions)
        ratios = tf.reshape(tf.exp(self.distribution.log_prob(outputs, actions) - behaviour_log_probs), valid.shape)
        values, ended = self.values(steps.observations, *steps.sequence), tf.maximum(terminated, truncated)
        o = self.traced_options
        targets, advantages = vtrace(steps.rewards, values, ratios, terminated, ended, o.gamma, o.lam)
        advantages, targets, before, valid = map(flatten, (advantages, targets, values[:-1], valid))
        return RolloutSamples(observations, actions, advantages, targets, before, valid, behaviour_log_probs, memory)

    def policy_loss(
        self, outputs: list[tf.Tensor], actions: tf.Tensor, advantages: tf.Tensor, valid: tf.Tensor
    ) -> tf.Tensor:
        """Return −mean(log π(a|s) A): its gradient is the policy gradient (section 4 of the paper)."""
        return -masked_mean(self.distribution.log_prob(outputs, actions) * advantages, valid)

    def evaluate_actions(self, observations: tf.Tensor, *sequence: tf.Tensor) -> tuple[list[tf.Tensor], tf.Tensor]:
        """Return the policy outputs and the values [B] for observations [B, *D].

        With memory, `sequence` is that of the samples (see `RolloutSamples.sequence`).
        """
        policy, value, *rest = model_outputs(self.model, network_input(observations), *sequence)
        return [policy, *rest], value[:, 0]

    def _state_values(self, observations: tf.Tensor, *sequence: tf.Tensor) -> tf.Tensor:
        """Return the values, float32 [B] or [B, 1], of network inputs [B, *D]."""
        # the whole model, because the memory is that of all its layers; the compiler removes unused ones
        return self.evaluate_actions(observations, *sequence)[1] if sequence else super()._state_values(observations)
