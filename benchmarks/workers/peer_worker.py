"""Train Stable-Baselines3 or sb3-contrib with the settings of a case of the learning benchmark, and evaluate it.

The environments, their normalisation and the evaluation are those of rl-baselines3-zoo.
"""

import importlib
import json
import math
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.workers.measure import report
from xagents.processes.parent_exit import exit_with_parent

PACKAGES = ('stable-baselines3', 'sb3-contrib', 'torch', 'gymnasium', 'mujoco', 'numpy')
EVALUATION_SEED = 0
EVALUATION_ENVS = 10
# a kill loses at most these seconds; a replay buffer of Humanoid-v5 takes seconds to write
SAVE_SECONDS = 600.0

ON_POLICY = {
    **{'n_steps': 'n_steps', 'gamma': 'gamma', 'lam': 'gae_lambda', 'normalize_advantage': 'normalize_advantage'},
    **{'sde': 'use_sde', 'sde_sample_frequency': 'sde_sample_freq'},
}
LOSS = {'entropy_coef': 'ent_coef', 'value_loss_coef': 'vf_coef', 'grad_norm': 'max_grad_norm'}
OFF_POLICY = {
    **{'buffer_max_size': 'buffer_size', 'buffer_initial_size': 'learning_starts', 'buffer_batch_size': 'batch_size'},
    **{'train_frequency': 'train_freq', 'gradient_steps': 'gradient_steps', 'gamma': 'gamma'},
}
DQN = {
    **{'target_sync_steps': 'target_update_interval', 'grad_norm': 'max_grad_norm'},
    **{'epsilon_start': 'exploration_initial_eps', 'epsilon_end': 'exploration_final_eps'},
}
TD3 = {'policy_delay': 'policy_delay', 'policy_noise_coef': 'target_policy_noise', 'noise_clip': 'target_noise_clip'}
SAC = {'tau': 'tau', 'entropy_coef': 'ent_coef', 'sde': 'use_sde', 'sde_sample_frequency': 'sde_sample_freq'}
TRPO = {
    **{'minibatch_size': 'batch_size', 'critic_iterations': 'n_critic_updates', 'cg_iterations': 'cg_max_steps'},
    **{'cg_damping': 'cg_damping', 'actor_iterations': 'line_search_max_iter', 'max_kl': 'target_kl'},
    'fvp_n_steps': 'sub_sampling_factor',
}
# arguments of the model by our option
NAMES = {
    'a2c': {**ON_POLICY, **LOSS, 'opt_epsilon': 'rms_prop_eps'},
    'ppo': {**ON_POLICY, **LOSS, 'ppo_epochs': 'n_epochs', 'minibatch_size': 'batch_size'},
    'trpo': {**ON_POLICY, **TRPO},
    'dqn': {**OFF_POLICY, **DQN},
    'ddpg': {**OFF_POLICY, 'tau': 'tau'},
    'td3': {**OFF_POLICY, **TD3, 'tau': 'tau'},
    'sac': {**OFF_POLICY, **SAC},
    'tqc': {**OFF_POLICY, **SAC, 'dropped_quantiles': 'top_quantiles_to_drop_per_net'},
    'crossq': {**OFF_POLICY, 'policy_delay': 'policy_delay'},
}
# further options that have a counterpart, with the values that have one; None admits all
GENERAL: dict[str, tuple[Any, ...] | None] = {
    **dict.fromkeys(('n_envs', 'env_kwargs', 'normalize_obs', 'normalize_reward')),
    **dict.fromkeys(('lr', 'opt_epsilon', 'net', 'activation')),
    **{'lr_schedule': ('linear',), 'optimizer': ('adam',)},
}
POLICY = {'initializer': ('orthogonal', 'fan_in_uniform'), 'log_std_init': None}
NOISE = {'step_noise_coef': None, 'noise': ('gaussian', 'ornstein-uhlenbeck')}
VALUES: dict[str, dict[str, tuple[Any, ...] | None]] = {
    'a2c': {**POLICY, 'optimizer': ('rmsprop',)},
    'ppo': {**POLICY, 'clip_norm': None, 'clip_schedule': ('linear',)},
    # there, the factor thins out the surrogate and the line search as well
    'trpo': {**POLICY, 'fvp_n_steps': (1,)},
    'dqn': {'epsilon_decay_steps': None, 'huber': (True,), 'distribution': ('quantile',), 'n_quantiles': None},
    'ddpg': NOISE,
    'td3': NOISE,
    'sac': {'log_std_init': None},
    'tqc': {'log_std_init': None, 'n_quantiles': None},
    'crossq': {'beta1': None, 'normalize_layers': ('batch',)},
}
# options whose defaults differ there, in some of its classes
REQUIRED = ('net', 'activation', 'opt_epsilon')
# on-policy agents: policy and critic are separate networks
SEPARATE = ('a2c', 'ppo', 'trpo')
# agents whose policies are not sampled: there, noise is added only in training
DETERMINISTIC = ('ddpg', 'td3')
CONTRIBUTED = ('TRPO', 'TQC', 'CrossQ', 'QRDQN')


def differences(agent: str, options: dict[str, Any]) -> list[str]:
    """Return the options that Stable-Baselines3 does not have, or not with these values or defaults."""
    if agent not in NAMES:
        return [f'the agent {agent}']
    values = {**dict.fromkeys(NAMES[agent]), **GENERAL, **VALUES[agent]}

    def has_counterpart(name: str, value: Any) -> bool:
        return name in values and (values[name] is None or value in values[name])

    found = [name for name, value in options.items() if not has_counterpart(name, value)]
    # QR-DQN there does not clip gradients
    required = (*REQUIRED, 'grad_norm') if class_name(agent, options) == 'QRDQN' else REQUIRED
    return sorted(found) + [f'the default of {name}' for name in required if name not in options]


def class_name(agent: str, options: dict[str, Any]) -> str:
    """Return the name of the model's class."""
    if agent == 'dqn' and options.get('distribution') == 'quantile':
        return 'QRDQN'
    return 'CrossQ' if agent == 'crossq' else agent.upper()


def course(value: float, shape: str | None) -> float | Callable[[float], float]:
    """Return a constant, or a line down to 0; a schedule there gets the share of steps that is left."""
    return (lambda left: value * left) if shape == 'linear' else value


def policy_arguments(agent: str, options: dict[str, Any], actions: Any) -> dict[str, Any]:
    """Return the keywords of the policy for an action space."""
    import torch

    units = options['net']
    separate = agent in SEPARATE
    policy: dict[str, Any] = {'net_arch': {'pi': units, 'vf': units} if separate else units}
    policy['activation_fn'] = {'relu': torch.nn.ReLU, 'tanh': torch.nn.Tanh}[options['activation']]
    if separate:
        policy['ortho_init'] = options.get('initializer', 'orthogonal') == 'orthogonal'
    policy |= initial_noise(agent, options, actions)
    if 'n_quantiles' in options:
        policy['n_quantiles'] = options['n_quantiles']
    if agent != 'a2c':
        # QR-DQN replaces epsilon unless the class is given
        policy['optimizer_class'] = torch.optim.Adam
        policy['optimizer_kwargs'] = {'eps': options['opt_epsilon']}
    if agent == 'crossq':
        policy['optimizer_kwargs']['betas'] = (options['beta1'], 0.999)
    return policy


def initial_noise(agent: str, options: dict[str, Any], actions: Any) -> dict[str, float]:
    """Return the keyword of the initial log standard deviation for an action space, if the policy has one.

    Ours is of actions from -1 to 1. There, the actions of on-policy agents have the range of the environment.

    Raises:
        ValueError: if the elements of an action have different ranges.
    """
    if agent in SEPARATE and hasattr(actions, 'low'):
        (full_range,) = {float(one) for one in (actions.high - actions.low).flat}
        return {'log_std_init': options.get('log_std_init', 0.0) + math.log(full_range / 2)}
    return {'log_std_init': options['log_std_init']} if 'log_std_init' in options else {}


def model_arguments(agent: str, options: dict[str, Any], steps: int, env: Any) -> dict[str, Any]:
    """Return the keywords of the model."""
    import numpy as np

    found = {there: options[here] for here, there in NAMES[agent].items() if here in options}
    found['learning_rate'] = course(options['lr'], options.get('lr_schedule'))
    if 'buffer_size' in found:
        # a larger buffer is the same, and each save writes all of it
        found['buffer_size'] = min(found['buffer_size'], steps)
    if agent == 'trpo':
        # its divergence is the mean over the elements of an action, ours is the sum: both numbers are per element there
        elements = int(np.prod(env.action_space.shape))
        found |= {name: found[name] / elements for name in ('target_kl', 'cg_damping')}
    if agent == 'ppo':
        found['clip_range'] = course(options['clip_norm'], options.get('clip_schedule'))
    if 'epsilon_decay_steps' in options:
        found['exploration_fraction'] = options['epsilon_decay_steps'] / steps
    if 'train_freq' in found:
        # it counts vector steps
        found['train_freq'] = max(found['train_freq'] // env.num_envs, 1)
    if 'step_noise_coef' in options:
        found['action_noise'] = action_noise(options, env)
    return found


def action_noise(options: dict[str, Any], env: Any) -> Any:
    """Return the noise that is added to actions."""
    import numpy as np
    from stable_baselines3.common import noise

    kind = (
        noise.OrnsteinUhlenbeckActionNoise if options.get('noise') == 'ornstein-uhlenbeck' else noise.NormalActionNoise
    )
    zeros = np.zeros(env.action_space.shape, np.float32)
    return kind(zeros, zeros + options['step_noise_coef'])


def make_envs(job: dict[str, Any], n_envs: int, seed: int) -> Any:
    """Return environments in this process, normalised as the settings say."""
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.vec_env import VecNormalize

    options = job['options']
    envs: Any = make_vec_env(job['env'], n_envs=n_envs, seed=seed, env_kwargs=options.get('env_kwargs'))
    if options.get('normalize_obs') or options.get('normalize_reward'):
        which = {f'norm_{name}': bool(options.get(f'normalize_{name}')) for name in ('obs', 'reward')}
        envs = VecNormalize(envs, gamma=options['gamma'], **which)
    return envs


def make_model(job: dict[str, Any], saved: Path | None = None) -> Any:
    """Return the model of a job without `differences`: a new one, or the one of a save (`newest_save`)."""
    import torch
    from stable_baselines3.common.vec_env import VecNormalize

    torch.set_num_threads(1)
    agent, options = job['agent'], job['options']
    name = class_name(agent, options)
    package = importlib.import_module('sb3_contrib' if name in CONTRIBUTED else 'stable_baselines3')
    envs = make_envs(job, options.get('n_envs', 1), job['seed'])
    if saved is None:
        keywords = model_arguments(agent, options, job['steps'], envs)
        keywords |= {'policy_kwargs': policy_arguments(agent, options, envs.action_space)}
        keywords |= {'seed': job['seed'], 'device': 'cpu'}
        return getattr(package, name)('MlpPolicy', envs, **keywords)
    if isinstance(envs, VecNormalize):
        envs = VecNormalize.load(str(saved / 'normalization.pkl'), envs.venv)
    model = getattr(package, name).load(saved / 'model.zip', envs, device='cpu')
    if hasattr(model, 'replay_buffer'):
        model.load_replay_buffer(saved / 'replay.pkl')
    # states of random numbers are not saved: the first seed would repeat the first starts and actions
    model.set_random_seed(job['seed'] + model.num_timesteps)
    return model


def newest_save(folder: Path) -> Path | None:
    """Return the folder of the last complete save."""
    return max((one for one in folder.glob('*') if one.name.isdigit()), key=lambda one: int(one.name), default=None)


class Saver:
    """A callback of a training that saves from time to time. Only the last save is kept.

    Args:
        model: the model.
        folder: in which each save has a folder with the number of steps as its name.
    """

    def __init__(self, model: Any, folder: Path) -> None:
        self.model, self.folder = model, folder
        newest = newest_save(folder)
        before = float((newest / 'seconds').read_text()) if newest else 0.0
        self.start, self.last = time.perf_counter() - before, time.perf_counter()

    @property
    def seconds(self) -> float:
        """The seconds of training, those before the newest save included."""
        return time.perf_counter() - self.start

    def __call__(self, *_: Any) -> bool:
        """Save if it is time; return that the training continues."""
        if time.perf_counter() - self.last >= SAVE_SECONDS:
            self.save()
            self.last = time.perf_counter()
        return True

    def save(self) -> None:
        """Write a save whole, then remove the others."""
        target = self.folder / str(self.model.num_timesteps)
        part = target.with_suffix('.part')
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(parents=True)
        self.model.save(part / 'model.zip')
        if hasattr(self.model, 'replay_buffer'):
            self.model.save_replay_buffer(part / 'replay.pkl')
        if normalization := self.model.get_vec_normalize_env():
            normalization.save(str(part / 'normalization.pkl'))
        (part / 'seconds').write_text(str(self.seconds))
        part.rename(target)
        for other in self.folder.iterdir():
            if other != target:
                shutil.rmtree(other)


class Sampler:
    """The part of a model that `evaluate_policy` needs, with actions that are sampled as our evaluations do.

    Each step has new noise of gSDE, also where training keeps it for some steps. The model itself would use the same
    noise for all episodes, and draw once for all environments whether DQN acts at random.
    """

    def __init__(self, model: Any) -> None:
        self.model = model

    def predict(self, observations: Any, *_: Any, **__: Any) -> tuple[Any, None]:
        """Return one action for each environment."""
        import numpy as np

        model = self.model
        if getattr(model, 'use_sde', False):
            model.policy.reset_noise(len(observations))
        if hasattr(model, 'exploration_rate'):
            return np.array([model.predict(one, deterministic=False)[0] for one in observations]), None
        return model.predict(observations, deterministic=False)[0], None


def evaluate(player: Any, job: dict[str, Any], trained: Any) -> float:
    """Return the mean reward of episodes.

    Args:
        player: the model, for greedy actions, or a `Sampler`.
        job: see `main`.
        trained: the environments of the training if they normalise, else None.
    """
    from stable_baselines3.common.evaluation import evaluate_policy
    from stable_baselines3.common.vec_env import VecNormalize

    envs = make_envs(job, EVALUATION_ENVS, EVALUATION_SEED)
    if isinstance(envs, VecNormalize):
        envs.training, envs.norm_reward = False, False
        if envs.norm_obs:
            envs.obs_rms = trained.obs_rms
    return float(evaluate_policy(player, envs, job['episodes'], deterministic=True)[0])


def main() -> None:
    """Run the job: agent, env, steps, seed, episodes, options and folder as JSON in the first argument."""
    job = json.loads(sys.argv[1])
    # a worker that outlives its parent would write the same saves as the next one
    exit_with_parent()
    folder = Path(job['folder'])
    model = make_model(job, newest_save(folder))
    saver = Saver(model, folder)
    model.learn(job['steps'] - model.num_timesteps, saver, reset_num_timesteps=model.num_timesteps == 0)
    result = {'seconds': saver.seconds, 'steps': model.num_timesteps}
    trained = model.get_vec_normalize_env()
    means = {'mean': evaluate(model, job, trained)}
    if job['agent'] not in DETERMINISTIC:
        means['sampled'] = evaluate(Sampler(model), job, trained)
    report({**result, **means}, PACKAGES)
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == '__main__':
    main()
