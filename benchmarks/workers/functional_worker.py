"""Measure environments with random actions on one core: the functions of xagents, or Gymnasium's vectors."""

import time
from collections.abc import Callable
from typing import Any, NamedTuple

from benchmarks.workers.measure import report, use_one_core

PACKAGES = ('tensorflow', 'gymnasium', 'numpy')


class EnvJob(NamedTuple):
    """The job of a worker, a JSON object in the first argument.

    Attributes:
        env: id of the environment.
        n_envs: N, number of copies.
        n_steps: T, vector steps of one call.
        seconds: least number of timed seconds.
        library: 'xagents' or 'gymnasium'; other libraries have their own workers.
    """

    env: str
    n_envs: int
    n_steps: int
    seconds: float
    library: str


def measure(job: EnvJob, call: Callable[[], Any], count: Callable[[Any], int]) -> dict[str, Any]:
    """Call until `job.seconds` have passed, after two calls that compile and warm up.

    Args:
        job: the job.
        call: takes T steps in each environment.
        count: returns the number of transitions in a result of `call`, without rows that only reset.
    """
    call(), call()
    spent, steps = 0.0, 0
    while spent < job.seconds:
        start = time.perf_counter()
        result = call()
        spent += time.perf_counter() - start
        steps += count(result)
    return {'steps': steps, 'seconds': spent}


def valid_rows(ended: Any) -> int:
    """Return the number of transitions, given the ends [T, N] of episodes; the step after an end only resets."""
    return int(ended.size - ended[:-1].sum())


def xagents_rollout(job: EnvJob) -> Callable[[], Any]:
    """Return a function that runs one compiled program, which draws the actions and returns the rollout's ends."""
    import numpy as np
    import tensorflow as tf
    from gymnasium import spaces

    from xagents.envs.env_factory import EnvFactory
    from xagents.envs.functional.random import integers, uniform
    from xagents.envs.functional.stepping import NO_LIMIT, BatchState, advance
    from xagents.envs.functional.vector import FunctionalVectorEnv
    from xagents.envs.functional_forms import functional_form
    from xagents.networks.programs import Program
    from xagents.system.threads import set_threads

    set_threads(1)
    form = functional_form(EnvFactory(job.env).maker())
    assert not isinstance(form, str), form
    env, vector = form.functional, FunctionalVectorEnv(form.functional, job.n_envs, form.limit)
    vector.reset(seed=1)

    def draw(rng: tf.Tensor) -> tf.Tensor:
        space, n = env.action_space, job.n_envs
        if isinstance(space, spaces.Discrete):
            return integers(rng, (n,), int(space.n))
        return uniform(rng, (n, *space.shape), space.low, space.high)

    def run(batch: BatchState, params: Any) -> tuple[tf.Tensor, ...]:
        def body(t: Any, leaves: list[tf.Tensor], arrays: list[Any]) -> tuple[Any, ...]:
            state = vector.pack(leaves)
            actions = draw(state.rng + tf.constant([1, 0]))
            following, step = advance(env, state, actions, params, form.limit or NO_LIMIT)
            row = (state.observation, actions, *step)
            written = [array.write(t, column) for array, column in zip(arrays, row, strict=True)]
            return t + 1, tf.nest.flatten(following), written

        batch_rows = (vector.observation_space, vector.action_space)
        actions_dtype = tf.int32 if isinstance(env.action_space, spaces.Discrete) else tf.float32
        specs = [(batch_rows[0].shape, tf.float32), (batch_rows[1].shape, actions_dtype)]
        specs += [((job.n_envs,), dtype) for dtype in (tf.float32, tf.bool, tf.bool)]
        arrays = [tf.TensorArray(dtype, job.n_steps, element_shape=shape) for shape, dtype in specs]
        start = tf.constant(0), tf.nest.flatten(batch), arrays
        _, leaves, arrays = tf.while_loop(lambda t, *_: t < job.n_steps, body, start)
        return (*leaves, *(array.stack() for array in arrays))

    program = Program(run, jit=True)

    def rollout() -> Any:
        results = list(map(np.asarray, program(vector.batch, vector.params)))
        vector.batch = vector.pack([np.array(x) for x in results[:-5]])
        *_, terminated, truncated = results
        return terminated | truncated

    return rollout


def gymnasium_rollout(job: EnvJob) -> Callable[[], Any]:
    """Return a function that steps Gymnasium's native vector, or its `SyncVectorEnv` if there is none."""
    import gymnasium
    import numpy as np

    native = gymnasium.spec(job.env).vector_entry_point is not None
    envs = gymnasium.make_vec(job.env, job.n_envs, 'vector_entry_point' if native else 'sync')
    envs.reset(seed=1)
    rng, space = np.random.default_rng(1), envs.single_action_space
    ended = np.zeros((job.n_steps, job.n_envs), bool)

    def rollout() -> Any:
        for t in range(job.n_steps):
            if isinstance(space, gymnasium.spaces.Discrete):
                actions = rng.integers(space.n, size=job.n_envs)
            else:
                actions = rng.uniform(space.low, space.high, (job.n_envs, *space.shape)).astype(np.float32)
            *_, terminated, truncated, _ = envs.step(actions)
            ended[t] = terminated | truncated
        return ended

    return rollout


def main() -> None:
    """Run the job."""
    import json
    import sys

    job = EnvJob(**json.loads(sys.argv[1]))
    use_one_core()
    rollout = {'xagents': xagents_rollout, 'gymnasium': gymnasium_rollout}[job.library](job)
    report(measure(job, rollout, valid_rows), PACKAGES)


if __name__ == '__main__':
    main()
