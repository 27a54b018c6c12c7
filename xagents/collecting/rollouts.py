"""Letting the environments take some steps, and writing down what was seen: the loop that every agent collects by."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from xagents.collecting.finite import check_rollout
from xagents.envs.create import Envs

if TYPE_CHECKING:
    from xagents.runs.learner import Learner

Rollout = dict[str, np.ndarray]
# Shape and dtype, for one environment, of each column that choosing an action fills.
Columns = Mapping[str, tuple[tuple[int, ...], Any]]


def allocate(envs: Envs, n_steps: int, columns: Columns) -> Rollout:
    """Return the arrays that every rollout is written into: [T, N, …], observations [T + 1, N, *D]."""
    shape, space = (n_steps, envs.n_envs), envs.observation_space
    return {
        'observations': np.zeros((n_steps + 1, envs.n_envs, *space.shape), space.dtype),
        **{name: np.zeros(shape + s, d) for name, (s, d) in columns.items()},
        'rewards': np.zeros(shape, np.float32),
        **{name: np.zeros(shape, bool) for name in ('terminated', 'truncated', 'valid')},
    }


def fill(
    agent: Learner,
    rollout: Rollout,
    columns: Iterable[str],
    choose: Callable[[int, np.ndarray], Mapping[str, np.ndarray]],
) -> None:
    """Take the steps of a rollout in every environment, and count steps, episodes and seconds.

    Args:
        agent: whose environments step.
        rollout: what `allocate` made; overwritten.
        columns: names of the columns that `choose` fills.
        choose: from t and raw encoded observations [N, *D] to the columns, the policy's `actions` among them.

    Raises:
        NotFiniteError: where observations or rewards are not finite.
    """
    envs = agent.envs
    observations = agent.get_states()
    clock = time.perf_counter
    acting, start = 0.0, clock()
    t = 0
    try:
        for t in range(len(rollout['valid'])):
            rollout['observations'][t] = observations
            before = clock()
            chosen = choose(t, observations)
            for name in columns:
                rollout[name][t] = chosen[name]
            actions = agent.decode(chosen['actions'])
            acting += clock() - before
            rollout['valid'][t] = envs.valid
            observations, rollout['rewards'][t], rollout['terminated'][t], rollout['truncated'][t] = envs.step(actions)
            agent.collected_steps += int(np.count_nonzero(rollout['valid'][t]))
            agent.note_episodes(envs.pop_episodes(), clock() - start)
    except Exception:
        check_rollout(rollout, t)  # an error after a NaN is the NaN's
        raise
    agent.observations = observations
    rollout['observations'][-1] = observations
    agent.seconds['act'] += acting
    agent.seconds['env'] += clock() - start - acting
    check_rollout(rollout)
