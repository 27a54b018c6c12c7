"""Train agents with memory, also in comparison with sb3-contrib: `python -m benchmarks.learning.memory`."""

import argparse
import functools
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import jobs, tables
from benchmarks.jobs import Log, Part
from benchmarks.learning.trainings import EPISODES, Case, measure_cases, render_cases
from benchmarks.processes import THREADS, module, work
from benchmarks.venvs import REPOSITORY

PACKAGES = ('xagents', 'tensorflow', 'keras', 'gymnasium', 'numpy')
RECALL = {
    **{'agent_id': 'ppo', 'env': 'tests.memory_problems:Recall-v0', 'n_envs': 16, 'n_steps': 128, 'net': [32]},
    **{'lr': 3e-3, 'memory': 32},
}


def recall(delay: int, **options: Any) -> dict[str, Any]:
    """Return the settings of a run that recalls a cue after some steps."""
    return {**RECALL, 'env_kwargs': {'delay': delay}, **options}


# options and steps
OTHERS: dict[str, tuple[dict[str, Any], int]] = {
    'a2c': ({'n_steps': 16}, 100_000),
    'pqn': ({'n_steps': 32, 'lr': 2e-3, 'epsilon_decay_steps': 50_000}, 100_000),
    'dqn': (
        {
            **{'n_envs': 8, 'lr': 1e-3, 'epsilon_decay_steps': 20_000, 'double': True, 'buffer_max_size': 50_000},
            **{'buffer_initial_size': 1000, 'train_frequency': 64, 'gradient_steps': 8, 'target_sync_steps': 500},
        },
        50_000,
    ),
}
BASE = {name: value for name, value in RECALL.items() if name != 'n_steps'}
RECALLS = {
    'PPO, 10 steps': Case('1.0', recall(10), 50_000),
    'PPO, 10 steps, without memory': Case('0.5', recall(10, memory=None), 50_000),
    'PPO, 50 steps': Case('≥ 0.95', recall(50), 150_000),
    'PPO, 50 steps, LSTM': Case('', recall(50, memory_kind='lstm'), 150_000),
    'PPO, 50 steps, without memory': Case('0.5', recall(50, memory=None), 150_000),
    **{
        f'{name.upper()}, 10 steps': Case('', {**BASE, 'env_kwargs': {'delay': 10}, **own, 'agent_id': name}, steps)
        for name, (own, steps) in OTHERS.items()
    },
}
PPO = {'net': [64], 'activation': 'relu', 'memory': 64, 'memory_kind': 'lstm', 'opt_epsilon': 1e-5}
# the settings of RL Zoo for RecurrentPPO: minibatches of transitions, which are sequences here
VELOCITIES: dict[str, dict[str, Any]] = {
    'CartPole': {
        'env': 'CartPole-v1', 'elements': [0, 2], 'steps': 100_000, 'floor': 475,
        'settings': {
            **PPO, 'n_envs': 8, 'n_steps': 32, 'minibatch_size': 256, 'ppo_epochs': 20, 'lam': 0.8, 'gamma': 0.98,
            'entropy_coef': 0.0, 'lr': 1e-3, 'lr_schedule': 'linear', 'clip_norm': 0.2, 'clip_schedule': 'linear',
            'normalize_obs': True, 'normalize_reward': True, 'value_loss_coef': 0.5, 'grad_norm': 0.5,
        },
    },
    'Pendulum': {
        'env': 'Pendulum-v1', 'elements': [0, 1], 'steps': 100_000, 'floor': -220,
        'settings': {
            **PPO, 'n_envs': 4, 'n_steps': 1024, 'minibatch_size': 128, 'ppo_epochs': 10, 'lam': 0.95, 'gamma': 0.9,
            'entropy_coef': 0.0, 'lr': 1e-3, 'clip_norm': 0.2, 'sde': True, 'sde_sample_frequency': 4,
            'value_loss_coef': 0.5, 'grad_norm': 0.5,
        },
        'ours': {'sequence_length': 32},
    },
    'MountainCarContinuous': {
        'env': 'MountainCarContinuous-v0', 'elements': [0], 'steps': 300_000, 'floor': 90,
        'settings': {
            **PPO, 'memory': 32, 'n_envs': 8, 'n_steps': 1024, 'minibatch_size': 256, 'ppo_epochs': 10, 'lam': 0.9,
            'gamma': 0.9999, 'entropy_coef': 0.00429, 'lr': 7.77e-5, 'clip_norm': 0.1, 'sde': True,
            'sde_sample_frequency': 8, 'value_loss_coef': 0.19, 'grad_norm': 5.0, 'normalize_obs': True,
            'normalize_reward': False,
        },
        'ours': {'sequence_length': 64},
    },
}  # fmt: skip
# rows of a table: the worker, and options that only xagents has
OURS, GRU, PEER = 'xagents', 'xagents, GRU', 'RecurrentPPO'
WORKERS = {OURS: 'memory_worker', GRU: 'memory_worker', PEER: 'recurrent_worker'}


def measure_velocities(name: str, folder: Path, options: argparse.Namespace, log: Log) -> dict[str, Any]:
    """Train both libraries in turn, with every seed."""
    own, peer = Path(sys.executable).absolute(), jobs.find_peer('sb3', options)
    case, runs = VELOCITIES[name], dict[str, list[Any]]()
    for i, seed in enumerate(options.seeds[: 1 if options.quick else None]):
        for row, worker in WORKERS.items():
            if row == PEER and i >= options.peer_seeds:
                continue
            further = {} if row == PEER else {**case.get('ours', {}), **({'memory_kind': 'gru'} if row == GRU else {})}
            job = {'env': case['env'], 'elements': case['elements'], 'settings': {**case['settings'], **further}}
            job |= {'steps': 20_000 if options.quick else case['steps'], 'seed': seed, 'episodes': EPISODES}
            command = module(f'workers.{worker}', job, peer if row == PEER else own)
            runs.setdefault(row, []).append(work(command, 7200, dict.fromkeys(THREADS, '1')))
            result = runs[row][-1]
            log(f'{row}, seed {seed}: {result["mean"]:.1f}, {result["steps"] / result["seconds"]:.0f} steps/s')
    return {'steps': case['steps'], 'floor': case['floor'], 'runs': runs}


def render_velocities(found: dict[str, Any]) -> str:
    """Return the table of scores and speeds."""
    runs = found['runs']
    speeds = {row: [run['steps'] / run['seconds'] for run in own] for row, own in runs.items()}
    ratios = [ours / theirs for ours, theirs in zip(speeds[OURS], speeds[PEER], strict=False)]
    rows = [
        [
            *(row, tables.number(found['steps']), ', '.join(f'{run["mean"]:.1f}' for run in own)),
            f'{statistics.median(run["mean"] for run in own):.1f}',
            *(str(found['floor']), tables.number(statistics.median(speeds[row]))),
        ]
        for row, own in runs.items()
    ]
    below = (
        f'One number for each seed: {EPISODES} greedy episodes with the last weights. All rows have equal settings, '
        'those of RL Zoo for RecurrentPPO: a recurrent and a dense layer for actor and critic each, LSTMs in the first '
        'and the last row. The LSTM is the first layer of RecurrentPPO, and the last hidden one of xagents. Steps per '
        'second are those of the same runs with one thread, without start-up. xagents with LSTMs has '
        f'{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f}) times the speed.'
    )
    return tables.markdown(['', 'steps', 'mean reward', 'median', 'required', 'steps/s'], rows, below)


BELOW = f'One number for each seed: {EPISODES} greedy episodes with the last weights. Seconds: median of a training.'
PARTS = {
    'recall': Part(
        'Recall a cue of the first observation',
        functools.partial(measure_cases, RECALLS),
        functools.partial(render_cases, {'mean': 'mean reward'}, f'{BELOW} The best mean without memory is 0.5.'),
        ('seeds',),
    ),
    **{
        name: Part(
            f'Hidden velocities: {name}',
            functools.partial(measure_velocities, name),
            render_velocities,
            ('seeds', 'peer_seeds'),
        )
        for name in VELOCITIES
    },
}


def make_parser() -> argparse.ArgumentParser:
    """Return the command line."""
    page = REPOSITORY / 'docs' / 'memory.md'
    parser = jobs.make_parts_parser('learning.memory', __doc__, PARTS, page, 'memory')
    parser.add_argument('--seeds', nargs='+', type=jobs.seed, default=[1, 2, 3], help='seeds of the trainings')
    text = 'number of seeds of RecurrentPPO, the first ones'
    parser.add_argument('--peer-seeds', type=jobs.positive, default=3, help=text)
    jobs.add_peer(parser, 'sb3-contrib')
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure the parts that the command line names."""
    return jobs.run_parts(make_parser(), arguments, PARTS, PACKAGES)


if __name__ == '__main__':
    sys.exit(main())
