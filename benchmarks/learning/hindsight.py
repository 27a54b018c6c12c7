"""Measure the effect and the cost of hindsight replay: `python -m benchmarks.learning.hindsight`."""

import argparse
import functools
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import jobs, tables
from benchmarks.jobs import Log, Part
from benchmarks.learning.trainings import EPISODES, Case, measure_cases, render_cases
from benchmarks.venvs import REPOSITORY
from xagents.replay.hindsight import HindsightBuffer
from xagents.replay.transitions import ReplayBuffer

PACKAGES = ('xagents', 'tensorflow', 'keras', 'gymnasium', 'numpy', 'gymnasium-robotics', 'mujoco')

BITS = {
    **{'agent_id': 'dqn', 'env': 'benchmarks.envs.bits:BitFlip-v0', 'n_envs': 8, 'net': [256]},
    **{'gamma': 0.98, 'lr': 1e-3},
    **{'buffer_max_size': 50_000, 'buffer_initial_size': 1000, 'buffer_batch_size': 128, 'train_frequency': 128},
    **{'gradient_steps': 64, 'target_sync_steps': 512, 'double': True, 'huber': True},
    **{'epsilon_start': 0.2, 'epsilon_end': 0.1, 'epsilon_decay_steps': 30_000},
}
REACH = {
    **{'agent_id': 'td3', 'env': 'gymnasium_robotics:FetchReach-v4', 'n_envs': 4, 'net': [128, 128], 'gamma': 0.95},
    **{'buffer_max_size': 50_000, 'buffer_initial_size': 1000, 'buffer_batch_size': 256, 'train_frequency': 64},
    **{'gradient_steps': 64, 'lr': 1e-3, 'tau': 0.02, 'step_noise_coef': 0.2},
}
BIT_CASES = {
    'bit flip, 15 bits, without': Case('success ≤ 0.1', {**BITS, 'env_kwargs': {'bits': 15}}, 60_000),
    'bit flip, 15 bits, with': Case('success ≥ 0.95', {**BITS, 'env_kwargs': {'bits': 15}, 'her': True}, 60_000),
    'bit flip, 20 bits, with': Case('success ≥ 0.9', {**BITS, 'env_kwargs': {'bits': 20}, 'her': True}, 60_000),
}
REACH_CASES = {'FetchReach-v4, with': Case('success 1, mean ≥ -2', {**REACH, 'her': True}, 20_000)}


COLUMNS = {'success': 'success', 'mean': 'mean reward'}
BELOW = f'One number for each seed: {EPISODES} greedy episodes with the last weights. Seconds: median of a training.'
render_trainings = functools.partial(render_cases, COLUMNS, BELOW)

# ------------------------------------------------------------------------------------------------------------ sampling

SIZE, BATCH, LENGTH, WIDTH = 1_000_000, 256, 50, 16
BUFFERS = ('plain', 'hindsight', 'its functions')  # hindsight without and with the cost of the goal functions


class Reach:
    """The goal functions of FetchReach, or functions without cost."""

    achieved, desired = slice(0, 3), slice(3, 6)

    def __init__(self, free: bool):
        self.free = free

    def compute_rewards(self, achieved: np.ndarray, desired: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return rewards, and that no episode terminates."""
        if self.free:
            return np.zeros(len(achieved), np.float32), np.zeros(len(achieved), bool)
        distances = np.linalg.norm(achieved.astype(np.float64) - desired.astype(np.float64), axis=-1)
        return -(distances > 0.05).astype(np.float32), np.zeros(len(achieved), bool)


def fill(buffer: ReplayBuffer, n_envs: int) -> None:
    """Fill a buffer beyond its size with random transitions that have the shapes of FetchReach."""
    rng, steps = np.random.Generator(np.random.SFC64(0)), 10 * (LENGTH + 1)
    batch: dict[str, Any] = {name: np.zeros((steps, n_envs), bool) for name in ('terminated', 'truncated')}
    batch |= {'rewards': -np.ones((steps, n_envs), np.float32), 'valid': np.ones((steps, n_envs), bool)}
    batch['observations'] = rng.random((steps + 1, n_envs, WIDTH), dtype=np.float32)
    batch['actions'] = rng.random((steps, n_envs, 4), dtype=np.float32)
    batch['restarted'] = np.zeros(n_envs, bool)
    batch['truncated'][LENGTH - 1 :: LENGTH + 1], batch['valid'][LENGTH :: LENGTH + 1] = True, False
    for _ in range(SIZE // n_envs // steps + 2):
        buffer.add(batch)


def measure_draws(folder: Path, options: argparse.Namespace, log: Log) -> dict[str, Any]:
    """Time samples from full buffers, in turn, in µs of processor time, which other processes do not change."""
    found = {}
    for n_envs in (1, 8):
        buffers = {
            'plain': ReplayBuffer(SIZE, batch_size=BATCH),
            'hindsight': HindsightBuffer(SIZE, batch_size=BATCH, goals=Reach(free=True)),
            'its functions': HindsightBuffer(SIZE, batch_size=BATCH, goals=Reach(free=False)),
        }
        for buffer in buffers.values():
            fill(buffer, n_envs)
        for batches in (1, 16, 64):
            times: dict[str, list[float]] = {name: [] for name in buffers}
            for repeat in range(20 if options.quick else 300):
                for name, buffer in buffers.items():
                    rng = np.random.Generator(np.random.SFC64([repeat, len(name)]))  # other rows for each buffer
                    start = time.thread_time()
                    buffer.sample(batches, rng)
                    times[name].append(1e6 * (time.thread_time() - start))
            found[f'{n_envs} {batches}'] = {name: statistics.median(each) for name, each in times.items()}
            log(f'{n_envs} environments, {batches} x {BATCH}: {found[f"{n_envs} {batches}"]}')
    return found


def render_draws(found: dict[str, Any]) -> str:
    """Return the table of times and ratios."""
    rows = []
    for name, times in found.items():
        n_envs, batches = name.split()
        plain, hindsight, functions = (times[buffer] for buffer in BUFFERS)
        ratios = f'{hindsight / plain:.2f}', f'{functions / plain:.2f}'
        each = (functions - plain) / int(batches)
        rows.append([n_envs, f'{batches} x {BATCH}', f'{plain:.0f}', f'{functions:.0f}', *ratios, f'{each:.0f}'])
    heading = [
        'environments',
        'samples',
        'plain, µs',
        'hindsight, µs',
        'ratio without goal functions',
        'ratio',
        'µs more',
    ]
    below = "A million transitions of FetchReach's shapes; medians of processor time; `µs more` is per batch."
    return tables.markdown(heading, rows, below)


PARTS = {
    'bits': Part('Bit flip: DQN', functools.partial(measure_cases, BIT_CASES), render_trainings, ('seeds',)),
    'reach': Part('FetchReach: TD3', functools.partial(measure_cases, REACH_CASES), render_trainings, ('seeds',)),
    'draws': Part('Cost of sampling', measure_draws, render_draws),
}


def make_parser() -> argparse.ArgumentParser:
    """Return the command line."""
    page = REPOSITORY / 'docs' / 'hindsight.md'
    parser = jobs.make_parts_parser('learning.hindsight', __doc__, PARTS, page, 'hindsight')
    parser.add_argument('--seeds', nargs='+', type=jobs.seed, default=[1, 2, 3], help='seeds of the trainings')
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure the parts that the command line names."""
    return jobs.run_parts(make_parser(), arguments, PARTS, PACKAGES)


if __name__ == '__main__':
    sys.exit(main())
