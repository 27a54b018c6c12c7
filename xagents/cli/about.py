"""The page of `xagents --version --verbose`: facts about the installation that a bug report needs."""

from __future__ import annotations

from xagents.system import compilation_cache
from xagents.system.versions import versions


def about() -> str:
    """Return the installed versions and the cache directory of compiled programs."""
    lines = [' '.join(pair) for pair in versions().items()]
    return '\n'.join([*lines, f'compiled programs {compilation_cache.cache_summary()}'])
