"""Optimisers and their steps: what is not finite is not applied."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import keras
import tensorflow as tf

from xagents.networks.keras_to_plan import has_plan
from xagents.networks.optimisers import FlatOptimizer, FusedOptimizer, KerasOptimizer, flatten_tensors
from xagents.networks.programs import in_bfloat16
from xagents.networks.traced_options import TracedOptions
from xagents.options.agents import AgentOptions, OnPolicyOptions
from xagents.options.errors import OptionError


def adopt_model_optimizer(model: keras.Model, options: AgentOptions) -> float | None:
    """Let the optimizer and the precision that a model was made with stand in the options.

    Returns the learning rate that it was compiled with, where no other was given.

    Raises:
        OptionError: where an option was given that says otherwise, and for a policy that would act otherwise than it
            learns.
    """
    bfloat16 = in_bfloat16(model)
    if (options.precision == 'bfloat16') != bfloat16 and 'precision' in options.given_names:
        raise OptionError('precision', f'got {options.precision}, which the model was not built with')
    options.precision = 'bfloat16' if bfloat16 else 'float32'
    if bfloat16 and isinstance(options, OnPolicyOptions) and has_plan(model):
        # it would act in float32, and take the difference for a change of its policy
        raise OptionError('precision', 'got bfloat16, expected float32 for a policy without convolutions')
    if getattr(model, 'optimizer', None) is None:
        return None
    for name in ('optimizer', 'opt_epsilon', 'beta1', 'beta2'):
        if name in options.given_names:
            got = getattr(options, name)
            raise OptionError(name, f'got {got} with a model that is compiled with its own optimizer')
    if 'lr' in options.given_names:
        return None
    options.lr = float(model.optimizer.learning_rate)
    return options.lr


class GradientStep:
    """A model's optimiser, which sees all parameters as one vector.

    Args:
        model: compiled with an optimizer, or not: then one is made of the agent's options.
        traced_options: of the agent.
        clip_gradients: whether gradients whose global norm is above the option `grad_norm` are scaled down to it.
        rate: the model's own learning rate; that of the options when not given.
        name: what the model is called in messages.
        may_be_unused: whether a loss may leave the model alone.
    """

    def __init__(
        self,
        model: keras.Model,
        traced_options: TracedOptions,
        clip_gradients: bool = False,
        rate: float | None = None,
        name: str = 'model',
        may_be_unused: bool = False,
    ):
        given = getattr(model, 'optimizer', None)
        self.variables = model.trainable_variables
        size = sum(math.prod(v.shape) for v in self.variables)
        self._optimizer: FlatOptimizer
        if given is None:
            self._optimizer = FusedOptimizer(traced_options, size)
        else:
            self._optimizer = KerasOptimizer(type(given).from_config(given.get_config()), size)
        self.optimizer = self._optimizer.optimizer
        model.compile(self.optimizer)
        self._traced_options, self._clip_gradients, self.name, self.may_be_unused = (
            traced_options,
            clip_gradients,
            name,
            may_be_unused,
        )
        # networks of one agent may learn at different rates, which follow one schedule
        self._rate_ratio = 1.0 if rate is None else rate / traced_options.lr

    def __call__(
        self, tape: tf.GradientTape, loss: tf.Tensor, enabled: tf.Tensor | bool = True
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Make one step by a scalar loss that the tape recorded, unless the loss or a gradient is not finite.

        `enabled` is false where there is nothing to learn from, as in a minibatch without a valid row: the optimizer's
        momentum would move the weights all the same.

        Returns:
            The gradients' norm before clipping, and 1.0 or 0.0 for: a step was made, a step was refused.
        """
        gradients, norm, finite = self.gradient(tape, loss)
        applied = self.apply(gradients, norm, finite & enabled)
        return norm, applied, tf.cast(enabled & ~finite, tf.float32)

    def set_rate(self, learning_rate: tf.Tensor) -> None:
        """Set the learning rate: that of the agent, of which this network's may be a multiple."""
        self.optimizer.learning_rate.assign(learning_rate * self._rate_ratio)

    def gradient(self, tape: tf.GradientTape, loss: tf.Tensor) -> tuple[list[tf.Tensor], tf.Tensor, tf.Tensor]:
        """Return the loss's gradients, their global norm, and whether all is finite; see `gradients_of`."""
        gradients = gradients_of(tape, loss, self.variables, '' if self.may_be_unused else self.name)
        norm = tf.norm(flatten_tensors(gradients))
        return gradients, norm, tf.math.is_finite(norm) & tf.math.is_finite(loss)

    def apply(self, gradients: list[tf.Tensor], norm: tf.Tensor, enabled: tf.Tensor) -> tf.Tensor:
        """Make a step by gradients of a norm where it is wanted; return 1.0 if it was made, else 0.0."""
        made, factor = tf.cast(enabled, tf.float32), tf.ones(())
        if self._clip_gradients:
            most = self._traced_options.grad_norm
            factor = most / tf.maximum(norm, most)
        self._optimizer.apply(self.variables, gradients, factor, made)
        return made


def gradients_of(
    tape: tf.GradientTape, target: tf.Tensor, variables: Sequence[keras.Variable], name: str = ''
) -> list[tf.Tensor]:
    """Return a scalar's gradients by variables; 0 by those that it does not depend on.

    Raises:
        ValueError: when the update is traced, for a loss of the model `name` that does not depend on all of its
            variables: as a rule a part of it was computed outside of the tape.
    """
    gradients = tape.gradient(target, [v.value for v in variables])
    without = [v.path for g, v in zip(gradients, variables, strict=True) if g is None]
    if name and without:
        which = 'its parameters' if len(without) == len(variables) else ', '.join(without)
        raise ValueError(
            f'{name}: the loss has no gradient by {which}, so that nothing would be learned there: '
            'compute all of the loss within the GradientTape'
        )
    return [tf.zeros(v.shape) if g is None else g for g, v in zip(gradients, variables, strict=True)]


def flat_gradient(
    tape: tf.GradientTape, target: tf.Tensor, variables: Sequence[keras.Variable], name: str = ''
) -> tf.Tensor:
    """Return a scalar's gradient by variables as one vector; see `gradients_of`."""
    return flatten_tensors(gradients_of(tape, target, variables, name))


def loop_mean(
    step: Callable[[tf.Tensor], dict[str, tf.Tensor]],
    n: int | tf.Tensor,
    names: Sequence[str],
    stop_when: Callable[[dict[str, tf.Tensor]], tf.Tensor] | None = None,
) -> dict[str, tf.Tensor]:
    """Make the steps 0 to n − 1 within one compiled program.

    Args:
        step: makes the step k; returns its metrics by name, 'updates' and 'stats/refused' among them.
        n: how many; a tensor, where no number of them is to be compiled anew.
        names: the metrics.
        stop_when: of the last step's metrics, whether to stop there; NaN is above nothing.

    Returns:
        The metrics by name, means over the steps that were made; counts are sums.
    """

    def body(k: tf.Tensor, more: tf.Tensor, totals: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        metrics = step(k)
        go_on = tf.constant(True) if stop_when is None else ~stop_when(metrics)
        return k + 1, go_on, totals + metric_increments(metrics, names)

    _, _, totals = tf.while_loop(lambda k, more, _: (k < n) & more, body, (0, True, tf.zeros(len(names))))
    return metric_means(totals, names)


def loop_updates(
    step: Callable[[tf.Tensor], tuple[dict[str, tf.Tensor], tf.Tensor]],
    n_updates: tf.Tensor,
    names: Sequence[str],
    shape: Sequence[int],
) -> tuple[dict[str, tf.Tensor], tf.Tensor]:
    """Make the updates 0 to `n_updates` − 1, of at most K, within one compiled program; see `loop_mean`.

    The step returns its metrics by name and its TD errors [B]; `shape` is K, B. The TD errors come back as [K, B].
    """
    if shape[0] == 1:  # a loop costs more than a small update
        metrics, errors = step(tf.constant(0))
        return metric_means(metric_increments(metrics, names), names), errors[None]
    rows = tf.range(shape[0])[:, None]

    def body(k: tf.Tensor, totals: tf.Tensor, errors: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        metrics, new = step(k)
        return k + 1, totals + metric_increments(metrics, names), tf.where(rows == k, new[None], errors)

    start = (0, tf.zeros(len(names)), tf.zeros(shape))
    _, totals, errors = tf.while_loop(lambda k, *_: k < n_updates, body, start)
    return metric_means(totals, names), errors


_COUNTS = ('updates', 'stats/refused')


def metric_increments(metrics: dict[str, tf.Tensor], names: Sequence[str]) -> tf.Tensor:
    """Return what an update adds to the sums of the metrics: of one that was refused, only that it was."""
    return tf.stack(
        [metrics[n] if n in _COUNTS else metrics['updates'] * zero_if_not_finite(metrics[n]) for n in names]
    )


def metric_means(totals: tf.Tensor, names: Sequence[str]) -> dict[str, tf.Tensor]:
    """Return sums over updates as means over those that were made, by name; counts stay sums."""
    sums = dict(zip(names, tf.unstack(totals), strict=True))
    made = tf.maximum(sums['updates'], 1.0)
    return {name: x if name in _COUNTS else x / made for name, x in sums.items()}


def zero_if_not_finite(x: tf.Tensor) -> tf.Tensor:
    """Return `x`, or 0 where it is not finite."""
    return tf.where(tf.math.is_finite(x), x, 0.0)
