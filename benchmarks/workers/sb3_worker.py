"""Measures Stable-Baselines3, and serves SBX, which has the same interface."""

from __future__ import annotations

import importlib
import os
import time
from typing import Any

from benchmarks.workers.flops import peak_matters, update_share
from benchmarks.workers.measure import Clock, Job, check_updates, hold_to_one_core, matmul_peak, report
from benchmarks.workers.settings import AnySettings, OffPolicySettings

PACKAGES = ('stable-baselines3', 'sb3-contrib', 'torch', 'gymnasium', 'numpy', 'ale-py')


def arguments(settings: AnySettings) -> dict[str, Any]:
    """The model's keywords, `policy_kwargs` and the noise aside."""
    if isinstance(settings, OffPolicySettings):
        return off_policy_arguments(settings)
    common: dict[str, Any] = {
        'policy': 'CnnPolicy' if settings.atari else 'MlpPolicy',
        'n_steps': settings.n_steps,
        'gamma': settings.gamma,
        'gae_lambda': settings.lam,
        'learning_rate': settings.lr,
        'normalize_advantage': settings.normalize_advantage,
        'seed': settings.seed,
        'device': 'cpu',
    }
    if settings.algorithm == 'trpo':
        return common | {
            'batch_size': settings.minibatch_size,
            'n_critic_updates': settings.epochs,
            'target_kl': settings.max_kl,
            'cg_max_steps': settings.cg_iterations,
            'cg_damping': settings.cg_damping,
            'line_search_max_iter': settings.line_search,
            'sub_sampling_factor': settings.fisher_every,
        }
    common |= {
        'ent_coef': settings.entropy_coef,
        'vf_coef': settings.value_coef,
        'max_grad_norm': settings.grad_norm,
    }
    if settings.algorithm == 'a2c':
        return common | {'use_rms_prop': settings.optimizer == 'rmsprop', 'rms_prop_eps': settings.optimizer_epsilon}
    return common | {
        'batch_size': settings.minibatch_size,
        'n_epochs': settings.epochs,
        'clip_range': settings.clip,
        'clip_range_vf': None,
    }


def off_policy_arguments(settings: OffPolicySettings) -> dict[str, Any]:
    """The keywords of DQN, whose loss is always Huber's, DDPG or TD3; `train_freq` counts vector steps there."""
    keywords: dict[str, Any] = {
        'policy': 'MlpPolicy',
        'buffer_size': settings.buffer_size,
        'learning_starts': settings.learning_starts,
        'batch_size': settings.batch_size,
        'train_freq': max(settings.train_frequency // settings.n_envs, 1),
        'gradient_steps': settings.gradient_steps,
        'gamma': settings.gamma,
        'learning_rate': settings.lr,
        'seed': settings.seed,
        'device': 'cpu',
    }
    if settings.algorithm == 'dqn':
        return keywords | {
            'target_update_interval': settings.target_sync_steps,
            'exploration_initial_eps': settings.epsilon,
            'exploration_final_eps': settings.epsilon,
            'max_grad_norm': settings.grad_norm,
        }
    keywords['tau'] = settings.tau
    if settings.algorithm == 'td3':
        keywords |= {
            'policy_delay': settings.policy_delay,
            'target_policy_noise': settings.policy_noise,
            'target_noise_clip': settings.noise_clip,
        }
    return keywords


def policy_arguments(settings: AnySettings) -> dict[str, Any]:
    """The policy's keywords: separate networks for vectors, one Nature CNN (its last layer included) for images."""
    if isinstance(settings, OffPolicySettings):
        return {'net_arch': list(settings.units), 'optimizer_kwargs': {'eps': settings.optimizer_epsilon}}
    units = [] if settings.atari else list(settings.units)
    keywords: dict[str, Any] = {'net_arch': {'pi': units, 'vf': units}}
    if settings.algorithm in ('ppo', 'trpo'):
        keywords['optimizer_kwargs'] = {'eps': settings.optimizer_epsilon}
    return keywords


def make_envs(settings: AnySettings) -> Any:
    """Its own vector of environments in this process; Atari with its own preprocessing and a stack of four frames."""
    from stable_baselines3.common.env_util import make_atari_env, make_vec_env
    from stable_baselines3.common.vec_env import VecFrameStack

    if not settings.atari:
        return make_vec_env(settings.env, n_envs=settings.n_envs, seed=settings.seed)
    import ale_py  # noqa: F401  # registers the environments

    return VecFrameStack(make_atari_env(settings.env, n_envs=settings.n_envs, seed=settings.seed), n_stack=4)


def action_noise(settings: AnySettings, env: Any) -> dict[str, Any]:
    """The keyword of the exploration noise, for the algorithms that have one."""
    if not isinstance(settings, OffPolicySettings) or settings.algorithm == 'dqn':
        return {}
    import numpy as np
    from stable_baselines3.common.noise import NormalActionNoise

    zeros = np.zeros(env.action_space.shape, np.float32)
    return {'action_noise': NormalActionNoise(zeros, zeros + settings.noise)}


def make_model(settings: AnySettings) -> Any:
    """The model as Stable-Baselines3 makes it."""
    import torch

    torch.set_num_threads(settings.threads or os.cpu_count() or 1)
    activation = {'tanh': torch.nn.Tanh, 'relu': torch.nn.ReLU}[settings.activation]
    policy = policy_arguments(settings) | {'activation_fn': activation}
    package = importlib.import_module('sb3_contrib' if settings.algorithm == 'trpo' else 'stable_baselines3')
    kind = getattr(package, settings.algorithm.upper())
    env = make_envs(settings)
    return kind(env=env, policy_kwargs=policy, **action_noise(settings, env), **arguments(settings))


def make_callback(target: float | None = None) -> Any:
    """A callback that times the updates (`.learning`, seconds) and stops at a mean of 100 episodes (`.mean`)."""
    from stable_baselines3.common.callbacks import BaseCallback

    class Observe(BaseCallback):
        learning, mean, update_start = 0.0, float('nan'), 0.0

        def _on_rollout_start(self) -> None:
            if self.update_start:
                self.learning += time.perf_counter() - self.update_start

        def _on_rollout_end(self) -> None:
            self.update_start = time.perf_counter()
            episodes = self.model.ep_info_buffer
            if episodes and len(episodes) == episodes.maxlen:
                self.mean = sum(episode['r'] for episode in episodes) / len(episodes)

        def _on_training_end(self) -> None:
            self._on_rollout_start()

        def _on_step(self) -> bool:
            # the mean is that of the rollouts before this one, as a check between updates has it
            return target is None or not self.mean >= target

    return Observe()


def shapes(model: Any) -> tuple[int, int]:
    """Numbers in an observation (rows, for images), and actions or numbers in one."""
    discrete = hasattr(model.action_space, 'n')
    return model.observation_space.shape[0], int(model.action_space.n if discrete else model.action_space.shape[0])


def measure_speed(job: Job, model: Any, peak: float | None = None, packages: tuple[str, ...] = PACKAGES) -> None:
    """Train `warmup` steps, then time `steps` more, and report."""
    model.learn(job.warmup)
    first, first_update, callback = model.num_timesteps, model._n_updates, make_callback()
    clock = Clock()
    model.learn(job.steps, callback=callback, reset_num_timesteps=False)
    took = clock.read()
    steps = model.num_timesteps - first
    if isinstance(job.settings, OffPolicySettings):
        # on-policy, it counts rollouts or epochs instead
        check_updates(job.settings, steps, model._n_updates - first_update)
    result: dict[str, Any] = {'steps': steps, **took}
    result['parts'] = {'learn': callback.learning, 'collect': took['seconds'] - callback.learning}
    if peak is not None:
        updates = job.settings.updates(steps)
        result['peak_gflops'] = peak / 1e9
        result['peak_share'] = update_share(job.settings, *shapes(model), updates, callback.learning, peak)
    report(result, packages)


def measure_target(job: Job, model: Any, packages: tuple[str, ...] = PACKAGES) -> None:
    """Train to the target and save the weights; the harness times the whole process."""
    callback = make_callback(job.target)
    model.learn(10_000_000, callback=callback)
    model.save('model')
    # the step that noticed belongs to the next rollout
    steps = model.num_timesteps // job.settings.batch_size * job.settings.batch_size
    report({'steps': steps, 'reached': callback.mean >= job.target}, packages)


def main() -> None:
    """Do the job."""
    job = Job.from_command_line()
    hold_to_one_core(job.settings)
    model = make_model(job.settings)
    if job.task == 'target':
        return measure_target(job, model)
    peak = None
    if peak_matters(job.settings):
        import torch

        matrix = torch.rand(2048, 2048)
        peak = matmul_peak(lambda: matrix @ matrix, 2048)
    measure_speed(job, model, peak)


if __name__ == '__main__':
    main()
