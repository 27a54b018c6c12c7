"""The base class of agents that learn from rollouts of a stochastic policy."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, TypeGuard

import keras
import numpy as np
import tensorflow as tf

from xagents.base.agent import BaseAgent
from xagents.base.batches import RolloutBatch, RolloutSamples, flatten
from xagents.base.returns import gae
from xagents.collecting.policies import Policy, SamplingPolicy
from xagents.collecting.rollouts import MEMORY, Rollout
from xagents.envs.interface import Envs
from xagents.networks.acting import ActingNetwork
from xagents.networks.distributions import Distribution, Gaussian, StateDependentGaussian, distribution_for
from xagents.networks.memory import sequence_outputs
from xagents.networks.models import with_log_std, with_logits
from xagents.networks.optimisation.gradient_steps import COUNTS, metric_vector
from xagents.networks.programs import Program, has_convolutions, network_input, suits_xla
from xagents.networks.state_dependent import count_features, with_state_dependent_std
from xagents.options.agents import AgentOptions, OnPolicyOptions, SDEOptions
from xagents.options.errors import OptionError, one_line
from xagents.registry.traits import Traits

IMAGE_BATCH_SIZE = 512
# bytes of noise per rollout from which a message reports the size
NOISE_REPORT_BYTES = 2**30
DTYPES = {'rewards': np.float32, 'terminated': bool, 'truncated': bool, 'valid': bool}


class OnPolicy(BaseAgent):
    """Agents with a stochastic policy that learn from the rollouts of that policy.

    A subclass sets `actor` (the policy) and `critic` (observations to values), and implements `update`.
    """

    Options: ClassVar[type[AgentOptions]] = OnPolicyOptions
    options: OnPolicyOptions
    traits = Traits(
        no_batch_statistics_reason='compares its updates with the policy that acted, which uses moving statistics'
    )
    critic: keras.Model
    # the compiled update: from a `RolloutBatch` and further arguments of `run_update` to metrics by name
    update: Callable[..., dict[str, tf.Tensor]]

    @classmethod
    def check_envs(cls, envs: Envs, options: AgentOptions) -> None:
        """Check that actions are continuous if exploration is state-dependent."""
        if _is_state_dependent(options) and not isinstance(distribution_for(envs.action_space), Gaussian):
            got = f'got true, but {envs.id} has actions of {one_line(envs.action_space)}'
            raise OptionError('sde', f'{got}, expected Box of floating-point numbers')

    @classmethod
    def output_units(cls, envs: Envs) -> dict[str, int]:
        """Return the sizes of possible network outputs."""
        return {'actor': distribution_for(envs.action_space).n_units, 'critic': 1}

    # acting

    @functools.cached_property
    def distribution(self) -> Distribution:
        """The distribution of the policy's actions."""
        return distribution_for(self.envs.action_space)

    @property
    def output_names(self) -> tuple[str, ...]:
        """The names of the policy's outputs."""
        return self.distribution.output_names

    def make_policy(self, network: ActingNetwork) -> Policy:
        """Return a policy that samples actions from the outputs of `network`, which has the form of `actor`."""
        keeps, repeat = self.traits.keeps_outputs, _noise_repeat(self.options)
        return SamplingPolicy(network, self.distribution, keeps, repeat, self.envs.n_mask > 0)

    def collect(self, schedule: Mapping[str, float]) -> Rollout:
        """Take `n_steps` steps in every environment; see `Collector.collect`."""
        return self.collector.collect(self.options.n_steps, schedule)

    def with_policy_head(self, model: keras.Model) -> keras.Model:
        """Return the model with logits or means as its first output; a log standard deviation is the last output."""
        options = self.options
        if not self.distribution.has_log_std:
            return with_logits(model)
        if not _is_state_dependent(options):
            return with_log_std(model, options.log_std_init, self.distribution.n_log_std)
        model = with_state_dependent_std(model, self.options.log_std_init, options.sde_expln)
        self.distribution = StateDependentGaussian(self.distribution.n_units, count_features(model))
        self._report_noise_size(count_features(model))
        return model

    def _report_noise_size(self, n_features: int) -> None:
        """Report the memory of the state-dependent noise of a rollout, if it is large."""
        draws = math.ceil(self.options.n_steps / _noise_repeat(self.options)) * self.envs.n_envs
        size = 4 * draws * n_features * self.distribution.n_units
        if size >= NOISE_REPORT_BYTES:
            less = 'a larger --sde-sample-frequency, fewer --n-steps or --n-envs, or a narrower last layer need less'
            line = f'Exploration holds {size / 2**30:.1f} GB of noise a rollout: {less}'
            self.progress.startup_lines.append(line)

    def _policy_outputs(self) -> list[Any]:
        """Return the model's outputs that can be the policy: all but the log standard deviation."""
        heads = super()._policy_outputs()
        return heads[:-1] if self.distribution.has_log_std else heads

    # learning

    def learn(self, batch: dict[str, Any], schedule: Mapping[str, float]) -> dict[str, float]:
        """Make one compiled update from a rollout; `update` receives the rollout and the learning rate."""
        return self.run_update(batch, schedule['learning_rate'])

    @property
    def _sequence_length(self) -> int:
        """L, the number of steps of a sequence: 1 without memory, else the option, by default T."""
        if not self.actor.memory_units:
            return 1
        return getattr(self.options, 'sequence_length', None) or self.options.n_steps

    @functools.cached_property
    def _update(self) -> Program:
        """The compiled update."""
        return Program(self._compiled, jit=suits_xla(*self.output_models))

    def run_update(self, batch: dict[str, np.ndarray], *arguments: Any) -> dict[str, float]:
        """Run the compiled update, publish the new weights for acting, and return the metrics by name.

        Args:
            batch: `observations` [T + 1, N, *D]; `actions`, `rewards`, `terminated`, `truncated`, `valid` and the
                policy's other columns [T, N, …].
            arguments: further arguments of `update`.
        """
        weights, metrics = self._update(self._steps(batch), *arguments)
        self.actor.refresh(weights)
        return dict(zip((*COUNTS, *self.METRICS), metrics.numpy().tolist(), strict=True))

    def _steps(self, batch: dict[str, np.ndarray]) -> RolloutBatch:
        """Return a batch as a `RolloutBatch`; casts columns, because stages may have changed float32 to float64."""
        columns = {name: np.asarray(batch[name], dtype) for name, dtype in DTYPES.items()}
        actions = np.asarray(batch['actions'], self.distribution.action_dtype)
        names = self.output_names if self.traits.keeps_outputs else ()
        outputs = tuple(np.asarray(batch[name], np.float32) for name in names)
        memory = batch[MEMORY][: -1 : self._sequence_length] if self.actor.memory_units else ()
        return RolloutBatch(batch['observations'], actions, **columns, outputs=outputs, memory=memory)

    def _compiled(self, *arguments: Any) -> tuple[tf.Tensor, tf.Tensor]:
        """Return the acting weights, and the metrics as a vector; compiled as one program."""
        metrics = metric_vector(self.update(*arguments), self.METRICS)
        return self.actor.flat_weights(), metrics

    def transitions(self, steps: RolloutBatch) -> RolloutSamples:
        """Return the transitions of a rollout with their GAE advantages and returns."""
        terminated, truncated, valid = steps.flags()
        values, advantages = self.advantages(steps.observations, steps.rewards, terminated, truncated, *steps.sequence)
        columns = steps.observations[:-1], steps.actions, advantages, values[:-1], valid
        observations, actions, advantages, values, valid = map(steps.by_sequence, columns)
        outputs = [steps.by_sequence(x) for x in steps.outputs]
        log_probs = self.distribution.log_prob(outputs, actions) if outputs else tf.zeros_like(valid)
        memory = flatten(steps.memory) if steps.sequence else ()
        return RolloutSamples(observations, actions, advantages, advantages + values, values, valid, log_probs, memory)

    def advantages(
        self,
        observations: tf.Tensor,
        rewards: tf.Tensor,
        terminated: tf.Tensor,
        truncated: tf.Tensor,
        *sequence: tf.Tensor,
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Return values [T + 1, N] of all observations, and advantages [T, N], for use as constants in a loss.

        `sequence` is that of `RolloutBatch.sequence`.
        """
        values = self.values(observations, *sequence)
        ended = tf.maximum(terminated, truncated)
        return values, gae(rewards, values, terminated, ended, self.traced_options.gamma, self.traced_options.lam)

    def values(self, observations: tf.Tensor, *sequence: tf.Tensor) -> tf.Tensor:
        """Return the values [T + 1, N] of observations [T + 1, N, *D]; see `advantages`."""
        if sequence and has_convolutions(self.critic):
            return self._values_of_images(observations, *sequence)
        flat = flatten(observations)
        if sequence:
            return tf.reshape(self._state_values(network_input(flat), *sequence), observations.shape[:2])
        # the activations of a long rollout of images would not fit into memory at once
        size = IMAGE_BATCH_SIZE if has_convolutions(self.critic) else flat.shape[0]
        parts = tf.split(flat, [min(size, flat.shape[0] - start) for start in range(0, flat.shape[0], size)])
        return tf.reshape(
            tf.concat([self._state_values(network_input(part)) for part in parts], 0), observations.shape[:2]
        )

    def _values_of_images(self, observations: tf.Tensor, memory: tf.Tensor, keep: tf.Tensor) -> tf.Tensor:
        """Return the values [T + 1, N] of images, some steps at a time; see `values`."""
        rows, n = observations.shape[:2]
        size, values = max(IMAGE_BATCH_SIZE // n, 1), list[tf.Tensor]()
        keep = tf.reshape(keep, (rows, n))
        for start in range(0, rows, size):
            part, kept = observations[start : start + size], flatten(keep[start : start + size])
            seen = network_input(flatten(part))
            values.append(tf.reshape(self._state_values(seen, memory, kept), part.shape[:2]))
            if start + size < rows:
                memory = sequence_outputs(self.output_models[0], seen, memory, kept)[1]
        return tf.concat(values, 0)

    def _state_values(self, observations: tf.Tensor, *sequence: tf.Tensor) -> tf.Tensor:
        """Return the values, float32 [B] or [B, 1], of network inputs [B, *D]; agents with memory use `sequence`."""
        return tf.cast(self.critic(observations), tf.float32)


def _noise_repeat(options: OnPolicyOptions) -> int:
    """Return the number of steps for which exploration noise stays the same."""
    return options.noise_repeat(options.n_steps) if isinstance(options, SDEOptions) else 1


def _is_state_dependent(options: AgentOptions) -> TypeGuard[SDEOptions]:
    """Return whether exploration is a function of the state."""
    return isinstance(options, SDEOptions) and options.sde
