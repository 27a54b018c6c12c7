"""Checks of a run directory."""

from __future__ import annotations

from pathlib import Path

from xagents.doctor.finding import Finding


def check_run(folder: Path) -> list[Finding]:
    """Return the findings about a run."""
    return []
