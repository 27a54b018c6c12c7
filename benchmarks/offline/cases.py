"""The cases of the benchmark of offline learning: data sets, the commands that make them, settings and updates."""

from dataclasses import dataclass
from typing import Any

ALGORITHMS = ('bc', 'td3-bc', 'iql')
SEEDS = (1, 2, 3)
EPISODES = 100

# the settings of every library; an algorithm ignores those of the others
SETTINGS: dict[str, Any] = {
    **{'units': [256, 256], 'batch_size': 256, 'lr': 3e-4, 'optimizer_epsilon': 1e-8, 'gamma': 0.99, 'tau': 0.005},
    **{'alpha': 2.5, 'policy_delay': 2, 'policy_noise': 0.2, 'noise_clip': 0.5},  # TD3+BC
    **{'expectile': 0.7, 'temperature': 3.0, 'max_weight': 100.0},  # IQL
}


@dataclass(frozen=True)
class DataSet:
    """One data set.

    Args:
        name: id of the data set.
        env: id of the environment for evaluation.
        commands: arguments of `xagents` that make the data set, in order.
        updates: number of updates for each algorithm.
    """

    name: str
    env: str
    commands: tuple[str, ...]
    updates: dict[str, int]


TD3 = '--lr 1e-3 --train-frequency 8 --gradient-steps 8 --threads 1'
PENDULUM = '--env Pendulum-v1 --buffer-max-size 20000 --learning-starts 500 --buffer-batch-size 128 --gamma 0.98'
CHEETAH = '--env HalfCheetah-v5 --buffer-max-size 50000 --learning-starts 2000 --buffer-batch-size 128'
DATASETS = (
    DataSet('pendulum/medium-v0', 'Pendulum-v1', (
        f'train td3 {PENDULUM} {TD3} --net 64 64 --max-steps 6000 --seed 1 --run-dir runs/pendulum',
        'record --run-dir runs/pendulum --dataset pendulum/medium-v0 --episodes 100 --stochastic '
        '--step-noise-coef 0.3 --random-actions 0.25 --seed 1',
    ), {'bc': 4_000, 'td3-bc': 6_000, 'iql': 6_000}),
    DataSet('pendulum/mixed-v0', 'Pendulum-v1', (
        f'train td3 {PENDULUM} {TD3} --net 64 64 --max-steps 20000 --seed 2 --run-dir runs/pendulum-mixed '
        '--record-dataset pendulum/mixed-v0',
    ), {'bc': 2_000, 'td3-bc': 3_000, 'iql': 3_000}),
    DataSet('lunar/medium-v0', 'LunarLanderContinuous-v3', (
        'train ppo --env LunarLanderContinuous-v3 --tuned --max-steps 400000 --target-reward 75 --seed 1 '
        '--threads 1 --run-dir runs/lunar',
        'record --run-dir runs/lunar --checkpoint last --dataset lunar/medium-v0 --episodes 200 --stochastic --seed 1',
    ), {'bc': 2_000, 'td3-bc': 3_000, 'iql': 3_000}),
    DataSet('halfcheetah/medium-v0', 'HalfCheetah-v5', (
        f'train td3 {CHEETAH} {TD3} --net 128 128 --reward-buffer-size 5 --target-reward 2500 --max-steps 100000 '
        '--seed 1 --run-dir runs/halfcheetah',
        'record --run-dir runs/halfcheetah --checkpoint last --dataset halfcheetah/medium-v0 --episodes 100 '
        '--stochastic --seed 1',
    ), {'bc': 2_000, 'td3-bc': 2_000, 'iql': 2_000}),
)  # fmt: skip


def settings_of(algorithm: str) -> dict[str, Any]:
    """Return the settings of one algorithm. Observations are standardised if its paper does so."""
    return {'algorithm': algorithm, 'standardise': algorithm == 'td3-bc', **SETTINGS}
