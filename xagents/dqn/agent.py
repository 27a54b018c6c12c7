"""Deep Q-network (Mnih et al. 2015, Nature 518) with its usual extensions: double, dueling, n-step, prioritized."""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf
from gymnasium import spaces

from xagents.base.batches import ReplaySamples
from xagents.base.off_policy import OffPolicy
from xagents.collecting.policies import EpsilonGreedyPolicy, Policy
from xagents.dqn.cli import DQNOptions
from xagents.envs.interface import Envs
from xagents.envs.spaces import ActionDecoder
from xagents.networks.acting import ActingNetwork
from xagents.networks.gradient_steps import GradientStep, adopt_model_optimizer, loop_updates
from xagents.networks.programs import KerasNetwork, Program, float_outputs, network_input, suits_xla
from xagents.networks.targets import TargetNetwork
from xagents.options.agents import AgentOptions
from xagents.options.errors import OptionError
from xagents.pipeline.schedules import Schedule


class DQN(OffPolicy):
    """DQN: learns the values of all actions from what it remembers.

    Args:
        envs: what `create_envs` returns, a Gymnasium vector environment, or a list of environments.
        model: observations [B, *D] to action values [B, n]; with `dueling` to [advantages [B, n], value [B, 1]].
        buffers: a replay buffer to use; made of the options when not given.
        options: those of `DQNOptions` and `RunOptions`.
    """

    Options = DQNOptions
    options: DQNOptions
    METRICS = ('updates', 'stats/refused', 'loss/value', 'stats/q', 'stats/td_error', 'stats/grad_norm')

    def __init__(self, envs: Any, model: keras.Model, *, buffers: Any = None, **options: Any):
        super().__init__(envs, buffers=buffers, **options)
        units = self.output_units(self.envs)
        names = ('advantage', 'value') if self.options.dueling else ('q',)
        self._check_model(model, [units[name] for name in names])
        rate = adopt_model_optimizer(model, self.options)
        self.model = model
        self.step = GradientStep(model, self.traced_options, True, rate)
        self.output_models = [model]
        self.target = TargetNetwork(model)
        self.actor = self.make_actor(0)
        self._update = Program(self.update, jit=suits_xla(model))

    @classmethod
    def check_envs(cls, envs: Envs, options: AgentOptions) -> None:
        """Check that actions are discrete."""
        super().check_envs(envs, options)
        if not isinstance(envs.action_space, spaces.Discrete):
            got = type(envs.action_space).__name__
            others = 'ppo, td3 or ddpg' if got == 'Box' else 'ppo or a2c'
            raise OptionError('env', f'{envs.id} has {got} actions, dqn accepts Discrete ones (try {others})')

    @classmethod
    def output_units(cls, envs: Envs) -> dict[str, int]:
        """Return the sizes of the outputs that its network may have."""
        n_actions = ActionDecoder(envs.action_space).n_actions
        return {'q': n_actions, 'advantage': n_actions, 'value': 1}

    # acting

    def make_actor(self, index: int) -> KerasNetwork:
        """Return what acts: the best action has the highest value, and the highest advantage."""
        return KerasNetwork(keras.Model(self.model.input, self.model.outputs[index]), self.statistics.dtype)

    def make_policy(self, network: ActingNetwork) -> Policy:
        """Return the ε-greedy policy."""
        o = self.options
        return EpsilonGreedyPolicy(network, self.output_units(self.envs)['q'], o.epsilon_end, o.epsilon_ladder)

    def schedules(self) -> dict[str, Schedule]:
        """Return what changes during a run: also ε, and how much prioritized replay is corrected."""
        o = self.options
        schedules = super().schedules()
        schedules['epsilon'] = Schedule(o.epsilon_start, 'linear', o.epsilon_end, o.epsilon_decay_steps)
        if o.prioritized:
            schedules['beta'] = Schedule(o.priority_beta, 'linear', 1.0, optional=True)
        return schedules

    @property
    def priority_alpha(self) -> float | None:
        """How much priorities matter when transitions are drawn; None draws them uniformly."""
        return self.options.priority_alpha if self.options.prioritized else None

    # learning

    def learn(  # type: ignore[override]
        self, batch: dict[str, Any], learning_rate: float, steps: int
    ) -> dict[str, float]:
        """Make the updates of one iteration with what `replay` returned; the metrics are means over them.

        `steps`, the environment steps so far, say when the target network is copied.
        """
        every, n_updates = self.options.target_sync_steps, batch['n_updates']
        due = steps // every > self.target.steps // every
        self.target.steps = steps
        acting_weights, metrics, errors = self._update(self.replay_samples(batch), n_updates, float(due), learning_rate)
        if self.options.prioritized:
            self.buffer.prioritize(batch['rows'][:n_updates], errors.numpy()[:n_updates])
        self.actor.refresh(acting_weights)
        return self.metrics_by_name(metrics.numpy())

    def update(
        self, samples: ReplaySamples, n_updates: tf.Tensor, due: tf.Tensor, learning_rate: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """All updates of one call, compiled, with the first `n_updates` of K batches.

        Where `due` is 1 and not 0, the target network is copied first.

        Returns:
            The acting weights, the metrics as a vector, and the TD errors [K, B].
        """
        self.step.set_rate(learning_rate)
        self.target.copy_if(due > 0)
        metrics, errors = loop_updates(
            lambda k: self.update_once(samples.take(k)), n_updates, self.METRICS, samples.shape
        )
        return self.actor.flat_weights(), tf.stack([metrics[name] for name in self.METRICS]), errors

    def update_once(self, batch: ReplaySamples) -> tuple[dict[str, tf.Tensor], tf.Tensor]:
        """Make one gradient step on a batch, [B, …] each; return its metrics and its TD errors [B]."""
        goal = batch.rewards + batch.discounts * self.next_values(network_input(batch.next_observations))
        with tf.GradientTape() as tape:
            q = self.q_values(self.outputs(network_input(batch.observations)))
            chosen = tf.gather(q, batch.actions, batch_dims=1)
            errors = goal - chosen
            losses = huber(errors) if self.options.huber else errors**2
            loss = tf.reduce_mean(losses * (batch.weights if self.options.prioritized else 1.0))
            if self.options.conservative:
                loss += self.traced_options.conservative * tf.reduce_mean(overestimates(q, chosen))
        norm, applied, refused = self.step(tape, loss)
        metrics = {
            'updates': applied,
            'stats/refused': refused,
            'loss/value': loss,
            'stats/q': tf.reduce_mean(chosen),
            'stats/td_error': tf.reduce_mean(tf.abs(errors)),
            'stats/grad_norm': norm,
        }
        return metrics, errors

    def next_values(self, observations: tf.Tensor) -> tf.Tensor:
        """Return what the next observations are worth to the target network, [B].

        The best action's value, or with `double` the value of the action that is best to the online network
        (van Hasselt et al. 2016, arXiv:1509.06461, equation 4).
        """
        values = self.q_values(self.target(observations))
        if not self.options.double:
            return tf.reduce_max(values, 1)
        return tf.gather(values, tf.argmax(self.q_values(self.outputs(observations)), 1), batch_dims=1)

    def outputs(self, observations: tf.Tensor) -> list[tf.Tensor]:
        """Return the network's outputs in float32."""
        return float_outputs(self.model(observations, training=True))

    def q_values(self, outputs: list[tf.Tensor]) -> tf.Tensor:
        """Return action values [B, n], with `dueling` V + A − mean A (Wang et al. 2016, arXiv:1511.06581, eq. 9)."""
        if not self.options.dueling:
            return outputs[0]
        advantages, value = outputs
        return value + advantages - tf.reduce_mean(advantages, 1, keepdims=True)

    def parts(self) -> dict[str, Any]:
        """Return what has a state of its own: also the target network."""
        return {**super().parts(), 'target': self.target}


def overestimates(q: tf.Tensor, chosen: tf.Tensor) -> tf.Tensor:
    """Return by how much all actions [B, n] are valued above the one of the data [B]: a soft maximum, less its value.

    What CQL(H) keeps small (Kumar et al. 2020, arXiv:2006.04779, equation 4).
    """
    return tf.reduce_logsumexp(q, 1) - chosen


def huber(errors: tf.Tensor) -> tf.Tensor:
    """Return half the squared errors, and beyond 1 what goes on linearly from there."""
    size = tf.abs(errors)
    return tf.where(size <= 1.0, 0.5 * errors**2, size - 0.5)
