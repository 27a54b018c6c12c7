"""Measure the speed of runs in one process: `python -m benchmarks.explorers.worker JOBS`.

Each job of the JSON list has the environment, the options of `xagents.make`, the number of rollouts, the number of
rollouts that are not timed, and, if Ray starts the explorers, the number of processors for Ray.
"""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from benchmarks.processes import module, work

TRIES = 3


def measure_jobs(
    jobs: Sequence[dict[str, Any]], timeout: float, *before: str, **variables: str
) -> list[dict[str, Any]]:
    """Measure jobs in a new process, in an empty folder.

    Args:
        jobs: see the module.
        timeout: in seconds.
        before: words before the command.
        variables: environment variables.

    Raises:
        Failed: if there is no result.
    """
    return work([*before, *module('explorers.worker', jobs)], timeout, variables)['done']


@contextlib.contextmanager
def ray_cluster(processors: int) -> Iterator[None]:
    """Start Ray if there are processors for it. The process must be in a network namespace; see `placement`."""
    if not processors:
        yield
        return
    import ray

    quiet: dict[str, Any] = {'log_to_driver': False, 'logging_level': 'ERROR', 'include_dashboard': False}
    for left in reversed(range(TRIES)):
        try:
            ray.init(num_cpus=processors, **quiet)
            break
        except Exception:  # on a busy machine, Ray's limit of half a minute can be too short
            ray.shutdown()
            if not left:
                raise
    try:
        yield
    finally:
        ray.shutdown()


def measure(job: dict[str, Any]) -> dict[str, Any]:
    """Measure one job."""
    import xagents
    from benchmarks.explorers.runs import measure_rate

    with ray_cluster(job.get('ray', 0)), contextlib.closing(xagents.make('ppo', job['env'], **job['make'])) as agent:
        return measure_rate(agent, job['rollouts'], job['skipped'])


if __name__ == '__main__':
    print(json.dumps({'done': [measure(job) for job in json.loads(sys.argv[1])]}), flush=True)
