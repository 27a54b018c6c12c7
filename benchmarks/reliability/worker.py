"""The measured processes of the benchmark of reliability: each reads a job as JSON, prints its result as JSON."""

from __future__ import annotations

import functools
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.workers.measure import Job, resident_mb

# the settings whose checkpoints are timed; a replay buffer is filled before anything is learned
COSTS: dict[str, dict[str, Any]] = {
    'ppo': {'agent_id': 'ppo', 'env': 'CartPole-v1', 'n_envs': 16, 'n_steps': 128},
    'dqn': {'agent_id': 'dqn', 'env': 'CartPole-v1', 'n_envs': 8, 'train_frequency': 8},
    'td3': {'agent_id': 'td3', 'env': 'Pendulum-v1', 'n_envs': 8, 'train_frequency': 8},
    'dqn-pong': {
        'agent_id': 'dqn',
        'env': 'PongNoFrameskip-v4',
        'n_envs': 8,
        'train_frequency': 32,
        'gradient_steps': 8,
    },
}


class Stopwatch:
    """Adds up the time inside functions, that of one inside another counted once."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, float]] = []
        self._depth = 0

    def around(self, function: Callable, name: str) -> Callable:
        """Return the function, timed under a name."""

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
    """Train with a run folder and default settings; return what saving took before and after the buffer was full.

    What counts as saving is everything that a run without a folder would not do: copying the best weights, gathering
    the state, writing all files of a checkpoint, flushing history and metrics, removing older ones.
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
            'seconds': until - start, 'saving': sum(saves) + sum(copies), 'copying': sum(copies), 'saves': len(saves),
            'longest': max(saves, default=0.0), 'copies': len(copies), 'steps': log['steps'] - steps,
            'megabytes': size_mb(folder),
        })  # fmt: skip

    for log in agent.train_iter(max_steps=10**12, run_dir=str(folder)):
        if not start or (log['updates'] and not updates):
            # the first iteration and the one that compiles the update are none of it
            if start:
                note(before)
            watch.calls.clear()
            start, steps, updates = time.perf_counter(), log['steps'], log['updates']
        elif updates and time.perf_counter() - start >= job['seconds']:
            break
        before = time.perf_counter()
    note(before)
    return {'phases': phases, 'resident': resident_mb()}


def size_mb(folder: Path) -> float:
    """Return what a folder takes, in MB."""
    return sum(path.stat().st_size for path in folder.rglob('*') if path.is_file()) / 2**20


def measure_overlap(job: dict[str, Any]) -> dict[str, Any]:
    """Measure speed as the benchmark of speed does, with or without overlap."""
    import xagents
    from benchmarks.workers.settings import from_fields
    from benchmarks.workers.xagents_worker import arguments, check_threads, measure_speed

    settings = from_fields(job['settings'])
    agent = xagents.make(settings.algorithm, settings.env, overlap=job['overlap'], **arguments(settings))
    check_threads(settings)
    return measure_speed(Job('speed', settings, job['warmup'], job['steps']), agent)


def main() -> None:
    """Do the job."""
    from xagents.system.startup import prepare_process

    prepare_process()
    job = json.loads(sys.argv[1])
    result = {'cost': measure_cost, 'overlap': measure_overlap}[job['task']](job)
    print(json.dumps(result), flush=True)


if __name__ == '__main__':
    main()
