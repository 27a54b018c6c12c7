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

from benchmarks.cases import Settings

MEGABYTE = 2**20


@dataclass(frozen=True)
class Job:
    """What the harness asks of a worker; it comes as one JSON object in the first argument."""

    task: str
    settings: Settings
    warmup: int = 0
    steps: int = 0
    checkout: str = ''
    target: float = 250

    @classmethod
    def from_command_line(cls) -> Job:
        """Read the job."""
        fields = json.loads(sys.argv[1])
        settings = fields.pop('settings')
        settings['units'] = tuple(settings['units'])
        return cls(settings=Settings(**settings), **fields)


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


def matmul_peak(multiply: Callable[[], Any], size: int, repeats: int = 16) -> float:
    """Operations a second of `multiply`, a product of two size x size matrices: the best of `repeats`."""
    multiply()
    best = float('inf')
    for _ in range(repeats):
        start = time.perf_counter()
        multiply()
        best = min(best, time.perf_counter() - start)
    return 2 * size**3 / best


def nature_cnn_flops(n_actions: int, side: int = 84, channels: int = 4) -> tuple[int, int]:
    """Multiplications and additions of the Nature CNN for one image: forward, and forward with backward.

    The layers are those of Mnih et al. 2015 with one policy and one value head; a backward pass costs as much as the
    forward pass for the weights and as much again for the inputs, which the first layer does not need.
    """
    layers = []
    for filters, kernel, stride in ((32, 8, 4), (64, 4, 2), (64, 3, 1)):
        side = (side - kernel) // stride + 1
        layers.append(2 * side * side * filters * kernel * kernel * channels)
        channels = filters
    layers += [2 * side * side * channels * 512, 2 * 512 * (n_actions + 1)]
    return sum(layers), 3 * sum(layers) - layers[0]


def update_share(settings: Settings, n_actions: int, updates: int, seconds: float, peak: float) -> float:
    """The share of `peak` that `updates` PPO updates in `seconds` reach; only the gradient steps' operations count."""
    _, training = nature_cnn_flops(n_actions)
    return updates * settings.epochs * settings.batch_size * training / seconds / peak


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
