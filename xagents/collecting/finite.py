"""Numbers that are not finite: what they are, where they came from, and that nothing is learned from them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np


class NotFiniteError(ArithmeticError):
    """A run met NaN or an infinity.

    Args:
        quantity: has it, in the plural: 'rewards', 'losses or gradients'.
        value: the first one; None where it is not known.
        env: index of the environment it came from; None where it came from none.
        step: steps of the collection, later of the run.
    """

    def __init__(self, quantity: str, value: float | None = None, env: int | None = None, step: int = 0):
        super().__init__(quantity)
        self.quantity, self.value, self.env, self.step = quantity, value, env, step
        self.env_id = self.saved = ''

    def __str__(self) -> str:
        value = '' if self.value is None else f' ({self.value})'
        place = '' if self.env is None else f' in environment {self.env}'
        name = f' of {self.env_id}' if self.env_id else ''
        return f'{self.quantity} are not finite{value} at step {self.step}{place}{name}{self.saved}'


def check_rollout(rollout: Mapping[str, np.ndarray], steps: int | None = None) -> None:
    """Check what environments gave: the first `steps` rows of a rollout and one observation more, all when not given.

    Raises:
        NotFiniteError: naming the first number that is not finite.
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
        # a sum is not finite where a number is not; where it overflows, the numbers are looked at
        return bool(np.isfinite(array.sum()) or np.isfinite(array).all())


def find_nonfinite(batch: Mapping[str, Any], models: Iterable[Any]) -> tuple[str, int | None]:
    """Return the probable source of a loss or gradient that is not finite.

    Returns:
        What it is, and the index of the environment it came from; None where it is of none, or was replayed.
    """
    shape = np.shape(batch.get('valid', 0))
    for name, value in batch.items():
        array = np.asarray(value)
        if array.dtype.kind == 'f' and not np.isfinite(array).all():
            in_rollout = len(shape) == 2 and array.shape[1:2] == shape[1:]
            env = int(np.argwhere(~np.isfinite(array))[0][1]) if in_rollout else None
            return f'{name.replace("_", " ")} that were learned from', env
    for weight in (weight for model in models for weight in model.weights):
        if not np.isfinite(weight.numpy()).all():
            return f'the weights {weight.path}', None
    return 'losses or gradients', None
