"""PettingZoo's parallel environments, by name."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import inspect
import pkgutil
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import gymnasium

from xagents.options.errors import OptionError, did_you_mean
from xagents.system.modules import import_module

PREFIX = 'pettingzoo:'
# the names of a module's functions that make its environment, the parallel environment first
FACTORY_NAMES = ('parallel_env', 'env', 'raw_env')


def is_pettingzoo_env(env: Any) -> bool:
    """Return whether an object is a PettingZoo environment, parallel or AEC."""
    return hasattr(env, 'possible_agents') and hasattr(env, 'step') and not isinstance(env, gymnasium.Env)


def takes_turns(env: Any) -> bool:
    """Return whether the agents of a PettingZoo environment take turns, and cannot act at once."""
    return hasattr(env, 'agent_iter') and not env.metadata.get('is_parallelizable', False)


def to_parallel_env(env: Any) -> Any:
    """Return a parallel environment: the same one, or an AEC environment, whose agents can act at once, converted."""
    if not hasattr(env, 'agent_iter'):
        return env
    from pettingzoo.utils.conversions import aec_to_parallel

    return aec_to_parallel(env)


@dataclasses.dataclass(frozen=True)
class PettingZooMaker:
    """A picklable function that makes the environment `pettingzoo:NAME`.

    Attributes:
        name: NAME, which is module:Class or a module with `parallel_env`. Examples are `mpe2.simple_spread_v3` and,
            within PettingZoo, `butterfly.pistonball_v6`.

    Raises:
        OptionError: if the environment does not exist or an extra is missing.
    """

    name: str

    def __post_init__(self) -> None:
        """Raise an error if the environment does not exist."""
        _load_factory(self.name)

    def __call__(self, **kwargs: Any) -> Any:
        """Make the environment; `render_mode` is dropped if the environment does not accept it."""
        known = self._parameters
        anything = known is None or any(p.kind is p.VAR_KEYWORD for p in known.values())
        if not (anything or 'render_mode' in self.parameters):
            kwargs.pop('render_mode', None)
        return _load_factory(self.name)(**kwargs)

    @property
    def parameters(self) -> list[str]:
        """The names of the accepted arguments; empty if they are unknown."""
        return [name for name in self._parameters or () if name not in ('self', 'args', 'kwargs')]

    @property
    def _parameters(self) -> Mapping[str, inspect.Parameter] | None:
        """The parameters by name, None if unknown; functions of PettingZoo pass their arguments to `raw_env`."""
        dotted, _, attribute = self.name.partition(':')
        own: Any = _load_factory(self.name) if attribute else getattr(_load_module(dotted), 'raw_env', None)
        with contextlib.suppress(TypeError, ValueError):
            return inspect.signature(own).parameters
        return None


def _load_factory(name: str) -> Callable[..., Any]:
    """Return the function or class that makes an environment."""
    dotted, _, attribute = name.partition(':')
    found = _load_module(dotted)
    makers = (attribute,) if attribute else FACTORY_NAMES
    for maker in makers:
        factory = getattr(found, maker, None)
        if callable(factory):
            # a run directory may name any object of any module, and its arguments
            is_env = isinstance(factory, type) and hasattr(factory, 'reset') and hasattr(factory, 'step')
            if not is_env and maker not in FACTORY_NAMES:
                expected = f'a class of environments or a function named {", ".join(FACTORY_NAMES)}'
                raise OptionError('env', f'{PREFIX}{name} is a {type(factory).__name__}, expected {expected}')
            return cast(Callable[..., Any], factory)
    known = dir(found) if attribute else _env_names(dotted)
    hint = f', expected {dotted}.{known[0]} or another' if known and not attribute else did_you_mean(attribute, known)
    raise OptionError('env', f'{PREFIX}{name}: {dotted} has no {makers[0]}{hint}')


def _load_module(dotted: str) -> Any:
    """Return the module of a name; the prefix `pettingzoo.` is optional for PettingZoo's own modules."""
    missing = set()
    for path in (dotted, f'pettingzoo.{dotted}') if all(dotted.split('.')) else ():
        try:
            return import_module(path, 'env')
        except OptionError as error:
            cause = error.__cause__
            if not isinstance(cause, ModuleNotFoundError) or not f'{path}.'.startswith(f'{cause.name}.'):
                raise
            missing.add(cause.name)
    if missing & {'pettingzoo', 'mpe2'}:
        raise OptionError('env', f"{PREFIX}{dotted} needs an extra: pip install '.[multi]'")
    family, _, last = dotted.rpartition('.')
    raise OptionError('env', f'no environment {PREFIX}{dotted}{did_you_mean(last, _env_names(family))}')


def _env_names(family: str) -> Sequence[str]:
    """Return the names of a package's environments, for the hint of an error."""
    for path in (family, f'pettingzoo.{family}'):
        with contextlib.suppress(ImportError, AttributeError, ValueError):
            found = pkgutil.iter_modules(importlib.import_module(path).__path__)
            return [module.name for module in found if re.search(r'_v\d+$', module.name)]
    return ()
