"""Keyword arguments of functions, for type checkers. Written by docs/write_keywords.py: do not edit."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypedDict


class FitKeywords(TypedDict, total=False):
    """Options of `fit`."""

    max_steps: int | None
    max_time: float | None
    eval_frequency: int | None
    eval_async: bool
    eval_delay: int | None
    eval_episodes: int
    final_episodes: int
    run_dir: str | os.PathLike[str] | None
    save_seconds: float
    checkpoint_frequency: int | None
    keep: int | None
    on_nan: Literal['stop', 'skip']
    overlap: bool
    log_format: Literal['text', 'json']
    video_frequency: int | None
    tensorboard: str | os.PathLike[str] | None
    log_info: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | None
    curriculum: Mapping[str, Any] | None
    curriculum_when: str | os.PathLike[str] | None
    record_dataset: str | os.PathLike[str] | None
    monitor_session: str | os.PathLike[str] | None
    monitor: Literal['wandb', 'trackio']
    cluster: str | os.PathLike[str] | None
    cluster_key: str | os.PathLike[str] | None
    explorers: int | None
    max_lag: int | None
    dataset: str | os.PathLike[str] | None
    fill_from: str | os.PathLike[str] | None
    download: bool
    checkpoints: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | None
    history_checkpoint: str | os.PathLike[str] | None
    plateau_reduce_factor: float
    plateau_reduce_patience: int
    early_stop_patience: int
    divergence_monitoring_steps: int | None
    log_frequency: int | None
    display_precision: int
    quiet: bool
    self_play: bool
    snapshot_frequency: int
    pool: int
    latest: float
    stages: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | None


class RunKeywords(FitKeywords, total=False):
    """Options of `train_iter`."""

    target_reward: float | None


class MakeKeywords(RunKeywords, total=False):
    """Options of `make`, of all built-in agents."""

    n_envs: int
    preprocess: bool | None
    max_frame: bool
    max_episode_steps: int | None
    env_kwargs: Mapping[str, Any] | None
    vector: Literal['auto', 'sync', 'async', 'compiled', 'native', 'envpool']
    frame_stack: int | None
    frame_skip: int | None
    grey: bool
    resize: int | Sequence[int] | None
    clip_rewards: bool
    episodic_life: bool
    fire_reset: bool
    sticky_actions: bool
    wrapper: str | Callable[..., Any] | Sequence[str | Callable[..., Any]] | None
    flatten: bool
    mask_key: str | os.PathLike[str] | None
    critic_only: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | None
    imports: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | None
    agent_index: bool
    net: int | Sequence[int] | None
    activation: Literal['tanh', 'relu', 'elu', 'selu', 'gelu', 'silu', 'sigmoid'] | None
    initializer: Literal['orthogonal', 'glorot_uniform', 'fan_in_uniform'] | None
    normalize_layers: Literal['layer', 'batch', 'none'] | None
    block: Literal['simba'] | None
    memory: int | None
    memory_kind: Literal['gru', 'lstm']
    shared_network: bool
    gamma: float
    lr: float
    opt_epsilon: float
    beta1: float
    beta2: float
    optimizer: Literal['adam', 'rmsprop', 'adamw', 'muon']
    weight_decay: float
    lr_schedule: Literal['constant', 'linear', 'cosine']
    schedule_steps: int | None
    normalize_obs: bool
    normalize_reward: bool
    reward_scale: float
    precision: Literal['float32', 'bfloat16']
    reward_buffer_size: int
    seed: int | None
    n_steps: int
    lam: float
    entropy_coef: float | None
    value_loss_coef: float
    grad_norm: float
    normalize_advantage: bool
    log_std_init: float
    model: str | os.PathLike[str] | None
    sde: bool
    sde_sample_frequency: int
    sde_expln: bool
    v_trace: bool
    buffer_max_size: int
    buffer_initial_size: int | None
    learning_starts: int | None
    buffer_batch_size: int | None
    replay_ratio: float
    trust_region: bool
    delta: float
    ema_alpha: float
    importance_c: float
    epsilon: float
    train_frequency: int
    gradient_steps: int
    fragment_steps: int | None
    n_step: int
    her: bool
    her_strategy: Literal['future', 'final', 'episode']
    her_ratio: float
    actor_model: str | os.PathLike[str] | None
    critic_model: str | os.PathLike[str] | None
    tau: float
    target_entropy: float | None
    policy_delay: int
    noise: Literal['gaussian', 'ornstein-uhlenbeck']
    step_noise_coef: float
    double: bool
    dueling: bool
    prioritized: bool
    priority_alpha: float
    priority_beta: float
    conservative: float
    huber: bool
    munchausen: bool
    munchausen_alpha: float
    munchausen_temperature: float
    distribution: Literal['quantile', 'categorical'] | None
    n_quantiles: int
    n_atoms: int
    value_min: float
    value_max: float
    noisy: bool
    epsilon_start: float | None
    epsilon_end: float
    epsilon_decay_steps: int
    epsilon_ladder: bool
    target_sync_steps: int
    sequence_length: int | None
    burn_in: int
    value_model: str | os.PathLike[str] | None
    expectile: float
    inverse_temperature: float
    max_weight: float
    ppo_epochs: int
    mini_batches: int
    minibatch_size: int | None
    advantage_epsilon: float
    clip_norm: float
    clip_schedule: Literal['constant', 'linear', 'cosine']
    target_kl: float | None
    value_clip: float | None
    epochs: int
    policy_noise_coef: float
    noise_clip: float
    alpha: float
    dropped_quantiles: int
    max_kl: float
    cg_damping: float
    cg_residual_tolerance: float
    cg_iterations: int
    fvp_n_steps: int
    actor_iterations: int
    critic_iterations: int


class LoadKeywords(MakeKeywords, total=False):
    """Options of `load` and `resume`."""

    env: Any


class TuneKeywords(TypedDict, total=False):
    """Options of `tune` and `evolve`. A list is a range."""

    search: bool
    print_search: bool
    n_trials: int
    trial_steps: int
    timeout: float | None
    n_jobs: int
    cluster: str | os.PathLike[str] | None
    study: str | os.PathLike[str] | None
    storage: str | os.PathLike[str] | None
    objective: Literal['reward', 'evaluation']
    eval_episodes: int
    trial_seeds: int
    sampler: Literal['tpe', 'random', 'cmaes', 'gp']
    pruner: Literal['median', 'hyperband', 'none']
    warmup_trials: int
    out: str | os.PathLike[str] | None
    non_silent: bool
    tuned: bool
    published: bool
    weights: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | None
    population: int | None
    exploit_steps: int | None
    exploit: float
    perturb: float | Sequence[float] | None
    resample: float
    final_episodes: int
    n_envs: int | Sequence[int]
    preprocess: bool | None
    max_frame: bool | Sequence[bool]
    max_episode_steps: int | None
    env_kwargs: Mapping[str, Any] | None
    vector: Literal['auto', 'sync', 'async', 'compiled', 'native', 'envpool'] | Sequence[str]
    frame_stack: int | Sequence[int] | None
    frame_skip: int | None
    grey: bool
    resize: int | Sequence[int] | None
    clip_rewards: bool
    episodic_life: bool
    fire_reset: bool
    sticky_actions: bool
    wrapper: str | Callable[..., Any] | Sequence[str | Callable[..., Any]] | None
    flatten: bool
    mask_key: str | os.PathLike[str] | None
    critic_only: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | None
    imports: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | None
    agent_index: bool
    net: int | Sequence[int] | None
    activation: Literal['tanh', 'relu', 'elu', 'selu', 'gelu', 'silu', 'sigmoid'] | Sequence[str] | None
    initializer: Literal['orthogonal', 'glorot_uniform', 'fan_in_uniform'] | Sequence[str] | None
    normalize_layers: Literal['layer', 'batch', 'none'] | Sequence[str] | None
    block: Literal['simba'] | Sequence[str] | None
    memory: int | Sequence[int] | None
    memory_kind: Literal['gru', 'lstm'] | Sequence[str]
    shared_network: bool
    checkpoints: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | None
    history_checkpoint: str | os.PathLike[str] | None
    plateau_reduce_factor: float
    plateau_reduce_patience: int
    early_stop_patience: int
    divergence_monitoring_steps: int | None
    log_frequency: int | None
    display_precision: int
    quiet: bool
    dataset: str | os.PathLike[str] | None
    fill_from: str | os.PathLike[str] | None
    download: bool
    explorers: int | None
    max_lag: int | None
    threads: int | None
    debug: bool
    gamma: float | Sequence[float]
    lr: float | Sequence[float]
    opt_epsilon: float | Sequence[float]
    beta1: float | Sequence[float]
    beta2: float | Sequence[float]
    optimizer: Literal['adam', 'rmsprop', 'adamw', 'muon'] | Sequence[str]
    weight_decay: float | Sequence[float]
    lr_schedule: Literal['constant', 'linear', 'cosine'] | Sequence[str]
    schedule_steps: int | None
    normalize_obs: bool | Sequence[bool]
    normalize_reward: bool | Sequence[bool]
    reward_scale: float | Sequence[float]
    precision: Literal['float32', 'bfloat16']
    reward_buffer_size: int
    seed: int | None
    n_steps: int | Sequence[int]
    lam: float | Sequence[float]
    entropy_coef: float | Sequence[float] | None
    value_loss_coef: float | Sequence[float]
    grad_norm: float | Sequence[float]
    normalize_advantage: bool | Sequence[bool]
    log_std_init: float | Sequence[float]
    model: str | os.PathLike[str] | None
    sde: bool | Sequence[bool]
    sde_sample_frequency: int | Sequence[int]
    sde_expln: bool | Sequence[bool]
    v_trace: bool | Sequence[bool]
    buffer_max_size: int | Sequence[int]
    buffer_initial_size: int | Sequence[int] | None
    learning_starts: int | Sequence[int] | None
    buffer_batch_size: int | Sequence[int] | None
    replay_ratio: float | Sequence[float]
    trust_region: bool | Sequence[bool]
    delta: float | Sequence[float]
    ema_alpha: float | Sequence[float]
    importance_c: float | Sequence[float]
    epsilon: float | Sequence[float]
    train_frequency: int | Sequence[int]
    gradient_steps: int | Sequence[int]
    fragment_steps: int | None
    n_step: int | Sequence[int]
    her: bool
    her_strategy: Literal['future', 'final', 'episode'] | Sequence[str]
    her_ratio: float
    actor_model: str | os.PathLike[str] | None
    critic_model: str | os.PathLike[str] | None
    tau: float | Sequence[float]
    target_entropy: float | None
    policy_delay: int | Sequence[int]
    noise: Literal['gaussian', 'ornstein-uhlenbeck'] | Sequence[str]
    step_noise_coef: float | Sequence[float]
    double: bool | Sequence[bool]
    dueling: bool | Sequence[bool]
    prioritized: bool | Sequence[bool]
    priority_alpha: float
    priority_beta: float
    conservative: float | Sequence[float]
    huber: bool | Sequence[bool]
    munchausen: bool | Sequence[bool]
    munchausen_alpha: float
    munchausen_temperature: float
    distribution: Literal['quantile', 'categorical'] | Sequence[str] | None
    n_quantiles: int
    n_atoms: int
    value_min: float
    value_max: float
    noisy: bool | Sequence[bool]
    epsilon_start: float | Sequence[float] | None
    epsilon_end: float | Sequence[float]
    epsilon_decay_steps: int | Sequence[int]
    epsilon_ladder: bool | Sequence[bool]
    target_sync_steps: int | Sequence[int]
    sequence_length: int | Sequence[int] | None
    burn_in: int
    value_model: str | os.PathLike[str] | None
    expectile: float | Sequence[float]
    inverse_temperature: float | Sequence[float]
    max_weight: float | Sequence[float]
    ppo_epochs: int | Sequence[int]
    mini_batches: int | Sequence[int]
    minibatch_size: int | Sequence[int] | None
    advantage_epsilon: float | Sequence[float]
    clip_norm: float | Sequence[float]
    clip_schedule: Literal['constant', 'linear', 'cosine']
    target_kl: float | None
    value_clip: float | None
    epochs: int | Sequence[int]
    policy_noise_coef: float | Sequence[float]
    noise_clip: float | Sequence[float]
    alpha: float | Sequence[float]
    dropped_quantiles: int | Sequence[int]
    max_kl: float | Sequence[float]
    cg_damping: float | Sequence[float]
    cg_residual_tolerance: float | Sequence[float]
    cg_iterations: int | Sequence[int]
    fvp_n_steps: int | Sequence[int]
    actor_iterations: int | Sequence[int]
    critic_iterations: int | Sequence[int]
