"""Names of options and agents in Stable-Baselines3, CleanRL and RLlib, with the names they have here."""

from __future__ import annotations

from collections.abc import Iterable

from xagents.options.errors import did_you_mean

# in the order in which an agent may have them
FOREIGN_OPTIONS = {
    'activation_fn': ('activation',),
    'anneal_lr': ('lr_schedule',),
    'batch_size': ('buffer_batch_size', 'minibatch_size'),
    'buffer_size': ('buffer_max_size',),
    'capture_video': ('video_frequency',),
    'cg_max_steps': ('cg_iterations',),
    'clip_coef': ('clip_norm',),
    'clip_param': ('clip_norm',),
    'clip_range': ('clip_norm',),
    'clip_range_vf': ('value_clip',),
    'clip_vloss': ('value_clip',),
    'discount': ('gamma',),
    'ent_coef': ('entropy_coef',),
    'entropy_coeff': ('entropy_coef',),
    'env_id': ('env',),
    'exploration_final_eps': ('epsilon_end',),
    'exploration_fraction': ('epsilon_decay_steps',),
    'exploration_initial_eps': ('epsilon_start',),
    'exploration_noise': ('step_noise_coef',),
    'gae_lambda': ('lam',),
    'gym_id': ('env',),
    'lambda': ('lam',),
    'lambda_': ('lam',),
    'learning_rate': ('lr',),
    'line_search_max_iter': ('actor_iterations',),
    'max_grad_norm': ('grad_norm',),
    'n_critic_updates': ('critic_iterations',),
    'n_epochs': ('ppo_epochs',),
    'n_timesteps': ('max_steps',),
    'net_arch': ('net',),
    'norm_adv': ('normalize_advantage',),
    'norm_obs': ('normalize_obs',),
    'norm_reward': ('normalize_reward',),
    'num_env_runners': ('explorers',),
    'num_envs': ('n_envs',),
    'num_epochs': ('ppo_epochs',),
    'num_minibatches': ('mini_batches',),
    'num_sgd_iter': ('ppo_epochs',),
    'num_steps': ('n_steps',),
    'num_workers': ('explorers',),
    'policy_frequency': ('policy_delay',),
    'policy_kwargs': ('net',),
    'rollout_fragment_length': ('n_steps',),
    'sde_sample_freq': ('sde_sample_frequency',),
    'sgd_minibatch_size': ('minibatch_size',),
    'target_kl_div': ('target_kl',),
    'target_network_frequency': ('target_sync_steps',),
    'target_noise_clip': ('noise_clip',),
    'target_policy_noise': ('policy_noise_coef',),
    'target_update_interval': ('target_sync_steps',),
    'tensorboard_log': ('tensorboard',),
    'timesteps': ('max_steps',),
    'total_steps': ('max_steps',),
    'total_timesteps': ('max_steps', 'trial_steps'),
    'train_freq': ('train_frequency',),
    'update_epochs': ('ppo_epochs',),
    'use_sde': ('sde',),
    'vec_normalize': ('normalize_obs',),
    'vecnormalize': ('normalize_obs',),
    'vf_coef': ('value_loss_coef',),
    'vf_loss_coeff': ('value_loss_coef',),
    'wandb_project_name': ('monitor_session',),
}
FOREIGN_AGENTS = {
    'a3c': 'a2c',
    'apex': 'dqn --epsilon-ladder --explorers',
    'appo': 'ppo --explorers',
    'c51': 'dqn',
    'cql': 'dqn --conservative',
    'crossq': 'td3',
    'd3qn': 'dqn --double --dueling',
    'ddqn': 'dqn --double',
    'her': 'dqn --her, ddpg --her or td3 --her',
    'impala': 'a2c --v-trace',
    'maskableppo': 'ppo',
    'ppo2': 'ppo',
    'ppolstm': 'ppo',
    'qrdqn': 'dqn',
    'rainbow': 'dqn --double --dueling --prioritized --n-step 3',
    'recurrentppo': 'ppo',
    'reinforce': 'a2c',
    'sac': 'td3',
    'td3bc': 'td3-bc',
    'tqc': 'td3',
}


def option_hint(name: str, known: Iterable[str]) -> str:
    """Return ` (did you mean …?)` with the option of `known` that another library calls `name`, else the most similar.

    Args:
        name: a Python name, a key or a flag, with or without dashes in front.
        known: names in the form in which the user sees them.
    """
    admitted = {_plain(one): one for one in known}
    ours = next((one for one in FOREIGN_OPTIONS.get(_plain(name), ()) if one in admitted), None)
    return did_you_mean(name, admitted.values()) if ours is None else f' (did you mean {admitted[ours]}?)'


def agent_hint(name: str, known: Iterable[str]) -> str:
    """Return a hint at the agent nearest to an agent of other libraries, else at the most similar name."""
    nearest = FOREIGN_AGENTS.get(name.lower().replace('-', '').replace('_', ''))
    return did_you_mean(name.lower(), known) if nearest is None else f'; the nearest to {name} is {nearest}'


def _plain(name: str) -> str:
    return name.lstrip('-').lower().replace('-', '_')
