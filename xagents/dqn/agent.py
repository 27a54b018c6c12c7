"""Deep Q-network (Mnih et al. 2015, Nature 518) and its extensions, most of which together are Rainbow."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from gymnasium import spaces

from xagents.base.batches import ReplaySamples
from xagents.base.off_policy import OffPolicy
from xagents.collecting.policies import EpsilonGreedyPolicy, Policy
from xagents.dqn.cli import DQNOptions
from xagents.envs.interface import Envs
from xagents.envs.spaces import ActionDecoder
from xagents.networks.acting import ActingNetwork
from xagents.networks.keras_to_plan import masked_output, without_noise
from xagents.networks.layers import mask_illegal, noise_units
from xagents.networks.memory import memory_units, sequence_outputs
from xagents.networks.optimisation.gradient_steps import (
    GradientStep,
    adopt_model_optimizer,
    loop_updates,
    metric_vector,
)
from xagents.networks.optimisation.targets import TargetNetwork
from xagents.networks.programs import KerasNetwork, Program, float_outputs, network_input, suits_xla
from xagents.networks.sampling import factorised_noise
from xagents.networks.value_distributions import (
    ActionValues,
    ValueDistribution,
    action_atoms,
    dueling,
    huber,
    value_distribution,
)
from xagents.options.agents import AgentOptions
from xagents.options.errors import OptionError
from xagents.pipeline.schedules import Schedule
from xagents.registry.agents import agent_id_of


class DQN(OffPolicy):
    """DQN: learns the values of all actions from replayed transitions.

    Args:
        envs: the result of `create_envs`, a Gymnasium vector environment, or a list of environments.
        model: observations [B, *D] to action values [B, n]; with `dueling` to [advantages [B, n], value [B, 1]]; with
            `distribution`, each value is K atoms, [B, n K] and [B, K]; with `noisy`, noise [B, M] is a second input.
        buffers: a replay buffer to use; by default the options define it.
        options: `DQNOptions` and `RunOptions`.
    """

    Options = DQNOptions
    options: DQNOptions
    METRICS = ('loss/value', 'stats/q', 'stats/td_error', 'stats/grad_norm')

    def __init__(self, envs: Any, model: keras.Model, *, buffers: Any = None, **options: Any):
        super().__init__(envs, buffers=buffers, **options)
        o, units = self.options, self._units_for(self.envs, self.options)
        if o.distribution is not None and type(self).next_values is not DQN.next_values:
            name = f'{type(self).__name__}.next_values'
            raise OptionError('distribution', f'got {o.distribution}, which does not use {name}: override next_atoms')
        o.check_memory(memory_units(model) > 0)
        self.n_noise = noise_units(model)
        if o.noisy != (self.n_noise > 0):
            expected = 'noisy layers (`NoisyDense`), and noise as its second input' if o.noisy else 'no noisy layers'
            raise ValueError(f'model: expected {expected} with noisy={o.noisy}')
        names = ('advantage', 'value') if o.dueling else ('q',)
        inputs = [self.input_shape, *([(self.n_noise,)] if o.noisy else [])]
        model = self._adopt_model(model, [units[name] for name in names], inputs=inputs)
        self.options, rate = adopt_model_optimizer(model, self.options)
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
            raise OptionError(
                'env', f'{envs.id} has {got} actions, {agent_id_of(cls)} accepts Discrete ones (try {others})'
            )

    @classmethod
    def output_units(cls, envs: Envs) -> dict[str, int]:
        """Return the sizes of possible network outputs."""
        n_actions = ActionDecoder(envs.action_space).n_actions
        return {'q': n_actions, 'advantage': n_actions, 'value': 1}

    @classmethod
    def _units_for(cls, envs: Envs, options: AgentOptions) -> dict[str, int]:
        assert isinstance(options, DQNOptions)
        return {name: n * options.atoms for name, n in cls.output_units(envs).items()}

    # acting

    def make_actor(self, index: int) -> KerasNetwork:
        """Return the acting network; the best action has the highest value and the highest advantage."""
        outputs = self.model.outputs[index]
        if self.options.distribution is not None:
            last = ActionValues(self.n_actions, self.options.atoms, self.options.support, name='values')
            outputs = last(self.model.outputs if self.options.dueling else outputs)
        if n_mask := self.envs.n_mask:
            outputs = masked_output(outputs, self.model.inputs[0], n_mask, self.envs.encoder.n_floats)
        return KerasNetwork(keras.Model(self.model.input, outputs), self.statistics.dtype)

    def make_policy(self, network: ActingNetwork) -> Policy:
        """Return the ε-greedy policy; the values of a noisy network are random, too."""
        o, masked = self.options, self.envs.n_mask > 0
        return EpsilonGreedyPolicy(network, self.n_actions, o.epsilon[1], o.epsilon_ladder, masked, self.n_noise)

    def greedy_model(self, network: keras.Model) -> keras.Model:
        """Return the network without noise."""
        return without_noise(network)

    def schedules(self) -> dict[str, Schedule]:
        """Return the schedules: also ε, unless a noisy network alone explores, and β of prioritized replay."""
        o = self.options
        schedules = super().schedules()
        (start, end), steps, name = o.epsilon, o.epsilon_decay_steps, 'epsilon_decay_steps'
        if not o.noisy or start or end:
            schedules['epsilon'] = Schedule(start, 'linear', end, steps, steps_option=name)
        if o.prioritized:
            schedules['beta'] = Schedule(o.priority_beta, 'linear', 1.0, optional=True)
        return schedules

    @property
    def priority_alpha(self) -> float | None:
        """The exponent of priorities in sampling; None samples uniformly."""
        return self.options.priority_alpha if self.options.prioritized else None

    # learning

    @property
    def return_distribution(self) -> ValueDistribution | None:
        """The distribution of the return of an action; None if the network returns only its mean."""
        o = self.traced_options
        if o.distribution is None:
            return None
        return value_distribution(o.atoms, (o.value_min, o.value_max) if o.support else ())

    def learn(self, batch: dict[str, Any], schedule: Mapping[str, float]) -> dict[str, float]:
        """Make the updates of one iteration with a batch of `replay`, and return the means of their metrics.

        The number of environment steps so far, `schedule['steps']`, decides when the target network is copied.
        """
        every, n_updates, steps = self.options.target_sync_steps, batch['n_updates'], int(schedule['steps'])
        due = steps // every > self.target.steps // every
        self.target.steps = steps
        samples = self.replay_samples(batch, self.learning_noise(batch['actions'].shape))
        acting_weights, metrics, errors = self._update(samples, n_updates, float(due), schedule['learning_rate'])
        if self.options.prioritized:
            self.buffer.prioritize(batch['rows'][:n_updates], errors.numpy()[:n_updates])
        self.actor.refresh(acting_weights)
        return self.metrics_by_name(metrics.numpy())

    def learning_noise(self, shape: tuple[int, ...]) -> np.ndarray | tuple[()]:
        """Return the noise of the updates for actions of `shape` [K, B]; without noisy layers, none.

        It is [K, 3, 1, M]: the noise of the network, of the target network, and of the choice of double DQN.
        """
        return factorised_noise(self.rng('learn'), (shape[0], 3, 1, self.n_noise)) if self.n_noise else ()

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
        shape, models = samples.shape, self.output_models
        metrics, errors = loop_updates(
            lambda k: self.update_once(samples.take(k)), n_updates, self.METRICS, shape, models
        )
        return self.actor.flat_weights(), metric_vector(metrics, self.METRICS), errors

    def update_once(self, batch: ReplaySamples) -> tuple[dict[str, tf.Tensor], tf.Tensor]:
        """Make one gradient step on a batch, [B, …] each; return metrics and TD errors [B]."""
        goal, noise = self.goal(batch), batch.noise if self.n_noise else None
        observations = network_input(batch.observations)
        weights: Any = 1.0 if isinstance(batch.weights, tuple) else batch.weights
        with tf.GradientTape() as tape:
            outputs = self.outputs(with_noise(observations, noise, 0), True, *batch.sequence)
            q = self.q_values(outputs, observations)
            chosen = tf.gather(q, batch.actions, batch_dims=1)
            losses, errors = self.td_losses(outputs, chosen, batch.actions, goal)
            loss = tf.reduce_mean(losses * weights)
            if self.options.conservative:
                loss += self.traced_options.conservative * tf.reduce_mean(overestimates(q, chosen))
        norm, applied, refused = self.step(tape, loss)
        metrics = {
            'updates': applied,
            'stats/refused': refused,
            'loss/value': loss,
            'stats/q': tf.reduce_mean(chosen * (weights if batch.sequence else 1.0)),
            'stats/td_error': tf.reduce_mean(tf.abs(errors) * (weights if batch.sequence else 1.0)),
            'stats/grad_norm': norm,
        }
        return metrics, errors

    def td_losses(
        self, outputs: list[tf.Tensor], chosen: tf.Tensor, actions: tf.Tensor, goal: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Return the losses and the TD errors [B] of the values `chosen` [B], or of the distributions in `outputs`."""
        if self.return_distribution is not None:
            atoms = tf.gather(action_atoms(outputs, self.options.atoms), actions, batch_dims=1)
            return self.return_distribution.losses(atoms, goal)
        errors = goal - chosen
        return huber(errors) if self.options.huber else errors**2, errors

    def goal(self, batch: ReplaySamples) -> tf.Tensor:
        """Return the targets of a batch: values [B], or distributions [B, K]."""
        next_observations = network_input(batch.next_observations)
        noise = tf.convert_to_tensor(batch.noise)[1:] if self.n_noise else None
        given: tuple[Any, ...] = () if noise is None else (noise,)
        if batch.sequence:
            given = noise, *batch.next_sequence
        if self.return_distribution is not None:
            atoms = self.next_atoms(next_observations, *given)
            return self.return_distribution.targets(batch.rewards, batch.discounts, atoms)
        goal = batch.rewards + batch.discounts * self.next_values(next_observations, *given)
        if self.options.munchausen:
            goal += self.munchausen_bonus(network_input(batch.observations), batch.actions, noise, *batch.sequence)
        return goal

    def next_values(self, observations: tf.Tensor, noise: tf.Tensor | None = None, *sequence: tf.Tensor) -> tf.Tensor:
        """Return the values [B] of the next observations by the target network.

        The value of an observation is the largest action value; with `double`, it is the value of the best action by
        the online network (van Hasselt et al. 2016, arXiv:1509.06461, equation 4); with `munchausen`, it is the soft
        maximum (Vieillard et al. 2020, arXiv:2007.14430, equation 2).

        Args:
            observations: [B, *D].
            noise: with `noisy`, [2, 1, M]: noise of the target network and of the choice of the action.
            sequence: with memory, `ReplaySamples.next_sequence`.
        """
        values = self.q_values(self.target_outputs(observations, noise, *sequence), observations)
        if self.options.munchausen:
            temperature = self.traced_options.munchausen_temperature
            log_probs = tf.nn.log_softmax(values / temperature)
            return tf.reduce_sum(tf.exp(log_probs) * (values - temperature * log_probs), 1)
        if not self.options.double:
            return tf.reduce_max(values, 1)
        return tf.gather(values, self.next_actions(observations, values, noise, *sequence), batch_dims=1)

    def next_atoms(self, observations: tf.Tensor, noise: tf.Tensor | None = None, *sequence: tf.Tensor) -> tf.Tensor:
        """Return the distributions [B, K] of the next values; arguments are those of `next_values`."""
        outputs = self.target_outputs(observations, noise, *sequence)
        actions = self.next_actions(observations, self.q_values(outputs, observations), noise, *sequence)
        return tf.gather(action_atoms(outputs, self.options.atoms), actions, batch_dims=1)

    def next_actions(
        self, observations: tf.Tensor, values: tf.Tensor, noise: tf.Tensor | None, *sequence: tf.Tensor
    ) -> tf.Tensor:
        """Return the best actions [B] by the target network's `values` [B, n]; with `double`, by the online network."""
        if self.options.double:
            outputs = self.outputs(with_noise(observations, noise, 1), False, *sequence)
            values = self.q_values(outputs, observations)
        return tf.argmax(values, 1)

    def munchausen_bonus(
        self, observations: tf.Tensor, actions: tf.Tensor, noise: tf.Tensor | None, *sequence: tf.Tensor
    ) -> tf.Tensor:
        """Return α [τ log π(a|s)], clipped to −1 and 0, [B], by the target network (arXiv:2007.14430, equation 2)."""
        o, outputs = self.traced_options, self.target_outputs(observations, noise, *sequence)
        values = self.q_values(outputs, observations)
        log_probs = tf.nn.log_softmax(values / o.munchausen_temperature)
        chosen = o.munchausen_temperature * tf.gather(log_probs, actions, batch_dims=1)
        return o.munchausen_alpha * tf.clip_by_value(chosen, -1.0, 0.0)

    def target_outputs(self, observations: tf.Tensor, noise: tf.Tensor | None, *sequence: tf.Tensor) -> list[tf.Tensor]:
        """Return the outputs of the target network with the first of `noise` [2, 1, M]."""
        return self.target(with_noise(observations, noise, 0), *sequence)

    def outputs(self, observations: Any, training: bool = True, *sequence: tf.Tensor) -> list[tf.Tensor]:
        """Return the network's outputs in float32 for observations, or [observations, noise] of a noisy network.

        With memory, `sequence` is the memory and `keep` of a batch (see `ReplaySamples`). No gradient passes through
        the memory to the steps of the burn-in.
        """
        if sequence:
            memory, keep = sequence
            burn_in = self.options.burn_in if training else 0
            return float_outputs(sequence_outputs(self.model, observations, memory, keep, training, burn_in)[0])
        return float_outputs(self.model(observations, training=training))

    def q_values(self, outputs: list[tf.Tensor], observations: tf.Tensor) -> tf.Tensor:
        """Return action values [B, n]: the means of distributions; with `dueling`, from advantages and value.

        The action mask in `observations` [B, D] gives illegal actions the value `ILLEGAL`.
        """
        if self.return_distribution is not None:
            values = self.return_distribution.means(action_atoms(outputs, self.options.atoms))
        else:
            values = dueling(outputs[0], outputs[1]) if self.options.dueling else outputs[0]
        return mask_illegal(values, self.action_masks(observations)) if self.envs.n_mask else values

    def parts(self) -> dict[str, Any]:
        """Return the parts whose state belongs in checkpoints: also the target network."""
        return {**super().parts(), 'target': self.target}


def with_noise(observations: tf.Tensor, noise: Any, index: int) -> Any:
    """Return the input of a network: observations [B, *D], or [observations, noise[index]] for `noise` [n, 1, M]."""
    return observations if noise is None else [observations, noise[index]]


def overestimates(q: tf.Tensor, chosen: tf.Tensor) -> tf.Tensor:
    """Return the log-sum-exp of all action values [B, n] minus the value of the sampled action [B].

    CQL(H) minimises this difference (Kumar et al. 2020, arXiv:2006.04779, equation 4).
    """
    return tf.reduce_logsumexp(q, 1) - chosen
