"""Base class of off-policy agents with an actor and critics for bounded continuous actions: DDPG, TD3, SAC, IQL."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from gymnasium import spaces

from xagents.base.batches import ReplaySamples
from xagents.base.off_policy import OffPolicy
from xagents.envs.interface import Envs
from xagents.envs.spaces import ActionDecoder
from xagents.networks.models import reinitialise
from xagents.networks.optimisation.gradient_steps import (
    GradientStep,
    adopt_model_optimizer,
    apply_together,
    loop_updates,
    metric_vector,
)
from xagents.networks.optimisation.targets import TargetNetwork
from xagents.networks.programs import KerasNetwork, Program, suits_xla
from xagents.options.agents import AgentOptions
from xagents.options.errors import OptionError
from xagents.registry.agents import agent_id_of


class ReplayedActorCritic(OffPolicy):
    """Agents that learn an actor and critics from replayed transitions.

    A subclass implements `update_once(batch)`, which returns the metrics by name and the TD errors [B]. It extends
    `set_networks` if it has further networks. `SAC` describes the arguments.
    """

    def __init__(
        self,
        envs: Any,
        actor_model: keras.Model,
        critic_model: keras.Model,
        critic_model_2: keras.Model | None = None,
        *,
        buffers: Any = None,
        **options: Any,
    ):
        super().__init__(envs, buffers=buffers, **options)
        critics = [critic_model]
        if self.traits.n_critics == 2:
            if critic_model_2 is None:
                critic_model_2 = reinitialise(critic_model, int(self.rng('networks').integers(2**31)))
            critics.append(critic_model_2)
        self.set_networks(actor_model, critics)

    def set_networks(self, actor: keras.Model, critics: Sequence[keras.Model], *others: keras.Model) -> None:
        """Set the networks, and create target critics, optimisers and the compiled update.

        Args:
            actor: observations [B, *D] to outputs [B, A].
            critics: action values [B, 1]. The input is one vector [B, D + A] of observations and actions, or the two
                inputs [B, *D] and [B, A].
            others: observations to values [B, 1].
        """
        self.n_units = self.output_units(self.envs)['actor']
        units = [self.n_units] * self.traits.actor_outputs
        actor = self._adopt_model(actor, units, 'actor_model', masked=True, acts=True)
        forms = [(critic, *self._critic_form(critic)) for critic in critics]
        critics = [self._adopt_model(critic, units, 'critic_model', inputs) for critic, units, inputs in forms]
        for other in others:
            self._check_model(other, [1], 'value_model')
        self.output_models = [actor, *critics, *others]
        names = ['actor_model'] + ['critic_model'] * len(critics) + ['value_model'] * len(others)
        rates = []
        for model in self.output_models:
            self.options, rate = adopt_model_optimizer(model, self.options)
            rates.append(rate)
        self.network_steps = [
            GradientStep(model, self.traced_options, rate=rate, name=name)
            for model, rate, name in zip(self.output_models, rates, names, strict=True)
        ]
        self.actor_model, self.critic_models = actor, list(critics)
        self.actor_step, self.critic_steps = self.network_steps[0], self.network_steps[1 : 1 + len(critics)]
        self.target_critics = [TargetNetwork(critic) for critic in critics]
        self.actor = self.make_actor(0)
        self._update = Program(self.update, jit=suits_xla(*self.output_models))

    def _critic_form(self, critic: keras.Model) -> tuple[list[int], list[tuple[int, ...]]]:
        """Return the expected output sizes and input shapes of a critic."""
        return [1], critic_inputs(critic, self.input_shape, self.n_units)

    @classmethod
    def check_envs(cls, envs: Envs, options: AgentOptions) -> None:
        """Check that the actions are those of the algorithm."""
        super().check_envs(envs, options)
        cls._check_actions(envs)

    @classmethod
    def _check_actions(cls, envs: Envs) -> None:
        """Check that actions are continuous and have bounds."""
        space, name = envs.action_space, agent_id_of(cls)
        if not isinstance(space, spaces.Box):
            got = type(space).__name__
            others = cls.traits.discrete_agents if got == 'Discrete' else 'ppo or a2c'
            raise OptionError('env', f'{envs.id} has {got} actions, {name} accepts Box ones (try {others})')
        if not np.isfinite([space.low, space.high]).all():
            problem = f'actions without finite bounds, {name} accepts bounded ones (try ppo)'
            raise OptionError('env', f'{envs.id} has {problem}')

    @classmethod
    def output_units(cls, envs: Envs) -> dict[str, int]:
        """Return the sizes of possible network outputs."""
        return {'actor': ActionDecoder(envs.action_space).n_actions, 'critic': 1, 'value': 1}

    def make_actor(self, index: int) -> KerasNetwork:
        """Return the acting network, the actor with all its outputs; `index` has no effect."""
        return KerasNetwork(self.actor_model, self.statistics.dtype)

    def learn(self, batch: dict[str, Any], schedule: Mapping[str, float]) -> dict[str, float]:
        """Make the updates of one iteration; see `SamplesBatches.learn`."""
        logs = super().learn(batch, schedule)
        if (share := logs.pop('policy_updates', None)) is not None:
            # means over all updates, including those without an update of the policy
            policy = {name: logs.pop(name) for name in self.traits.policy_metrics}
            logs |= {name: value / share for name, value in policy.items()} if share else {}
        return logs

    def update(
        self, samples: ReplaySamples, n_updates: tf.Tensor, learning_rate: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Make an update with each of the first `n_updates` of K batches; compiled.

        Returns:
            The acting weights, and the metrics as a vector.
        """
        for step in self.network_steps:
            step.set_rate(learning_rate)
        shape, models = samples.shape, self.output_models
        metrics, _ = loop_updates(lambda k: self.update_once(samples.take(k)), n_updates, self.METRICS, shape, models)
        return self.actor.flat_weights(), metric_vector(metrics, self.METRICS)

    @abstractmethod
    def update_once(self, batch: ReplaySamples) -> tuple[dict[str, tf.Tensor], tf.Tensor]:
        """Update all networks with a batch, [B, …] each; return metrics and TD errors [B]."""

    def update_critics(
        self, observations: tf.Tensor, actions: tf.Tensor, goal: tf.Tensor
    ) -> tuple[dict[str, tf.Tensor], tf.Tensor]:
        """Update each critic towards the targets `goal` [B]; return metrics, and TD errors [B] of the first critic."""
        loss, gradients, errors, q = self.critic_errors(observations, actions, goal)
        updated, norm = apply_together(self.critic_steps, gradients)
        return self.critic_metrics(loss, errors, q, updated, norm), errors[0]

    def critic_metrics(
        self, loss: tf.Tensor, errors: Sequence[tf.Tensor], q: Sequence[tf.Tensor], updated: tf.Tensor, norm: tf.Tensor
    ) -> dict[str, tf.Tensor]:
        """Return the metrics of an update of the critics by name; see `critic_errors` for its arguments."""
        return {
            'updates': updated,
            'stats/refused': 1.0 - updated,
            'loss/value': loss,
            'stats/q': tf.reduce_mean(q[0]),
            'stats/td_error': tf.reduce_mean(tf.abs(errors[0])),
            'stats/grad_norm': norm,
        }

    def delayed(self, update: Callable[[], dict[str, tf.Tensor]], critics_updated: tf.Tensor) -> dict[str, tf.Tensor]:
        """Return the metrics of `update` after every `policy_delay` steps of the critics, else zeros."""
        steps = tf.cast(self.critic_steps[0].optimizer.iterations.value, tf.int32)
        due = (critics_updated > 0) & (steps % self.traced_options.policy_delay == 0)
        names = (*self.traits.policy_metrics, 'policy_updates', 'stats/refused')
        return tf.cond(due, update, lambda: dict.fromkeys(names, tf.zeros(())))

    def critic_errors(
        self, observations: tf.Tensor, actions: tf.Tensor, goal: tf.Tensor
    ) -> tuple[tf.Tensor, list, list[tf.Tensor], list[tf.Tensor]]:
        """Compare each critic with the targets `goal` [B].

        Returns:
            The mean loss; the gradients (see `GradientStep.gradient`), the TD errors [B] and the values [B] of each
            critic.
        """
        losses, gradients, errors, q = [], [], [], []
        for critic, step in zip(self.critic_models, self.critic_steps, strict=True):
            with tf.GradientTape() as tape:
                q.append(self.critic_value(critic, observations, actions, training=True))
                errors.append(goal - q[-1])
                losses.append(tf.reduce_mean(errors[-1] ** 2))
            gradients.append(step.gradient(tape, losses[-1]))
        return tf.reduce_mean(losses), gradients, errors, q

    def critic_value(
        self, critic: keras.Model, observations: tf.Tensor, actions: tf.Tensor, training: bool = False
    ) -> tf.Tensor:
        """Return the values [B] of actions by a critic."""
        q = critic(critic_input(len(critic.inputs), observations, actions), training=training)
        return tf.cast(q, tf.float32)[:, 0]

    def targets(self) -> list[TargetNetwork]:
        """Return the target networks."""
        return self.target_critics

    def parts(self) -> dict[str, Any]:
        """Return the parts whose state belongs in checkpoints: also the target networks."""
        return {**super().parts(), **{f'target_{i}': target for i, target in enumerate(self.targets())}}


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
