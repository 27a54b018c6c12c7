"""Deep deterministic policy gradient (Lillicrap et al. 2016, arXiv:1509.02971)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from gymnasium import spaces

from xagents.base.batches import ReplaySamples
from xagents.base.off_policy import OffPolicy
from xagents.collecting.noise_process import OrnsteinUhlenbeckNoise
from xagents.collecting.policies import NoisyPolicy, Policy
from xagents.ddpg.cli import DDPGOptions
from xagents.envs.interface import Envs
from xagents.envs.spaces import ActionDecoder
from xagents.networks.acting import ActingNetwork
from xagents.networks.gradient_steps import GradientStep, adopt_model_optimizer, loop_updates, zero_if_not_finite
from xagents.networks.programs import KerasNetwork, Program, network_input, suits_xla
from xagents.networks.targets import TargetNetwork
from xagents.options.agents import AgentOptions
from xagents.options.errors import OptionError
from xagents.pipeline.schedules import Schedule
from xagents.registry.agents import agent_id_of


class DDPG(OffPolicy):
    """DDPG: a deterministic policy that maximises the values of a critic, learned from replayed transitions.

    Args:
        envs: the result of `create_envs`, a Gymnasium vector environment, or a list of environments.
        actor_model: observations [B, *D] to actions [B, A], from −1 to 1.
        critic_model: observations and actions to action values [B, 1]. The input is one vector [B, D + A] of both, or
            the two inputs [B, *D] and [B, A].
        buffers: a replay buffer to use; by default the options define it.
        options: `DDPGOptions` and `RunOptions`.
    """

    Options = DDPGOptions
    options: DDPGOptions
    METRICS = (
        *('updates', 'stats/refused', 'loss/value', 'loss/policy'),
        *('stats/q', 'stats/td_error', 'stats/grad_norm', 'policy_updates'),
    )

    def __init__(
        self, envs: Any, actor_model: keras.Model, critic_model: keras.Model, *, buffers: Any = None, **options: Any
    ):
        super().__init__(envs, buffers=buffers, **options)
        self._build(actor_model, [critic_model])

    def _build(self, actor: keras.Model, critics: Sequence[keras.Model]) -> None:
        """Set the networks, and create target networks, optimisers and the compiled update."""
        self.n_units = self.output_units(self.envs)['actor']
        self._check_model(actor, [self.n_units], 'actor_model')
        for critic in critics:
            self._check_model(critic, [1], 'critic_model', critic_inputs(critic, self.input_shape, self.n_units))
        self.output_models = [actor, *critics]
        rates = [adopt_model_optimizer(model, self.options) for model in self.output_models]
        self.actor_model, self.critic_models = actor, list(critics)
        self.actor_step, *self.critic_steps = (
            GradientStep(model, self.traced_options, rate=rate, name='critic_model' if i else 'actor_model')
            for i, (model, rate) in enumerate(zip(self.output_models, rates, strict=True))
        )
        self.target_actor, *self.target_critics = (TargetNetwork(model) for model in self.output_models)
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
        return {'actor': ActionDecoder(envs.action_space).n_actions, 'critic': 1}

    # acting

    def make_actor(self, index: int) -> KerasNetwork:
        """Return the acting network, the actor; `index` has no effect, because the actor has one output."""
        return KerasNetwork(self.actor_model, self.statistics.dtype)

    def make_policy(self, network: ActingNetwork) -> Policy:
        """Return the policy with its exploration noise."""
        exploration = None if self.options.noise == 'gaussian' else OrnsteinUhlenbeckNoise()
        policy = NoisyPolicy(network, self.n_units, self.options.step_noise_coef, exploration)
        policy.warming_up = self.warming_up
        return policy

    def schedules(self) -> dict[str, Schedule]:
        """Return the schedules: also the scale of the exploration noise, which is constant."""
        return {**super().schedules(), 'noise': Schedule(self.options.step_noise_coef)}

    # learning

    def learn(self, batch: dict[str, Any], learning_rate: float) -> dict[str, float]:  # type: ignore[override]
        """Make the updates of one iteration with a batch of `replay`, and return the means of their metrics."""
        samples = self.replay_samples(batch, self.learning_noise(batch['actions'].shape))
        acting_weights, metrics = self._update(samples, batch['n_updates'], learning_rate)
        self.actor.refresh(acting_weights)
        logs = self.metrics_by_name(metrics.numpy())
        # both are means over all updates, including those without a policy update
        share, loss = logs.pop('policy_updates', 0.0), logs.pop('loss/policy', 0.0)
        return {**logs, 'loss/policy': loss / share} if share else logs

    def learning_noise(self, shape: tuple[int, ...]) -> np.ndarray | tuple[()]:
        """Return the noise of the updates for actions of `shape` [K, B, A]: none."""
        return ()

    def update(
        self, samples: ReplaySamples, n_updates: tf.Tensor, learning_rate: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Make an update with each of the first `n_updates` of K batches; compiled.

        Returns:
            The acting weights, and the metrics as a vector.
        """
        for step in (self.actor_step, *self.critic_steps):
            step.set_rate(learning_rate)
        metrics, _ = loop_updates(lambda k: self.update_once(samples.take(k)), n_updates, self.METRICS, samples.shape)
        return self.actor.flat_weights(), tf.stack([metrics[name] for name in self.METRICS])

    def update_once(self, batch: ReplaySamples) -> tuple[dict[str, tf.Tensor], tf.Tensor]:
        """Update the critics, then the actor, with a batch, [B, …] each; return metrics and TD errors [B]."""
        observations, next_observations = map(network_input, (batch.observations, batch.next_observations))
        goal = batch.rewards + batch.discounts * self.next_values(next_observations, batch.noise)
        metrics, errors = self.update_critics(observations, batch.actions, goal)
        policy = self.update_policy(observations, batch.actions, metrics['updates'])
        refused = tf.maximum(metrics['stats/refused'], policy['stats/refused'])
        return {**metrics, **policy, 'stats/refused': refused}, errors

    def next_values(self, observations: tf.Tensor, noise: tf.Tensor | tuple[()]) -> tf.Tensor:
        """Return Q'(s', μ'(s')), the values [B] of the next observations by the target networks."""
        (actions,) = self.target_actor(observations)
        return target_value(self.target_critics[0], observations, actions)

    def update_critics(
        self, observations: tf.Tensor, actions: tf.Tensor, goal: tf.Tensor
    ) -> tuple[dict[str, tf.Tensor], tf.Tensor]:
        """Update each critic towards the targets `goal` [B]; return metrics, and TD errors [B] of the first critic."""
        losses, errors, q, gradients = [], [], [], []
        for critic, step in zip(self.critic_models, self.critic_steps, strict=True):
            with tf.GradientTape() as tape:
                q.append(value(critic, observations, actions, training=True))
                errors.append(goal - q[-1])
                losses.append(tf.reduce_mean(errors[-1] ** 2))
            gradients.append(step.gradient(tape, losses[-1]))
        # one gradient that is not finite stops the step of every critic
        finite = tf.reduce_all([is_finite for *_, is_finite in gradients])
        for step, (gradient, norm, _) in zip(self.critic_steps, gradients, strict=True):
            step.apply(gradient, norm, finite)
        norms = [norm for _, norm, _ in gradients]
        metrics = {
            'updates': tf.cast(finite, tf.float32),
            'stats/refused': tf.cast(~finite, tf.float32),
            'loss/value': tf.reduce_mean(losses),
            'stats/q': tf.reduce_mean(q[0]),
            'stats/td_error': tf.reduce_mean(tf.abs(errors[0])),
            'stats/grad_norm': tf.reduce_max(norms),
        }
        return metrics, errors[0]

    def update_policy(
        self, observations: tf.Tensor, buffer_actions: tf.Tensor, critics_updated: tf.Tensor
    ) -> dict[str, tf.Tensor]:
        """Update the actor, then the target networks; return metrics.

        Args:
            observations: [B, *D], network input.
            buffer_actions: [B, A], the sampled actions for these observations.
            critics_updated: 1 if the critics made their step, else 0.
        """
        with tf.GradientTape() as tape:
            actions = tf.cast(self.actor_model(observations, training=True), tf.float32)
            loss = self.policy_loss(value(self.critic_models[0], observations, actions), actions, buffer_actions)
        _, updated, refused = self.actor_step(tape, loss, critics_updated > 0)
        for target in (self.target_actor, *self.target_critics):
            target.soft_update(self.traced_options.tau * updated)
        return {'loss/policy': zero_if_not_finite(loss), 'policy_updates': updated, 'stats/refused': refused}

    def policy_loss(self, q: tf.Tensor, actions: tf.Tensor, buffer_actions: tf.Tensor) -> tf.Tensor:
        """Return the loss of the actor, the negative mean value by the first critic (equation 6).

        Args:
            q: [B], values of the actor's actions by the first critic.
            actions: [B, A], the actions of the actor.
            buffer_actions: [B, A], the sampled actions.
        """
        return -tf.reduce_mean(q)

    def parts(self) -> dict[str, Any]:
        """Return the parts whose state belongs in checkpoints: also the target networks."""
        targets = {f'target_{i}': target for i, target in enumerate((self.target_actor, *self.target_critics))}
        return {**super().parts(), **targets}


def check_bounded(envs: Envs, name: str) -> None:
    """Check that actions are continuous and have bounds; `name` is the agent's."""
    space = envs.action_space
    if not isinstance(space, spaces.Box):
        got = type(space).__name__
        others = 'dqn or ppo' if got == 'Discrete' else 'ppo or a2c'
        raise OptionError('env', f'{envs.id} has {got} actions, {name} accepts Box ones (try {others})')
    if not np.isfinite([space.low, space.high]).all():
        raise OptionError('env', f'{envs.id} has actions without finite bounds, {name} accepts bounded ones (try ppo)')


def critic_inputs(critic: keras.Model, shape: tuple[int, ...], n_units: int) -> list[tuple[int, ...]]:
    """Return the expected input shapes of a critic: one concatenated vector, or two inputs."""
    joined = len(critic.inputs) == 1 and len(shape) == 1
    return [(shape[0] + n_units,)] if joined else [shape, (n_units,)]


def critic_input(n_inputs: int, observations: tf.Tensor, actions: tf.Tensor) -> Any:
    """Return the input of a critic: two inputs, or both concatenated to one vector."""
    return [observations, actions] if n_inputs == 2 else tf.concat([observations, actions], 1)


def target_value(critic: TargetNetwork, observations: tf.Tensor, actions: tf.Tensor) -> tf.Tensor:
    """Return the values [B] of a target critic."""
    return critic(critic_input(critic.n_inputs, observations, actions))[0][:, 0]


def value(critic: keras.Model, observations: tf.Tensor, actions: tf.Tensor, training: bool = False) -> tf.Tensor:
    """Return the values [B] of a critic."""
    q = critic(critic_input(len(critic.inputs), observations, actions), training=training)
    return tf.cast(q, tf.float32)[:, 0]
