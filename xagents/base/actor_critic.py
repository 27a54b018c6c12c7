"""What A2C, PPO and ACER share: one network with two heads, of which the first is the policy, and one optimiser."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from xagents.base.on_policy import OnPolicy
from xagents.networks.compiled import Actor, Program, has_convolutions
from xagents.networks.optimisation import GradientStep, take_compiled


class ActorCritic(OnPolicy):
    """Agents whose policy and critic are two heads of one network.

    Args:
        envs: what `create_envs` returns, a Gymnasium vector environment, or a list of environments.
        model: observations [B, *D] to [policy outputs [B, units], the critic's [B, …]], compiled with an optimizer or
            not. For continuous actions its last output is the log standard deviation; it is added where it is missing.
        options: those of the agent's `Options` and of `RunOptions`.
    """

    # the whole update, compiled; returns the metrics by name
    update: Callable[..., dict[str, tf.Tensor]]

    def __init__(self, envs: Any, model: keras.Model, **options: Any):
        super().__init__(envs, **options)
        model = self.with_policy_head(model)
        log_std_units = [self.distribution.n_units] if self.distribution.has_log_std else []
        self.check_model(model, [*self.output_units(self.envs).values(), *log_std_units])
        rate = take_compiled(model, self.options, options)
        self.model = model
        self.step = GradientStep(model, self.options, self.options.grad_norm, rate)
        self.output_models = [model]
        self.actor = self.make_actor(0)
        self._update = Program(self.compiled, jit=not has_convolutions(model))

    def make_actor(self, index: int) -> Actor:
        """Return the policy alone; `index` is its place among the model's outputs."""
        outputs = [self.model.outputs[index], *self.model.outputs[2:]]
        return Actor(keras.Model(self.model.input, outputs), self.observation_dtype)
