"""Measures SBX: Stable-Baselines3's loop and environments with updates compiled by JAX."""

from __future__ import annotations

from typing import Any

from benchmarks.cases import Settings
from benchmarks.workers import sb3_worker
from benchmarks.workers.measure import Job

PACKAGES = ('sbx-rl', 'stable-baselines3', 'jax', 'flax', 'gymnasium', 'numpy', 'ale-py')


def make_model(settings: Settings) -> Any:
    """The model as SBX makes it; its threads are JAX's own affair."""
    import flax.linen
    import sbx
    import torch

    torch.set_num_threads(1)
    activation = {'tanh': flax.linen.tanh, 'relu': flax.linen.relu}[settings.activation]
    policy = sb3_worker.policy_arguments(settings) | {'activation_fn': activation}
    return sbx.PPO(env=sb3_worker.make_envs(settings), policy_kwargs=policy, **sb3_worker.arguments(settings))


def main() -> None:
    """Do the job."""
    job = Job.from_command_line()
    model = make_model(job.settings)
    if job.task == 'target':
        sb3_worker.measure_target(job, model, PACKAGES)
    else:
        sb3_worker.measure_speed(job, model, packages=PACKAGES)


if __name__ == '__main__':
    main()
