"""Print the times of the replay buffer, full of a million transitions with the shapes of CartPole.

`python -m benchmarks.speed.replay`
"""

import argparse
import time
from collections.abc import Callable

import numpy as np

from xagents.replay.transitions import ReplayBuffer

SIZE, BATCH, REPEATS = 1_000_000, 256, 1000


def episodes(rng: np.random.Generator, steps: int, n_envs: int) -> dict[str, np.ndarray]:
    """Make a rollout [T, N] of random observations. One step in 20 ends an episode, and the next one only resets."""
    terminated = rng.random((steps, n_envs)) < 0.05
    valid = np.ones((steps, n_envs), bool)
    valid[1:] = ~terminated[:-1]
    batch = {'observations': rng.random((steps + 1, n_envs, 4), dtype=np.float32)}
    batch |= {'actions': rng.integers(2, size=(steps, n_envs)), 'rewards': np.ones((steps, n_envs), np.float32)}
    return {**batch, 'terminated': terminated & valid, 'truncated': np.zeros((steps, n_envs), bool), 'valid': valid}


def single_steps(batch: dict[str, np.ndarray]) -> list[dict[str, np.ndarray]]:
    """Split a rollout into rollouts of one step."""
    steps = range(len(batch['rewards']))
    return [{k: v[t : t + (2 if k == 'observations' else 1)].copy() for k, v in batch.items()} for t in steps]


def median(call: Callable[[int], object]) -> float:
    """Return the median time of a call in µs; the call gets its number."""
    times = []
    for k in range(REPEATS):
        start = time.perf_counter()
        call(k)
        times.append(time.perf_counter() - start)
    return 1e6 * float(np.median(times))


def measure(n_envs: int, alpha: float | None, n_step: int) -> dict[str, float]:
    """Fill a buffer beyond its size and return the times in µs of the operations of a training step."""
    rng = np.random.Generator(np.random.SFC64(0))
    buffer = ReplayBuffer(SIZE, batch_size=BATCH, alpha=alpha, n_step=n_step)
    first = episodes(rng, SIZE // n_envs + 100, n_envs)
    buffer.add(first)
    more = episodes(rng, REPEATS, n_envs)
    more['observations'][0] = first['observations'][-1]
    steps = single_steps(more)
    times = {'add a step': median(lambda k: buffer.add(steps[k]))}
    times[f'sample {BATCH}'] = median(lambda k: buffer.sample(1, rng))
    times[f'sample 16 x {BATCH}'] = median(lambda k: buffer.sample(16, rng))
    if alpha is not None:
        rows = buffer.sample(1, rng)['rows'].copy()
        errors = rng.random(rows.shape, dtype=np.float32)
        times[f'prioritize {BATCH}'] = median(lambda k: buffer.prioritize(rows, errors))
    return times


def main() -> None:
    """Print medians in µs."""
    argparse.ArgumentParser(prog='python -m benchmarks.speed.replay', description=__doc__).parse_args()
    print(f'{SIZE:,} transitions, batches of {BATCH}; medians of {REPEATS} calls in µs')
    for n_envs in (1, 8):
        for label, alpha, n_step in (('uniform', None, 1), ('uniform, n-step 3', None, 3), ('prioritized', 0.6, 1)):
            times = measure(n_envs, alpha, n_step)
            columns = ', '.join(f'{name} {value:.1f}' for name, value in times.items())
            print(f'{n_envs} environment{"s" * (n_envs > 1)}, {label}: {columns}')


if __name__ == '__main__':
    main()
