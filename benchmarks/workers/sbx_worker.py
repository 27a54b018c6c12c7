"""Measures SBX: Stable-Baselines3's loop and environments with updates compiled by JAX."""

from __future__ import annotations

from typing import Any

from benchmarks.workers import sb3_worker
from benchmarks.workers.flops import peak_matters
from benchmarks.workers.measure import Job, hold_to_one_core, matmul_peak
from benchmarks.workers.settings import AnySettings, OffPolicySettings

PACKAGES = ('sbx-rl', 'stable-baselines3', 'jax', 'flax', 'gymnasium', 'numpy', 'ale-py')


def arguments(settings: AnySettings) -> dict[str, Any]:
    """The model's keywords: Stable-Baselines3's, but for DQN's gradient norm, which SBX leaves to the optimiser."""
    keywords = sb3_worker.arguments(settings)
    if settings.algorithm == 'dqn':
        del keywords['max_grad_norm']
    elif isinstance(settings, OffPolicySettings):
        keywords['qf_learning_rate'] = settings.lr
    return keywords


def clipped_adam(grad_norm: float) -> Any:
    """A maker of Adam optimisers whose gradients' norm is clipped first."""
    import optax

    return lambda **keywords: optax.chain(optax.clip_by_global_norm(grad_norm), optax.adam(**keywords))


def make_model(settings: AnySettings) -> Any:
    """The model as SBX makes it; its threads are JAX's own affair where the process is not held to one core."""
    import flax.linen
    import sbx
    import torch

    torch.set_num_threads(1)
    activation = {'tanh': flax.linen.tanh, 'relu': flax.linen.relu}[settings.activation]
    policy = sb3_worker.policy_arguments(settings) | {'activation_fn': activation}
    if settings.algorithm == 'dqn':
        policy['optimizer_class'] = clipped_adam(settings.grad_norm)
    kind = getattr(sbx, settings.algorithm.upper())
    env = sb3_worker.make_envs(settings)
    return kind(env=env, policy_kwargs=policy, **sb3_worker.action_noise(settings, env), **arguments(settings))


def main() -> None:
    """Do the job."""
    job = Job.from_command_line()
    hold_to_one_core(job.settings)
    model = make_model(job.settings)
    if job.task == 'target':
        return sb3_worker.measure_target(job, model, PACKAGES)
    peak = None
    if peak_matters(job.settings) and not job.settings.atari:
        import jax

        matrix = jax.random.uniform(jax.random.key(0), (2048, 2048))
        # an argument, because the product of a constant is computed once, when it is compiled
        product = jax.jit(lambda factor: factor @ factor)
        peak = matmul_peak(lambda: product(matrix).block_until_ready(), 2048)
    sb3_worker.measure_speed(job, model, peak, PACKAGES)


if __name__ == '__main__':
    main()
