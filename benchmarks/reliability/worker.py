"""The worker of the reliability benchmark: it reads a job as JSON and prints its result as JSON."""

from __future__ import annotations

import functools
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.workers.measure import Job

# the settings whose checkpoints are timed; agents with a replay buffer fill it before the first update
COSTS: dict[str, dict[str, Any]] = {
    'ppo': {'agent_id': 'ppo', 'env': 'CartPole-v1', 'n_envs': 16, 'n_steps': 128},
    'dqn': {'agent_id': 'dqn', 'env': 'CartPole-v1', 'n_envs': 8, 'train_frequency': 8},
    'td3': {'agent_id': 'td3', 'env': 'Pendulum-v1', 'n_envs': 8, 'train_frequency': 8},
    'dqn-pong': {
        **{'agent_id': 'dqn', 'env': 'PongNoFrameskip-v4', 'n_envs': 8, 'train_frequency': 32, 'gradient_steps': 8}
    },
}


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


def measure_cost(job: dict[str, Any]) -> dict[str, Any]:
    """Train with a run directory and default settings; return the time for saving before and after the buffer is full.

    Saving is all that a run without a directory does not do: copying the best weights, gathering the state, writing
    the files of a checkpoint, flushing history and metrics, and removing old checkpoints.
    """
    import xagents
    from xagents.runs import saving
    from xagents.runs.folder import RunFolder

    settings = dict(COSTS[job['case']])
    if 'train_frequency' in settings:
        settings |= {'buffer_max_size': job['buffer'], 'buffer_initial_size': job['buffer']}
    agent = xagents.make(settings.pop('agent_id'), settings.pop('env'), seed=1, quiet=True, **settings)
    watch = Stopwatch()
    RunFolder.save = watch.around(RunFolder.save, 'checkpoint')  # type: ignore[method-assign]
    RunFolder.save_best = watch.around(RunFolder.save_best, 'best')  # type: ignore[method-assign]
    saving.state_of = watch.around(saving.state_of, 'copy')
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


def measure_overlap(job: dict[str, Any]) -> dict[str, Any]:
    """Measure speed as the speed benchmark does, with or without overlap."""
    import xagents
    from benchmarks.workers.settings import from_fields
    from benchmarks.workers.xagents_worker import arguments, check_threads, measure_speed

    settings = from_fields(job['settings'])
    agent = xagents.make(settings.algorithm, settings.env, overlap=job['overlap'], **arguments(settings))
    check_threads(settings)
    return measure_speed(Job('speed', settings, job['warmup'], job['steps']), agent)


def main() -> None:
    """Run the job."""
    from xagents.system.startup import prepare_process

    prepare_process()
    job = json.loads(sys.argv[1])
    result = {'cost': measure_cost, 'overlap': measure_overlap}[job['task']](job)
    print(json.dumps(result), flush=True)


if __name__ == '__main__':
    main()
