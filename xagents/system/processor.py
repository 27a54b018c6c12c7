"""What Linux tells of the processor."""

from __future__ import annotations

from pathlib import Path

BFLOAT16 = {'avx512_bf16', 'amx_bf16', 'bf16', 'svebf16'}


def cpuinfo_lines(*names: str) -> list[str]:
    """Return the lines of those names, once each; empty if the system has no such information."""
    try:
        lines = Path('/proc/cpuinfo').read_text().splitlines()
    except OSError:
        return []
    return list(dict.fromkeys(line for line in lines if line.startswith(names)))


def supports_bfloat16() -> bool:
    """Return whether it has instructions that multiply in bfloat16; without information, it may have."""
    flags = [flag for line in cpuinfo_lines('flags', 'Features') for flag in line.split()]
    return not flags or not BFLOAT16.isdisjoint(flags)
