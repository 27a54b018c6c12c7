"""What all workers share: the job they read, memory, the machine's matrix-multiply peak, the line they print."""

from __future__ import annotations

import importlib.metadata
import json
import os
import resource
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.workers.settings import AnySettings, OffPolicySettings, from_fields

MEGABYTE = 2**20


@dataclass(frozen=True)
class Job:
    """What the harness asks of a worker; it comes as one JSON object in the first argument."""

    task: str
    settings: AnySettings
    warmup: int = 0
    steps: int = 0
    checkout: str = ''
    target: float = 250

    @classmethod
    def from_command_line(cls) -> Job:
        """Read the job."""
        fields = json.loads(sys.argv[1])
        return cls(settings=from_fields(fields.pop('settings')), **fields)


def resident_mb() -> float:
    """Resident memory of this process now, in MB; its peak where there is no /proc."""
    statm = Path('/proc/self/statm')
    if not statm.exists():
        return peak_mb()
    return int(statm.read_text().split()[1]) * os.sysconf('SC_PAGE_SIZE') / MEGABYTE


def peak_mb(who: int = resource.RUSAGE_SELF) -> float:
    """Largest resident memory so far, in MB, of this process or of its children."""
    # kilobytes on Linux, bytes on macOS
    return resource.getrusage(who).ru_maxrss * (1 if sys.platform == 'darwin' else 1024) / MEGABYTE


class Clock:
    """Counts from when it is made."""

    def __init__(self) -> None:
        self._start = time.perf_counter(), time.process_time()

    def read(self) -> dict[str, float]:
        """Seconds that went by, and those of processors in all threads of this process."""
        wall, processor = self._start
        return {'seconds': time.perf_counter() - wall, 'processor_seconds': time.process_time() - processor}


def matmul_peak(multiply: Callable[[], Any], size: int, repeats: int = 16) -> float:
    """Operations a second of `multiply`, a product of two size x size matrices: the best of `repeats`."""
    multiply()
    best = float('inf')
    for _ in range(repeats):
        start = time.perf_counter()
        multiply()
        best = min(best, time.perf_counter() - start)
    return 2 * size**3 / best


def hold_to_one_core(settings: AnySettings) -> None:
    """Hold this process, and what it starts, to one core where the case says so and the system can; before any import.

    JAX and TensorFlow size their pools by the cores that they may use, so that this also leaves them one thread each.
    """
    if settings.one_core and hasattr(os, 'sched_setaffinity'):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})


def check_updates(settings: AnySettings, steps: int, updates: int) -> None:
    """Make sure that a library made as many gradient steps as the settings ask for: speed without them means nothing.

    Raises:
        SystemExit: when it did not; a training's worth of them may fall on either side of the clock.
    """
    if isinstance(settings, OffPolicySettings):
        wanted = float(settings.updates(steps))
        slack = 0.02 * wanted
    else:
        # rows that only reset an environment are in a rollout and not in the steps: up to 5 % of CartPole's at first
        wanted = steps / settings.batch_size * settings.updates_per_call
        slack = 0.1 * wanted
        if settings.algorithm == 'acer':
            # four standard deviations of Poisson's draws
            slack += 4 * wanted**0.5
    if abs(updates - wanted) > max(slack, settings.updates_per_call):
        raise SystemExit(f'{updates} updates in {steps} steps, and {wanted:.0f} were to be measured')


def versions(*packages: str) -> dict[str, str]:
    """Versions of Python and of those packages that are installed."""
    found = {'python': sys.version.split()[0]}
    for package in packages:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def report(fields: dict[str, Any], packages: Sequence[str] = ()) -> None:
    """Print the worker's result as one JSON object on the last line."""
    fields = {'rss_mb': resident_mb(), 'peak_rss_mb': peak_mb(), 'versions': versions(*packages), **fields}
    print(json.dumps(fields), flush=True)
