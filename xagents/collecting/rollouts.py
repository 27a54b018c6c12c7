"""Rollouts: preallocated arrays of observations, actions, rewards and ends of episodes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from xagents.envs.interface import Envs, info_column

Rollout = dict[str, np.ndarray]
# shape and dtype, for one environment, of each column that a policy fills
ColumnSpecs = Mapping[str, tuple[tuple[int, ...], Any]]
# the arrays that the next step begins with: `observations` [N, *D], and `memory` [N, M] of a policy with memory
RowState = dict[str, np.ndarray]
# their names in a rollout, where they have T + 1 rows
OBSERVATIONS, MEMORY = ROW_STATES = 'observations', 'memory'


def allocate_rollout(envs: Envs, n_steps: int, columns: ColumnSpecs, memory_units: int = 0) -> Rollout:
    """Return arrays for a rollout: observations [T + 1, N, *D], other columns [T, N, …].

    If M = `memory_units` is not 0, `memory` [T + 1, N, M] is the memory of the policy before each step. The columns
    `info/NAME` [T, N] are the selected numbers of infos, NaN in steps whose info has none.
    """
    shape, space = (n_steps, envs.n_envs), envs.observation_space
    memory = {MEMORY: np.zeros((n_steps + 1, envs.n_envs, memory_units), np.float32)} if memory_units else {}
    return {
        OBSERVATIONS: np.zeros((n_steps + 1, envs.n_envs, *space.shape), space.dtype),
        **memory,
        **{name: np.zeros(shape + s, d) for name, (s, d) in columns.items()},
        'rewards': np.zeros(shape, np.float32),
        **{name: np.zeros(shape, bool) for name in ('terminated', 'truncated', 'valid')},
        **{info_column(name): np.full(shape, np.nan, np.float32) for name in envs.infos.names},
    }
