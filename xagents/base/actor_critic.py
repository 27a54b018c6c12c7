"""What A2C, PPO and ACER share: one network with two heads, of which the first is the policy, and one optimiser."""

from __future__ import annotations

from typing import Any

import keras

from xagents.base.on_policy import OnPolicy
from xagents.networks.compiled import Actor, Program, suits_xla
from xagents.networks.optimisation import GradientStep, use_compiled_optimizer
from xagents.networks.state_dependent import drawing


class ActorCritic(OnPolicy):
    """Agents whose policy and critic are two heads of one network; for their arguments see A2C."""

    def __init__(self, envs: Any, model: keras.Model, **options: Any):
        super().__init__(envs, **options)
        self.model = self._with_policy_head(model)
        log_std_units = [self.distribution.n_units] if self.distribution.has_log_std else []
        self._check_model(self.model, [*self.output_units(self.envs).values(), *log_std_units])
        rate = use_compiled_optimizer(self.model, self.options)
        self.step = GradientStep(self.model, self.numbers, True, rate)
        self.output_models = [self.model]
        self.actor = self.make_actor(0)
        self._update = Program(self._compiled, jit=suits_xla(self.model))

    def make_actor(self, index: int) -> Actor:
        """Return the network that acts; `index` is the policy's place among the model's outputs."""
        outputs = [self.model.outputs[index], *self.model.outputs[2:]]
        return Actor(drawing(keras.Model(self.model.input, outputs)), self.statistics.dtype)
