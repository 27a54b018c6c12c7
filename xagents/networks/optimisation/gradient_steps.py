"""Gradient steps: a step with a loss or a gradient that is not finite is skipped."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import keras
import tensorflow as tf

from xagents.networks.keras_to_plan import has_plan
from xagents.networks.models import make_optimizer, outer_matrices
from xagents.networks.optimisation.optimisers import (
    FusedOptimizer,
    KerasOptimizer,
    MuonOptimizer,
    NetworkOptimizer,
    Variables,
    flatten_tensors,
)
from xagents.networks.programs import in_bfloat16
from xagents.networks.traced_options import TracedOptions
from xagents.options.agents import AgentOptions, OnPolicyOptions
from xagents.options.errors import OptionError
from xagents.system.values import describe, sizes_of

T = TypeVar('T', bound=AgentOptions)
# metrics of every update: the steps that were made, and those that were refused because a value was not finite
COUNTS = ('updates', 'stats/refused')


def adopt_model_optimizer(model: keras.Model, options: T) -> tuple[T, float | None]:
    """Adopt the precision and the learning rate of a user's model.

    Returns:
        The options of the agent with both, and the learning rate of the optimizer of a compiled model, if the user did
        not set `lr`; otherwise None.

    Raises:
        OptionError: if the user set an option that contradicts the model, and for a policy that would act and learn
            with different precision.
    """
    bfloat16 = in_bfloat16(model)
    if (options.precision == 'bfloat16') != bfloat16 and 'precision' in options.given_names:
        raise OptionError('precision', f'got {options.precision}, but the model was built with another precision')
    options = options.changed(precision='bfloat16' if bfloat16 else 'float32')
    if bfloat16 and isinstance(options, OnPolicyOptions) and has_plan(model):
        # the network would act in float32, and the update would mistake the difference for a change of the policy
        raise OptionError('precision', 'got bfloat16, expected float32 for a policy without convolutions')
    if getattr(model, 'optimizer', None) is None:
        return options, None
    for name in ('optimizer', 'weight_decay', 'opt_epsilon', 'beta1', 'beta2'):
        if name in options.given_names:
            got = getattr(options, name)
            raise OptionError(name, f'got {got} with a model that is compiled with its own optimizer')
    if 'lr' in options.given_names:
        return options, None
    rate = float(model.optimizer.learning_rate)
    return options.changed(lr=rate), rate


class GradientStep:
    """The optimiser of a model. Except for Muon, it updates all parameters as one vector.

    Args:
        model: model to update. If it is not compiled with an optimizer, the options of the agent determine one.
        traced_options: options of the agent.
        clip_gradients: whether to scale down gradients whose global norm is above the option `grad_norm`.
        rate: learning rate of the model; that of the options by default.
        name: name of the model in error messages.
        may_be_unused: whether a loss may be independent of parameters of the model.
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
        self.variables = model.trainable_variables
        self._optimizer = _network_optimizer(model, traced_options)
        self.optimizer = self._optimizer.optimizer
        model.compile(self.optimizer)
        self._traced_options, self._clip_gradients = traced_options, clip_gradients
        self.name, self.may_be_unused = name, may_be_unused
        # networks of one agent may have different learning rates, which follow one schedule
        self._rate_ratio = 1.0 if rate is None else rate / traced_options.lr

    def __call__(
        self, tape: tf.GradientTape, loss: tf.Tensor, enabled: tf.Tensor | bool = True
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Make one gradient step, unless the loss or a gradient is not finite.

        Args:
            tape: tape that recorded the loss.
            loss: scalar.
            enabled: scalar bool, false to skip the step. A minibatch without a valid row has no gradient, but the
                momentum of the optimizer would still change the weights.

        Returns:
            The gradient norm before clipping; 1.0 if the step was made, else 0.0; 1.0 if the step was refused because
            of a value that is not finite, else 0.0.
        """
        gradients, norm, finite = self.gradient(tape, loss)
        applied = self.apply(gradients, norm, finite & enabled)
        return norm, applied, tf.cast(enabled & ~finite, tf.float32)

    def set_rate(self, learning_rate: tf.Tensor) -> None:
        """Set the learning rate of the agent; the rate of this network may be a multiple of it."""
        self.optimizer.learning_rate.assign(learning_rate * self._rate_ratio)

    def gradient(self, tape: tf.GradientTape, loss: tf.Tensor) -> tuple[list[tf.Tensor], tf.Tensor, tf.Tensor]:
        """Return the gradients of a loss, their global norm, and whether all is finite; see `gradients_of`."""
        gradients = gradients_of(tape, loss, self.variables, '' if self.may_be_unused else self.name)
        norm = tf.norm(flatten_tensors(gradients))
        return gradients, norm, tf.math.is_finite(norm) & tf.math.is_finite(loss)

    def apply(self, gradients: list[tf.Tensor], norm: tf.Tensor, enabled: tf.Tensor) -> tf.Tensor:
        """Make a step with gradients of a given norm if `enabled`; return 1.0 if the step was made, else 0.0."""
        made, factor = tf.cast(enabled, tf.float32), tf.ones(())
        if self._clip_gradients:
            most = self._traced_options.grad_norm
            factor = most / tf.maximum(norm, most)
        self._optimizer.apply(self.variables, gradients, factor, made)
        return made


def _network_optimizer(model: keras.Model, traced_options: TracedOptions) -> NetworkOptimizer:
    """Return an optimiser of the kind that a model is compiled with, or else of the options."""
    o, given, variables = traced_options, getattr(model, 'optimizer', None), model.trainable_variables
    size = sum(math.prod(v.shape) for v in variables)
    if given is not None:
        copy = type(given).from_config(given.get_config())
        return MuonOptimizer(copy, variables) if isinstance(copy, keras.optimizers.Muon) else KerasOptimizer(copy, size)
    if o.optimizer == 'muon':
        numbers = (o.lr, o.beta1, o.beta2, o.opt_epsilon, o.weight_decay)
        return MuonOptimizer(make_optimizer('muon', *numbers, outer_matrices(model)), variables, o)
    return FusedOptimizer(o, size)


def apply_together(steps: Sequence[GradientStep], gradients: Sequence[tuple]) -> tuple[tf.Tensor, tf.Tensor]:
    """Make the steps of several networks with results of `GradientStep.gradient`, in the same order.

    One gradient that is not finite stops the step of every network.

    Returns:
        1.0 if the steps were made, else 0.0; and the largest gradient norm.
    """
    finite = tf.reduce_all([is_finite for *_, is_finite in gradients])
    for step, (gradient, norm, _) in zip(steps, gradients, strict=True):
        step.apply(gradient, norm, finite)
    return tf.cast(finite, tf.float32), tf.reduce_max([norm for _, norm, _ in gradients])


def gradients_of(tape: tf.GradientTape, target: tf.Tensor, variables: Variables, name: str = '') -> list[tf.Tensor]:
    """Return the gradients of a scalar with respect to variables; 0 for variables that do not influence the scalar.

    Raises:
        ValueError: during tracing, if `name` is given and the loss does not depend on all variables of the model
            `name`. The usual cause is a part of the loss that was computed outside of the tape.
    """
    gradients = tape.gradient(target, [v.value for v in variables])
    without = [v.path for g, v in zip(gradients, variables, strict=True) if g is None]
    if name and without:
        which = 'its parameters' if len(without) == len(variables) else ', '.join(without)
        remedy = 'which would never change: compute all of the loss within the GradientTape'
        raise ValueError(f'{name}: the loss has no gradient with respect to {which}, {remedy}')
    return [tf.zeros(v.shape) if g is None else g for g, v in zip(gradients, variables, strict=True)]


def flat_gradient(tape: tf.GradientTape, target: tf.Tensor, variables: Variables, name: str = '') -> tf.Tensor:
    """Return the gradient of a scalar with respect to variables as one vector [P]; see `gradients_of`."""
    return flatten_tensors(gradients_of(tape, target, variables, name))


def loop_mean(
    step: Callable[[tf.Tensor], dict[str, tf.Tensor]],
    n: int | tf.Tensor,
    names: Sequence[str],
    stop_when: Callable[[dict[str, tf.Tensor]], tf.Tensor] | None = None,
) -> dict[str, tf.Tensor]:
    """Run the steps 0 to n − 1 in a loop within one compiled program.

    Args:
        step: function that makes the step k and returns its metrics by name, including 'updates' and 'stats/refused'.
        n: number of steps; a tensor if other numbers should not cause another compilation.
        names: names of the other metrics.
        stop_when: function from the metrics of the last step to whether to stop. A comparison with NaN is false.

    Returns:
        Means of the metrics over the steps that were made, by name; counts are sums.
    """

    def body(k: tf.Tensor, more: tf.Tensor, totals: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        metrics = step(k)
        go_on = tf.constant(True) if stop_when is None else ~stop_when(metrics)
        return k + 1, go_on, totals + metric_increments(metrics, names)

    start = (0, True, tf.zeros(len(COUNTS) + len(names)))
    _, _, totals = tf.while_loop(lambda k, more, _: (k < n) & more, body, start)
    return metric_means(totals, names)


def loop_updates(
    step: Callable[[tf.Tensor], tuple[dict[str, tf.Tensor], tf.Tensor]],
    n_updates: tf.Tensor,
    names: Sequence[str],
    shape: Sequence[int],
    models: Sequence[keras.Model],
) -> tuple[dict[str, tf.Tensor], tf.Tensor]:
    """Run the updates 0 to `n_updates` − 1 in a loop within one compiled program.

    Args:
        step: function that makes the update k and returns its metrics by name and its TD errors [B].
        n_updates: number of updates, at most K.
        names: names of the metrics other than the counts.
        shape: K, B.
        models: networks of the agent; a refused update restores their moving statistics.

    Returns:
        The metrics by name (see `loop_mean`), and the TD errors [K, B].
    """
    if shape[0] == 1:  # a loop costs more than a small update
        metrics, errors = _metrics_and_errors(restore_if_refused(models, lambda: step(tf.constant(0))), shape)
        return metric_means(metric_increments(metrics, names), names), errors[None]
    rows = tf.range(shape[0])[:, None]

    def body(k: tf.Tensor, totals: tf.Tensor, errors: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        metrics, new = _metrics_and_errors(restore_if_refused(models, lambda: step(k)), shape)
        return k + 1, totals + metric_increments(metrics, names), tf.where(rows == k, new[None], errors)

    start = (0, tf.zeros(len(COUNTS) + len(names)), tf.zeros(shape))
    _, totals, errors = tf.while_loop(lambda k, *_: k < n_updates, body, start)
    return metric_means(totals, names), errors


def restore_if_refused(
    models: Sequence[keras.Model], update: Callable[[], tuple[dict[str, tf.Tensor], tf.Tensor]]
) -> tuple[dict[str, tf.Tensor], tf.Tensor]:
    """Return the result of `update`; if the update was refused, restore the moving statistics of the models."""
    variables = [variable for model in models for variable in model.non_trainable_variables]
    if not variables:
        return update()
    before = [tf.identity(variable.value) for variable in variables]
    metrics, errors = update()
    for variable, value in zip(variables, before, strict=True):
        variable.assign(tf.where(metrics['updates'] > 0, variable.value, value))
    return metrics, errors


def metric_increments(metrics: dict[str, tf.Tensor], names: Sequence[str]) -> tf.Tensor:
    """Return the increments of the metric sums by one update; a refused update increments only its count."""
    check_metrics(metrics, names)
    means = [metrics['updates'] * zero_if_not_finite(metrics[name]) for name in names]
    return tf.stack([*(metrics[name] for name in COUNTS), *means])


def check_metrics(metrics: Any, names: Sequence[str]) -> None:
    """Check that an update returns the counts and the metrics in `METRICS`; runs while the update is traced.

    Raises:
        TypeError: if the metrics are no dict, or have other names.
    """
    if not isinstance(metrics, Mapping):
        raise TypeError(f'the update returned {describe(metrics)}, expected a dict of the metrics in METRICS')
    expected = (*COUNTS, *names)
    missing, unknown = [n for n in expected if n not in metrics], [n for n in metrics if n not in expected]
    if missing or unknown:
        got = f'without {", ".join(missing)}' if missing else f'with {", ".join(unknown)}'
        declared = f'{", ".join(names)} (METRICS; of a minibatch of PPO, MINIBATCH_METRICS)'
        raise TypeError(f'the update returned metrics {got}, expected {", ".join(COUNTS)} and the declared {declared}')
    for name, value in metrics.items():
        if sizes_of(value):
            raise TypeError(f'the update returned the metric {name} as a {describe(value)}, expected a scalar')


def _metrics_and_errors(result: Any, shape: Sequence[int]) -> tuple[dict[str, tf.Tensor], tf.Tensor]:
    """Return the result of one update after checking that it is the metrics and the TD errors [B]."""
    if not (isinstance(result, tuple | list) and len(result) == 2):
        raise TypeError(f'update_once returned {describe(result)}, expected the metrics by name and the TD errors [B]')
    metrics, errors = result
    if not (hasattr(errors, 'shape') and tf.TensorShape([shape[1]]).is_compatible_with(errors.shape)):
        raise TypeError(f'update_once returned TD errors that are {describe(errors)}, expected shape [{shape[1]}]')
    return metrics, errors


def metric_means(totals: tf.Tensor, names: Sequence[str]) -> dict[str, tf.Tensor]:
    """Divide metric sums by the number of updates made; return the means by name. Counts stay sums."""
    sums = dict(zip((*COUNTS, *names), tf.unstack(totals), strict=True))
    made = tf.maximum(sums['updates'], 1.0)
    return {name: x if name in COUNTS else x / made for name, x in sums.items()}


def metric_vector(metrics: dict[str, tf.Tensor], names: Sequence[str]) -> tf.Tensor:
    """Return the checked metrics of an update as a vector: the counts, and then those in `names`."""
    check_metrics(metrics, names)
    return tf.stack([metrics[name] for name in (*COUNTS, *names)])


def zero_if_not_finite(x: tf.Tensor) -> tf.Tensor:
    """Return `x` with 0 in place of elements that are not finite."""
    return tf.where(tf.math.is_finite(x), x, 0.0)
