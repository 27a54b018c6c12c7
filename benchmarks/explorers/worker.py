"""Measures runs in a process of its own: a list of jobs as JSON, in turn; `python -m benchmarks.explorers.worker`.

A job has the environment, the keywords of `xagents.make`, how many rollouts, how many of them are not timed, and for
how many processors Ray is to be started, where it is to place the explorers.
"""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from benchmarks.speed.run import last_line, launch

TRIES = 3


def work(jobs: Sequence[dict[str, Any]], timeout: float, *before: str, **variables: str) -> list[dict[str, Any]]:
    """Do jobs in a process of its own, in an empty folder.

    Args:
        jobs: as above.
        timeout: in seconds.
        before: words that stand before the command.
        variables: of the environment.

    Raises:
        Failed: where there is no result.
    """
    command = [*before, sys.executable, '-m', 'benchmarks.explorers.worker', json.dumps(jobs)]
    output, _ = launch(command, timeout, variables)
    return last_line(output)['done']


@contextlib.contextmanager
def placing(processors: int) -> Iterator[None]:
    """Let Ray be there, for so many explorers; only in a namespace of its own (see `explorers_ray`)."""
    if not processors:
        yield
        return
    import ray

    quiet: dict[str, Any] = {'log_to_driver': False, 'logging_level': 'ERROR', 'include_dashboard': False}
    for left in reversed(range(TRIES)):
        try:
            ray.init(num_cpus=processors, **quiet)
            break
        except Exception:  # it gives itself half a minute, which a busy machine does not always keep
            ray.shutdown()
            if not left:
                raise
    try:
        yield
    finally:
        ray.shutdown()


def measure(job: dict[str, Any]) -> dict[str, Any]:
    """Do one job."""
    import xagents
    from benchmarks.explorers.runs import pace

    with placing(job.get('ray', 0)):
        agent = xagents.make('ppo', job['env'], **job['make'])
        with contextlib.closing(agent):
            return pace(agent, job['rollouts'], job['skipped'])


def main() -> None:
    """Do the jobs, and print what they gave."""
    print(json.dumps({'done': [measure(job) for job in json.loads(sys.argv[1])]}), flush=True)


if __name__ == '__main__':
    main()
