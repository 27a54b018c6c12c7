"""Of which versions environments are: two that differ may give other numbers."""

from __future__ import annotations

import sys

# what steps environments, where it is loaded
PACKAGES = ('gymnasium', 'ale_py', 'mujoco', 'Box2D')


def versions(env: str) -> dict[str, str]:
    """Return the versions of what steps an environment, `Id` or `module:Id`, that was made here."""
    modules = [part.partition('.')[0] for part in env.split(':')[:2]] if ':' in env else []
    loaded = {name: sys.modules[name] for name in (*PACKAGES, *modules) if name in sys.modules}
    found = {name: getattr(module, '__version__', None) for name, module in loaded.items()}
    return {name: version for name, version in found.items() if isinstance(version, str)}


def version_differences(local: dict[str, str], remote: dict[str, str]) -> str:
    """Return what differs in words; empty where nothing does. What only one side has loaded is for something else."""
    names = [name for name in sorted(local.keys() & remote.keys()) if local[name] != remote[name]]
    return ', '.join(f'{name} is {local[name]} here and {remote[name]} there' for name in names)
