"""The base class of A2C, PPO and ACER: one network with a policy head and a critic head, and one optimiser."""

from __future__ import annotations

from typing import Any

import keras

from xagents.base.on_policy import OnPolicy
from xagents.networks.keras_to_plan import masked_output
from xagents.networks.optimisation.gradient_steps import GradientStep, adopt_model_optimizer
from xagents.networks.programs import KerasNetwork, Program, suits_xla
from xagents.networks.state_dependent import acting_model


class ActorCritic(OnPolicy):
    """Agents whose policy and critic are two heads of one network; `A2C` describes the arguments."""

    def __init__(self, envs: Any, model: keras.Model, **options: Any):
        super().__init__(envs, **options)
        model = self.with_policy_head(model)
        log_std_units = self.distribution.parameter_units[1:]
        units = [*self.output_units(self.envs).values(), *log_std_units]
        self.model = self._adopt_model(model, units, masked=True)
        self.options, rate = adopt_model_optimizer(self.model, self.options)
        self.step = GradientStep(self.model, self.traced_options, True, rate)
        self.output_models = [self.model]
        self.actor = self.make_actor(0)
        self._update = Program(self._compiled, jit=suits_xla(self.model))

    def make_actor(self, index: int) -> KerasNetwork:
        """Return the acting network; `index` is the position of the policy among the model's outputs."""
        outputs = [self.model.outputs[index], *self.model.outputs[2:]]
        if index and (n_mask := self.envs.n_mask):  # the first output is masked already
            outputs[0] = masked_output(outputs[0], self.model.inputs[0], n_mask, self.envs.encoder.n_floats)
        return KerasNetwork(acting_model(keras.Model(self.model.input, outputs)), self.statistics.dtype, self.model)
