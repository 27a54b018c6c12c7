"""Functional environments as a vector environment of Gymnasium, one compiled call a step."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from xagents.envs.functional.checks import check_functions
from xagents.envs.functional.interface import FunctionalEnv
from xagents.envs.functional.stepping import NO_LIMIT, BatchState, BatchStep, advance, first_state
from xagents.networks.programs import Program


class FunctionalVectorEnv(VectorEnv):
    """N environments of one `FunctionalEnv`, in NEXT_STEP mode.

    Attributes:
        functional: the functions.
        limit: steps after which an episode is truncated, int32.
        params: the present values of the parameters, float32 arrays by name.
        batch: the present state as arrays; None before the first reset.
        info_names: the selected numbers of infos.

    Args:
        functional: the functions.
        n_envs: N.
        limit: steps after which an episode is truncated; None for no limit.
    """

    render_mode = None

    def __init__(self, functional: FunctionalEnv, n_envs: int, limit: int | None) -> None:
        self.functional, self.num_envs = functional, n_envs
        self.limit = np.int32(min(limit or NO_LIMIT, NO_LIMIT))
        modes = ['rgb_array'] if functional.can_render else []
        self.metadata = {**functional.metadata, 'render_modes': modes, 'autoreset_mode': AutoresetMode.NEXT_STEP}
        self.single_observation_space, self.single_action_space = functional.observation_space, functional.action_space
        self.observation_space = batch_space(self.single_observation_space, n_envs)
        self.action_space = batch_space(self.single_action_space, n_envs)
        self.params = dict(functional.params)
        self.batch: BatchState | None = None
        self.info_names: tuple[str, ...] = ()
        self._first, self._next = Program(self._first_state, jit=True), Program(self._next_state, jit=True)

    def _first_state(self, rows: tf.Tensor, rng: tf.Tensor, params: Any) -> tuple[tf.Tensor, ...]:
        # N is the shape of an argument, because agents that differ in numbers share programs of equal arguments
        return tuple(tf.nest.flatten(first_state(self.functional, rows.shape[0], rng, params)))

    def _next_state(self, batch: BatchState, actions: Any, params: Any, limit: tf.Tensor) -> tuple[tf.Tensor, ...]:
        following, (*step, info) = advance(self.functional, batch, actions, params, limit, self.info_names)
        return (*tf.nest.flatten(following), *step, *info)

    def check(self) -> None:
        """Check what the functions return.

        Raises:
            OptionError: for a result of another shape or type, in one line.
        """
        _ = self._structure

    @functools.cached_property
    def _structure(self) -> BatchState:
        """The shapes and types of a state; its first use checks what the functions return."""
        found = []

        def trace() -> tf.Tensor:  # nothing is computed
            self._all_infos = check_functions(self.functional, self.num_envs, self.params)
            state = first_state(self.functional, self.num_envs, tf.zeros(2, tf.int32), self.params)
            found.append(tf.nest.map_structure(tf.TensorSpec.from_tensor, state))
            return tf.zeros(())

        tf.function(trace, autograph=False).get_concrete_function()
        return found[0]

    @functools.cached_property
    def _leaf_forms(self) -> list[tuple[tuple[int, ...], np.dtype]]:
        """The shape and the dtype of each leaf of a state."""
        return [(tuple(x.shape), np.dtype(x.dtype.as_numpy_dtype)) for x in tf.nest.flatten(self._structure)]

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Reset all environments.

        Args:
            seed: a seed; None continues the random numbers of the last one.
            options: without effect.
        """
        self.check()
        if seed is not None or self.batch is None:
            entropy = np.random.SeedSequence(seed)
            rng = np.array([entropy.generate_state(1)[0] >> 1, 0], np.int32)
        else:
            rng = self.batch.rng
        self.batch = self.pack(list(map(np.asarray, self._first(np.zeros(self.num_envs, np.int32), rng, self.params))))
        return self.batch.observation, {}

    def step(self, actions: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """Step each environment, or reset it if its episode ended with the last step.

        Raises:
            ValueError: before the first reset.
        """
        if self.batch is None:
            raise ValueError('got a step before the first reset, expected a reset')
        results = list(map(np.asarray, self._next(self.batch, actions, self.params, self.limit)))
        n = len(results) - (len(BatchStep._fields) - 1) - len(self.info_names)
        self.batch = self.pack(results[:n])
        rewards, terminated, truncated, *info = results[n:]
        infos = {name: x for name, x in zip(self.info_names, info, strict=True) if name in self.all_infos}
        return self.batch.observation, rewards, terminated, truncated, infos

    def pack(self, leaves: list[Any]) -> BatchState:
        """Return a state from its leaves."""
        return tf.nest.pack_sequence_as(self._structure, leaves)

    @property
    def all_infos(self) -> list[str]:
        """The names of all numbers of infos."""
        _ = self._structure
        return self._all_infos

    def select_infos(self, names: Sequence[str]) -> None:
        """Select the numbers of infos that steps return."""
        self.info_names = tuple(names)
        self._next = Program(self._next_state, jit=True)

    def set_params(self, **params: Any) -> None:
        """Change parameters from the next step on.

        Raises:
            TypeError: for a parameter that does not exist.
            ValueError: for a value that is no number.
        """
        self.params |= self.functional.checked_params(params)

    def get_state(self) -> dict[str, Any]:
        """Return a copy of the state and the parameters as arrays, for snapshots."""
        leaves = None if self.batch is None else [np.array(x) for x in tf.nest.flatten(self.batch)]
        return {'leaves': leaves, 'params': {name: np.array(x) for name, x in self.params.items()}}

    def set_state(self, state: dict[str, Any]) -> None:
        """Restore a result of `get_state` of environments of the same kind.

        Parameters that only one of both has are ignored, or keep their values.

        Raises:
            ValueError: for the state of other functions or of another number of environments.
        """
        leaves, own = state['leaves'], self.functional.params
        if leaves is not None and [(x.shape, x.dtype) for x in map(np.asarray, leaves)] != self._leaf_forms:
            raise ValueError('snapshot: got the state of another environment')
        saved = {name: x for name, x in state['params'].items() if name in own and np.shape(x) == own[name].shape}
        self.params = {**own, **self.functional.checked_params(saved)}
        self.batch = None if leaves is None else self.pack(leaves)
