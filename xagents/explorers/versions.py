"""Versions of the packages that step environments. Environments of different versions may give different results."""

from __future__ import annotations

import sys

# packages that step environments
PACKAGES = ('gymnasium', 'ale_py', 'mujoco', 'Box2D')


def versions(env: str) -> dict[str, str]:
    """Return the versions, by name, of the imported packages that step an environment `Id` or `module:Id`."""
    modules = [part.partition('.')[0] for part in env.split(':')[:2]] if ':' in env else []
    loaded = {name: sys.modules[name] for name in (*PACKAGES, *modules) if name in sys.modules}
    found = {name: getattr(module, '__version__', None) for name, module in loaded.items()}
    return {name: version for name, version in found.items() if isinstance(version, str)}


def version_differences(local: dict[str, str], remote: dict[str, str]) -> str:
    """Return the differences as text, or an empty string.

    Packages that only one side has imported are ignored, because the environment does not need them.
    """
    names = [name for name in sorted(local.keys() & remote.keys()) if local[name] != remote[name]]
    return ', '.join(f'{name} is {local[name]} here and {remote[name]} there' for name in names)
