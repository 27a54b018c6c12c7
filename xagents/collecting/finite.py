"""Detection of numbers that are not finite, and of their source."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from xagents.envs.interface import INFO


class NotFiniteError(ArithmeticError):
    """An error about NaN or an infinity in a run.

    Args:
        quantity: name of the quantity in the plural, such as 'rewards' or 'losses or gradients'.
        value: the first value that is not finite; None if unknown.
        env: index of the environment that returned the value; None if no environment did.
        step: environment steps of the current collection; the caller adds the earlier steps of the run.
    """

    def __init__(self, quantity: str, value: float | None = None, env: int | None = None, step: int = 0):
        super().__init__(quantity)
        self.quantity, self.value, self.env, self.step = quantity, value, env, step
        self.env_id = self.saved = self.stages = ''

    def __str__(self) -> str:
        value = '' if self.value is None else f' ({self.value})'
        place = '' if self.env is None else f' in environment {self.env}'
        name = f' of {self.env_id}' if self.env_id else ''
        stages = f', after the stages {self.stages}' if self.stages else ''
        return f'{self.quantity} are not finite{value} at step {self.step}{place}{name}{stages}{self.saved}'


def check_rollout(rollout: Mapping[str, np.ndarray], steps: int | None = None) -> None:
    """Check that observations and rewards of a rollout are finite.

    Args:
        rollout: the rollout.
        steps: number of rows to check, with one more row of observations; all rows when not given.

    Raises:
        NotFiniteError: for the first number that is not finite.
    """
    steps = len(rollout['valid']) if steps is None else steps
    for name, rows in (('observations', steps + 1), ('rewards', steps)):
        array = rollout[name][:rows]
        if array.dtype.kind != 'f' or _finite(array):
            continue
        first = tuple(np.argwhere(~np.isfinite(array))[0])
        taken = int(np.count_nonzero(rollout['valid'][: first[0] + (name == 'rewards')]))
        raise NotFiniteError(name, float(array[first]), int(first[1]), taken)


def _finite(array: np.ndarray) -> bool:
    with np.errstate(all='ignore'):
        # fast path: a finite sum proves finite numbers; the sum may overflow, so check the numbers then
        return bool(np.isfinite(array.sum()) or np.isfinite(array).all())


def find_nonfinite(batch: Mapping[str, Any], models: Iterable[Any]) -> tuple[str, int | None]:
    """Return the probable source of a loss or gradient that is not finite.

    Returns:
        The name of the source, and the index of its environment; None without one, or for replayed data.
    """
    shape = np.shape(batch.get('valid', 0))
    for name, value in batch.items():
        if name.startswith(INFO):  # NaN in steps whose info lacks the number
            continue
        array = np.asarray(value)
        if array.dtype.kind == 'f' and not np.isfinite(array).all():
            in_rollout = len(shape) == 2 and array.shape[1:2] == shape[1:]
            env = int(np.argwhere(~np.isfinite(array))[0][1]) if in_rollout else None
            return f'{name.replace("_", " ")} in the batch', env
    for weight in (weight for model in models for weight in model.weights):
        if not np.isfinite(weight.numpy()).all():
            return f'the weights {weight.path}', None
    return 'losses or gradients', None
