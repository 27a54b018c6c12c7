"""A stepper that collects from functional environments with one compiled program: policy, environments and resets.

A request goes into the program as arrays, and the rollout comes out. The program contains the form of the policy, and
the weights are an argument, so it also serves the copy of the policy that acts with `--overlap`.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from xagents.collecting.env_stepper import CollectRequest, CollectStats, FillResult, LocalEnvStepper
from xagents.collecting.finite import check_rollout
from xagents.collecting.policies import Policy
from xagents.collecting.rollouts import MEMORY, OBSERVATIONS, Rollout
from xagents.collecting.statistics import Statistics
from xagents.envs.functional.encoding import can_encode, encode
from xagents.envs.functional.stepping import BatchState, advance
from xagents.envs.functional.vector import FunctionalVectorEnv
from xagents.envs.interface import Envs, info_column
from xagents.envs.normalisation import LIMIT
from xagents.envs.spaces import ActionDecoder
from xagents.networks.programs import KerasNetwork, Program

STEP_COLUMNS = ('rewards', 'terminated', 'truncated', 'valid')


class CompiledEnvStepper(LocalEnvStepper):
    """A stepper of functional environments; policies that cannot be compiled step them one step at a time.

    Args:
        envs: environments with a `FunctionalVectorEnv`.
    """

    envs: Envs

    def __init__(self, envs: Envs) -> None:
        super().__init__(envs)
        assert isinstance(envs.functional_vector, FunctionalVectorEnv)
        self.vector = envs.functional_vector
        self._programs: dict[Any, Program] = {}
        self._decode = ActionDecoder(envs.action_space)

    def fill(
        self, rollouts: Sequence[Rollout], requests: Sequence[CollectRequest], stats: CollectStats
    ) -> list[FillResult]:
        """See `EnvStepper`."""
        (rollout,), (request,), vector = rollouts, requests, self.vector
        policy = request.policy
        encoder, records = self.envs.encoder, self.envs.recorder is not None
        supported = can_encode(encoder) and (encoder.identity or not records)  # a recorder receives raw observations
        if not (supported and policy.is_pure and isinstance(policy.network, KerasNetwork)):
            return super().fill(rollouts, requests, stats)
        self.set_params(request.env_params)
        assert self.row_states is not None and vector.batch is not None
        own, self.row_states = policy.start(self.row_states[0]), None  # None: after an error, they must be reset
        start, n_steps = time.perf_counter(), len(rollout['valid'])
        noise = () if request.noise is None else (request.noise,)
        memory = (own[MEMORY],) if MEMORY in own else ()
        given = (memory, policy.published_weights.weights, _scaling(request.statistics, self.envs), noise)
        infos = self.envs.infos.names
        program = self._program(policy, n_steps, infos)
        results = list(
            map(np.asarray, program(vector.batch, (vector.params, vector.limit), *given, dict(request.schedule)))
        )
        n_leaves = len(results) - len(rollout)
        vector.batch = vector.pack([np.array(x) for x in results[:n_leaves]])
        for name, column in zip(_names(policy, infos), results[n_leaves:], strict=True):
            np.copyto(rollout[name], column)
        self.envs.observe_rollout(rollout, self._decode)
        self.row_states = [{name: np.array(rollout[name][-1]) for name in own}]
        self._count(rollout, stats, start)
        check_rollout(rollout)
        return [FillResult()]

    def _count(self, rollout: Rollout, stats: CollectStats, start: float) -> None:
        """Count steps, seconds and episodes; the time of an episode's end is that of its share of the rollout."""
        seconds, n_steps = time.perf_counter() - start, len(rollout['valid'])
        if episodes := self.envs.pop_rollout_episodes():
            counts = np.cumsum(np.count_nonzero(rollout['valid'], axis=1)) + stats.steps
            for row, episode in episodes:
                episode.step, episode.time = int(counts[row]), seconds * (row + 1) / n_steps
                stats.episodes.append(episode)
        stats.steps, stats.row = stats.steps + int(np.count_nonzero(rollout['valid'])), n_steps - 1
        stats.seconds['env'] += seconds

    def _program(self, policy: Policy, n_steps: int, infos: Sequence[str]) -> Program:
        """Return the program for a form of policy, T = `n_steps` and selected numbers of infos."""
        key = type(policy), policy.warming_up, n_steps, *infos
        if key not in self._programs:

            def run(batch: BatchState, constants: Any, *given: Any) -> tuple[tf.Tensor, ...]:
                return self._run(policy, n_steps, batch, constants, *given)

            self._programs[key] = Program(run, jit=True)
        return self._programs[key]

    def _run(
        self,
        policy: Policy,
        n_steps: int,
        batch: BatchState,
        constants: tuple[Any, tf.Tensor],
        memory: tuple[tf.Tensor, ...],
        weights: tf.Tensor,
        scaling: tuple[tf.Tensor, ...],
        noise: tuple[tf.Tensor, ...],
        schedule: dict[str, tf.Tensor],
    ) -> tuple[tf.Tensor, ...]:
        """Return the leaves of the state after the rollout, and the columns in the order of `_names`."""
        assert isinstance(policy.network, KerasNetwork)
        network: Any = policy.network.with_weights(weights)  # takes and returns tensors
        acting = policy.with_network(network)
        vector, encoder = self.vector, self.envs.encoder
        kept = tf.nest.flatten(batch)

        def columns_at(t: Any, batch: BatchState, memory: tuple[tf.Tensor, ...]) -> tuple[list[tf.Tensor], Any, Any]:
            observations, valid = encode(encoder, batch.observation), ~batch.ended
            row = noise[0][t // policy.noise_repeat] if noise else None
            seen = _scaled(observations, *scaling)
            chosen = acting(seen, row, valid=valid, **({MEMORY: memory[0]} if memory else {}), **schedule)
            actions = self._decode(chosen['actions'])
            following, (*step, info) = advance(
                vector.functional, batch, actions, *constants, info_names=vector.info_names
            )
            after = (chosen[MEMORY] * tf.cast(valid, tf.float32)[:, None],) if memory else ()
            columns = [tf.cast(chosen[name], dtype) for name, (_, dtype) in policy.columns.items()]
            return [observations, *memory, *columns, *step, valid, *info], following, after

        def body(t: Any, leaves: list[tf.Tensor], memory: Any, arrays: list[Any]) -> tuple[Any, ...]:
            columns, following, after = columns_at(t, vector.pack(leaves), memory)
            written = [array.write(t, column) for array, column in zip(arrays, columns, strict=True)]
            return t + 1, tf.nest.flatten(following), after, written

        specs = [(self.envs.observation_space.shape, self.envs.observation_space.dtype)]
        specs += [(m.shape[1:], m.dtype) for m in memory]
        n_rows = [n_steps + 1] * len(specs)
        specs += [*policy.columns.values(), ((), tf.float32), *[((), tf.bool)] * 3]
        specs += [((), tf.float32)] * len(vector.info_names)
        n_rows += [n_steps] * (len(specs) - len(n_rows))
        arrays = [
            tf.TensorArray(tf.as_dtype(dtype), size, element_shape=(self.envs.n_envs, *shape))
            for (shape, dtype), size in zip(specs, n_rows, strict=True)
        ]
        t, leaves, memory, arrays = tf.while_loop(
            lambda t, *_: t < n_steps, body, (tf.constant(0), kept, memory, arrays)
        )
        last = [encode(encoder, vector.pack(leaves).observation), *memory]
        stacked = [(array.write(t, last[i]) if i < len(last) else array).stack() for i, array in enumerate(arrays)]
        return (*leaves, *stacked)


def _names(policy: Policy, infos: Sequence[str]) -> list[str]:
    """Return the names of the columns of a rollout, in the order of the program's results."""
    first = [OBSERVATIONS, *([MEMORY] if policy.memory_units else [])]
    return [*first, *policy.columns, *STEP_COLUMNS, *map(info_column, infos)]


def _scaling(statistics: Statistics, envs: Envs) -> tuple[Any, ...]:
    """Return the mean and the factor of each element of observations, and the limit; empty without normalisation."""
    normalizer = statistics.observations
    if normalizer is None:
        return ()
    mean, scale = np.zeros(envs.observation_space.shape, np.float32), np.ones(envs.observation_space.shape, np.float32)
    if not normalizer.statistics.count:
        return mean, scale, np.float32(np.inf)
    own = slice(None) if envs.n_mask == 0 else slice(-envs.n_mask)
    mean[own], scale[own] = normalizer.mean_and_scale
    return mean, scale, np.float32(LIMIT)


def _scaled(observations: tf.Tensor, *scaling: tf.Tensor) -> tf.Tensor:
    """Return observations as `ObservationNormalizer` does."""
    if not scaling:
        return observations
    mean, scale, limit = scaling
    return tf.clip_by_value((tf.cast(observations, tf.float32) - mean) * scale, -limit, limit)
