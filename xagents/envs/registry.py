"""Environments of one's own, by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from xagents.registry.parts import PartRegistry


def register_env(name: str, function: Any = None) -> Any:
    """Register a function, or a class, that makes one environment; `--env` and `make` then take its name.

    Args:
        name: lowercase letters, digits and dashes.
        function: makes a `gymnasium.Env`; takes `render_mode` if it is to be drawn, and what `--env-kwargs` may name.
            Without it this is a decorator of one.

    Raises:
        OptionError: for a name that is none or is taken.
    """
    return env_registry.add(name, function)


def _adopt_env(name: str, thing: Any, package: str) -> Callable[..., Any]:
    if not callable(thing):
        raise ValueError(f'got a {type(thing).__name__}, expected a function or class that makes a gymnasium.Env')
    return thing


env_registry: PartRegistry[Callable[..., Any]] = PartRegistry('envs', 'env', _adopt_env)
