"""From the names of Stable-Baselines3, in which rl-baselines3-zoo has its tuned settings, to xagents' options."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# what Stable-Baselines3 takes where an entry says nothing
ACTOR_CRITIC: dict[str, Any] = {
    'learning_rate': 1e-3,
    'buffer_size': 1_000_000,
    'learning_starts': 100,
    'batch_size': 256,
    'tau': 0.005,
    'gamma': 0.99,
    'train_freq': 1,
    'gradient_steps': 1,
    'noise_type': 'normal',
    'noise_std': 0.1,
    'net_arch': (400, 300),
}
# gSDE and the initial weights are among them because entries set them; see LEFT_OUT
ON_POLICY: dict[str, Any] = {
    'n_envs': 1,
    'normalize': False,
    'gamma': 0.99,
    'log_std_init': 0.0,
    'net_arch': (64, 64),
    'activation': 'tanh',
    'use_sde': False,
    'sde_sample_freq': -1,
    'ortho_init': True,
}
DEFAULTS: dict[str, dict[str, Any]] = {
    'dqn': {
        'learning_rate': 1e-4,
        'buffer_size': 1_000_000,
        'learning_starts': 100,
        'batch_size': 32,
        'gamma': 0.99,
        'train_freq': 4,
        'gradient_steps': 1,
        'target_update_interval': 10_000,
        'exploration_fraction': 0.1,
        'exploration_initial_eps': 1.0,
        'exploration_final_eps': 0.05,
        'max_grad_norm': 10.0,
        'net_arch': (64, 64),
    },
    'ddpg': ACTOR_CRITIC,
    'td3': {**ACTOR_CRITIC, 'policy_delay': 2, 'target_policy_noise': 0.2, 'target_noise_clip': 0.5},
    'a2c': {
        **ON_POLICY,
        'learning_rate': 7e-4,
        'n_steps': 5,
        'gae_lambda': 1.0,
        'ent_coef': 0.0,
        'vf_coef': 0.5,
        'max_grad_norm': 0.5,
        'use_rms_prop': True,
        'normalize_advantage': False,
    },
    'trpo': {
        **ON_POLICY,
        'learning_rate': 1e-3,
        'n_steps': 2048,
        'batch_size': 128,
        'gae_lambda': 0.95,
        'cg_max_steps': 15,
        'cg_damping': 0.1,
        'line_search_max_iter': 10,
        'n_critic_updates': 10,
        'target_kl': 0.01,
        'sub_sampling_factor': 1,
        'normalize_advantage': True,
    },
}
# names that say the same in both
NAMES = {
    'learning_rate': 'lr',
    'buffer_size': 'buffer_max_size',
    'batch_size': 'buffer_batch_size',
    'gamma': 'gamma',
    'train_freq': 'train_frequency',
    'gradient_steps': 'gradient_steps',
    'target_update_interval': 'target_sync_steps',
    'exploration_initial_eps': 'epsilon_start',
    'exploration_final_eps': 'epsilon_end',
    'max_grad_norm': 'grad_norm',
    'tau': 'tau',
    'noise_std': 'step_noise_coef',
    'policy_delay': 'policy_delay',
    'target_policy_noise': 'policy_noise_coef',
    'target_noise_clip': 'noise_clip',
}
ON_POLICY_NAMES = {
    'n_envs': 'n_envs',
    'n_steps': 'n_steps',
    'gamma': 'gamma',
    'gae_lambda': 'lam',
    'ent_coef': 'entropy_coef',
    'vf_coef': 'value_loss_coef',
    'max_grad_norm': 'grad_norm',
    'normalize_advantage': 'normalize_advantage',
    'batch_size': 'minibatch_size',
    'n_critic_updates': 'critic_iterations',
    'cg_max_steps': 'cg_iterations',
    'cg_damping': 'cg_damping',
    'line_search_max_iter': 'actor_iterations',
    'target_kl': 'max_kl',
    'sub_sampling_factor': 'fvp_n_steps',
}
# what xagents does not have, and what the table says where an entry sets it
LEFT_OUT = {'use_sde': 'no gSDE', 'sde_sample_freq': 'no gSDE', 'ortho_init': 'orthogonal initial weights'}
NOISE = {'normal': 'gaussian', 'ornstein-uhlenbeck': 'ornstein-uhlenbeck'}


def translate(agent: str, steps: int, entry: Mapping[str, Any], images: bool = False) -> dict[str, Any]:
    """Make xagents' options of an entry for one environment.

    Args:
        agent: a2c, dqn, ddpg, td3 or trpo.
        steps: of the whole run, of which ε decays for a fraction.
        entry: in Stable-Baselines3's names; its defaults stand in for what is not there. What `LEFT_OUT` names is
            left out.
        images: leave the network to xagents, whose convolutional one is the same.

    Raises:
        ValueError: for a name that has no translation, so that none is lost.
    """
    unknown = entry.keys() - DEFAULTS[agent].keys()
    if unknown:
        raise ValueError(f'{agent}: no translation of {", ".join(sorted(unknown))}')
    whole = {**DEFAULTS[agent], **entry}
    if agent in ('a2c', 'trpo'):
        return on_policy_options(whole, images)
    options = {ours: whole[theirs] for theirs, ours in NAMES.items() if theirs in whole}
    # updates start with a whole batch, also where an entry wants to learn at once
    options['buffer_initial_size'] = max(whole['learning_starts'], whole['batch_size'])
    # PyTorch's default
    options['opt_epsilon'] = 1e-8
    if not images:
        options |= {'net': list(whole['net_arch']), 'activation': 'relu'}
    if agent == 'dqn':
        options['epsilon_decay_steps'] = round(whole['exploration_fraction'] * steps)
        options['huber'] = True
    else:
        options['noise'] = NOISE[whole['noise_type']]
    return options


def on_policy_options(whole: Mapping[str, Any], images: bool) -> dict[str, Any]:
    """Make xagents' options of a whole entry of A2C or TRPO; orthogonal weights are the default of both libraries."""
    options = {ours: whole[theirs] for theirs, ours in ON_POLICY_NAMES.items() if theirs in whole}
    if whole['log_std_init']:
        # 0 is xagents' default, too, and discrete actions have no use for it
        options['log_std_init'] = whole['log_std_init']
    rate = whole['learning_rate']
    if isinstance(rate, str):
        # `lin_X` goes from X to 0 over the run
        options |= {'lr': float(rate.removeprefix('lin_')), 'lr_schedule': 'linear'}
    else:
        options['lr'] = rate
    # Stable-Baselines3's for both optimisers
    if whole.get('use_rms_prop'):
        # Keras adds epsilon below the root, PyTorch behind it; for Atari, entries take the form that Keras has, too
        options |= {'optimizer': 'rmsprop', 'opt_epsilon': 1e-5 if images else 1e-10}
    else:
        options |= {'optimizer': 'adam', 'opt_epsilon': 1e-5}
    if whole['normalize']:
        options |= {'normalize_obs': True, 'normalize_reward': True}
    if not images:
        options |= {'net': list(whole['net_arch']), 'activation': whole['activation']}
    return options


def left_out(agent: str, entry: Mapping[str, Any]) -> str:
    """What an entry sets and xagents does not have, for the table."""
    texts = (text for name, text in LEFT_OUT.items() if name in entry and entry[name] != DEFAULTS[agent][name])
    return ', '.join(dict.fromkeys(texts))
