"""What is learned and how well it has to be: tuned settings of rl-baselines3-zoo, and the scores published for them.

The entries stand in Stable-Baselines3's names, as `hyperparams/*.yml` of rl-baselines3-zoo has them at commit 22e3ff2
of 2026-04-23, so that they can be compared line by line; `translate` makes xagents' options of them. The goals are the
means of `benchmark.md` there, each of one training run, for some with an older version of the environment.
"""

from __future__ import annotations

import dataclasses
import shlex
from dataclasses import dataclass
from typing import Any

from benchmarks.translation import left_out, translate


@dataclass(frozen=True)
class LearningCase:
    """One row of the table.

    Args:
        name: what `--only` takes.
        agent: whom to train.
        env: where.
        steps: how long.
        options: of `xagents.make`; those not given are defaults.
        floor: the median that is asked.
        goal: the mean that tuned agents are published with.
        scored_on: the environment of that score, where it is another version.
        changed: what is not as published, for the table.
        seeds: one run each, when `--seeds` names no others.
        listed: only its settings are given; it is run when it is named.
    """

    name: str
    agent: str
    env: str
    steps: int
    options: dict[str, Any] = dataclasses.field(default_factory=dict)
    floor: float | None = None
    goal: float | None = None
    scored_on: str = ''
    changed: str = ''
    seeds: tuple[int, ...] = (1, 2, 3)
    listed: bool = False

    def command(self, seed: int) -> str:
        """The command that trains the same, as one types it."""
        words = ['xagents', 'train', self.agent, '--env', self.env, '--max-steps', str(self.steps)]
        for name, value in self.options.items():
            flag = f'--{name.replace("_", "-")}'
            if isinstance(value, bool):
                words.append(flag if value else flag.replace('--', '--no-', 1))
            else:
                words += [flag, *map(str, value if isinstance(value, list) else [value])]
        return shlex.join([*words, '--seed', str(seed)])


def tuned(case: LearningCase, suffix: str, changed: str, **options: Any) -> LearningCase:
    """The same with some options of our own, which stand beside the published ones."""
    options = {**case.options, **options}
    return dataclasses.replace(case, name=f'{case.name}-{suffix}', options=options, changed=changed)


def with_linear_rate(case: LearningCase) -> LearningCase:
    """The same with a learning rate that goes to 0: last weights that do not depend on the moment of the end."""
    return tuned(case, 'linear', 'learning rate to 0', lr_schedule='linear')


def zoo(
    agent: str,
    env: str,
    steps: int,
    entry: dict[str, Any],
    goal: float | None,
    images: bool = False,
    **fields: Any,
) -> LearningCase:
    """A case with the settings of one entry; its name is made of the agent's and the environment's."""
    name = f'{agent}-{env.split("-")[0].removesuffix("NoFrameskip").lower()}'
    options = translate(agent, steps, entry, images)
    return LearningCase(name, agent, env, steps, options, goal=goal, changed=left_out(agent, entry), **fields)


LUNAR_LANDER = {
    'learning_rate': 0.00063, 'batch_size': 128, 'buffer_size': 50_000, 'learning_starts': 0, 'gamma': 0.99,
    'target_update_interval': 250, 'train_freq': 4, 'gradient_steps': -1, 'exploration_fraction': 0.12,
    'exploration_final_eps': 0.1, 'net_arch': (256, 256),
}  # fmt: skip
PENDULUM = {'gamma': 0.98, 'buffer_size': 200_000, 'learning_starts': 10_000}
MUJOCO = {'learning_starts': 10_000}
ATARI = {
    'buffer_size': 100_000, 'learning_rate': 1e-4, 'batch_size': 32, 'learning_starts': 100_000,
    'target_update_interval': 1000, 'train_freq': 4, 'gradient_steps': 1, 'exploration_fraction': 0.1,
    'exploration_final_eps': 0.01,
}  # fmt: skip
TD3_MUJOCO_SCORES = {'HalfCheetah': 9655.7, 'Hopper': 3606.4, 'Walker2d': 4717.8, 'Ant': 5813.3}
DQN_ATARI_SCORES = {
    'Pong': 20.6, 'Breakout': 358.3, 'BeamRider': 4295.9, 'Qbert': 9496.8, 'SpaceInvaders': 622.7, 'Seaquest': 2000.3,
    'Enduro': 830.9, 'MsPacman': 2682.9, 'Asteroids': 782.7, 'RoadRunner': 40396.3,
}  # fmt: skip
# Keras adds rmsprop's epsilon inside the root, as TensorFlow's does, which these entries ask for
A2C_ATARI = {'n_envs': 16, 'ent_coef': 0.01, 'vf_coef': 0.25}
A2C_ATARI_SCORES = {
    'Pong': 17.3, 'Breakout': 279.8, 'BeamRider': 2890.3, 'Qbert': 3882.3, 'SpaceInvaders': 627.2, 'Seaquest': 1721.5,
    'Enduro': 0.0, 'MsPacman': 1671.7, 'Asteroids': 1286.5, 'RoadRunner': 31671.5,
}  # fmt: skip
A2C_CONTINUOUS = {
    'normalize': True, 'ent_coef': 0.0, 'max_grad_norm': 0.5, 'n_steps': 8, 'gae_lambda': 0.9, 'vf_coef': 0.4,
    'use_rms_prop': True, 'normalize_advantage': False, 'use_sde': True, 'log_std_init': -2, 'ortho_init': False,
}  # fmt: skip
A2C_MUJOCO_SCORES = {'HalfCheetah': 3041.2, 'Hopper': 733.5, 'Walker2d': 581.8, 'Ant': -44.0}
TRPO_MUJOCO = {
    'n_envs': 2, 'normalize': True, 'batch_size': 128, 'n_steps': 1024, 'gamma': 0.99, 'gae_lambda': 0.95,
    'sub_sampling_factor': 1, 'cg_max_steps': 25, 'cg_damping': 0.1, 'n_critic_updates': 20, 'learning_rate': 0.001,
}  # fmt: skip
TRPO_MUJOCO_SCORES = {'Hopper': 3618.4, 'Walker2d': 4933.1, 'Ant': 4982.3}
# xagents' own: with rewards that are not normalised, Q values of some 100 drown the policy, and old rollouts do harm
ACER = {
    'n_envs': 8, 'lr_schedule': 'linear', 'normalize_reward': True, 'buffer_max_size': 50_000,
    'buffer_initial_size': 5_000,
}  # fmt: skip
TRPO_MOUNTAIN_CAR = zoo(
    'trpo',
    'MountainCarContinuous-v0',
    50_000,
    {'n_envs': 2, 'normalize': True, 'use_sde': True, 'sde_sample_freq': 4},
    goal=92.5,
    floor=88,
)
TRPO_LUNAR_LANDER = zoo(
    'trpo',
    'LunarLander-v3',
    200_000,
    {
        'n_envs': 2, 'n_steps': 512, 'cg_damping': 0.01, 'gae_lambda': 0.98, 'gamma': 0.99, 'learning_rate': 0.001,
        'n_critic_updates': 15,
    },
    goal=133.2,
    floor=100,
    scored_on='LunarLander-v2',
)  # fmt: skip

CASES = (
    zoo(
        'dqn',
        'CartPole-v1',
        50_000,
        {
            'learning_rate': 0.0023, 'batch_size': 64, 'buffer_size': 100_000, 'learning_starts': 1000, 'gamma': 0.99,
            'target_update_interval': 10, 'train_freq': 256, 'gradient_steps': 128, 'exploration_fraction': 0.16,
            'exploration_final_eps': 0.04, 'net_arch': (256, 256),
        },
        goal=500,
        floor=475,
    ),
    zoo(
        'dqn',
        'MountainCar-v0',
        120_000,
        {
            'learning_rate': 0.004, 'batch_size': 128, 'buffer_size': 10_000, 'learning_starts': 1000, 'gamma': 0.98,
            'target_update_interval': 600, 'train_freq': 16, 'gradient_steps': 8, 'exploration_fraction': 0.2,
            'exploration_final_eps': 0.07, 'net_arch': (256, 256),
        },
        goal=-101,
        floor=-130,
    ),
    zoo('dqn', 'LunarLander-v3', 100_000, LUNAR_LANDER, goal=154, floor=110, scored_on='LunarLander-v2'),
    with_linear_rate(
        zoo('dqn', 'LunarLander-v3', 100_000, LUNAR_LANDER, goal=154, floor=110, scored_on='LunarLander-v2')
    ),
    zoo('td3', 'Pendulum-v1', 20_000, PENDULUM, goal=-152, floor=-145),
    zoo('ddpg', 'Pendulum-v1', 20_000, PENDULUM, goal=-152, floor=-145),
    zoo(
        'td3',
        'MountainCarContinuous-v0',
        300_000,
        {'noise_type': 'ornstein-uhlenbeck', 'noise_std': 0.5},
        goal=93,
        seeds=(1,),
        listed=True,
    ),
    *(
        zoo(agent, env, steps, PENDULUM, goal, scored_on=scored_on, listed=True)
        for agent, env, steps, goal, scored_on in (
            ('td3', 'LunarLanderContinuous-v3', 300_000, 207.5, 'LunarLanderContinuous-v2'),
            ('ddpg', 'LunarLanderContinuous-v3', 300_000, 230.2, 'LunarLanderContinuous-v2'),
            ('td3', 'BipedalWalker-v3', 1_000_000, 306.0, ''),
            ('ddpg', 'BipedalWalker-v3', 1_000_000, 197.5, ''),
        )
    ),
    *(
        zoo('td3', f'{name}-v5', 1_000_000, MUJOCO, score, scored_on=f'{name}-v3', listed=True)
        for name, score in TD3_MUJOCO_SCORES.items()
    ),
    *(zoo('ddpg', f'{name}-v5', 1_000_000, MUJOCO, None, listed=True) for name in TD3_MUJOCO_SCORES),
    *(
        zoo('dqn', f'{game}NoFrameskip-v4', 10_000_000, ATARI, score, images=True, listed=True)
        for game, score in DQN_ATARI_SCORES.items()
    ),
    zoo(
        'trpo',
        'CartPole-v1',
        100_000,
        {
            'n_envs': 2, 'n_steps': 512, 'batch_size': 512, 'cg_damping': 0.001, 'gae_lambda': 0.98, 'gamma': 0.99,
            'learning_rate': 0.001, 'n_critic_updates': 20,
        },
        goal=500,
        floor=475,
    ),
    TRPO_MOUNTAIN_CAR,
    # without gSDE's noise, which lasts for some steps, more of it is needed to ever see the goal
    tuned(TRPO_MOUNTAIN_CAR, 'noise', 'no gSDE, wider noise, shorter rollouts', log_std_init=1.0, n_steps=1024),
    zoo(
        'trpo',
        'Pendulum-v1',
        100_000,
        {'n_envs': 2, 'n_steps': 1024, 'gamma': 0.9, 'n_critic_updates': 15, 'use_sde': True, 'sde_sample_freq': 4},
        goal=-174.6,
        floor=-200,
    ),
    TRPO_LUNAR_LANDER,
    tuned(
        TRPO_LUNAR_LANDER,
        'normalized',
        'observations and rewards normalised, twice the trust region',
        normalize_obs=True,
        normalize_reward=True,
        max_kl=0.02,
    ),
    zoo(
        'trpo',
        'HalfCheetah-v5',
        1_000_000,
        {**TRPO_MUJOCO, 'target_kl': 0.04},
        goal=1785.5,
        floor=1500,
        scored_on='HalfCheetah-v3',
        seeds=(1,),
    ),
    *(
        zoo('trpo', f'{name}-v5', 1_000_000, TRPO_MUJOCO, score, scored_on=f'{name}-v3', listed=True)
        for name, score in TRPO_MUJOCO_SCORES.items()
    ),
    zoo('trpo', 'BipedalWalker-v3', 1_000_000, TRPO_MUJOCO, 182.3, listed=True),
    zoo(
        'trpo',
        'MountainCar-v0',
        100_000,
        {'n_envs': 2, 'normalize': True, 'n_steps': 1024, 'n_critic_updates': 20},
        goal=-107.3,
        listed=True,
    ),
    zoo('trpo', 'Acrobot-v1', 100_000, {'n_envs': 2, 'normalize': True, 'n_steps': 1024}, goal=-83.1, listed=True),
    # the score is that of 200 000 steps; the entry has come down to 100 000 since
    zoo(
        'trpo',
        'LunarLanderContinuous-v3',
        200_000,
        {'n_envs': 2, 'normalize': True, 'n_steps': 1024, 'n_critic_updates': 20},
        goal=262.4,
        scored_on='LunarLanderContinuous-v2',
        listed=True,
    ),
    zoo('a2c', 'CartPole-v1', 500_000, {'n_envs': 8, 'ent_coef': 0.0}, goal=500),
    zoo('a2c', 'Acrobot-v1', 500_000, {'n_envs': 16, 'normalize': True, 'ent_coef': 0.0}, goal=-83.4),
    zoo(
        'a2c',
        'LunarLander-v3',
        200_000,
        {'n_envs': 8, 'gamma': 0.995, 'n_steps': 5, 'learning_rate': 'lin_0.00083', 'ent_coef': 1e-5},
        goal=155.8,
        scored_on='LunarLander-v2',
    ),
    zoo(
        'a2c', 'MountainCar-v0', 1_000_000, {'n_envs': 16, 'normalize': True, 'ent_coef': 0.0}, goal=-111.3, listed=True
    ),
    zoo(
        'a2c',
        'MountainCarContinuous-v0',
        100_000,
        {
            'n_envs': 4, 'normalize': True, 'n_steps': 100, 'ent_coef': 0.0, 'use_sde': True, 'sde_sample_freq': 16,
            'log_std_init': 0.0, 'ortho_init': False,
        },
        goal=91.2,
        listed=True,
    ),
    zoo(
        'a2c',
        'Pendulum-v1',
        1_000_000,
        {**A2C_CONTINUOUS, 'n_envs': 8, 'gamma': 0.9, 'learning_rate': 'lin_7e-4'},
        goal=-163.0,
        listed=True,
    ),
    zoo(
        'a2c',
        'LunarLanderContinuous-v3',
        5_000_000,
        {**A2C_CONTINUOUS, 'n_envs': 4, 'gamma': 0.99, 'learning_rate': 'lin_7e-4'},
        goal=84.2,
        scored_on='LunarLanderContinuous-v2',
        listed=True,
    ),
    zoo(
        'a2c',
        'BipedalWalker-v3',
        5_000_000,
        {**A2C_CONTINUOUS, 'n_envs': 16, 'gamma': 0.99, 'learning_rate': 'lin_0.00096'},
        goal=299.8,
        listed=True,
    ),
    *(
        zoo('a2c', f'{name}-v5', 1_000_000, {'normalize': True}, score, scored_on=f'{name}-v3', listed=True)
        for name, score in A2C_MUJOCO_SCORES.items()
    ),
    *(
        zoo('a2c', f'{game}NoFrameskip-v4', 10_000_000, A2C_ATARI, score, images=True, listed=True)
        for game, score in A2C_ATARI_SCORES.items()
    ),
    # nobody has published settings of ACER; A2C's scores with as many steps stand beside it
    LearningCase('acer-cartpole', 'acer', 'CartPole-v1', 200_000, ACER, floor=475),
    LearningCase('acer-acrobot', 'acer', 'Acrobot-v1', 500_000, ACER, floor=-90, goal=-83),
    LearningCase(
        'acer-lunarlander',
        'acer',
        'LunarLander-v3',
        200_000,
        {
            **ACER, 'n_envs': 4, 'gamma': 0.995, 'entropy_coef': 0.001, 'normalize_obs': True,
            'normalize_advantage': True,
        },
    ),
)  # fmt: skip


def find_cases(names: list[str] | None) -> list[LearningCase]:
    """Return the cases of these names; those that are not merely listed when there are none.

    A name also stands for the cases that begin with it and are not merely listed: `dqn` for three.

    Raises:
        ValueError: naming what was not found, and what there is.
    """
    if not names:
        return [case for case in CASES if not case.listed]
    found: list[LearningCase] = []
    for name in names:
        exact = [case for case in CASES if case.name == name]
        matches = exact or [case for case in CASES if case.name.startswith(name) and not case.listed]
        if not matches:
            raise ValueError(f'--only: got {name}, admits {", ".join(case.name for case in CASES)}')
        found += [case for case in matches if case not in found]
    return found
