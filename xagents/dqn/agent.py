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
    """DQN: learns the values of all actions from replayed transitions.

    Args:
        envs: the result of `create_envs`, a Gymnasium vector environment, or a list of environments.
        model: observations [B, *D] to action values [B, n]; with `dueling` to [advantages [B, n], value [B, 1]].
        buffers: a replay buffer to use; by default the options define it.
        options: `DQNOptions` and `RunOptions`.
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
        """Return the sizes of possible network outputs."""
        n_actions = ActionDecoder(envs.action_space).n_actions
        return {'q': n_actions, 'advantage': n_actions, 'value': 1}

    # acting

    def make_actor(self, index: int) -> KerasNetwork:
        """Return the acting network; the best action has the highest value and the highest advantage."""
        return KerasNetwork(keras.Model(self.model.input, self.model.outputs[index]), self.statistics.dtype)

    def make_policy(self, network: ActingNetwork) -> Policy:
        """Return the ε-greedy policy."""
        o = self.options
        return EpsilonGreedyPolicy(network, self.output_units(self.envs)['q'], o.epsilon_end, o.epsilon_ladder)

    def schedules(self) -> dict[str, Schedule]:
        """Return the schedules: also ε, and β of prioritized replay."""
        o = self.options
        schedules = super().schedules()
        steps, name = o.epsilon_decay_steps, 'epsilon_decay_steps'
        schedules['epsilon'] = Schedule(o.epsilon_start, 'linear', o.epsilon_end, steps, steps_option=name)
        if o.prioritized:
            schedules['beta'] = Schedule(o.priority_beta, 'linear', 1.0, optional=True)
        return schedules

    @property
    def priority_alpha(self) -> float | None:
        """The exponent of priorities in sampling; None samples uniformly."""
        return self.options.priority_alpha if self.options.prioritized else None

    # learning

    def learn(self, batch: dict[str, Any], learning_rate: float, steps: int) -> dict[str, float]:  # type: ignore[override]
        """Make the updates of one iteration with a batch of `replay`, and return the means of their metrics.

        `steps` is the number of environment steps so far, which decides when the target network is copied.
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
        """Make an update with each of the first `n_updates` of K batches; compiled.

        If `due` is 1 and not 0, the online network is first copied to the target network.

        Returns:
            The acting weights, the metrics as a vector, and the TD errors [K, B].
        """
        self.step.set_rate(learning_rate)
        self.target.copy_if(due > 0)
        names, shape = self.METRICS, samples.shape
        metrics, errors = loop_updates(
            lambda k: self.update_once(samples.take(k)), n_updates, names, shape, [self.model]
        )
        return self.actor.flat_weights(), tf.stack([metrics[name] for name in names]), errors

    def update_once(self, batch: ReplaySamples) -> tuple[dict[str, tf.Tensor], tf.Tensor]:
        """Make one gradient step on a batch, [B, …] each; return metrics and TD errors [B]."""
        goal = batch.rewards + batch.discounts * self.next_values(network_input(batch.next_observations))
        if self.options.munchausen:
            goal += self.munchausen_bonus(network_input(batch.observations), batch.actions)
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
        """Return the values [B] of the next observations by the target network.

        The value of an observation is the largest action value; with `double`, it is the value of the best action by
        the online network (van Hasselt et al. 2016, arXiv:1509.06461, equation 4); with `munchausen`, it is the soft
        maximum (Vieillard et al. 2020, arXiv:2007.14430, equation 2).
        """
        values = self.q_values(self.target(observations))
        if self.options.munchausen:
            temperature = self.traced_options.munchausen_temperature
            log_probs = tf.nn.log_softmax(values / temperature)
            return tf.reduce_sum(tf.exp(log_probs) * (values - temperature * log_probs), 1)
        if not self.options.double:
            return tf.reduce_max(values, 1)
        online = self.q_values(self.outputs(observations, training=False))
        return tf.gather(values, tf.argmax(online, 1), batch_dims=1)

    def munchausen_bonus(self, observations: tf.Tensor, actions: tf.Tensor) -> tf.Tensor:
        """Return α [τ log π(a|s)], clipped to −1 and 0, [B], by the target network (arXiv:2007.14430, equation 2)."""
        o = self.traced_options
        log_probs = tf.nn.log_softmax(self.q_values(self.target(observations)) / o.munchausen_temperature)
        chosen = o.munchausen_temperature * tf.gather(log_probs, actions, batch_dims=1)
        return o.munchausen_alpha * tf.clip_by_value(chosen, -1.0, 0.0)

    def outputs(self, observations: tf.Tensor, training: bool = True) -> list[tf.Tensor]:
        """Return the network's outputs in float32."""
        return float_outputs(self.model(observations, training=training))

    def q_values(self, outputs: list[tf.Tensor]) -> tf.Tensor:
        """Return action values [B, n]; with `dueling`, V + A − mean A (Wang et al. 2016, arXiv:1511.06581, eq. 9)."""
        if not self.options.dueling:
            return outputs[0]
        advantages, value = outputs
        return value + advantages - tf.reduce_mean(advantages, 1, keepdims=True)

    def parts(self) -> dict[str, Any]:
        """Return the parts whose state belongs in checkpoints: also the target network."""
        return {**super().parts(), 'target': self.target}


def overestimates(q: tf.Tensor, chosen: tf.Tensor) -> tf.Tensor:
    """Return the log-sum-exp of all action values [B, n] minus the value of the sampled action [B].

    CQL(H) minimises this difference (Kumar et al. 2020, arXiv:2006.04779, equation 4).
    """
    return tf.reduce_logsumexp(q, 1) - chosen


def huber(errors: tf.Tensor) -> tf.Tensor:
    """Return the Huber loss: half the squared error up to an absolute error of 1, and linear above."""
    size = tf.abs(errors)
    return tf.where(size <= 1.0, 0.5 * errors**2, size - 0.5)
