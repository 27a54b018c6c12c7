"""Train with ten mistakes and without, and let `xagents doctor` read the runs: `python -m benchmarks.learning.doctor`.

The set-ups and the causes to be named were written by somebody who had not read the checks of `xagents doctor`.
"""

import argparse
import functools
import json
import re
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks import jobs, tables
from benchmarks.jobs import Job
from benchmarks.processes import launch
from benchmarks.venvs import REPOSITORY, XAGENTS
from benchmarks.workers.measure import versions

PACKAGES = ('xagents', 'tensorflow', 'keras', 'gymnasium', 'numpy')


class SetUp(NamedTuple):
    """A training.

    Args:
        command: words after `xagents train`.
        limit: mean reward of the last episodes that a working run exceeds, and a broken one does not reach.
        cause: of a broken one, in plain words.
        named: regular expression; the cause is named if a line of the doctor contains it.
    """

    command: str
    limit: float
    cause: str = ''
    named: str = ''


FAULTY = '--wrapper benchmarks.envs.faulty'
BROKEN = {
    'reward scale 1e6': SetUp(
        f'sac --env Pendulum-v1 --tuned --max-steps 5000 {FAULTY}:Rewards factor=1000000', -400e6,
        'rewards are too large', '--normalize-reward|--reward-scale',
    ),
    'learning rate 1': SetUp(
        'dqn --env CartPole-v1 --tuned --lr 1 --max-steps 20000', 100, 'the learning rate is too large',
        'learning rate|--lr',
    ),
    'sparse reward': SetUp(
        f'ppo --env MountainCar-v0 --tuned --max-steps 60000 {FAULTY}:Goal', 0.5,
        'the reward is always 0: exploration does not find the goal', 'reward.*(0|never|rare|sparse)',
    ),
    'unnormalised observations': SetUp(
        'a2c --env CartPole-v1 --tuned --max-steps 60000 '
        f'{FAULTY}:Units scale=[1000,1000,57,57] offset=[5000,0,0,0]', 100,
        'observations are large and have different scales', '--normalize-obs',
    ),
    'γ too small': SetUp(
        'trpo --env MountainCarContinuous-v0 --tuned --gamma 0.5 --max-steps 30000', 50,
        'γ is too small for the length of the episodes', '--gamma',
    ),
    'entropy collapse': SetUp(
        'a2c --env LunarLander-v3 --n-envs 8 --lr 0.02 --entropy-coef 0 --max-steps 60000', -50,
        'the policy became deterministic early: the entropy is nearly 0', 'entropy',
    ),
    'entropy bonus too large': SetUp(
        'ppo --env CartPole-v1 --tuned --entropy-coef 1 --max-steps 50000', 100,
        'the policy stays random: the entropy bonus is too large', 'entropy',
    ),
    'ε decays after the run': SetUp(
        'dqn --env LunarLander-v3 --n-envs 4 --train-frequency 4 --max-steps 20000', -100,
        'most actions are random until the end: ε decays too slowly', '--epsilon',
    ),
    'policy steps too large': SetUp(
        'ppo --env BipedalWalker-v3 --n-envs 8 --n-steps 256 --ppo-epochs 30 --clip-norm 5 --normalize-obs '
        '--normalize-reward --max-steps 60000', -50,
        'a rollout changes the policy too much: too many epochs, or clip range too wide',
        '--ppo-epochs|--clip-norm|--target-kl',
    ),
    'learning never starts': SetUp(
        'td3 --env Pendulum-v1 --tuned --max-steps 8000', -600,
        'there are no updates: the replay buffer is never full enough', '--buffer-initial-size|--learning-starts',
    ),
}  # fmt: skip
HEALTHY = {
    'PPO, CartPole': SetUp('ppo --env CartPole-v1 --tuned --max-steps 50000', 100),
    'PPO, Acrobot': SetUp('ppo --env Acrobot-v1 --tuned --max-steps 60000', -200),
    'PPO, MountainCarContinuous': SetUp('ppo --env MountainCarContinuous-v0 --tuned', 50),
    'PPO, Pendulum': SetUp('ppo --env Pendulum-v1 --tuned --max-steps 80000', -700),
    'A2C, CartPole': SetUp('a2c --env CartPole-v1 --tuned --max-steps 100000', 100),
    'DQN, CartPole': SetUp('dqn --env CartPole-v1 --tuned --max-steps 30000', 100),
    'TRPO, CartPole': SetUp('trpo --env CartPole-v1 --tuned --max-steps 40000', 100),
    'TRPO, LunarLander': SetUp('trpo --env LunarLander-v3 --tuned --max-steps 100000', -50),
    'SAC, Pendulum': SetUp('sac --env Pendulum-v1 --tuned --max-steps 6000', -700),
    'TD3, Pendulum': SetUp('td3 --env Pendulum-v1 --tuned --buffer-initial-size 1000 --max-steps 8000', -700),
}
SETUPS = {**BROKEN, **HEALTHY}
