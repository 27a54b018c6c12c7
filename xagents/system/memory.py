"""How much memory there is, before something large is asked for."""

from __future__ import annotations

import contextlib
from pathlib import Path

import psutil

from xagents.options.errors import OptionError

CONTROL_GROUP = Path('/sys/fs/cgroup')


def free_memory() -> int:
    """Return the bytes that this process may still take: of the machine, or of its container where that has less."""
    free = psutil.virtual_memory().available
    with contextlib.suppress(OSError, ValueError):  # no control group, or one without a limit: `max`
        limit = int((CONTROL_GROUP / 'memory.max').read_text())
        free = min(free, limit - int((CONTROL_GROUP / 'memory.current').read_text()))
    return max(free, 0)


def check_memory(option: str, size: int, needed: int) -> None:
    """Check that what an option's value takes is free; an error says which value fits."""
    free = free_memory()
    if needed > free:
        raise OptionError(
            option,
            f'got {size}, whose {format_bytes(needed)} of memory this machine has not ({format_bytes(free)} are free), '
            f'expected about {int(size * free / needed)}',
        )


def format_bytes(size: int) -> str:
    """Return a number of bytes for people."""
    return f'{size / 1e9:.1f} GB' if size >= 1e8 else f'{max(size / 1e6, 0.1):.1f} MB'
