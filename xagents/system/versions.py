"""The versions of this package and of what it computes with."""

from __future__ import annotations

import contextlib
import platform
from importlib import metadata

from xagents.version import __version__

PACKAGES = ('tensorflow', 'keras', 'gymnasium', 'numpy')


def versions() -> dict[str, str]:
    """Return the versions of xagents, Python and the packages that are installed, by name."""
    found = {'xagents': __version__, 'python': platform.python_version()}
    for name in PACKAGES:
        with contextlib.suppress(metadata.PackageNotFoundError):  # tensorflow-cpu has another name
            found[name] = metadata.version(name)
    return found
