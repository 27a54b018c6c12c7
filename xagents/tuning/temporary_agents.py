"""Agents of a worker: each is gone before the next one is made, but for what it has compiled."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable, Iterator, Mapping
from typing import Any


@contextlib.contextmanager
def temporary_agent(make: Callable[[], Any], options: Mapping[str, Any]) -> Iterator[Any]:
    """Make an agent, and close it; afterwards the memory that it took is free again.

    What it compiles is kept for the next one of the same shapes.

    Args:
        make: makes it.
        options: of its environment and network, which with its own say what it shares with others.
    """
    import keras

    from xagents.networks.program_cache import share_programs

    try:
        with share_programs(make, options) as agent:
            try:
                yield agent
            finally:
                agent.close()
                del agent
    finally:
        keras.backend.clear_session()
        gc.collect()
