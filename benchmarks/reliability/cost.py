"""Measure the time that a training spends on checkpoints, and the memory of a long training.

`python -m benchmarks.reliability.cost JOB` is the worker that times one training.
"""

import argparse
import functools
import json
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks import tables
from benchmarks.jobs import Log
from benchmarks.processes import Failed, module, running, work
from benchmarks.venvs import XAGENTS

REQUIRED_SHARE = 0.02
LABELS = {
    'ppo': 'PPO, CartPole-v1, 16 x 128',
    'dqn': 'DQN, CartPole-v1, 8 environments',
    'td3': 'TD3, Pendulum-v1, 8 environments',
    'dqn-pong': 'DQN, PongNoFrameskip-v4, 8 environments',
}
BUFFER = 100_000
SECONDS = 60.0
STEPS = 10_000_000
# share of the steps that is warm-up
WARM_UP = 0.2

# the settings whose checkpoints are timed; agents with a replay buffer fill it before the first update
COSTS: dict[str, dict[str, Any]] = {
    'ppo': {'agent_id': 'ppo', 'env': 'CartPole-v1', 'n_envs': 16, 'n_steps': 128},
    'dqn': {'agent_id': 'dqn', 'env': 'CartPole-v1', 'n_envs': 8, 'train_frequency': 8},
    'td3': {'agent_id': 'td3', 'env': 'Pendulum-v1', 'n_envs': 8, 'train_frequency': 8},
    'dqn-pong': {
        **{'agent_id': 'dqn', 'env': 'PongNoFrameskip-v4', 'n_envs': 8, 'train_frequency': 32, 'gradient_steps': 8}
    },
}


# ---------------------------------------------------------------------------------------------------------------- time


def measure_cost(folder: Path, options: argparse.Namespace, log: Log) -> dict[str, Any]:
    """Time the saving of trainings with a run directory and default settings, each in its own process.

    Returns:
        The phases of each training: while the replay buffer, if any, is filled, and while the agent learns.
    """
    found: dict[str, Any] = {}
    buffer = 2_000 if options.quick else BUFFER
    seconds = options.seconds or (12.0 if options.quick else SECONDS)
    for case in options.costs or COSTS:
        job = {'case': case, 'seconds': seconds, 'buffer': buffer}
        try:
            found[case] = work(module('reliability.cost', job), options.timeout)
        except Failed as error:
            found[case] = {'problem': str(error), 'phases': []}
        log(f'{case}: {found[case]}')
    return {'cases': found, 'buffer': buffer}


def render_cost(result: dict[str, Any]) -> str:
    """Return the table of times for saving."""
    heading = ['', '', 'seconds', 'steps/s', 'checkpoints', 'longest, s', 'copies of a new best', 'folder, MB']
    heading += ['share of the time', 'required']
    rows, problems = [], []
    for case, found in result['cases'].items():
        if 'problem' in found:
            problems.append(f'- {LABELS[case]}: {found["problem"]}')
        first = f'{tables.number(result["buffer"])} transitions are collected'
        labels = (first, 'buffer full') if len(found['phases']) > 1 else ('',)
        for what, phase in zip(labels, found['phases'], strict=False):
            cells = [LABELS[case], what, f'{phase["seconds"]:.0f}', tables.number(phase['steps'] / phase['seconds'])]
            cells += [phase['saves'], f'{phase["longest"]:.2f}', phase['copies'], tables.number(phase['megabytes'])]
            cells += [f'{100 * phase["saving"] / phase["seconds"]:.2f} %', f'under {100 * REQUIRED_SHARE:g} %']
            rows.append(cells)
    return tables.markdown(heading, rows, *problems)


# -------------------------------------------------------------------------------------------------------------- memory


def measure_memory(folder: Path, options: argparse.Namespace, log: Log) -> dict[str, Any]:
    """Measure the resident memory of a long training with a run directory, from another process.

    Returns:
        Steps and MB at each status line, and the seconds of the training.

    Raises:
        Failed: if the training fails.
    """
    import psutil

    steps = options.steps or (200_000 if options.quick else STEPS)
    command = [*XAGENTS, 'train', 'ppo', '--env', 'CartPole-v1', '--n-envs', '16', '--n-steps', '1024', '--seed', '1']
    command += ['--max-steps', str(steps), '--final-episodes', '0', '--log-format', 'json', '--run-dir', 'run']
    samples: list[tuple[int, float]] = []
    with running(command, folder) as run:
        process = psutil.Process(run.popen.pid)
        while run.wait_until(lambda: run.steps > (samples[-1][0] if samples else 0), pause=0.05):
            try:
                samples.append((run.steps, process.memory_info().rss / 2**20))
            except psutil.Error:  # the process has ended
                break
            if len(samples) % 20 == 1:
                log(f'{samples[-1][0]} steps, {samples[-1][1]:.0f} MB')
        run.check()
    return {'steps': steps, 'samples': samples, 'seconds': run.lines[-1][0] - run.lines[0][0]}


def slope(samples: Sequence[tuple[int, float]]) -> float:
    """Return MB per million steps by least squares; NaN for fewer than two samples."""
    if len(samples) < 2:
        return float('nan')
    steps, megabytes = zip(*samples, strict=True)
    return 1e6 * statistics.linear_regression(steps, megabytes).slope


def render_memory(result: dict[str, Any]) -> str:
    """Return the table of resident memory during the run, and its slope."""
    samples, steps = result['samples'], result['steps']
    near = [min(samples, key=lambda one: abs(one[0] - part * steps)) for part in (0.1, 0.25, 0.5, 0.75, 1.0)]
    rows = [(tables.number(at), f'{megabytes:.0f}') for at, megabytes in near]
    settled = [sample for sample in samples if sample[0] >= WARM_UP * steps]
    text = (
        'PPO, CartPole-v1, 16 x 1024, with a run directory: '
        f'{tables.number(steps)} steps in {result["seconds"]:.0f} s. '
        f'After the first {100 * WARM_UP:.0f} %, the memory changes by {slope(settled):+.2f} MB per million steps '
        f'({len(settled)} samples, from {min(y for _, y in settled):.0f} to {max(y for _, y in settled):.0f} MB).'
    )
    return tables.markdown(['steps', 'resident MB'], rows, text)


# -------------------------------------------------------------------------------------------------------------- worker


class Stopwatch:
    """Measures the time inside functions. A call inside another timed call is not counted."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, float]] = []
        self._depth = 0

    def around(self, function: Callable, name: str) -> Callable:
        """Return a function that stores its time under a name."""

        @functools.wraps(function)
        def timed(*arguments: Any, **options: Any) -> Any:
            self._depth += 1
            start = time.perf_counter()
            try:
                return function(*arguments, **options)
            finally:
                self._depth -= 1
                if not self._depth:
                    self.calls.append((name, time.perf_counter() - start))

        return timed


def time_saving(job: dict[str, Any]) -> dict[str, Any]:
    """Train with a run directory and default settings; return the time for saving before and after the buffer is full.

    Saving is all that a run without a directory does not do: copying the best weights, gathering the state, writing
    the files of a checkpoint, flushing history and metrics, and removing old checkpoints.
    """
    import xagents
    from xagents.checkpoints.run_directory import RunDirectory
    from xagents.runs import saving

    settings = dict(COSTS[job['case']])
    if 'train_frequency' in settings:
        settings |= {'buffer_max_size': job['buffer'], 'buffer_initial_size': job['buffer']}
    agent = xagents.make(settings.pop('agent_id'), settings.pop('env'), seed=1, quiet=True, **settings)
    watch = Stopwatch()
    RunDirectory.save = watch.around(RunDirectory.save, 'checkpoint')  # type: ignore[method-assign]
    RunDirectory.save_best = watch.around(RunDirectory.save_best, 'best')  # type: ignore[method-assign]
    saving.capture_state = watch.around(saving.capture_state, 'copy')
    phases: list[dict[str, float]] = []
    folder = Path('run')
    start = steps = updates = before = 0.0

    def note(until: float) -> None:
        saves = [seconds for name, seconds in watch.calls if name == 'checkpoint']
        copies = [seconds for name, seconds in watch.calls if name != 'checkpoint']
        phases.append({
            'seconds': until - start, 'saving': sum(saves) + sum(copies), 'saves': len(saves), 'copies': len(copies),
            'longest': max(saves, default=0.0), 'steps': log['steps'] - steps, 'megabytes': size_mb(folder),
        })  # fmt: skip

    for log in agent.train_iter(max_steps=10**12, run_dir=str(folder)):
        if not start or (log['updates'] and not updates):
            # the first iteration and the one that compiles the update are not timed
            if start:
                note(before)
            watch.calls.clear()
            start, steps, updates = time.perf_counter(), log['steps'], log['updates']
        elif updates and time.perf_counter() - start >= job['seconds']:
            break
        before = time.perf_counter()
    note(before)
    return {'phases': phases}


def size_mb(folder: Path) -> float:
    """Return the size of a folder in MB."""
    return sum(path.stat().st_size for path in folder.rglob('*') if path.is_file()) / 2**20


def main() -> None:
    """Run the job."""
    from xagents.system.startup import prepare_process

    prepare_process()
    print(json.dumps(time_saving(json.loads(sys.argv[1]))), flush=True)


if __name__ == '__main__':
    main()
