"""Proximal policy optimisation (Schulman et al. 2017, arXiv:1707.06347)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import keras
import tensorflow as tf

from xagents.a2c.agent import A2C
from xagents.base.batches import RolloutBatch, RolloutSamples
from xagents.base.minibatches import Minibatches
from xagents.base.returns import explained_variance, masked_mean, masked_normalise
from xagents.networks.optimisation.gradient_steps import loop_mean
from xagents.pipeline.schedules import Schedule
from xagents.ppo.cli import PPOOptions


class PPO(A2C):
    """PPO: an actor-critic that uses each rollout for several epochs of minibatches, with a clipped surrogate loss.

    Args:
        envs: as for A2C.
        model: as for A2C.
        options: `PPOOptions` and `RunOptions`.
    """

    Options = PPOOptions
    options: PPOOptions
    # the ratio compares with the policy that acted
    traits = A2C.traits.changed(keeps_outputs=True, no_overlap_reason='')
    # metrics that `minibatch_step` returns, and those of a whole update
    MINIBATCH_METRICS: ClassVar[tuple[str, ...]] = (*A2C.METRICS[:-1], 'stats/kl', 'stats/clip_fraction')
    METRICS = (*MINIBATCH_METRICS, 'stats/explained_variance')

    def __init__(self, envs: Any, model: keras.Model, **options: Any):
        super().__init__(envs, model, **options)
        self.options.check_memory(self.actor.memory_units > 0)
        self.minibatches = Minibatches(self.options, self.envs.n_envs, self._sequence_length)

    def schedules(self) -> dict[str, Schedule]:
        """Return the schedules: also the clip range."""
        clip = Schedule(self.options.clip_norm, self.options.clip_schedule, option='clip_schedule')
        return {**super().schedules(), 'clip_norm': clip}

    def learn(self, batch: dict[str, Any], schedule: Mapping[str, float]) -> dict[str, float]:
        """Make `ppo_epochs` passes of minibatches over a rollout."""
        permutations = self.minibatches.draw(self.rng('learn'), self.options.ppo_epochs)
        return self.run_update(batch, permutations, schedule['learning_rate'], schedule['clip_norm'])

    def update(  # type: ignore[override]
        self, steps: RolloutBatch, permutations: tf.Tensor, learning_rate: tf.Tensor, clip_norm: tf.Tensor
    ) -> dict[str, tf.Tensor]:
        """Return the metrics of the whole update (algorithm 1); compiled.

        `permutations` is int32 [minibatches, B], the rows of each minibatch; with memory, its sequences.
        """
        data, target_kl = self.transitions(steps), self.traced_options.target_kl
        self.step.set_rate(learning_rate)
        metrics = loop_mean(
            lambda k: self.minibatch_step(data.take(permutations[k]), clip_norm),
            permutations.shape[0],
            self.MINIBATCH_METRICS,
            stop_when=None if target_kl is None else lambda metrics: metrics['stats/kl'] > target_kl,
        )
        return {**metrics, 'stats/explained_variance': explained_variance(data.values, data.returns, data.valid)}

    def minibatch_step(self, data: RolloutSamples, clip_norm: tf.Tensor) -> dict[str, tf.Tensor]:
        """Make one gradient step on a minibatch, and return its metrics."""
        options, advantages = self.traced_options, data.advantages
        if options.normalize_advantage:
            advantages = masked_normalise(advantages, data.valid, options.advantage_epsilon)
        with tf.GradientTape() as tape:
            outputs, value = self.evaluate_actions(data.observations, *data.sequence)
            log_ratio = self.distribution.log_prob(outputs, data.actions) - data.log_probs
            ratio = tf.exp(log_ratio)
            policy_loss = self.policy_loss(ratio, advantages, data.valid, clip_norm)
            value_loss = masked_mean(self.value_error(value, data.values, data.returns), data.valid)
            entropy = masked_mean(self.distribution.entropy(outputs), data.valid)
            # equation 9
            loss = policy_loss + options.value_loss_coef * value_loss - options.entropy_coef * entropy
        norm, applied, refused = self.step(tape, loss, tf.reduce_any(data.valid > 0))
        return {
            'updates': applied,
            'stats/refused': refused,
            'loss/policy': policy_loss,
            'loss/value': value_loss,
            'loss/entropy': entropy,
            'stats/grad_norm': norm,
            # (r − 1) − log r is never negative and has less variance than −log r (http://joschu.net/blog/kl-approx.html)
            'stats/kl': masked_mean(ratio - 1.0 - log_ratio, data.valid),
            'stats/clip_fraction': masked_mean(tf.cast(tf.abs(ratio - 1.0) > clip_norm, tf.float32), data.valid),
        }

    def policy_loss(  # type: ignore[override]
        self, ratio: tf.Tensor, advantages: tf.Tensor, valid: tf.Tensor, clip_norm: tf.Tensor
    ) -> tf.Tensor:
        """Return the loss of the policy, the negative L^CLIP (equation 7).

        Args:
            ratio: [B], probability of each action by the present policy divided by that of the policy that acted.
            advantages: [B].
            valid: [B], 0 in rows that only reset their environment.
            clip_norm: ε, the clip range of the ratio.
        """
        clipped_ratio = tf.clip_by_value(ratio, 1.0 - clip_norm, 1.0 + clip_norm)
        return -masked_mean(tf.minimum(ratio * advantages, clipped_ratio * advantages), valid)

    def value_error(self, value: tf.Tensor, old_value: tf.Tensor, returns: tf.Tensor) -> tf.Tensor:
        """Return squared errors [B] of values; with `value_clip`, the larger of those before and after clipping."""
        error = (returns - value) ** 2
        clip = self.traced_options.value_clip
        if clip is None:
            return error
        return tf.maximum(error, (returns - old_value - tf.clip_by_value(value - old_value, -clip, clip)) ** 2)
