"""Train RecurrentPPO of sb3-contrib with the settings of `memory_worker`, and evaluate it."""

import json
import sys
import time
from typing import Any

from benchmarks.workers.measure import report
from benchmarks.workers.peer_worker import NAMES, course

PACKAGES = ('stable-baselines3', 'sb3-contrib', 'torch', 'gymnasium', 'numpy')
EVALUATION_SEED = 10_000
# rollouts before the clock starts
WARM_UP = 2


def make_env(job: dict[str, Any]) -> Any:
    """Return one environment that shows some elements."""
    import gymnasium

    from examples.partial_observations import SelectElements

    return SelectElements(gymnasium.make(job['env']), job['elements'])


def make_model(job: dict[str, Any]) -> Any:
    """Return the model, whose environments normalise as the settings say."""
    import torch
    from sb3_contrib import RecurrentPPO
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.vec_env import VecNormalize

    torch.set_num_threads(1)
    settings = job['settings']
    envs: Any = make_vec_env(lambda: make_env(job), n_envs=settings['n_envs'], seed=job['seed'])
    if settings.get('normalize_obs'):
        envs = VecNormalize(envs, norm_reward=settings.get('normalize_reward', False), gamma=settings['gamma'])
    options: dict[str, Any] = {there: settings[here] for here, there in NAMES['ppo'].items() if here in settings}
    policy = {
        'lstm_hidden_size': settings['memory'],
        'enable_critic_lstm': True,
        'net_arch': {'pi': settings['net'], 'vf': settings['net']},
        'activation_fn': {'relu': torch.nn.ReLU, 'tanh': torch.nn.Tanh}[settings['activation']],
        'ortho_init': False,
        'log_std_init': settings.get('log_std_init', 0.0),
    }
    options['learning_rate'] = course(settings['lr'], settings.get('lr_schedule'))
    options['clip_range'] = course(settings['clip_norm'], settings.get('clip_schedule'))
    return RecurrentPPO('MlpLstmPolicy', envs, policy_kwargs=policy, seed=job['seed'], device='cpu', **options)


def main() -> None:
    """Run the job: env, elements, settings, steps, seed and episodes as JSON in the first argument."""
    job = json.loads(sys.argv[1])
    model = make_model(job)
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.evaluation import evaluate_policy
    from stable_baselines3.common.vec_env import VecNormalize

    class Watch(BaseCallback):
        rollouts, start, first = 0, time.perf_counter(), 0

        def _on_rollout_start(self) -> None:
            if self.rollouts == WARM_UP:
                self.start, self.first = time.perf_counter(), self.num_timesteps
            self.rollouts += 1

        def _on_step(self) -> bool:
            return True

    watch = Watch()
    model.learn(job['steps'], callback=watch)
    timed = {'steps': model.num_timesteps - watch.first, 'seconds': time.perf_counter() - watch.start}
    scores = {}
    if job['episodes']:
        envs: Any = make_vec_env(lambda: make_env(job), n_envs=10, seed=EVALUATION_SEED)
        if isinstance(model.env, VecNormalize):
            envs = VecNormalize(envs, training=False, norm_reward=False)
            envs.obs_rms = model.env.obs_rms
        scores = {'mean': float(evaluate_policy(model, envs, job['episodes'], deterministic=True)[0])}
    report({**timed, **scores}, PACKAGES)


if __name__ == '__main__':
    main()
