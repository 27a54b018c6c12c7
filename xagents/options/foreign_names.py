"""Names of options and agents in Stable-Baselines3, CleanRL and RLlib, with the names they have here."""

from __future__ import annotations

from collections.abc import Iterable

from xagents.options.errors import did_you_mean, nearest

# names of options here, and what other libraries call them
_OPTIONS = {
    'activation': 'activation_fn',
    'actor_iterations': 'line_search_max_iter',
    'buffer_batch_size': 'batch_size',
    'buffer_max_size': 'buffer_size',
    'cg_iterations': 'cg_max_steps',
    'clip_norm': 'clip_coef clip_param clip_range',
    'critic_iterations': 'n_critic_updates',
    'dropped_quantiles': 'top_quantiles_to_drop_per_net',
    'entropy_coef': 'ent_coef entropy_coeff',
    'env': 'env_id gym_id',
    'epochs': 'n_epochs num_epochs update_epochs',
    'epsilon_decay_steps': 'exploration_fraction',
    'epsilon_end': 'exploration_final_eps',
    'epsilon_start': 'exploration_initial_eps',
    'episodes': 'n_eval_episodes num_episodes',
    'eval_episodes': 'n_eval_episodes',
    'eval_frequency': 'eval_freq',
    'explorers': 'num_env_runners num_workers',
    'gamma': 'discount',
    'grad_norm': 'max_grad_norm',
    'lam': 'gae_lambda lambda lambda_',
    'learning_starts': 'random_steps warmup warmup_steps',
    'log_frequency': 'log_interval',
    'lr': 'learning_rate',
    'lr_schedule': 'anneal_lr',
    'max_steps': 'n_timesteps timesteps total_steps total_timesteps',
    'memory': 'lstm_cell_size lstm_hidden_size rnn_hidden_size use_lstm',
    'mini_batches': 'num_minibatches',
    'minibatch_size': 'batch_size sgd_minibatch_size',
    'monitor_session': 'track wandb_project_name',
    'n_envs': 'num_envs',
    'n_steps': 'num_steps rollout_fragment_length',
    'net': 'net_arch policy policy_kwargs',
    'noise_clip': 'target_noise_clip',
    'normalize_advantage': 'norm_adv',
    'normalize_obs': 'norm_obs vec_normalize vecnormalize',
    'normalize_reward': 'norm_reward',
    'opt_epsilon': 'rms_prop_eps',
    'optimizer': 'use_rms_prop',
    'policy_delay': 'policy_frequency',
    'policy_noise_coef': 'target_policy_noise',
    'ppo_epochs': 'n_epochs num_epochs num_sgd_iter update_epochs',
    'sde': 'use_sde',
    'sde_sample_frequency': 'sde_sample_freq',
    'sequence_length': 'max_seq_len',
    'save_seconds': 'save_freq checkpoint_freq',
    'step_noise_coef': 'action_noise exploration_noise',
    'target_kl': 'target_kl_div',
    'target_sync_steps': 'target_network_frequency target_update_interval',
    'tensorboard': 'tensorboard_log',
    'train_frequency': 'train_freq',
    'trial_steps': 'total_timesteps',
    'vector': 'vec_env_cls',
    'value_clip': 'clip_range_vf clip_vloss',
    'value_loss_coef': 'vf_coef vf_loss_coeff',
    'video_frequency': 'capture_video',
}
# agents here, and the agents of other libraries that are nearest to them
_AGENTS = {
    'a2c': 'a3c reinforce',
    'a2c --v-trace': 'impala',
    'dqn --conservative': 'cql',
    'dqn --double': 'ddqn',
    'dqn --double --dueling': 'd3qn',
    'dqn --distribution categorical': 'c51',
    'dqn --distribution quantile': 'qrdqn',
    'dqn --epsilon-ladder --explorers': 'apex',
    'dqn --her, ddpg --her or td3 --her': 'her',
    'ppo': 'maskableppo ppo2',
    'dqn --memory': 'drqn r2d2',
    'ppo --explorers': 'appo',
    'ppo --memory': 'ppolstm recurrentppo',
    'td3-bc': 'td3bc',
}
# attributes of agents and of the package here, and what other libraries call them
_ATTRIBUTES = {
    'agent.act(observations)': 'compute_actions compute_single_action',
    'agent.envs': 'env get_env',
    'agent.envs.action_space': 'action_space',
    'agent.envs.observation_space': 'observation_space',
    'agent.evaluate(episodes=…)': 'evaluate_policy',
    'agent.fit(max_steps=…)': 'learn',
    'agent.save(directory), which includes the replay buffer': 'save_replay_buffer',
    'agent.lr': 'learning_rate',
    'agent.state()': 'get_parameters',
    'agent.steps': 'num_timesteps',
    'her=True in xagents.make': 'HerReplayBuffer',
    'a stage, as in agent.recipe().after': 'BaseCallback',
    'run_dir=… in agent.fit': 'CheckpointCallback Monitor',
    'target_reward=… in agent.fit': 'StopTrainingOnRewardThreshold',
    'seed=… in xagents.make': 'set_random_seed',
    'normalize_obs=True and normalize_reward=True in xagents.make': 'VecNormalize',
    'n_envs=… in xagents.make': 'make_vec_env DummyVecEnv',
    "n_envs=… and vector='async' in xagents.make": 'SubprocVecEnv',
    'eval_frequency=… in agent.fit': 'EvalCallback',
    'xagents.load(directory)': 'load load_replay_buffer from_checkpoint',
    'xagents.load(directory, env=…)': 'set_env',
    'xagents.load(directory, lr=…)': 'set_parameters',
}


def _by_foreign_name(table: dict[str, str]) -> dict[str, list[str]]:
    """Return the names here by each foreign name, in the order of `table`."""
    names: dict[str, list[str]] = {}
    for name, text in table.items():
        for foreign in text.split():
            names.setdefault(foreign, []).append(name)
    return names


# names whose meaning differs from that of the nearest option here
_DEVICE = 'TensorFlow uses a GPU if it finds one; the variable CUDA_VISIBLE_DEVICES=-1 hides it'
_NOTES = {
    'verbose': 'runs show their progress, quiet turns it off',
    'agent': 'the agent is the first argument',
    'deterministic': 'act is greedy unless greedy=False, evaluate and play unless stochastic=True',
    'best_model_save_path': 'run_dir keeps the best weights',
    'eval_env': 'evaluations create environments as training does',
    'reset_num_timesteps': 'max_steps is a total over all calls of fit',
    'tb_log_name': 'tensorboard names a folder',
    'clip_obs': 'normalised observations are clipped to 10',
    'clip_reward': 'normalised rewards are clipped to 10',
    'progress_bar': 'runs show their progress, quiet turns it off',
    **dict.fromkeys(('callback', 'callbacks'), 'a stage sees each iteration: docs/recipes.md'),
    **dict.fromkeys(('cuda', 'device', 'no_cuda', 'num_gpus'), _DEVICE),
}
# names that other commands, or other plots, use for an option of a command
_OF_COMMANDS = {
    'plot': {'x': 'by', 'y': 'column', 'metric': 'column', 'metrics': 'column'},
    'tune': {'max_steps': 'trial_steps', 'run_dir': 'out'},
}
FOREIGN_ATTRIBUTES = {name: ours for ours, text in _ATTRIBUTES.items() for name in text.split()}
FOREIGN_OPTIONS = _by_foreign_name(_OPTIONS)
FOREIGN_AGENTS = {foreign: nearest for foreign, (nearest,) in _by_foreign_name(_AGENTS).items()}


def option_hint(name: str, known: Iterable[str]) -> str:
    """Return ` (did you mean …?)` with the option of `known` that another library calls `name`, else the most similar.

    Args:
        name: a Python name, a key or a flag, with or without dashes in front.
        known: names in the form in which the user sees them.
    """
    names = [*known]
    if _plain(name) in _NOTES:
        return f' ({_NOTES[_plain(name)]})'
    if _plain(name) in FOREIGN_OPTIONS:
        ours = FOREIGN_OPTIONS[_plain(name)]
        here = ' or '.join('--' + one.replace('_', '-') if name.startswith('-') else one for one in ours)
        return foreign_hint(name, names) or f'; other agents have {here} for it'
    # dashes would make all flags similar
    plain = {_plain(one): one for one in names}
    found = nearest(_plain(name), plain, cutoff=0.7)
    return f' (did you mean {plain[found]}?)' if found else ''


def foreign_hint(name: str, known: Iterable[str]) -> str:
    """Return ` (did you mean …?)` with the option of `known` that another library calls `name`, else ''."""
    admitted = {_plain(one): one for one in known}
    ours = next((one for one in FOREIGN_OPTIONS.get(_plain(name), ()) if one in admitted), None)
    return '' if ours is None else f' (did you mean {admitted[ours]}?)'


def attribute_hint(name: str) -> str:
    """Return a hint at what replaces an attribute or a class of another library, with its separator, else ''."""
    plain = name.lower().replace('_', '')
    if name in FOREIGN_ATTRIBUTES:
        return f', expected {FOREIGN_ATTRIBUTES[name]}'
    return f'; the nearest to {name} is {FOREIGN_AGENTS[plain]}' if plain in FOREIGN_AGENTS else ''


def agent_hint(name: str, known: Iterable[str]) -> str:
    """Return a hint at the agent nearest to an agent of other libraries, else at the most similar name."""
    if name.lower().endswith('policy'):
        return '; the first argument is the agent, and --net sets the widths of its network'
    own = FOREIGN_AGENTS.get(name.lower().replace('-', '').replace('_', ''))
    return did_you_mean(name.lower(), known) if own is None else f'; the nearest to {name} is {own}'


def _plain(name: str) -> str:
    return name.lstrip('-').lower().replace('-', '_')


def command_hint(command: str, flag: str) -> str:
    """Return ` (did you mean …?)` with the flag of a command that belongs to another command's flag, else ''."""
    ours = _OF_COMMANDS.get(command, {}).get(_plain(flag))
    return '' if ours is None else f' (did you mean --{ours.replace("_", "-")}?)'
