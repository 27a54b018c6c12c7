"""The versions of this package, of Python and of the libraries for computing."""

from __future__ import annotations

import contextlib
import platform
from importlib import metadata

from xagents.version import __version__

PACKAGES = ('tensorflow', 'keras', 'gymnasium', 'numpy')
# packages that contain the same module
OTHER_PACKAGES = {'tensorflow': 'tensorflow-cpu'}


def versions() -> dict[str, str]:
    """Return the versions of xagents, Python and those of PACKAGES that are installed, by name."""
    found = {'xagents': __version__, 'python': platform.python_version()}
    for name in PACKAGES:
        for package in (name, OTHER_PACKAGES.get(name, name)):
            with contextlib.suppress(metadata.PackageNotFoundError):
                found.setdefault(name, metadata.version(package))
    return found
