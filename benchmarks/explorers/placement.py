"""Compare explorers that Ray starts with explorers that the run starts, in namespaces without a network."""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

from benchmarks import tables
from benchmarks.explorers.namespaces import WITHOUT_NETWORK, check_namespaces
from benchmarks.explorers.rates import repeats_of
from benchmarks.explorers.runs import PPO, SLOW
from benchmarks.explorers.worker import measure_jobs
from benchmarks.jobs import Log

EXPLORERS = 8
ROWS: dict[str, dict[str, Any]] = {'sync': {}, '`--overlap`': {'overlap': True}}
ROLLOUTS, SKIPPED = 12, 3


def measure_ray(folder: Path, options: argparse.Namespace, log: Log) -> dict[str, Any]:
    """Measure both, with and without overlap, in turn, in one process in a namespace.

    Raises:
        Failed: if Ray is not installed, or there can be no namespace.
    """
    check_namespaces()
    rows: dict[str, Any] = {name: {'local': [], 'ray': []} for name in ROWS}
    for repeat in range(repeats_of(options)):
        jobs = [job_of(name, starter, options.seed + repeat, options.quick) for name in rows for starter in rows[name]]
        # Ray's sockets have long names, and its token is in the home folder
        with tempfile.TemporaryDirectory(prefix='ray-', dir='/tmp', ignore_cleanup_errors=True) as place:
            variables = {'RAY_USAGE_STATS_ENABLED': '0', 'RAY_TMPDIR': place, 'HOME': place, 'TMPDIR': place}
            done = iter(measure_jobs(jobs, options.timeout, *WITHOUT_NETWORK, **variables))
        for name, row in rows.items():
            for starter, rates in row.items():
                rates.append(next(done)['rate'])
                log(f'{name}, {starter}: {rates[-1]:.0f} steps/s')
    return {'rows': rows}


def job_of(name: str, starter: str, seed: int, quick: bool) -> dict[str, Any]:
    """Return the job of a row, with explorers of the run or of Ray."""
    rollouts, skipped = (4, 2) if quick else (ROLLOUTS, SKIPPED)
    job: dict[str, Any] = {'env': SLOW, 'rollouts': rollouts, 'skipped': skipped}
    job['make'] = {**PPO, **ROWS[name], 'explorers': EXPLORERS, 'seed': seed}
    if starter == 'ray':
        job['ray'] = EXPLORERS
        job['make'] |= {'cluster': 'ray', 'run_dir': f'{name.strip("`-")}-{seed}'}
    return job


def render_ray(result: dict[str, Any]) -> str:
    """Return the table of speeds with and without overlap."""
    rows = [
        [name, *map(tables.spread, row.values()), tables.spread(tables.ratios(row['ray'], row['local']), 2)]
        for name, row in result['rows'].items()
    ]
    return tables.markdown(['8 explorers', 'local, steps/s', 'started by Ray, steps/s', 'times'], rows)
