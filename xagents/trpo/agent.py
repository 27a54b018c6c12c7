"""Trust region policy optimisation (Schulman et al. 2015, arXiv:1502.05477)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from xagents.base.batches import RolloutBatch, RolloutSamples
from xagents.base.minibatches import Minibatches
from xagents.base.on_policy import OnPolicy
from xagents.base.returns import explained_variance, masked_mean, masked_normalise
from xagents.networks.optimisation.gradient_steps import (
    COUNTS,
    GradientStep,
    adopt_model_optimizer,
    flat_gradient,
    loop_mean,
    zero_if_not_finite,
)
from xagents.networks.optimisation.optimisers import assign_flat, flatten_tensors
from xagents.networks.programs import KerasNetwork, Program, float_outputs, network_input, suits_xla
from xagents.networks.state_dependent import acting_model
from xagents.options.errors import OptionError
from xagents.trpo.cli import TRPOOptions
from xagents.trpo.natural_gradient import conjugate_gradient, fisher_vector_product, line_search


class TRPO(OnPolicy):
    """TRPO: one natural-gradient step of the policy per rollout, within a bound on the KL divergence.

    Args:
        envs: the result of `create_envs`, a Gymnasium vector environment, or a list of environments.
        actor_model: observations [B, *D] to the policy's outputs [B, units]. For continuous actions the last output is
            the log standard deviation; it is added if the model lacks it. The model needs no optimizer.
        critic_model: observations [B, *D] to values [B, 1], compiled with an optimizer or not.
        options: `TRPOOptions` and `RunOptions`.
    """

    traits = OnPolicy.traits.changed(
        no_overlap_reason=(
            'bounds the divergence from the policy that collected the rollout, which would be one update older '
            '(PPO, ACER and agents with a replay buffer correct for it)'
        ),
        model_names=('actor', 'critic'),
    )
    Options = TRPOOptions
    options: TRPOOptions
    METRICS = (
        *('loss/value', 'loss/policy', 'loss/entropy', 'stats/grad_norm', 'stats/kl_before', 'stats/kl_after'),
        *('stats/improvement', 'stats/step_fraction', 'stats/cg_residual', 'stats/explained_variance'),
    )

    def __init__(self, envs: Any, actor_model: keras.Model, critic_model: keras.Model, **options: Any):
        super().__init__(envs, **options)
        actor_model = self.with_policy_head(actor_model)
        units = list(self.distribution.parameter_units)
        self.actor_model = self._adopt_model(actor_model, units, 'actor_model', masked=True, acts=True)
        self.critic = critic_model = self._adopt_model(critic_model, [1], 'critic_model')
        self.minibatches = Minibatches(self.options, self.envs.n_envs)
        self._check_models()
        self._sampled = sampled_rows(self.options.n_steps, self.envs.n_envs, self.options.fvp_n_steps)
        self.options, rate = adopt_model_optimizer(critic_model, self.options)
        self.step = GradientStep(critic_model, self.traced_options, rate=rate, name='critic_model')
        self.output_models = [self.actor_model, critic_model]
        self.actor = self.make_actor(0)
        self._update = Program(self._compiled, jit=suits_xla(*self.output_models))

    def _check_models(self) -> None:
        """Check that the Fisher matrix has rows to use, and that policy and critic share no parameters."""
        size, every = self.minibatches.rows, self.options.fvp_n_steps
        if every > size:
            raise OptionError('fvp_n_steps', f'got {every}, expected at most the {size} transitions of a rollout')
        own = {id(variable) for variable in self.actor_model.trainable_variables}
        if own & {id(variable) for variable in self.critic.trainable_variables}:
            expected = 'expected separate layers: fitting the critic would move the policy beyond --max-kl'
            raise ValueError(f'critic_model: got a model that shares layers with actor_model, {expected}')

    def make_actor(self, index: int) -> KerasNetwork:
        """Return the acting network; `index` has no effect, because the model has one policy."""
        return KerasNetwork(acting_model(self.actor_model), self.statistics.dtype)

    def learn(self, batch: dict[str, Any], schedule: Mapping[str, float]) -> dict[str, float]:
        """Make one step of the policy on a rollout, and `critic_iterations` passes of minibatches with the critic.

        The learning rate applies to the critic.
        """
        permutations = self.minibatches.draw(self.rng('learn'), self.options.critic_iterations)
        return self.run_update(batch, permutations, self._sampled, schedule['learning_rate'])

    def update(
        self, steps: RolloutBatch, permutations: tf.Tensor, sampled: tf.Tensor, learning_rate: tf.Tensor
    ) -> dict[str, tf.Tensor]:
        """Update the policy, then the critic, and return metrics; compiled.

        Args:
            steps: the rollout.
            permutations: int32 [minibatches, B], rows of the critic's minibatches.
            sampled: int32, rows for the Fisher matrix.
            learning_rate: learning rate of the critic.
        """
        data = self.transitions(steps)
        self.step.set_rate(learning_rate)
        policy, critic = self.update_policy(data, sampled), self.fit_critic(data, permutations)
        both = {name: policy[name] + critic[name] for name in COUNTS}
        explained = explained_variance(data.values, data.returns, data.valid)
        return {**policy, **critic, **both, 'stats/explained_variance': explained}

    def update_policy(self, data: RolloutSamples, sampled: tf.Tensor) -> dict[str, tf.Tensor]:
        """Make the natural-gradient step (appendix C) if the line search accepts one; return metrics."""
        observations, actions, advantages, valid = data.observations, data.actions, data.advantages, data.valid
        if self.traced_options.normalize_advantage:
            advantages = masked_normalise(advantages, valid, self.traced_options.advantage_epsilon)
        options, variables = self.traced_options, self.actor_model.trainable_variables
        old_outputs = [tf.stop_gradient(x) for x in self.policy_outputs(observations)]
        old_log_probs = self.distribution.log_prob(old_outputs, actions)
        old_parameters = flatten_tensors([v.value for v in variables])

        def surrogate(outputs: list[tf.Tensor]) -> tf.Tensor:
            # equation 14, without its constraint
            ratio = tf.exp(self.distribution.log_prob(outputs, actions) - old_log_probs)
            return masked_mean(ratio * advantages, valid)

        with tf.GradientTape() as tape:
            before = surrogate(self.policy_outputs(observations))
        gradient = flat_gradient(tape, before, variables, 'actor_model')
        step, residual = self.natural_step(gradient, tf.gather(observations, sampled), tf.gather(valid, sampled))

        def measure(fraction: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            assign_flat(variables, old_parameters + fraction * step)
            outputs = self.policy_outputs(observations)
            return surrogate(outputs) - before, masked_mean(self.distribution.kl(old_outputs, outputs), valid)

        fraction, gain, kl, whole_kl = line_search(measure, options.max_kl, options.actor_iterations)
        accepted = fraction > 0.0
        assign_flat(variables, tf.where(accepted, old_parameters + fraction * step, old_parameters))
        norm = tf.norm(gradient)
        sound = tf.reduce_all([tf.math.is_finite(x) for x in (before, norm, tf.norm(step))])
        metrics = {
            'updates': tf.cast(accepted, tf.float32),
            'stats/refused': tf.cast(tf.reduce_any(valid > 0) & ~sound, tf.float32),
            'loss/policy': -before,
            'loss/entropy': masked_mean(self.distribution.entropy(old_outputs), valid),
            'stats/grad_norm': norm,
            'stats/kl_before': whole_kl,
            'stats/kl_after': kl,
            'stats/improvement': gain,
            'stats/step_fraction': fraction,
            'stats/cg_residual': residual,
        }
        return {name: zero_if_not_finite(x) for name, x in metrics.items()}

    def natural_step(
        self, gradient: tf.Tensor, observations: tf.Tensor, valid: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Return the step [P] along the natural gradient, and the squared residual of conjugate gradient.

        `gradient` [P] is the gradient of the surrogate; `observations` [B, *D] define the Fisher matrix.
        """
        o = self.traced_options

        def divergence() -> tf.Tensor:
            outputs = self.policy_outputs(observations)
            old = [tf.stop_gradient(x) for x in outputs]
            return masked_mean(self.distribution.kl(old, outputs), valid)

        product = fisher_vector_product(divergence, self.actor_model.trainable_variables, o.cg_damping)
        direction, residual = conjugate_gradient(product, gradient, o.cg_iterations, o.cg_residual_tolerance)
        # the longest step within a quadratic model of the divergence, ½ sᵀ F s = δ; 0 without a gradient
        curvature = tf.reduce_sum(direction * (gradient - residual))  # the solution satisfies F s = gradient − residual
        step = direction * tf.sqrt(tf.math.divide_no_nan(2.0 * o.max_kl, curvature))
        return step, tf.reduce_sum(residual**2)

    def fit_critic(self, data: RolloutSamples, permutations: tf.Tensor) -> dict[str, tf.Tensor]:
        """Make a gradient step of the critic on each minibatch, and return the means of the metrics."""

        def step(k: tf.Tensor) -> dict[str, tf.Tensor]:
            rows = permutations[k]
            observations, returns, valid = (tf.gather(x, rows) for x in (data.observations, data.returns, data.valid))
            with tf.GradientTape() as tape:
                (value,) = float_outputs(self.critic(network_input(observations), training=True))
                loss = masked_mean((returns - value[:, 0]) ** 2, valid)
            _, applied, refused = self.step(tape, loss, tf.reduce_any(valid > 0))
            return {'updates': applied, 'stats/refused': refused, 'loss/value': loss}

        return loop_mean(step, permutations.shape[0], ('loss/value',))

    def policy_outputs(self, observations: tf.Tensor) -> list[tf.Tensor]:
        """Return the policy outputs [B, units] for observations [B, *D]."""
        return float_outputs(self.actor_model(network_input(observations), training=True))


def sampled_rows(steps: int, n_envs: int, every: int) -> np.ndarray:
    """Return one in `every` rows of a flattened rollout [T, N], equally from all environments for any N."""
    return np.flatnonzero((np.arange(steps)[:, None] + np.arange(n_envs)) % every == 0).astype(np.int32)
