"""What is learned and how well it has to be: tuned settings of rl-baselines3-zoo, and the scores published for them.

The entries stand in Stable-Baselines3's names, as `hyperparams/*.yml` of rl-baselines3-zoo has them at commit 22e3ff2
of 2026-04-23, so that they can be compared line by line; `translate` makes xagents' options of them. The goals are the
means of `benchmark.md` there, each of one training run, for some with an older version of the environment.
"""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
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
NOISE = {'normal': 'gaussian', 'ornstein-uhlenbeck': 'ornstein-uhlenbeck'}


def translate(agent: str, steps: int, entry: Mapping[str, Any], images: bool = False) -> dict[str, Any]:
    """Make xagents' options of an entry for one environment.

    Args:
        agent: dqn, ddpg or td3.
        steps: of the whole run, of which ε decays for a fraction.
        entry: in Stable-Baselines3's names; its defaults stand in for what is not there.
        images: leave the network to xagents, whose convolutional one is the same.

    Raises:
        ValueError: for a name that has no translation, so that none is lost.
    """
    unknown = entry.keys() - DEFAULTS[agent].keys()
    if unknown:
        raise ValueError(f'{agent}: no translation of {", ".join(sorted(unknown))}')
    whole = {**DEFAULTS[agent], **entry}
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


def with_linear_rate(case: LearningCase) -> LearningCase:
    """The same with a learning rate that goes to 0: last weights that do not depend on the moment of the end."""
    options = {**case.options, 'lr_schedule': 'linear'}
    return dataclasses.replace(case, name=f'{case.name}-linear', options=options, changed='learning rate to 0')


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
    return LearningCase(name, agent, env, steps, translate(agent, steps, entry, images), goal=goal, **fields)


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
MUJOCO_SCORES = {'HalfCheetah': 9655.7, 'Hopper': 3606.4, 'Walker2d': 4717.8, 'Ant': 5813.3}
ATARI_SCORES = {
    'Pong': 20.6, 'Breakout': 358.3, 'BeamRider': 4295.9, 'Qbert': 9496.8, 'SpaceInvaders': 622.7, 'Seaquest': 2000.3,
    'Enduro': 830.9, 'MsPacman': 2682.9, 'Asteroids': 782.7, 'RoadRunner': 40396.3,
}  # fmt: skip

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
        for name, score in MUJOCO_SCORES.items()
    ),
    *(zoo('ddpg', f'{name}-v5', 1_000_000, MUJOCO, None, listed=True) for name in MUJOCO_SCORES),
    *(
        zoo('dqn', f'{game}NoFrameskip-v4', 10_000_000, ATARI, score, images=True, listed=True)
        for game, score in ATARI_SCORES.items()
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
