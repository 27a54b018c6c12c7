"""Measure Stable-Baselines3; the worker of SBX, which has the same interface, uses this module too."""

import importlib
import os
import time
from typing import Any

from benchmarks.workers.flops import peak_matters, peak_size, update_share
from benchmarks.workers.measure import Clock, Job, check_updates, hold_to_one_core, matmul_peak, report
from benchmarks.workers.settings import NOISY, AnySettings, OffPolicySettings, translate

PACKAGES = ('stable-baselines3', 'sb3-contrib', 'torch', 'gymnasium', 'numpy', 'ale-py')


ON_POLICY = 'n_steps gamma gae_lambda=lam learning_rate=lr normalize_advantage seed'
OFF_POLICY = 'buffer_size learning_starts batch_size gradient_steps gamma learning_rate=lr seed'
A2C = 'ent_coef=entropy_coef vf_coef=value_coef max_grad_norm=grad_norm'
PPO = f'{A2C} n_epochs=epochs clip_range=clip'
TRPO = """n_critic_updates=epochs target_kl=max_kl cg_max_steps=cg_iterations cg_damping
    line_search_max_iter=line_search sub_sampling_factor=fisher_every"""
DQN = """target_update_interval=target_sync_steps exploration_initial_eps=epsilon exploration_final_eps=epsilon
    max_grad_norm=grad_norm"""
TD3 = 'tau policy_delay target_policy_noise=policy_noise target_noise_clip=noise_clip'
TQC = 'tau target_entropy top_quantiles_to_drop_per_net=dropped_quantiles'
NAMES = {
    'a2c': f'{ON_POLICY} {A2C} rms_prop_eps=optimizer_epsilon', 'ppo': f'{ON_POLICY} {PPO}',
    'trpo': f'{ON_POLICY} {TRPO}', 'dqn': f'{OFF_POLICY} {DQN}', 'ddpg': f'{OFF_POLICY} tau',
    'td3': f'{OFF_POLICY} {TD3}', 'sac': f'{OFF_POLICY} tau target_entropy', 'tqc': f'{OFF_POLICY} {TQC}',
    'crossq': f'{OFF_POLICY} target_entropy policy_delay',
}  # fmt: skip
CONTRIBUTED = ('trpo', 'tqc', 'crossq')


def arguments(settings: AnySettings) -> dict[str, Any]:
    """Return the keywords of the model without `policy_kwargs` and the noise. DQN's loss is always Huber's."""
    keywords = translate(settings, NAMES[settings.algorithm]) | {'policy': 'MlpPolicy', 'device': 'cpu'}
    if isinstance(settings, OffPolicySettings):
        # `train_freq` counts vector steps
        return keywords | {'train_freq': max(settings.train_frequency // settings.n_envs, 1)}
    if settings.atari:
        keywords['policy'] = 'CnnPolicy'
    if settings.algorithm == 'a2c':
        return keywords | {'use_rms_prop': settings.optimizer == 'rmsprop'}
    keywords |= {'clip_range_vf': None} if settings.algorithm == 'ppo' else {}
    return keywords | {'batch_size': settings.minibatch_size}


def policy_arguments(settings: AnySettings) -> dict[str, Any]:
    """Return the keywords of the policy: separate networks for vectors, one Nature CNN for images."""
    if isinstance(settings, OffPolicySettings):
        optimizer: dict[str, Any] = {'eps': settings.optimizer_epsilon}
        optimizer |= {'betas': (settings.beta1, 0.999)} if settings.algorithm == 'crossq' else {}
        quantiles = {'n_quantiles': settings.n_quantiles} if settings.algorithm == 'tqc' else {}
        return {'net_arch': list(settings.units), 'optimizer_kwargs': optimizer, **quantiles}
    units = [] if settings.atari else list(settings.units)
    keywords: dict[str, Any] = {'net_arch': {'pi': units, 'vf': units}}
    if settings.algorithm in ('ppo', 'trpo'):
        keywords['optimizer_kwargs'] = {'eps': settings.optimizer_epsilon}
    return keywords


def make_envs(settings: AnySettings) -> Any:
    """Return its vector of environments in this process; Atari with its preprocessing and a stack of four frames."""
    from stable_baselines3.common.env_util import make_atari_env, make_vec_env
    from stable_baselines3.common.vec_env import VecFrameStack

    if not settings.atari:
        return make_vec_env(settings.env, n_envs=settings.n_envs, seed=settings.seed)
    import ale_py  # noqa: F401  # registers the environments

    return VecFrameStack(make_atari_env(settings.env, n_envs=settings.n_envs, seed=settings.seed), n_stack=4)


def action_noise(settings: AnySettings, env: Any) -> dict[str, Any]:
    """Return the keyword of the action noise, if the algorithm has one."""
    if not isinstance(settings, OffPolicySettings) or settings.algorithm not in NOISY:
        return {}
    import numpy as np
    from stable_baselines3.common.noise import NormalActionNoise

    zeros = np.zeros(env.action_space.shape, np.float32)
    return {'action_noise': NormalActionNoise(zeros, zeros + settings.noise)}


def class_name(settings: AnySettings) -> str:
    """Return the name of the class of the algorithm."""
    return {'crossq': 'CrossQ'}.get(settings.algorithm, settings.algorithm.upper())


def make_model(settings: AnySettings) -> Any:
    """Return the model."""
    import torch

    torch.set_num_threads(settings.threads or os.cpu_count() or 1)
    activation = {'tanh': torch.nn.Tanh, 'relu': torch.nn.ReLU}[settings.activation]
    policy = policy_arguments(settings) | {'activation_fn': activation}
    package = importlib.import_module('sb3_contrib' if settings.algorithm in CONTRIBUTED else 'stable_baselines3')
    model_class = getattr(package, class_name(settings))
    env = make_envs(settings)
    return model_class(env=env, policy_kwargs=policy, **action_noise(settings, env), **arguments(settings))


def make_callback(target: float | None = None) -> Any:
    """Return a callback that times updates (`.learning`, seconds) and stops at a mean of 100 episodes (`.mean`)."""
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
            # the mean of the rollouts before this one, as in a check between updates
            return target is None or not self.mean >= target

    return Observe()


def shapes(model: Any) -> tuple[int, int]:
    """Return the size of an observation (rows of an image), and the number of actions or the size of one."""
    discrete = hasattr(model.action_space, 'n')
    return model.observation_space.shape[0], int(model.action_space.n if discrete else model.action_space.shape[0])


def measure_speed(job: Job, model: Any, peak: float | None = None, packages: tuple[str, ...] = PACKAGES) -> None:
    """Train `warmup` steps, then time `steps` more, and print the result."""
    model.learn(job.warmup)
    first, first_update, callback = model.num_timesteps, model._n_updates, make_callback()
    clock = Clock()
    model.learn(job.steps, callback=callback, reset_num_timesteps=False)
    took = clock.read()
    steps = model.num_timesteps - first
    if isinstance(job.settings, OffPolicySettings):
        # for on-policy models it counts rollouts or epochs
        check_updates(job.settings, steps, model._n_updates - first_update)
    result: dict[str, Any] = {'steps': steps, **took}
    result['parts'] = {'learn': callback.learning, 'collect': took['seconds'] - callback.learning}
    if peak is not None:
        updates = job.settings.updates(steps)
        result['peak_gflops'] = peak / 1e9
        result['peak_share'] = update_share(job.settings, *shapes(model), updates, callback.learning, peak)
    report(result, packages)


def measure_target(job: Job, model: Any, packages: tuple[str, ...] = PACKAGES) -> None:
    """Train to the target and save the weights; the whole process is timed from outside."""
    callback = make_callback(job.target)
    model.learn(10_000_000, callback=callback)
    model.save('model')
    # the last step belongs to the next rollout
    steps = model.num_timesteps // job.settings.batch_size * job.settings.batch_size
    report({'steps': steps, 'reached': callback.mean >= job.target}, packages)


def main() -> None:
    """Run the job."""
    job = Job.from_command_line()
    hold_to_one_core(job.settings)
    model = make_model(job.settings)
    if job.task == 'target':
        return measure_target(job, model)
    peak = None
    if peak_matters(job.settings):
        import torch

        size = peak_size(job.settings)
        matrix = torch.rand(size, size)
        peak = matmul_peak(lambda: matrix @ matrix, size)
    measure_speed(job, model, peak)


if __name__ == '__main__':
    main()
