"""Soft actor-critic for discrete actions (Christodoulou 2019, arXiv:1910.07207)."""

from __future__ import annotations

import math
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from gymnasium import spaces

from xagents.envs.interface import Envs
from xagents.envs.spaces import ActionDecoder
from xagents.networks.distributions import Categorical, take_chosen
from xagents.options.agents import AgentOptions
from xagents.options.errors import OptionError
from xagents.sac.agent import SAC
from xagents.sac.cli import SACOptions

# share of the largest entropy that the policy should have
TARGET_ENTROPY = 0.5


class DiscreteSAC(SAC):
    """SAC whose expectations over actions are sums.

    Args:
        envs: as for SAC.
        actor_model: observations [B, *D] to logits [B, n].
        critic_model: observations [B, *D] to action values [B, n].
        critic_model_2: as for SAC.
        buffers: as for SAC.
        options: as for SAC.
    """

    traits = SAC.traits.changed(actor_outputs=1)

    @classmethod
    def _check_actions(cls, envs: Envs) -> None:
        """Check that actions are discrete."""
        if not isinstance(envs.action_space, spaces.Discrete):
            got = type(envs.action_space).__name__
            raise OptionError('env', f'{envs.id} has {got} actions, DiscreteSAC accepts Discrete ones')

    @classmethod
    def check_envs(cls, envs: Envs, options: AgentOptions) -> None:
        """Check that actions are discrete, and exploration is not state-dependent."""
        super().check_envs(envs, options)
        if isinstance(options, SACOptions) and options.sde:
            raise OptionError('sde', f'got true, but {envs.id} has Discrete actions, expected Box ones')

    @classmethod
    def output_units(cls, envs: Envs) -> dict[str, int]:
        """Return the sizes of possible network outputs."""
        n = ActionDecoder(envs.action_space).n_actions
        return {'actor': n, 'q': n}

    @classmethod
    def entropy_bounds(cls, n_actions: int) -> tuple[float, float]:
        """Return the bounds of the entropy of a policy over n actions in nats."""
        return 0.0, math.log(n_actions)

    def target_entropy(self) -> float:
        """Return the default target of the entropy, a share of that of uniform actions.

        The share of the paper, 0.98, leaves the policy nearly uniform.
        """
        return TARGET_ENTROPY * math.log(self.n_actions)

    def wanted_entropy(self, observations: tf.Tensor) -> Any:
        """Return the target of the entropy; with action masks, a share of the mean entropy of uniform legal actions."""
        if not self.envs.n_mask or self.options.target_entropy is not None:
            return super().wanted_entropy(observations)
        n_legal = tf.maximum(tf.reduce_sum(self.action_masks(observations), 1), 1.0)
        return TARGET_ENTROPY * tf.reduce_mean(tf.math.log(n_legal))

    # acting

    @property
    def distribution(self) -> Categorical:
        """The distribution of the policy's actions."""
        return Categorical(self.n_actions)

    def greedy_model(self, network: keras.Model) -> keras.Model:
        """Return the network: the greedy action is the one of the largest logit."""
        return network

    # learning

    def learning_noise(self, shape: tuple[int, ...]) -> np.ndarray | tuple[()]:
        """Return no noise."""
        return ()

    def next_values(self, observations: tf.Tensor, noise: Any) -> tf.Tensor:
        """Return Σ π(a'|s') (min Q'(s', a') − α log π(a'|s')) [B] (equation 10)."""
        log_probs = tf.nn.log_softmax(self.policy_outputs(observations, False)[0])
        q = tf.reduce_min([critic(observations)[0] for critic in self.target_critics], 0)
        return tf.reduce_sum(tf.exp(log_probs) * (q - self.temperature() * log_probs), -1)

    def critic_value(
        self, critic: keras.Model, observations: tf.Tensor, actions: tf.Tensor, training: bool = False
    ) -> tf.Tensor:
        """Return the values [B] of actions [B] by a critic."""
        return take_chosen(tf.cast(critic(observations, training=training), tf.float32), actions)

    def policy_loss_and_entropy(self, observations: tf.Tensor, noise: Any) -> tuple[tf.Tensor, tf.Tensor]:
        """Return the mean of Σ π(a|s) (α log π(a|s) − min Q(s, a)) (equation 12), and the mean entropy."""
        log_probs = tf.nn.log_softmax(self.policy_outputs(observations, True)[0])
        q = tf.reduce_min([tf.cast(critic(observations), tf.float32) for critic in self.critic_models], 0)
        entropy = -tf.reduce_sum(tf.exp(log_probs) * log_probs, -1)
        loss = -tf.reduce_sum(tf.exp(log_probs) * tf.stop_gradient(q), -1) - self.temperature() * entropy
        return tf.reduce_mean(loss), tf.reduce_mean(entropy)

    def _critic_form(self, critic: keras.Model) -> tuple[list[int], list[tuple[int, ...]]]:
        return [self.n_units], [self.input_shape]
