"""Measure SBX: the loop and environments of Stable-Baselines3, with updates that JAX compiles."""

from typing import Any

from benchmarks.workers import sb3_worker
from benchmarks.workers.flops import peak_matters, peak_size
from benchmarks.workers.measure import Job, hold_to_one_core, matmul_peak
from benchmarks.workers.settings import AnySettings, OffPolicySettings

PACKAGES = ('sbx-rl', 'stable-baselines3', 'jax', 'flax', 'gymnasium', 'numpy', 'ale-py')


def arguments(settings: AnySettings) -> dict[str, Any]:
    """Return the keywords of the model: those of Stable-Baselines3, but the optimiser clips DQN's gradients."""
    keywords = sb3_worker.arguments(settings)
    if settings.algorithm == 'dqn':
        del keywords['max_grad_norm']
    elif isinstance(settings, OffPolicySettings):
        keywords['qf_learning_rate'] = settings.lr
    return keywords


def policy_arguments(settings: AnySettings) -> dict[str, Any]:
    """Return the keywords of the policy: those of Stable-Baselines3, but Optax has other names of Adam's factors."""
    keywords = sb3_worker.policy_arguments(settings)
    if 'betas' in keywords.get('optimizer_kwargs', {}):
        beta1, beta2 = keywords['optimizer_kwargs'].pop('betas')
        keywords['optimizer_kwargs'] |= {'b1': beta1, 'b2': beta2}
    return keywords


def clipped_adam(grad_norm: float) -> Any:
    """Return a factory of Adam optimisers that first clip the norm of the gradients."""
    import optax

    return lambda **keywords: optax.chain(optax.clip_by_global_norm(grad_norm), optax.adam(**keywords))


def make_model(settings: AnySettings) -> Any:
    """Return the model. JAX chooses the threads, unless the process is limited to one core."""
    import flax.linen
    import sbx
    import torch

    torch.set_num_threads(1)
    activation = {'tanh': flax.linen.tanh, 'relu': flax.linen.relu}[settings.activation]
    policy = policy_arguments(settings) | {'activation_fn': activation}
    if settings.algorithm == 'dqn':
        policy['optimizer_class'] = clipped_adam(settings.grad_norm)
    model_class = getattr(sbx, sb3_worker.class_name(settings))
    env = sb3_worker.make_envs(settings)
    return model_class(env=env, policy_kwargs=policy, **sb3_worker.action_noise(settings, env), **arguments(settings))


def main() -> None:
    """Run the job."""
    job = Job.from_command_line()
    hold_to_one_core(job.settings)
    model = make_model(job.settings)
    if job.task == 'target':
        return sb3_worker.measure_target(job, model, PACKAGES)
    peak = None
    if peak_matters(job.settings) and not job.settings.atari:
        import jax

        size = peak_size(job.settings)
        matrix = jax.random.uniform(jax.random.key(0), (size, size))
        # an argument, because the product of constants is computed at compile time
        product = jax.jit(lambda factor: factor @ factor)
        peak = matmul_peak(lambda: product(matrix).block_until_ready(), size)
    sb3_worker.measure_speed(job, model, peak, PACKAGES)


if __name__ == '__main__':
    main()
