"""Soft actor-critic (Haarnoja et al. 2018, arXiv:1812.05905)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

import keras
import numpy as np
import tensorflow as tf

from xagents.base.batches import ReplaySamples
from xagents.base.replayed_actor_critic import ReplayedActorCritic, target_value
from xagents.collecting.policies import Policy, SamplingPolicy
from xagents.envs.interface import Envs
from xagents.envs.spaces import ActionDecoder
from xagents.networks.acting import ActingNetwork
from xagents.networks.distributions import SquashedGaussian, SquashedStateDependentGaussian
from xagents.networks.optimisation.gradient_steps import zero_if_not_finite
from xagents.networks.programs import KerasNetwork, float_outputs, network_input
from xagents.networks.state_dependent import acting_model, count_features, with_state_dependent_std
from xagents.options.agents import AgentOptions
from xagents.options.errors import OptionError
from xagents.sac.cli import SACOptions
from xagents.sac.temperature import Temperature


class SAC(ReplayedActorCritic):
    """SAC: a stochastic policy that maximises the values of two critics and its own entropy, from replayed transitions.

    Args:
        envs: the result of `create_envs`, a Gymnasium vector environment, or a list of environments.
        actor_model: observations [B, *D] to means and log standard deviations [B, A] of actions before the tanh.
        critic_model: observations and actions to action values [B, 1], as for DDPG.
        critic_model_2: the second critic; by default a copy of the first with other initial weights.
        buffers: a replay buffer to use; by default the options define it.
        options: `SACOptions` and `RunOptions`.
    """

    Options: ClassVar[type[AgentOptions]] = SACOptions
    options: SACOptions
    traits = ReplayedActorCritic.traits.changed(
        actor_outputs=2,  # mean and log standard deviation
        discrete_agents="xagents.make('sac', …), which makes a DiscreteSAC",
        policy_metrics=('loss/policy', 'stats/entropy', 'stats/temperature'),
    )
    METRICS = (
        *('loss/value', 'loss/policy', 'stats/q', 'stats/td_error'),
        *('stats/entropy', 'stats/temperature', 'stats/grad_norm', 'policy_updates'),
    )

    def set_networks(self, actor: keras.Model, critics: Sequence[keras.Model], *others: keras.Model) -> None:
        """Set the networks and the temperature; see `ReplayedActorCritic`."""
        if self.options.sde:
            self._check_noise_repeat()
            # the standard deviation is that of the state-dependent noise instead of an output of the network
            mean = keras.Model(actor.input, actor.outputs[:1])
            actor = with_state_dependent_std(mean, self.options.log_std_init, self.options.sde_expln)
        super().set_networks(actor, critics, *others)
        self.temperature = Temperature(self.traced_options, self.target_entropy())

    def _check_noise_repeat(self) -> None:
        """Check that rollouts are as long as state-dependent noise should be kept; report noise that is not kept."""
        frequency, more = self.options.sde_sample_frequency, 'a larger --train-frequency gives longer rollouts'
        if frequency > self.n_steps:
            got = f'got {frequency}, expected at most the {self.n_steps} steps of a rollout'
            raise OptionError('sde_sample_frequency', f'{got}: {more}')
        if self.n_steps == 1:
            line = f'--sde: the noise is drawn at each step, because rollouts have one step: {more}'
            self.progress.startup_lines.append(line)

    @classmethod
    def check_envs(cls, envs: Envs, options: AgentOptions) -> None:
        """Check the actions, and that the entropy of a policy can be the target."""
        super().check_envs(envs, options)
        if not isinstance(options, SACOptions) or options.target_entropy is None:
            return
        least, most = cls.entropy_bounds(ActionDecoder(envs.action_space).n_actions)
        if not least <= options.target_entropy < most:
            bounds = f'less than {most:.3g}' if math.isinf(least) else f'at least {least:g} and less than {most:.3g}'
            expected = f'expected {bounds} nats, the entropy of uniform actions in {envs.id}'
            raise OptionError('target_entropy', f'got {options.target_entropy:g}, {expected}')

    @classmethod
    def entropy_bounds(cls, n_actions: int) -> tuple[float, float]:
        """Return the bounds of the entropy of a policy in nats; actions that are uniform in [−1, 1]^A have the most."""
        return -math.inf, n_actions * math.log(2.0)

    @classmethod
    def output_units(cls, envs: Envs) -> dict[str, int]:
        """Return the sizes of possible network outputs."""
        units = super().output_units(envs)
        return {**units, 'log_std': units['actor']}

    def target_entropy(self) -> float:
        """Return the default target of the entropy: −A (appendix D)."""
        return -float(self.n_actions)

    # acting

    @property
    def distribution(self) -> Any:
        """The distribution of the policy's actions."""
        if self.options.sde:
            return SquashedStateDependentGaussian(self.n_actions, count_features(self.actor_model))
        return SquashedGaussian(self.n_actions)

    def make_actor(self, index: int) -> KerasNetwork:
        """Return the acting network: the actor, with the deviations of state-dependent noise."""
        return KerasNetwork(acting_model(self.actor_model), self.statistics.dtype)

    def make_policy(self, network: ActingNetwork) -> Policy:
        """Return a policy that samples actions from the outputs of `network`, which has the form of `actor`."""
        repeat = self.options.noise_repeat(self.n_steps)
        policy = SamplingPolicy(network, self.distribution, False, repeat, self.envs.n_mask > 0)
        policy.warming_up = self.warming_up
        return policy

    def greedy_model(self, network: keras.Model) -> keras.Model:
        """Return a model of the greedy actions tanh(mean) [B, A]."""
        return keras.Model(network.input, keras.layers.Activation('tanh', name='action')(network.outputs[0]))

    # learning

    def learning_noise(self, shape: tuple[int, ...]) -> np.ndarray | tuple[()]:
        """Return normal noise [K, 2, B, A], that of the next and the present actions, for `shape` = [K, B, A]."""
        return self.rng('learn').standard_normal((shape[0], 2, *shape[1:]), np.float32)

    def update_once(self, batch: ReplaySamples) -> tuple[dict[str, tf.Tensor], tf.Tensor]:
        """Update the critics, the actor, then the temperature with a batch, [B, …] each (algorithm 1).

        Returns:
            The metrics by name, and the TD errors [B].
        """
        observations, next_observations = map(network_input, (batch.observations, batch.next_observations))
        goal = self.goal(batch, next_observations)
        metrics, errors = self.update_critics(observations, batch.actions, goal)
        policy = self.update_policy(observations, batch.noise, metrics['updates'])
        refused = tf.maximum(metrics['stats/refused'], policy['stats/refused'])
        return {**metrics, **policy, 'stats/refused': refused}, errors

    def goal(self, batch: ReplaySamples, next_observations: tf.Tensor) -> tf.Tensor:
        """Return the targets [B] of both critics (equation 5)."""
        return batch.rewards + batch.discounts * self.next_values(next_observations, batch.noise)

    def next_values(self, observations: tf.Tensor, noise: Any) -> tf.Tensor:
        """Return min Q'(s', a') − α log π(a'|s') [B] of sampled next actions a' (equations 3 and 6)."""
        actions, log_probs = self.distribution.sample_with_log_prob(self.policy_outputs(observations, False), noise[0])
        q = tf.reduce_min([target_value(critic, observations, actions) for critic in self.target_critics], 0)
        return q - self.temperature() * log_probs

    def update_policy(self, observations: tf.Tensor, noise: Any, critics_updated: tf.Tensor) -> dict[str, tf.Tensor]:
        """Update the actor, the temperature and the target networks; return metrics.

        Args:
            observations: [B, *D], network input.
            noise: [2, B, A], standard normal.
            critics_updated: 1 if the critics made their step, else 0.
        """
        with tf.GradientTape() as tape:
            loss, entropy = self.policy_loss_and_entropy(observations, noise)
        _, updated, refused = self.actor_step(tape, loss, critics_updated > 0)
        temperature = self.temperature()
        excess = entropy - self.wanted_entropy(observations)
        self.temperature.update(excess, self.actor_step.optimizer.learning_rate, updated)
        for target in self.targets():
            target.soft_update(self.traced_options.tau * updated)
        return {
            'loss/policy': zero_if_not_finite(loss),
            'stats/entropy': entropy,
            'stats/temperature': temperature,
            'policy_updates': updated,
            'stats/refused': refused,
        }

    def policy_loss_and_entropy(self, observations: tf.Tensor, noise: Any) -> tuple[tf.Tensor, tf.Tensor]:
        """Return the mean of α log π(a|s) − min Q(s, a) for sampled actions a (equation 9), and −mean log π(a|s)."""
        actions, log_probs = self.distribution.sample_with_log_prob(self.policy_outputs(observations, True), noise[1])
        q = self.policy_value([self.critic_value(critic, observations, actions) for critic in self.critic_models])
        return tf.reduce_mean(self.temperature() * log_probs - q), -tf.reduce_mean(log_probs)

    def wanted_entropy(self, observations: tf.Tensor) -> Any:
        """Return the entropy in nats that a learned temperature aims at, a scalar."""
        return self.temperature.target

    def policy_value(self, values: list[tf.Tensor]) -> tf.Tensor:
        """Return the values that the policy maximises, the smaller of those of both critics."""
        return tf.reduce_min(values, 0)

    def policy_outputs(self, observations: tf.Tensor, training: bool) -> list[tf.Tensor]:
        """Return the outputs of the actor, [B, units] each; `training` is for its own update."""
        return float_outputs(self.actor_model(observations, training=training))

    def parts(self) -> dict[str, Any]:
        """Return the parts whose state belongs in checkpoints: also a learned temperature."""
        learned = {'temperature': self.temperature} if self.temperature.is_learned else {}
        return {**super().parts(), **learned}
