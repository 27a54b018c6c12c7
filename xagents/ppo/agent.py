"""Proximal policy optimisation (Schulman et al. 2017, arXiv:1707.06347)."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import tensorflow as tf

from xagents.a2c.agent import A2C
from xagents.minibatches import Minibatches
from xagents.on_policy import flatten
from xagents.optimisation import counted, means
from xagents.ppo.cli import PPOOptions
from xagents.returns import explained_variance, masked_mean, masked_normalise
from xagents.schedules import Schedule


class PPO(A2C):
    """PPO: A2C whose rollout is used for several epochs of minibatches, by a surrogate loss that is clipped.

    Args:
        envs: as for A2C.
        model: as for A2C.
        options: those of `PPOOptions` and `RunOptions`.
    """

    Options = PPOOptions
    options: PPOOptions
    keeps_outputs = True
    NO_OVERLAP = ''  # the ratio is that to the policy that acted
    METRICS = (*A2C.METRICS[:-1], 'stats/kl', 'stats/clip_fraction', 'stats/explained_variance')

    def __init__(self, envs: Any, model: keras.Model, **options: Any):
        super().__init__(envs, model, **options)
        self.minibatches = Minibatches(self.options, self.envs.n_envs)

    def learn(  # type: ignore[override]
        self, batch: dict[str, np.ndarray], learning_rate: float, clip_norm: float
    ) -> dict[str, float]:
        """Make `ppo_epochs` passes of minibatches over a rollout.

        Args:
            batch: as for A2C, and the outputs [T, N, units] of the policy that took the actions, by name.
            learning_rate: of this update.
            clip_norm: ε, the clip range of the policy ratio, of this update.

        Returns:
            The metrics by name: means over the minibatches.
        """
        permutations = self.minibatches.draw(self.rng('learn'), self.options.ppo_epochs)
        return self.run_update([*self.transitions(batch), permutations], learning_rate, clip_norm)

    def schedules(self) -> dict[str, Schedule]:
        """Return what changes during a run: also the clip range."""
        clip = Schedule(self.options.clip_norm, self.options.clip_schedule, option='clip_schedule')
        return {**super().schedules(), 'clip_norm': clip}

    def update(  # type: ignore[override]
        self,
        observations: tf.Tensor,
        actions: tf.Tensor,
        rewards: tf.Tensor,
        terminated: tf.Tensor,
        truncated: tf.Tensor,
        valid: tf.Tensor,
        *others: tf.Tensor,
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """The whole update, compiled: returns the acting weights and the metrics.

        Args:
            observations: [T + 1, N, *D]
            actions: [T, N, …]
            rewards: [T, N]
            terminated: bool [T, N]
            truncated: bool [T, N]
            valid: bool [T, N]
            others: the outputs of the policy that acted [T, N, units], permutations [minibatches, B], learning rate,
                clip range.
        """
        *old_outputs, permutations, learning_rate, clip_norm = others
        terminated, truncated, valid = (tf.cast(x, tf.float32) for x in (terminated, truncated, valid))
        values, advantages = self.advantages(observations, rewards, terminated, truncated)
        old_values = flatten(values[:-1])
        old_log_probs = self.distribution.log_prob([flatten(x) for x in old_outputs], flatten(actions))
        observations, actions, advantages, valid = map(flatten, (observations[:-1], actions, advantages, valid))
        returns = advantages + old_values
        rollout = [observations, actions, old_log_probs, advantages, old_values, returns, valid]
        self.step.set_rate(learning_rate)

        names = self.METRICS[:-1]  # the last one is that of the whole rollout

        def step(k: tf.Tensor, kl: tf.Tensor, totals: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
            metrics = self.minibatch_step([tf.gather(x, permutations[k]) for x in rollout], clip_norm)
            return k + 1, metrics['stats/kl'], totals + counted(metrics, names)

        def wanted(k: tf.Tensor, kl: tf.Tensor, totals: tf.Tensor) -> tf.Tensor:
            more = k < permutations.shape[0]
            # a refused step's KL may be NaN, which is not above anything
            return more if self.options.target_kl is None else more & ~(kl > self.options.target_kl)

        _, _, totals = tf.while_loop(wanted, step, (0, 0.0, tf.zeros(len(names))))
        explained = explained_variance(old_values, returns, valid)
        return self.actor.published(), tf.concat([means(totals, names), [explained]], 0)

    def minibatch_step(self, minibatch: list[tf.Tensor], clip_norm: tf.Tensor) -> dict[str, tf.Tensor]:
        """Make one gradient step on a minibatch of B transitions; returns its metrics."""
        options = self.options
        observations, actions, old_log_probs, advantages, old_values, returns, valid = minibatch
        if options.normalize_advantage:
            advantages = masked_normalise(advantages, valid, options.advantage_epsilon)
        with tf.GradientTape() as tape:
            outputs, value = self.evaluate_actions(observations)
            log_ratio = self.distribution.log_prob(outputs, actions) - old_log_probs
            ratio = tf.exp(log_ratio)
            # L^CLIP, equation 7
            clipped_ratio = tf.clip_by_value(ratio, 1.0 - clip_norm, 1.0 + clip_norm)
            policy_loss = -masked_mean(tf.minimum(ratio * advantages, clipped_ratio * advantages), valid)
            value_loss = masked_mean(self.value_error(value, old_values, returns), valid)
            entropy = masked_mean(self.distribution.entropy(outputs), valid)
            loss = policy_loss + options.value_loss_coef * value_loss - options.entropy_coef * entropy
        norm, applied, refused = self.step(tape, loss, tf.reduce_any(valid > 0))
        # (r − 1) − log r: never negative, and less noisy than −log r (http://joschu.net/blog/kl-approx.html)
        kl = masked_mean(ratio - 1.0 - log_ratio, valid)
        clipped = masked_mean(tf.cast(tf.abs(ratio - 1.0) > clip_norm, tf.float32), valid)
        return {
            'updates': applied,
            'stats/refused': refused,
            'loss/policy': policy_loss,
            'loss/value': value_loss,
            'loss/entropy': entropy,
            'stats/grad_norm': norm,
            'stats/kl': kl,
            'stats/clip_fraction': clipped,
        }

    def value_error(self, value: tf.Tensor, old_value: tf.Tensor, returns: tf.Tensor) -> tf.Tensor:
        """Return the squared errors [B] of values; with `value_clip` the larger ones of before and after clipping."""
        error = (returns - value) ** 2
        if self.options.value_clip is None:
            return error
        clip = self.options.value_clip
        return tf.maximum(error, (returns - old_value - tf.clip_by_value(value - old_value, -clip, clip)) ** 2)
