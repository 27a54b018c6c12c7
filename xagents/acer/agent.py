"""Actor-critic with experience replay (Wang et al. 2017, arXiv:1611.01224), for discrete actions."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import keras
import tensorflow as tf
from gymnasium import spaces

from xagents.acer.cli import ACEROptions
from xagents.acer.policy_gradient import divergence, entropy, entropy_gradient, policy_gradient, project
from xagents.base.actor_critic import ActorCritic
from xagents.base.batches import RolloutBatch, flatten
from xagents.base.off_policy import WithReplay
from xagents.base.returns import explained_variance, masked_deviation, masked_mean, masked_normalise, retrace
from xagents.base.sampled_batches import stacked_images
from xagents.collecting.rollouts import Rollout
from xagents.envs.create import Envs
from xagents.networks.distributions import distribution_for
from xagents.networks.optimisation.targets import TargetNetwork
from xagents.networks.programs import float_outputs, network_input
from xagents.options.agents import AgentOptions
from xagents.options.errors import OptionError
from xagents.pipeline.recipe import Recipe
from xagents.replay.ring import ring_bytes_needed
from xagents.replay.rollouts import RolloutBuffer, rounded_size
from xagents.runs import recipes


class ACER(WithReplay, ActorCritic):
    """ACER: an actor-critic that learns from each new rollout, and from stored rollouts sampled from a buffer.

    Args:
        envs: as for A2C, with discrete actions.
        model: observations [B, *D] to [policy logits [B, A], Q values [B, A]], compiled with an optimizer or not. The
            policy head may end in softmax; the agent then uses the logarithm of its output as logits.
        options: `ACEROptions` and `RunOptions`.
    """

    Options = ACEROptions
    options: ACEROptions
    traits = ActorCritic.traits.changed(raw_rollouts=True, keeps_outputs=True)
    METRICS = (
        *('loss/policy', 'loss/value', 'loss/entropy', 'stats/grad_norm'),
        *('stats/importance', 'stats/kl_average', 'stats/projected', 'stats/explained_variance'),
    )

    def __init__(self, envs: Any, model: keras.Model, **options: Any):
        super().__init__(envs, model, **options)
        self.average_policy = TargetNetwork(self.actor.model)

    @classmethod
    def check_envs(cls, envs: Envs, options: AgentOptions) -> None:
        """Check that actions are discrete, and that the buffer can hold a rollout."""
        super().check_envs(envs, options)
        if not isinstance(envs.action_space, spaces.Discrete):
            raise OptionError('env', f'{envs.id} has the actions {envs.action_space}, ACER accepts Discrete')
        assert isinstance(options, ACEROptions)
        rounded_size(options.buffer_max_size, options.n_steps, envs.n_envs)

    @classmethod
    def output_units(cls, envs: Envs) -> dict[str, int]:
        """Return the sizes of the network outputs."""
        n_actions = distribution_for(envs.action_space).n_units
        return {'actor': n_actions, 'q': n_actions}

    def parts(self) -> dict[str, Any]:
        """Return the parts whose state belongs in checkpoints: also the average policy."""
        return {**super().parts(), 'average_policy': self.average_policy}

    # replay

    @functools.cached_property
    def buffer(self) -> RolloutBuffer:
        """The buffer of stored rollouts; it allocates its memory with the first rollout."""
        o, stack = self.options, self.envs.frame_stack
        buffer = RolloutBuffer(o.buffer_max_size, o.buffer_initial_size, n_steps=o.n_steps, stack=stack)
        buffer.byte_images = stacked_images(self.envs)
        return buffer

    def buffer_bytes(self) -> int:
        """Return the memory of the full buffer, in bytes."""
        columns = dict(self.acting_policy.columns)
        action = columns.pop('actions')
        o, envs = self.options, self.envs
        size = rounded_size(o.buffer_max_size, o.n_steps, envs.n_envs)
        space, stack, images = envs.observation_space, envs.frame_stack, stacked_images(envs)
        return ring_bytes_needed(size, envs.n_envs, space, action, stack, columns=columns, images=images)

    def draw_replays(self) -> int:
        """Draw the number of replays after a new rollout from a Poisson distribution (algorithm 1)."""
        return int(self.rng('replay').poisson(self.options.replay_ratio))

    def replay(self) -> Rollout:
        """Sample a stored rollout; the next call overwrites it."""
        return self.buffer.sample(self.rng('replay'))

    def learning(self) -> Recipe:
        """Return the stages in the middle of a recipe: learn, remember, replay."""
        return recipes.RELEARNING

    # learning

    def learn(self, batch: dict[str, Any], schedule: Mapping[str, float]) -> dict[str, float]:
        """Make one gradient step on a raw rollout of any earlier policy, which contains its `logits` [T, N, A].

        The present statistics normalise the rollout here.
        """
        observations = self.statistics.prepare(batch['observations'])
        rewards = self.statistics.scale_rewards(batch['rewards'])
        return super().learn({**batch, 'observations': observations, 'rewards': rewards}, schedule)

    def update(self, steps: RolloutBatch, learning_rate: tf.Tensor) -> dict[str, tf.Tensor]:
        """Return the metrics of the whole update; compiled."""
        options, observations, actions, rewards = self.traced_options, steps.observations, steps.actions, steps.rewards
        terminated, truncated, valid = steps.flags()
        behaviour = tf.nn.softmax(steps.outputs[0])  # μ, the policy that acted
        average = self.average_probabilities(observations[:-1])
        taken = tf.one_hot(actions, behaviour.shape[-1])
        with tf.GradientTape() as tape:
            policies, q = self.probabilities_and_values(observations)
            policy, q_taken = policies[:-1], tf.reduce_sum(taken * q[:-1], -1)
            with tape.stop_recording():  # targets and the direction of the policy are constants
                values = tf.reduce_sum(policies * q, -1)
                ratios = policy / (behaviour + options.epsilon)
                ratio = tf.reduce_sum(taken * ratios, -1)
                ended = tf.maximum(terminated, truncated)
                targets = retrace(rewards, q_taken, values, ratio, terminated, ended, valid, options.gamma, options.lam)
                advantages = targets - values[:-1], q[:-1] - values[:-1, :, None]
                direction, projected = self.direction(policy, ratios, average, taken, advantages, valid)
            # its gradient with respect to the parameters is −z ∂φ/∂θ
            policy_loss = -masked_mean(tf.reduce_sum(direction * policy, -1), valid)
            value_loss = masked_mean((targets - q_taken) ** 2, valid)
            loss = policy_loss + options.value_loss_coef * value_loss
        self.step.set_rate(learning_rate)
        norm, applied, refused = self.step(tape, loss, tf.reduce_any(valid > 0))
        self.average_policy.soft_update((1.0 - options.ema_alpha) * applied)
        return {
            'updates': applied,
            'stats/refused': refused,
            'loss/policy': policy_loss,
            'loss/value': value_loss,
            'loss/entropy': masked_mean(entropy(policy, options.epsilon), valid),
            'stats/grad_norm': norm,
            'stats/importance': masked_mean(ratio, valid),
            'stats/kl_average': masked_mean(divergence(average, policy, options.epsilon), valid),
            'stats/projected': masked_mean(projected, valid),
            'stats/explained_variance': explained_variance(q_taken, targets, valid),
        }

    def direction(
        self,
        policy: tf.Tensor,
        ratios: tf.Tensor,
        average: tf.Tensor,
        taken: tf.Tensor,
        advantages: tuple[tf.Tensor, tf.Tensor],
        valid: tf.Tensor,
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Return the direction z of the probabilities, after the projection onto the trust region.

        Args:
            policy: [T, N, A] φ, as for `policy_gradient`.
            ratios: [T, N, A] ρ, as for `policy_gradient`.
            average: [T, N, A] φ_a, the probabilities of the average policy.
            taken: [T, N, A], 1 for the action that was taken.
            advantages: of the action that was taken [T, N], and of all actions [T, N, A].
            valid: [T, N].

        Returns:
            z [T, N, A], and float [T, N], 1 if the projection changed z.
        """
        o, (taken_advantages, all_advantages) = self.traced_options, advantages
        if o.normalize_advantage:
            all_advantages /= masked_deviation(taken_advantages, valid) + 1e-8
            taken_advantages = masked_normalise(taken_advantages, valid, 1e-8)
        g = policy_gradient(policy, ratios, taken, taken_advantages, all_advantages, o.importance_c, o.epsilon)
        g += o.entropy_coef * entropy_gradient(policy, o.epsilon)
        k = -average / (policy + o.epsilon)  # gradient of KL(f(φ_a) ‖ f(φ)) with respect to φ
        z, projected = project(g, k, o.delta, o.epsilon)
        return (z, projected) if o.trust_region else (g, tf.zeros_like(projected))

    def probabilities_and_values(self, observations: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Return the probabilities φ and the Q values, [T + 1, N, A] each, for observations [T + 1, N, *D]."""
        outputs = float_outputs(self.model(network_input(flatten(observations)), training=True))
        logits, q = (tf.reshape(x, (*observations.shape[:2], x.shape[-1])) for x in outputs)
        return tf.nn.softmax(logits), q

    def average_probabilities(self, observations: tf.Tensor) -> tf.Tensor:
        """Return φ_a, the probabilities [T, N, A] of the average policy, for observations [T, N, *D]."""
        (logits,) = self.average_policy(network_input(flatten(observations)))
        return tf.reshape(tf.nn.softmax(logits), (*observations.shape[:2], logits.shape[-1]))
