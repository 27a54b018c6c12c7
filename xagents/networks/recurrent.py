"""Recurrent layers, whose state passes from one step of an episode to the next.

A layer is called on features [B, F] like a dense layer. It then computes the first step of an episode, from a state of
zeros. `sequence` computes consecutive steps from a given state. `xagents.networks.memory` runs models with such layers.

Backpropagation through time is written out here: one loop computes the gradients of the gates, and the gradients of
the weights are products over all steps. For 1024 steps, this takes a fifth of the time of automatic differentiation.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import keras
import tensorflow as tf

# the number of steps for which the slowest unit remembers at first
LONGEST = 64


class Recurrent(keras.layers.Layer, ABC):
    """The base class of recurrent layers; all of them compute in float32.

    A subclass implements one step and its gradient. The gates have inputs p = x W + b of the features x and
    q = h R (+ c) of the output h before the step.

    Args:
        units: U, number of units of the output h.
    """

    # number of gates, and the length of the state in multiples of U; the first U elements of the state are the output
    n_gates: ClassVar[int]
    n_states: ClassVar[int]
    # whether the product with the recurrent kernel has a bias of its own
    has_recurrent_bias: ClassVar[bool]
    # number of arrays [S, U] that `step` saves for `step_gradient`
    n_saved: ClassVar[int]

    def __init__(self, units: int, kernel_initializer: Any = None, recurrent_initializer: Any = None, **kwargs: Any):
        super().__init__(**{**kwargs, 'dtype': 'float32'})
        self.units = int(units)
        self.kernel_initializer = keras.initializers.get(kernel_initializer or 'glorot_uniform')
        self.recurrent_initializer = keras.initializers.get(recurrent_initializer or 'orthogonal')

    @property
    def state_units(self) -> int:
        """Length of the state of one row."""
        return self.n_states * self.units

    def build(self, input_shape: Sequence[int | None]) -> None:
        """Create the kernel [F, G U], the bias [G U] and the recurrent kernel [U, G U] for G gates."""
        width = self.n_gates * self.units
        self.kernel = self.add_weight(
            shape=(input_shape[-1], width), initializer=self.kernel_initializer, name='kernel'
        )
        self.bias = self.add_weight(shape=(width,), initializer=self._initial_bias, name='bias')
        self.recurrent_kernel = self.add_weight(
            shape=(self.units, width), initializer=self.recurrent_initializer, name='recurrent_kernel'
        )
        self.recurrent_bias = None
        if self.has_recurrent_bias:
            self.recurrent_bias = self.add_weight(shape=(width,), initializer='zeros', name='recurrent_bias')

    def _initial_bias(self, shape: Sequence[int], dtype: Any = None) -> tf.Tensor:
        """Return the initial biases [G U]."""
        return tf.concat(self.gate_biases(), 0)

    @abstractmethod
    def gate_biases(self) -> list[tf.Tensor]:
        """Return the initial biases [U] of each gate, by which units remember for different times."""

    def call(self, inputs: Any) -> Any:
        """Return the output [B, U] of the first step of an episode for features [B, F]."""
        return self.one_step(inputs, tf.zeros((tf.shape(inputs)[0], self.state_units)))[:, : self.units]

    def compute_output_shape(self, input_shape: Sequence[int | None]) -> tuple[int | None, int]:
        """Return the shape [B, U]."""
        return input_shape[0], self.units

    def compute_output_spec(self, inputs: Any) -> Any:
        """Return the shape and dtype of the output."""
        return keras.KerasTensor(self.compute_output_shape(inputs.shape), 'float32')

    def get_config(self) -> dict[str, Any]:
        """Return the config from which Keras creates an equal layer."""
        own = {
            'units': self.units,
            'kernel_initializer': keras.initializers.serialize(self.kernel_initializer),
            'recurrent_initializer': keras.initializers.serialize(self.recurrent_initializer),
        }
        return {**super().get_config(), **own}

    def one_step(self, features: tf.Tensor, state: tf.Tensor) -> tf.Tensor:
        """Return the state [B, S] after one step from the state before it, for features [B, F]."""
        weights = self._recurrent_weights()
        return self.step(self._project(features), _gate_inputs(state[:, : self.units], *weights), state)[0]

    def sequence(self, features: tf.Tensor, state: tf.Tensor, keep: tf.Tensor) -> tf.Tensor:
        """Return the states after each of L steps.

        Args:
            features: [L, B, F].
            state: [B, S], the state before the first step.
            keep: float32 [L, B], 1 if the state passes to the next step, 0 if the next step begins with a state of
                zeros.

        Returns:
            [L, B, S], float32; the first U elements are the outputs.
        """
        length, rows = features.shape[:2]
        projected = self._project(tf.reshape(features, (length * rows, features.shape[2])))
        projected = tf.reshape(projected, (length, rows, self.n_gates * self.units))
        # whether the state before a step is that after the step before
        before = tf.concat([tf.ones((1, rows)), keep[:-1]], 0)[..., None]
        return _unrolled(self)(projected, state, before, *self._recurrent_weights())

    def _project(self, features: tf.Tensor) -> tf.Tensor:
        """Return the inputs p [B, G U] of the gates for features [B, F]."""
        return tf.cast(features, tf.float32) @ self.kernel.value + self.bias.value

    def _recurrent_weights(self) -> tuple[tf.Tensor, ...]:
        variables = (
            [self.recurrent_kernel] if self.recurrent_bias is None else [self.recurrent_kernel, self.recurrent_bias]
        )
        return tuple(tf.convert_to_tensor(variable.value) for variable in variables)

    @abstractmethod
    def step(self, p: tf.Tensor, q: tf.Tensor, state: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Return the state [B, S] after one step, and numbers [B, n_saved U] for the gradient.

        Args:
            p: [B, G U], inputs of the gates from the features.
            q: [B, G U], inputs of the gates from the output before the step.
            state: [B, S], the state before the step.
        """

    @abstractmethod
    def step_gradient(
        self, saved: tf.Tensor, state: tf.Tensor, gradient: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Return the gradients with respect to p, to q, and directly to the state before the step.

        Args:
            saved: [B, n_saved U] of `step`.
            state: [B, S], the state before the step.
            gradient: [B, S], the gradient with respect to the state after the step.
        """


@keras.saving.register_keras_serializable('xagents')
class GRU(Recurrent):
    """A gated recurrent unit (Cho et al. 2014, arXiv:1406.1078), with the reset gate after the product as in Keras.

    The state is the output h. With the gates z and r, n = tanh(p_n + r q_n) and h' = z h + (1 − z) n.
    """

    n_gates, n_states, n_saved, has_recurrent_bias = 3, 1, 4, True

    def gate_biases(self) -> list[tf.Tensor]:
        """See `Recurrent.gate_biases`: half of the units are slow. If all are, hidden velocities are learned later."""
        fast = tf.zeros(self.units - self.units // 2)
        return [tf.concat([fast, slow_biases(self.units // 2)], 0), *(tf.zeros(self.units) for _ in range(2))]

    def step(self, p: tf.Tensor, q: tf.Tensor, state: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """See `Recurrent.step`."""
        u = self.units
        gates, q_new = tf.sigmoid(p[:, : 2 * u] + q[:, : 2 * u]), q[:, 2 * u :]
        z, r = gates[:, :u], gates[:, u:]
        new = tf.tanh(p[:, 2 * u :] + r * q_new)
        return z * state + (1.0 - z) * new, tf.concat([gates, new, q_new], 1)

    def step_gradient(
        self, saved: tf.Tensor, state: tf.Tensor, gradient: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """See `Recurrent.step_gradient`."""
        z, r, new, q_new = tf.split(saved, 4, 1)
        d_new = gradient * (1.0 - z) * (1.0 - new * new)
        d_z, d_r = gradient * (state - new) * z * (1.0 - z), d_new * q_new * r * (1.0 - r)
        return tf.concat([d_z, d_r, d_new], 1), tf.concat([d_z, d_r, d_new * r], 1), gradient * z


@keras.saving.register_keras_serializable('xagents')
class LSTM(Recurrent):
    """Long short-term memory (Hochreiter and Schmidhuber 1997; Gers et al. 2000), with the gates in the order of Keras.

    The state is the output h and the cell c: c' = f c + i g and h' = o tanh(c').
    """

    n_gates, n_states, n_saved, has_recurrent_bias = 4, 2, 5, False

    def gate_biases(self) -> list[tf.Tensor]:
        """See `Recurrent.gate_biases`; a state that is kept longer changes more slowly."""
        keep = slow_biases(self.units)
        return [-keep, keep, *(tf.zeros(self.units) for _ in range(2))]

    def step(self, p: tf.Tensor, q: tf.Tensor, state: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """See `Recurrent.step`."""
        i, f, g, o = tf.split(p + q, 4, 1)
        i, f, g, o = tf.sigmoid(i), tf.sigmoid(f), tf.tanh(g), tf.sigmoid(o)
        cell = f * state[:, self.units :] + i * g
        bounded = tf.tanh(cell)
        return tf.concat([o * bounded, cell], 1), tf.concat([i, f, g, o, bounded], 1)

    def step_gradient(
        self, saved: tf.Tensor, state: tf.Tensor, gradient: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """See `Recurrent.step_gradient`."""
        i, f, g, o, bounded = tf.split(saved, 5, 1)
        d_h, d_cell = tf.split(gradient, 2, 1)
        d_cell = d_cell + d_h * o * (1.0 - bounded * bounded)
        d_i, d_f = d_cell * g * i * (1.0 - i), d_cell * state[:, self.units :] * f * (1.0 - f)
        d_g, d_o = d_cell * i * (1.0 - g * g), d_h * bounded * o * (1.0 - o)
        gates = tf.concat([d_i, d_f, d_g, d_o], 1)
        return gates, gates, tf.concat([tf.zeros_like(d_h), d_cell * f], 1)


def slow_biases(units: int) -> tf.Tensor:
    """Return biases [U] of a gate that keeps the state, by which units remember for 1 to `LONGEST` steps.

    With the bias log t, a gate keeps the share t / (1 + t) of the state (Tallec and Ollivier 2018, arXiv:1804.11188,
    section 2). Here, t grows in equal ratios, so that many units stay fast.
    """
    return tf.linspace(0.0, math.log(LONGEST), units)


RECURRENT: dict[str, type[Recurrent]] = {'gru': GRU, 'lstm': LSTM}


def _gate_inputs(output: tf.Tensor, kernel: tf.Tensor, bias: tf.Tensor | None = None) -> tf.Tensor:
    """Return the inputs q [B, G U] of the gates for the output [B, U] before a step."""
    return output @ kernel if bias is None else output @ kernel + bias


def _unrolled(layer: Recurrent) -> Callable[..., tf.Tensor]:
    """Return a function from p [L, B, G U], the first state, `before` [L, B, 1] and the weights to states [L, B, S]."""

    @tf.custom_gradient
    def run(p: tf.Tensor, first: tf.Tensor, before: tf.Tensor, *weights: tf.Tensor) -> tuple[tf.Tensor, Any]:
        length, rows, units = p.shape[0], p.shape[1], layer.units

        def array(size: int) -> tf.TensorArray:
            return tf.TensorArray(tf.float32, length, element_shape=(rows, size))

        def forward(t: tf.Tensor, state: tf.Tensor, states: Any, saved: Any) -> tuple[Any, ...]:
            state = state * before[t]
            state, numbers = layer.step(p[t], _gate_inputs(state[:, :units], *weights), state)
            return t + 1, state, states.write(t, state), saved.write(t, numbers)

        start = (0, first, array(layer.state_units), array(layer.n_saved * units))
        *_, states, saved = tf.while_loop(lambda t, *_: t < length, forward, start, maximum_iterations=length)
        states, saved = states.stack(), saved.stack()

        def gradient(d_states: tf.Tensor) -> tuple[Any, ...]:
            previous = tf.concat([first[None], states[:-1]], 0) * before

            def backward(i: tf.Tensor, d_state: tf.Tensor, all_p: Any, all_q: Any) -> tuple[Any, ...]:
                t = length - 1 - i
                d_p, d_q, direct = layer.step_gradient(saved[t], previous[t], d_state + d_states[t])
                through = tf.matmul(d_q, weights[0], transpose_b=True)
                through = tf.pad(through, [[0, 0], [0, layer.state_units - units]])
                return i + 1, (direct + through) * before[t], all_p.write(t, d_p), all_q.write(t, d_q)

            width = layer.n_gates * units
            begin = (0, tf.zeros((rows, layer.state_units)), array(width), array(width))
            _, d_first, d_p, d_q = tf.while_loop(lambda i, *_: i < length, backward, begin, maximum_iterations=length)
            flat_q = tf.reshape(d_q.stack(), (length * rows, width))
            outputs = tf.reshape(previous[..., :units], (length * rows, units))
            d_weights = [tf.matmul(outputs, flat_q, transpose_a=True), tf.reduce_sum(flat_q, 0)][: len(weights)]
            return d_p.stack(), d_first, None, *d_weights

        return states, gradient

    return run
