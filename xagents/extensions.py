"""Parts of your own: agents, networks, stages and environments that a command line then knows by name.

They are registered in a process by the functions below, or found in installed packages by the entry points
`xagents.agents`, `xagents.networks`, `xagents.stages` and `xagents.envs`; docs/extending.md shows both. Loads no
TensorFlow; a part itself may, once it is used.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeVar

from xagents import registry
from xagents.entry_points import Parts
from xagents.network_functions import networks
from xagents.options import OptionError
from xagents.registry import register as register

if TYPE_CHECKING:
    from xagents.pipeline import Recipe, Stage

T = TypeVar('T')
# names of the stages of our recipes, see stages.py
STAGES = (
    *('schedule', 'collect', 'checkpoint', 'episodes', 'evaluate', 'best', 'learn', 'remember', 'replay', 'plateau'),
    *('history', 'metrics', 'prune', 'record', 'console', 'tensorboard', 'wandb', 'video', 'overlap', 'until'),
)


# networks


def register_network(name: str, network: Any = None) -> Any:
    """Register a network in this process: wherever a .cfg path is taken, its name then is, too.

    Args:
        name: lowercase letters, digits and dashes.
        network: path of a .cfg file, or a function (see `NetworkFunction`); without it this is a decorator of one.

    Raises:
        OptionError: for a name that is none or is taken, or something that is no network.
    """
    return _registering(networks, name, network)


# environments


def register_env(name: str, function: Any = None) -> Any:
    """Register a function, or a class, that makes one environment; `--env` and `make` then take its name.

    Args:
        name: lowercase letters, digits and dashes.
        function: makes a `gymnasium.Env`; takes `render_mode` if it is to be drawn, and what `--env-kwargs` may name.
            Without it this is a decorator of one.

    Raises:
        OptionError: for a name that is none or is taken.
    """
    return _registering(envs, name, function)


def _adopt_env(name: str, thing: Any, package: str) -> Callable[..., Any]:
    if not callable(thing):
        raise ValueError(f'got a {type(thing).__name__}, admits a function or class that makes a gymnasium.Env')
    return thing


# stages


@dataclasses.dataclass(frozen=True)
class StagePart:
    """A stage, and where it stands.

    Args:
        name: that it is registered under, and has in a recipe.
        function: a stage of a stream (`@stage`), a function of a context, or, where its parameter is called `agent`, a
            function that makes one of these for an agent.
        place: 'after' or 'before'.
        existing: the stage that it is put after or before.
    """

    name: str
    function: Callable[..., Any]
    place: str = 'after'
    existing: str = 'collect'

    def made(self, agent: Any) -> Stage:
        """Return the stage for an agent."""
        try:
            names = list(inspect.signature(self.function).parameters)
        except (TypeError, ValueError):  # nothing tells what it takes
            names = []
        return self.function(agent) if names[:1] == ['agent'] else self.function


def register_stage(name: str, *, after: str | None = None, before: str | None = None) -> Callable[[T], T]:
    """Register a stage; `--stages` and `fit(stages=[…])` then take its name.

    An entry point of `xagents.stages` that names a function without this decorator puts it after `collect`.

    Args:
        name: lowercase letters, digits and dashes.
        after: the stage of the recipe that it stands behind; `collect` when neither is given.
        before: or the one that it stands in front of.

    Returns:
        A decorator of a function (see `StagePart`), which returns it.

    Raises:
        OptionError: for a name that is none or is taken, or two places.
    """
    stages._check_name(name)
    if after and before:
        raise OptionError('stages', f'{name} got after={after!r} and before={before!r}, admits one of the two')
    place, existing = ('before', before) if before else ('after', after or 'collect')

    def decorate(function: T) -> T:
        part = dataclasses.replace(_adopt_stage(name, function, ''), place=place, existing=existing)
        stages.register(name, function, part)
        return function

    return decorate


def _adopt_stage(name: str, thing: Any, package: str) -> StagePart:
    if not callable(thing):
        raise OptionError('stages', f'{name} is a {type(thing).__name__}, admits a function')
    return StagePart(name, thing)


def find_stages(names: Iterable[str]) -> list[StagePart]:
    """Return the stages of names.

    Raises:
        OptionError: for a name that no stage has, or that stands twice.
    """
    found: list[StagePart] = []
    for name in names:
        part = stages.find(name)
        if part is None:
            raise stages.unknown(name)
        if part in found:
            raise OptionError('stages', f'got {name} twice, admits each once')
        found.append(part)
    return found


def with_stages(recipe: Recipe, agent: Any, names: Iterable[str] | None) -> Recipe:
    """Return a recipe with registered stages in their places; those of one place stand in the order of `names`.

    Raises:
        OptionError: for a name that no stage has, or a place that the recipe has not.
    """
    last: dict[str, str] = {}
    for part in find_stages(names or ()):
        if part.existing not in recipe.names:
            raise OptionError(
                'stages',
                f'{part.name} stands {part.place} {part.existing}, '
                f'the recipe of {registry.id_of(type(agent))} has {", ".join(recipe.names)}',
            )
        put = recipe.after if part.place == 'after' else recipe.before
        existing = last.get(part.existing, part.existing) if part.place == 'after' else part.existing
        recipe = put(existing, part.made(agent), name=part.name)
        if part.place == 'after':
            last[part.existing] = part.name
    return recipe


def _registering(parts: Parts, name: str, thing: Any) -> Any:
    parts._check_name(name)

    def decorate(thing: T) -> T:
        parts.register(name, thing)
        return thing

    return decorate if thing is None else decorate(thing)


envs: Parts[Callable[..., Any]] = Parts('envs', 'env', _adopt_env)
stages: Parts[StagePart] = Parts('stages', 'stages', _adopt_stage, STAGES)
