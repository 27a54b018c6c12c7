"""Properties of the processor, from /proc/cpuinfo of Linux."""

from __future__ import annotations

from pathlib import Path

BFLOAT16 = {'avx512_bf16', 'amx_bf16', 'bf16', 'svebf16'}


def cpuinfo_lines(*names: str) -> list[str]:
    """Return the distinct lines that begin with one of `names`; empty if the system has no such file."""
    try:
        lines = Path('/proc/cpuinfo').read_text().splitlines()
    except OSError:
        return []
    return list(dict.fromkeys(line for line in lines if line.startswith(names)))


def supports_bfloat16() -> bool:
    """Return whether the processor has instructions that multiply in bfloat16; True if that is unknown."""
    flags = [flag for line in cpuinfo_lines('flags', 'Features') for flag in line.split()]
    return not flags or not BFLOAT16.isdisjoint(flags)
