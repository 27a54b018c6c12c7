"""Steps of functional environments with time limits and resets, in Gymnasium's NEXT_STEP mode."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from gymnasium import spaces

from xagents.envs.functional.interface import FunctionalEnv, Params

NO_LIMIT = 2**31 - 1


class BatchState(NamedTuple):
    """The state of N environments between two steps.

    Attributes:
        env: the state of the functional environment, [N, …] each.
        observation: [N, *D].
        steps: int32 [N], steps of the running episodes.
        ended: bool [N], whether the next step only resets.
        rng: int32 [2], the seed of the next step: a constant of the run, and a counter.
    """

    env: Any
    observation: Any
    steps: Any
    ended: Any
    rng: Any


class BatchStep(NamedTuple):
    """The results of one step of N environments, [N] each; 0 and False in rows that only reset.

    Attributes:
        rewards: float32.
        terminated: bool.
        truncated: bool.
        info: selected numbers of infos, float32 [N] each; NaN in rows that only reset.
    """

    rewards: Any
    terminated: Any
    truncated: Any
    info: tuple[Any, ...] = ()


def first_state(env: FunctionalEnv, n: int, rng: tf.Tensor, params: Params) -> BatchState:
    """Return the state of n environments at the start of episodes; `rng` is int32 [2]."""
    state = env.initial(rng, n, params)
    return BatchState(
        state, _observe(env, state, params), tf.zeros(n, tf.int32), tf.zeros(n, tf.bool), rng + tf.constant([0, 1])
    )


def advance(
    env: FunctionalEnv,
    batch: BatchState,
    actions: tf.Tensor,
    params: Params,
    limit: tf.Tensor,
    info_names: Sequence[str] = (),
) -> tuple[BatchState, BatchStep]:
    """Take one step in each environment, or start an episode if the last one has ended.

    Args:
        env: the functions.
        batch: the present state.
        actions: environment actions [N, …].
        params: the parameters.
        limit: steps after which an episode is truncated, int32.
        info_names: the names of numbers of infos to return.
    """
    ended, n = batch.ended, batch.ended.shape[0]
    after = env.transition(batch.env, actions, batch.rng, params)
    rewards = tf.cast(env.reward(batch.env, actions, after, params), tf.float32)
    steps = batch.steps + 1
    terminated = env.terminal(after, params) & ~ended
    truncated = (steps >= limit) & ~ended
    # in each step, because a branch takes longer: 3 ms instead of 1 ms for 128 steps of 16 environments
    fresh = env.initial(batch.rng + tf.constant([0, 1]), n, params)
    state = tf.nest.map_structure(lambda new, old: _where(ended, new, old), fresh, after)
    following = BatchState(
        state,
        _observe(env, state, params),
        tf.where(ended, 0, steps),
        terminated | truncated,
        batch.rng + tf.constant([0, 2]),
    )
    info = env.info(batch.env, actions, after, params) if info_names else {}
    missing = tf.fill([n], np.float32(np.nan))
    own = [tf.cast(info[name], tf.float32) if name in info else missing for name in info_names]
    numbers = tuple(tf.where(ended, np.float32(np.nan), x) for x in own)
    return following, BatchStep(tf.where(ended, 0.0, rewards), terminated, truncated, numbers)


def _observe(env: FunctionalEnv, state: Any, params: Params) -> tf.Tensor:
    return _cast(env.observation_space, env.observation(state, params))


def _cast(space: spaces.Space, observations: Any) -> Any:
    """Return observations in the dtypes of their space."""
    if isinstance(space, spaces.Dict):
        return {name: _cast(part, observations[name]) for name, part in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(_cast(part, own) for part, own in zip(space.spaces, observations, strict=True))
    return tf.cast(observations, space.dtype)


def _where(condition: tf.Tensor, new: tf.Tensor, old: tf.Tensor) -> tf.Tensor:
    """Return `new` in rows whose condition, bool [N], is True, else `old`."""
    rows = tf.reshape(condition, (-1, *(1,) * (len(old.shape) - 1)))
    return tf.where(rows, tf.cast(new, old.dtype), old)
