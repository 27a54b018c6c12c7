"""Agents of a worker. Each is deleted before the next one is created; only compiled programs remain."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable, Iterator, Mapping
from typing import Any


@contextlib.contextmanager
def temporary_agent(make: Callable[[], Any], options: Mapping[str, Any]) -> Iterator[Any]:
    """Create an agent, close it at the end of the block, and free its memory.

    Compiled programs are kept for the next agent with the same shapes.

    Args:
        make: function that returns the agent.
        options: options of the agent, its environment and its network; agents with equal programs share them.
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
