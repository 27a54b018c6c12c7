"""What made an update not finite."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from xagents.runs.learner import Learner


def suspect(agent: Learner, batch: Mapping[str, Any]) -> tuple[str, int | None]:
    """Return what made an update's loss or gradient not finite, as far as can be told afterwards, and where it is from.

    Returns:
        What it is, and the index of the environment; None where it is of none, or was drawn from a replay buffer.
    """
    of_rollouts = np.shape(batch['valid']) if np.ndim(batch.get('valid', 0)) == 2 else None
    for name, value in batch.items():
        array = np.asarray(value)
        if array.dtype.kind == 'f' and not np.isfinite(array).all():
            in_rollout = of_rollouts is not None and array.shape[1:2] == of_rollouts[1:]
            env = int(np.argwhere(~np.isfinite(array))[0][1]) if in_rollout else None
            return f'{name.replace("_", " ")} that were learned from', env
    for model in agent.output_models:
        for weight in model.weights:
            if not np.isfinite(weight.numpy()).all():
                return f'the weights {weight.path}', None
    return 'losses or gradients', None
