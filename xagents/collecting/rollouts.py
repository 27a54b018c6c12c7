"""Rollouts: preallocated arrays of observations, actions, rewards and ends of episodes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from xagents.envs.interface import Envs

Rollout = dict[str, np.ndarray]
# shape and dtype, for one environment, of each column that a policy fills
ColumnSpecs = Mapping[str, tuple[tuple[int, ...], Any]]


def allocate_rollout(envs: Envs, n_steps: int, columns: ColumnSpecs) -> Rollout:
    """Return arrays for a rollout: observations [T + 1, N, *D], other columns [T, N, …]."""
    shape, space = (n_steps, envs.n_envs), envs.observation_space
    return {
        'observations': np.zeros((n_steps + 1, envs.n_envs, *space.shape), space.dtype),
        **{name: np.zeros(shape + s, d) for name, (s, d) in columns.items()},
        'rewards': np.zeros(shape, np.float32),
        **{name: np.zeros(shape, bool) for name in ('terminated', 'truncated', 'valid')},
    }
