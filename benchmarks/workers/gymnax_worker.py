"""Measure the environments of gymnax with random actions on one core."""

import json
import sys
from collections.abc import Callable
from typing import Any

from benchmarks.workers.functional_worker import EnvJob, measure
from benchmarks.workers.measure import report, use_one_core

PACKAGES = ('gymnax', 'jax', 'jaxlib', 'numpy')


def make_rollout(job: EnvJob) -> Callable[[], Any]:
    """Return a function that runs one compiled scan, which draws the actions and returns the rollout."""
    import gymnax
    import jax

    env, params = gymnax.make(job.env)
    space, n = env.action_space(params), job.n_envs
    reset, step = jax.vmap(env.reset, (0, None)), jax.vmap(env.step, (0, 0, 0, None))

    def draw(key: Any) -> Any:
        if hasattr(space, 'n'):
            return jax.random.randint(key, (n,), 0, space.n)
        return jax.random.uniform(key, (n, *space.shape), minval=space.low, maxval=space.high)

    def body(carry: Any, _: Any) -> Any:
        key, observations, state = carry
        key, action_key, step_key = jax.random.split(key, 3)
        actions = draw(action_key)
        following, state, *ends, _ = step(jax.random.split(step_key, n), state, actions, params)
        return (key, following, state), (observations, actions, *ends)

    run = jax.jit(lambda carry: jax.lax.scan(body, carry, length=job.n_steps))
    carry = (jax.random.key(1), *reset(jax.random.split(jax.random.key(0), n), params))

    def rollout() -> Any:
        nonlocal carry
        carry, columns = jax.block_until_ready(run(carry))
        return columns

    return rollout


def main() -> None:
    """Run the job. Every step is a transition, because gymnax resets within the step that ends an episode."""
    job = EnvJob(**json.loads(sys.argv[1]))
    use_one_core()
    report(measure(job, make_rollout(job), lambda _: job.n_steps * job.n_envs), PACKAGES)


if __name__ == '__main__':
    main()
