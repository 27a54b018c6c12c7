"""Parallelised Q-network (Gallici et al. 2024, arXiv:2407.04811)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import keras
import tensorflow as tf
from gymnasium import spaces

from xagents.base.batches import RolloutBatch, RolloutSamples
from xagents.base.minibatches import Minibatches
from xagents.base.on_policy import OnPolicy
from xagents.base.returns import masked_mean
from xagents.collecting.policies import EpsilonGreedyPolicy, Policy
from xagents.envs.interface import Envs
from xagents.envs.spaces import ActionDecoder
from xagents.networks.acting import ActingNetwork
from xagents.networks.optimisation.gradient_steps import GradientStep, adopt_model_optimizer, loop_mean
from xagents.networks.programs import KerasNetwork, Program, float_outputs, model_outputs, network_input, suits_xla
from xagents.options.agents import AgentOptions
from xagents.options.errors import OptionError
from xagents.pipeline.schedules import Schedule
from xagents.pqn.cli import PQNOptions


class PQN(OnPolicy):
    """PQN: Q-learning from rollouts, without a replay buffer and without a target network.

    Args:
        envs: the result of `create_envs`, a Gymnasium vector environment, or a list of environments.
        model: observations [B, *D] to action values [B, n]; layer normalisation keeps the values stable.
        options: `PQNOptions` and `RunOptions`.
    """

    traits = OnPolicy.traits.changed(
        no_overlap_reason='learns from the returns of its present policy',
        no_batch_statistics_reason='normalises each row, as its paper does',
    )
    Options: ClassVar[type[AgentOptions]] = PQNOptions
    options: Any
    METRICS: ClassVar[tuple[str, ...]] = ('loss/value', 'stats/q', 'stats/td_error', 'stats/grad_norm')

    def __init__(self, envs: Any, model: keras.Model, **options: Any):
        super().__init__(envs, **options)
        model = self._adopt_model(model, [self.n_actions], masked=True)
        self.options, rate = adopt_model_optimizer(model, self.options)
        self.model, self.critic, self.output_models = model, model, [model]
        self.step = GradientStep(model, self.traced_options, True, rate)
        self.actor = self.make_actor(0)
        self.options.check_memory(self.actor.memory_units > 0)
        self.minibatches = Minibatches(self.options, self.n_envs, self._sequence_length)
        self._update = Program(self._compiled, jit=suits_xla(model))

    @classmethod
    def check_envs(cls, envs: Envs, options: AgentOptions) -> None:
        """Check that actions are discrete."""
        super().check_envs(envs, options)
        if not isinstance(envs.action_space, spaces.Discrete):
            got = type(envs.action_space).__name__
            raise OptionError('env', f'{envs.id} has {got} actions, pqn accepts Discrete ones (try ppo or a2c)')

    @classmethod
    def output_units(cls, envs: Envs) -> dict[str, int]:
        """Return the sizes of possible network outputs."""
        return {'q': ActionDecoder(envs.action_space).n_actions}

    # acting

    def make_actor(self, index: int) -> KerasNetwork:
        """Return the acting network; `index` has no effect."""
        return KerasNetwork(self.model, self.statistics.dtype)

    def make_policy(self, network: ActingNetwork) -> Policy:
        """Return the ε-greedy policy."""
        return EpsilonGreedyPolicy(network, self.n_actions, self.options.epsilon_end, masked=self.envs.n_mask > 0)

    def schedules(self) -> dict[str, Schedule]:
        """Return the schedules: also ε."""
        o, name = self.options, 'epsilon_decay_steps'
        epsilon = Schedule(o.epsilon_start, 'linear', o.epsilon_end, o.epsilon_decay_steps, steps_option=name)
        return {**super().schedules(), 'epsilon': epsilon}

    # learning

    def learn(self, batch: dict[str, Any], schedule: Mapping[str, float]) -> dict[str, float]:
        """Make `epochs` passes of minibatches over a rollout; see `OnPolicy.run_update`."""
        permutations = self.minibatches.draw(self.rng('learn'), self.options.epochs)
        return self.run_update(batch, permutations, schedule['learning_rate'])

    def update(self, steps: RolloutBatch, permutations: tf.Tensor, learning_rate: tf.Tensor) -> dict[str, tf.Tensor]:
        """Return the metrics of the whole update (algorithm 1); compiled.

        `permutations` is int32 [minibatches, B], the rows of each minibatch; with memory, its sequences.
        """
        data = self.transitions(steps)
        self.step.set_rate(learning_rate)
        return loop_mean(lambda k: self.minibatch_step(data.take(permutations[k])), permutations.shape[0], self.METRICS)

    def minibatch_step(self, data: RolloutSamples) -> dict[str, tf.Tensor]:
        """Make one gradient step on a minibatch towards its λ-returns, and return the metrics."""
        with tf.GradientTape() as tape:
            (q,) = model_outputs(self.model, network_input(data.observations), *data.sequence)
            chosen = tf.gather(q, data.actions, batch_dims=1)
            errors = data.returns - chosen
            loss = masked_mean(errors**2, data.valid)
        norm, applied, refused = self.step(tape, loss, tf.reduce_any(data.valid > 0))
        return {
            'updates': applied,
            'stats/refused': refused,
            'loss/value': loss,
            'stats/q': masked_mean(chosen, data.valid),
            'stats/td_error': masked_mean(tf.abs(errors), data.valid),
            'stats/grad_norm': norm,
        }

    def _state_values(self, observations: tf.Tensor, *sequence: tf.Tensor) -> tf.Tensor:
        """Return the largest action values, float32 [B], of network inputs [B, *D].

        With them, the sum of values and advantages is the λ-return r + γ (λ G' + (1 − λ) max Q(s', a)) (equation 11).
        """
        q = model_outputs(self.model, observations, *sequence) if sequence else float_outputs(self.model(observations))
        return tf.reduce_max(q[0], 1)
