"""The registry of user-defined environments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from xagents.registry.parts import PartRegistry


def register_env(name: str, function: Any = None) -> Any:
    """Register a function or class that makes one environment; `--env` and `make` then accept its name.

    Args:
        name: a name of lowercase letters, digits and dashes.
        function: a function or class that returns a `gymnasium.Env`. Its parameters are the arguments that
            `--env-kwargs` may set, and `render_mode` if the environment can be rendered. If omitted, `register_env`
            returns a decorator.

    Raises:
        OptionError: if the name is invalid or already registered.
    """
    return env_registry.add(name, function)


def _adopt_env(name: str, thing: Any, package: str) -> Callable[..., Any]:
    if not callable(thing):
        raise ValueError(f'got a {type(thing).__name__}, expected a function or class that makes a gymnasium.Env')
    return thing


env_registry: PartRegistry[Callable[..., Any]] = PartRegistry('envs', 'env', _adopt_env)
