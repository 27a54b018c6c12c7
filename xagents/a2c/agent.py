"""Advantage actor-critic (Mnih et al. 2016, arXiv:1602.01783, in its synchronous form)."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import tensorflow as tf

from xagents.a2c.cli import A2COptions
from xagents.base import OnPolicy
from xagents.compiling import Actor, Program, has_convolutions, network_input
from xagents.distributions import distribution_for
from xagents.envs import Envs
from xagents.networks import with_log_std
from xagents.optimisation import GradientStep, take_compiled
from xagents.returns import explained_variance, gae, masked_mean, masked_normalise

IMAGES_AT_ONCE = 512


class A2C(OnPolicy):
    """A2C: one gradient step on each rollout.

    Args:
        envs: what `create_envs` returns, a Gymnasium vector environment, or a list of environments.
        model: observations [B, *D] to [policy outputs [B, units], values [B, 1]], compiled with an optimizer or not.
            For continuous actions its last output is the log standard deviation; it is added where it is missing.
        options: those of `A2COptions` and `RunOptions`.
    """

    Options = A2COptions
    options: A2COptions
    METRICS: tuple[str, ...] = (
        'updates',
        'stats/refused',
        'loss/policy',
        'loss/value',
        'loss/entropy',
        'stats/grad_norm',
        'stats/explained_variance',
    )

    def __init__(self, envs: Any, model: keras.Model, **options: Any):
        super().__init__(envs, **options)
        self.distribution = distribution_for(self.envs.action_space)
        units = list(self.output_units(self.envs).values())
        if self.distribution.has_log_std:
            model = with_log_std(model, self.options.log_std_init)
            units.append(self.distribution.n_units)
        self.check_model(model, units)
        rate = take_compiled(model, self.options, options)
        self.model = model
        self.step = GradientStep(model, self.options, self.options.grad_norm, rate)
        self.output_models = [model]
        self.actor = self.make_actor(0)
        self.critic = keras.Model(model.input, model.outputs[1])
        self._update = Program(self.update, jit=not has_convolutions(model))

    @classmethod
    def output_units(cls, envs: Envs) -> dict[str, int]:
        """Return the sizes of its network's outputs."""
        return {'actor': distribution_for(envs.action_space).n_units, 'critic': 1}

    def make_actor(self, index: int) -> Actor:
        """Return the policy alone; `index` is its place among the model's outputs."""
        outputs = [self.model.outputs[index], *self.model.outputs[2:]]
        return Actor(keras.Model(self.model.input, outputs), self.observation_dtype)

    def columns(self) -> dict[str, tuple[tuple[int, ...], Any]]:
        """Shape and dtype of what `policy` returns for one environment."""
        return {'actions': (self.distribution.action_shape, self.distribution.action_dtype)}

    def draw_noise(self, rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
        """Return the randomness of `shape` actions, for `policy`."""
        return self.distribution.draw_noise(rng, shape)

    def policy(self, observations: np.ndarray, noise: np.ndarray | None) -> dict[str, np.ndarray]:
        """Return a column of the rollout by name: `actions` [N, …]. Without noise, the greedy ones."""
        outputs = self.actor(observations)
        actions = self.distribution.mode(outputs) if noise is None else self.distribution.sample(outputs, noise)
        return {'actions': actions}

    def learn(self, batch: dict[str, np.ndarray], learning_rate: float) -> dict[str, float]:  # type: ignore[override]
        """Make one gradient step on a rollout.

        Args:
            batch: `observations` [T + 1, N, *D]; `actions`, `rewards`, `terminated`, `truncated`, `valid` [T, N, …].
            learning_rate: of this update.

        Returns:
            The metrics by name.
        """
        return self.run_update(self.transitions(batch), learning_rate)

    def transitions(self, batch: dict[str, np.ndarray]) -> list[np.ndarray]:
        """Return the arguments of `update` that come from the rollout."""
        names = ('actions', 'rewards', 'terminated', 'truncated', 'valid')
        # a stage may have made float64 of what was float32
        return [batch['observations'], *(np.asarray(batch[name], self.rollout[name].dtype) for name in names)]

    def run_update(self, arrays: list[np.ndarray], *arguments: Any) -> dict[str, float]:
        """Call the compiled update, let acting use the new weights, and return the metrics by name."""
        weights, metrics = self._update(*arrays, *arguments)
        self.actor.refresh(weights.numpy())
        return dict(zip(self.METRICS, metrics.numpy().tolist(), strict=True))

    def advantages(
        self, observations: tf.Tensor, rewards: tf.Tensor, terminated: tf.Tensor, truncated: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Return values [T + 1, N] of all observations, and advantages [T, N], which have no gradient."""
        values = self.values(observations)
        ended = tf.maximum(terminated, truncated)
        return values, gae(rewards, values, terminated, ended, self.options.gamma, self.options.lam)

    def update(
        self,
        observations: tf.Tensor,
        actions: tf.Tensor,
        rewards: tf.Tensor,
        terminated: tf.Tensor,
        truncated: tf.Tensor,
        valid: tf.Tensor,
        learning_rate: tf.Tensor,
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """The whole update, compiled: returns the acting weights and the metrics."""
        options = self.options
        terminated, truncated, valid = (tf.cast(x, tf.float32) for x in (terminated, truncated, valid))
        values, advantages = self.advantages(observations, rewards, terminated, truncated)
        returns = advantages + values[:-1]
        observations, actions, advantages, returns, valid = map(
            flatten, (observations[:-1], actions, advantages, returns, valid)
        )
        with tf.GradientTape() as tape:
            outputs, value = self.evaluate_actions(observations)
            weights = masked_normalise(advantages, valid, 1e-8) if options.normalize_advantage else advantages
            policy_loss = self.policy_loss(outputs, actions, weights, valid)
            value_loss = masked_mean((returns - value) ** 2, valid)
            entropy = masked_mean(self.distribution.entropy(outputs), valid)
            loss = policy_loss + options.value_loss_coef * value_loss - options.entropy_coef * entropy
        self.step.set_rate(learning_rate)
        norm, applied, refused = self.step(tape, loss, tf.reduce_any(valid > 0))
        metrics = {
            'updates': applied,
            'stats/refused': refused,
            'loss/policy': policy_loss,
            'loss/value': value_loss,
            'loss/entropy': entropy,
            'stats/grad_norm': norm,
            'stats/explained_variance': explained_variance(flatten(values[:-1]), returns, valid),
        }
        return self.actor.published(), tf.stack([metrics[name] for name in self.METRICS])

    def policy_loss(
        self, outputs: list[tf.Tensor], actions: tf.Tensor, advantages: tf.Tensor, valid: tf.Tensor
    ) -> tf.Tensor:
        """Return −mean(log π(a|s) A): its gradient is the policy gradient (section 4 of the paper)."""
        return -masked_mean(self.distribution.log_prob(outputs, actions) * advantages, valid)

    def evaluate_actions(self, observations: tf.Tensor) -> tuple[list[tf.Tensor], tf.Tensor]:
        """Return the policy's outputs and the values [B] for observations [B, *D]."""
        policy, value, *rest = (
            tf.cast(output, tf.float32) for output in self.model(network_input(observations), training=True)
        )
        return [policy, *rest], value[:, 0]

    def values(self, observations: tf.Tensor) -> tf.Tensor:
        """Return the values [T + 1, N] of observations [T + 1, N, *D]."""
        flat = flatten(observations)
        # the activations of a long rollout of images would not fit into memory at once
        size = IMAGES_AT_ONCE if has_convolutions(self.model) else flat.shape[0]
        parts = tf.split(flat, [min(size, flat.shape[0] - start) for start in range(0, flat.shape[0], size)])
        values = tf.concat([self.critic(network_input(part)) for part in parts], 0)
        return tf.reshape(tf.cast(values, tf.float32), observations.shape[:2])


def flatten(x: tf.Tensor) -> tf.Tensor:
    """Return [T, N, …] as [T * N, …]."""
    return tf.reshape(x, (x.shape[0] * x.shape[1], *x.shape[2:]))
