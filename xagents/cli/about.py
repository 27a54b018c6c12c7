"""What `xagents --version --verbose` tells of an installation: what a report of a defect should have."""

from __future__ import annotations

import contextlib
import platform
from importlib import metadata

from xagents.system import kept_programs
from xagents.version import __version__

PACKAGES = ('tensorflow', 'keras', 'gymnasium', 'numpy')


def about() -> str:
    """Return versions, and where compiled programs are kept."""
    versions = {'xagents': __version__, 'python': platform.python_version()}
    for name in PACKAGES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            versions[name] = metadata.version(name)
    lines = [' '.join(pair) for pair in versions.items()]
    return '\n'.join([*lines, f'compiled programs {kept_programs.described()}'])
