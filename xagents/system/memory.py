"""Free memory, checked before a large allocation."""

from __future__ import annotations

import contextlib
from pathlib import Path

import psutil

from xagents.options.errors import OptionError

CONTROL_GROUP = Path('/sys/fs/cgroup')


def free_memory() -> int:
    """Return the free bytes of the machine, or of its container if that has less."""
    free = psutil.virtual_memory().available
    with contextlib.suppress(OSError, ValueError):  # no control group, or no limit (`max`)
        limit = int((CONTROL_GROUP / 'memory.max').read_text())
        free = min(free, limit - int((CONTROL_GROUP / 'memory.current').read_text()))
    return max(free, 0)


def check_memory(option: str, size: int, needed: int) -> None:
    """Check that the memory for the value of an option is free.

    Args:
        option: the Python name of the option.
        size: the value of the option.
        needed: the memory for this value in bytes.

    Raises:
        OptionError: If less memory is free; the error contains a value that fits.
    """
    free = free_memory()
    if needed > free:
        got = f'got {size}, which needs {format_bytes(needed)} of memory, but {format_bytes(free)} are free'
        raise OptionError(option, f'{got}, expected at most about {int(size * free / needed)}')


def format_bytes(size: int) -> str:
    """Return a number of bytes as text in MB or GB, with one decimal."""
    return f'{size / 1e9:.1f} GB' if size >= 1e8 else f'{max(size / 1e6, 0.1):.1f} MB'
