"""Functions of all workers: their job, memory, clock, peak of matrix products, and the printed result."""

import contextlib
import importlib.metadata
import json
import os
import resource
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from benchmarks.workers.settings import AnySettings, OffPolicySettings, from_fields

MEGABYTE = 2**20


@dataclass(frozen=True)
class Job:
    """The job of a worker of the speed benchmark, a JSON object in the first argument."""

    task: str
    settings: AnySettings
    warmup: int = 0
    steps: int = 0
    checkout: str = ''
    target: float = 250
    options: dict[str, Any] = field(default_factory=dict)
    gymnasium: bool = False

    @classmethod
    def from_command_line(cls) -> Self:
        """Read the job."""
        fields = json.loads(sys.argv[1])
        return cls(settings=from_fields(fields.pop('settings')), **fields)


def resident_mb() -> float:
    """Return the resident memory of this process in MB; its peak on systems without /proc."""
    statm = Path('/proc/self/statm')
    if not statm.exists():
        return peak_mb()
    return int(statm.read_text().split()[1]) * os.sysconf('SC_PAGE_SIZE') / MEGABYTE


def peak_mb(who: int = resource.RUSAGE_SELF) -> float:
    """Return the largest resident memory so far, in MB, of this process or of its children."""
    # kilobytes on Linux, bytes on macOS
    return resource.getrusage(who).ru_maxrss * (1 if sys.platform == 'darwin' else 1024) / MEGABYTE


class Clock:
    """A clock that starts when it is created."""

    def __init__(self) -> None:
        self._start = time.perf_counter(), time.process_time()

    def read(self) -> dict[str, float]:
        """Return the elapsed seconds, and the processor time of all threads of this process."""
        wall, processor = self._start
        return {'seconds': time.perf_counter() - wall, 'processor_seconds': time.process_time() - processor}


def matmul_peak(multiply: Callable[[], Any], size: int, repeats: int = 16) -> float:
    """Return the operations per second of a product of two size x size matrices: the best of `repeats`."""
    multiply()
    best = float('inf')
    for _ in range(repeats):
        start = time.perf_counter()
        multiply()
        best = min(best, time.perf_counter() - start)
    return 2 * size**3 / best


def hold_to_one_core(settings: AnySettings) -> None:
    """Limit this process and its children to one core, if the case does so; call before other imports."""
    if settings.one_core:
        use_one_core()


def use_one_core() -> None:
    """Limit this process and its children to one core, if the system can do so; call before other imports.

    JAX and TensorFlow size their pools by the available cores, so that each of them also has one thread.
    """
    if hasattr(os, 'sched_setaffinity'):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})


def check_updates(settings: AnySettings, steps: int, updates: int) -> None:
    """Check that a library made the gradient steps of the settings.

    Raises:
        SystemExit: if it did not. The steps of one update may be on either side of the clock.
    """
    if isinstance(settings, OffPolicySettings):
        wanted = float(settings.updates(steps))
        slack = 0.02 * wanted
    else:
        # rows of a rollout that only reset an environment are not counted as steps: up to 5 % for CartPole at first
        wanted = steps / settings.batch_size * settings.updates_per_call
        slack = 0.1 * wanted
        if settings.algorithm == 'acer':
            # four standard deviations of a Poisson distribution
            slack += 4 * wanted**0.5
    if abs(updates - wanted) > max(slack, settings.updates_per_call):
        raise SystemExit(f'{updates} updates in {steps} steps, expected {wanted:.0f}')


def versions(*packages: str) -> dict[str, str]:
    """Return the versions of Python and of installed packages, also of their builds for processors (tensorflow-cpu)."""
    found = {'python': sys.version.split()[0]}
    for name in (name for package in packages for name in (package, f'{package}-cpu')):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return found


def report(fields: dict[str, Any], packages: Sequence[str] = ()) -> None:
    """Print the result of a worker as one JSON object on the last line."""
    fields = {'rss_mb': resident_mb(), 'peak_rss_mb': peak_mb(), 'versions': versions(*packages), **fields}
    print(json.dumps(fields), flush=True)
