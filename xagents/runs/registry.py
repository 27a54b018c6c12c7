"""Registered stages: custom stages that recipes insert by name."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import typing
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from xagents.options.declaration import Option
from xagents.options.errors import OptionError, did_you_mean, format_value
from xagents.pipeline.context import Stage
from xagents.pipeline.recipe import Recipe
from xagents.registry import agents as registry
from xagents.registry.parts import NAME_PATTERN, PartRegistry
from xagents.system.modules import LOCATION

# names of the stages in the built-in recipes, see recipes.py
STAGE_NAMES = (
    *('schedule', 'collect', 'checkpoint', 'episodes', 'evaluate', 'best', 'learn', 'remember', 'replay', 'plateau'),
    *('history', 'metrics', 'prune', 'record', 'console', 'tensorboard', 'wandb', 'trackio', 'video', 'overlap'),
    'until',
    'curriculum',
)


T = TypeVar('T')


@dataclasses.dataclass(frozen=True)
class StagePart:
    """A stage, its position in a recipe and the values of its parameters.

    Args:
        name: name in the registry and in recipes.
        function: stage of a stream (`@stage`), function of a context, or class whose instances are such functions. If
            its first parameter is called `agent`, the function makes such a stage for an agent.
        position: 'after' or 'before'.
        anchor: name of the stage that this stage is inserted after or before.
        values: values of parameters by name.
    """

    name: str
    function: Callable[..., Any]
    position: str = 'after'
    anchor: str = 'collect'
    values: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def for_agent(self, agent: Any) -> Stage:
        """Return the stage for an agent."""
        if self._takes_agent:
            return self.function(agent, **self.values)
        if isinstance(self.function, type):
            return self.function(**self.values)
        bound = functools.partial(self.function, **self.values)
        # the copied attributes include the marks of `stage` and `for_run`
        return functools.update_wrapper(bound, self.function) if self.values else self.function

    def with_values(self, words: Iterable[str]) -> StagePart:
        """Return the stage with the values of its parameters from `key=value` words.

        Raises:
            OptionError: if a parameter is unknown, missing or given twice, or its value is not of the annotated type.
        """
        known, values = self.parameters, dict[str, Any]()
        for word in words:
            key, _, text = word.partition('=')
            if key not in known:
                admitted = f'{", ".join(known)}{did_you_mean(key, known)}' if known else 'no parameters'
                raise OptionError('stages', f'{self.name} takes no {key!r}, expected {admitted}')
            if key in values:
                raise OptionError('stages', f'{self.name}: got {key} twice, expected it once')
            try:
                values[key] = _typed(known[key], text)
            except OptionError as error:
                raise OptionError('stages', f'{self.name}: {key}: {error.problem}') from error
        if missing := [p.name for p in known.values() if p.default is p.empty and p.name not in values]:
            raise OptionError('stages', f'{self.name} lacks {missing[0]}, expected {missing[0]}=VALUE after the name')
        return dataclasses.replace(self, values=values) if values else self

    @property
    def parameters(self) -> dict[str, inspect.Parameter]:
        """The parameters that a user may set, by name."""
        passed = 1 if self._takes_agent or not isinstance(self.function, type) else 0
        passed += hasattr(self.function, 'for_run')
        named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
        return {p.name: p for p in self._signature[passed:] if p.kind in named}

    @property
    def _takes_agent(self) -> bool:
        return bool(self._signature) and self._signature[0].name == 'agent'

    @property
    def _signature(self) -> list[inspect.Parameter]:
        try:
            return list(inspect.signature(self.function, eval_str=True).parameters.values())
        except (TypeError, ValueError, NameError):  # no signature, as some built-in functions, or unknown annotations
            return []


def _typed(parameter: inspect.Parameter, text: str) -> Any:
    """Return the value of a parameter in its annotated type, or the type of its default, or else that of JSON."""
    types = typing.get_args(parameter.annotation) or (parameter.annotation,)
    if parameter.annotation is parameter.empty and isinstance(parameter.default, int | float | str):
        # a whole number as a default does not exclude fractions
        whole = type(parameter.default) is int and text.lstrip('+-').isdecimal()
        types = (float if type(parameter.default) is int and not whole else type(parameter.default),)
    kind = next((kind for kind in types if kind in (bool, int, float, str)), None)
    if kind is None:
        return Option(parameter.name, dict, None, '').parse([f'{parameter.name}={text}'])[parameter.name]
    return Option(parameter.name, kind, None, '', optional=type(None) in types).parse(text)


def register_stage(name: str, *, after: str | None = None, before: str | None = None) -> Callable[[T], T]:
    """Register a stage, so that `--stages` and `fit(stages=[…])` accept its name.

    An entry point of `xagents.stages` may name a function without this decorator. The function is then inserted after
    `collect`.

    Args:
        name: name of lower-case letters, digits and dashes.
        after: stage of the recipe after which to insert it. The default is `collect` if `before` is not given.
        before: stage of the recipe before which to insert it.

    Returns:
        A decorator for a function (see `StagePart`). It returns the function unchanged.

    Raises:
        OptionError: if the name is invalid or in use, or both `after` and `before` are given.
    """
    stage_registry._check_name(name)
    if after and before:
        raise OptionError('stages', f'{name}: got after={after!r} and before={before!r}, expected one of the two')
    position, anchor = ('before', before) if before else ('after', after or 'collect')

    def decorate(function: T) -> T:
        part = dataclasses.replace(_adopt_stage(name, function, ''), position=position, anchor=anchor)
        stage_registry.register(name, function, part)
        return function

    return decorate


def _adopt_stage(name: str, thing: Any, package: str) -> StagePart:
    if not callable(thing):
        raise OptionError('stages', f'{name}: got a {type(thing).__name__}, expected a function')
    if known := next((part for part in stage_registry.registered.values() if part.function is thing), None):
        return dataclasses.replace(known, name=name)
    part = StagePart(name, thing)
    if LOCATION.fullmatch(name) and not _is_stage(thing):
        expected = 'expected a function whose first parameter is ctx or agent'
        first = next(iter(inspect.signature(thing).parameters), '') if inspect.isfunction(thing) else ''
        hint = f'; above a generator of contexts from `{first}`, write @stage (from xagents.pipeline import stage)'
        raise OptionError('stages', f'got a {type(thing).__name__}, {expected}{hint if first else ""}')
    return part


def _is_stage(thing: Any) -> bool:
    """Return whether an object that is not registered has one of the forms of a stage.

    A run directory may name any object of any module. Only objects with these forms are called.
    """
    if isinstance(thing, type):
        called = next((vars(base)['__call__'] for base in thing.__mro__ if '__call__' in vars(base)), None)
        return inspect.isfunction(called) and list(inspect.signature(called).parameters)[1:2] == ['ctx']
    if not inspect.isfunction(thing):
        return False
    marked = hasattr(thing, 'is_stage') or hasattr(thing, 'for_run')
    return marked or next(iter(inspect.signature(thing).parameters), '') in ('ctx', 'agent')


def find_stages(words: Iterable[str]) -> list[StagePart]:
    """Return the stages with the given names, each of which may be followed by `key=value` words.

    Args:
        words: registered names or `module:name`, and values of their parameters.

    Raises:
        OptionError: if a name is unknown or occurs twice, or a parameter or its value is not valid.
    """
    given: dict[str, list[str]] = {}
    for word in words:
        if not isinstance(word, str):
            by_name = "expected a name of @register_stage('name') or module:function"
            recipe = f"recipe=agent.recipe().after('collect', {getattr(word, '__name__', 'stage')})"
            raise OptionError('stages', f'got a {type(word).__name__}, {by_name}, or fit({recipe})')
        if '=' not in word:
            if word in given:
                raise OptionError('stages', f'got {word} twice, expected every name once')
            given[word] = []
        elif given:
            given[next(reversed(given))].append(word)
        else:
            raise OptionError('stages', f'got {format_value(word)} first, expected a name and then its key=value pairs')
    stages: list[StagePart] = []
    for name, values in given.items():
        stages.append(_find_stage(name, stages).with_values(values))
    return stages


def _find_stage(name: str, earlier: list[StagePart]) -> StagePart:
    """Return the stage with a name that follows `earlier` stages."""
    if (part := stage_registry.find(name)) is not None:
        return part
    if earlier and earlier[-1].parameters and not NAME_PATTERN.fullmatch(name):
        pairs = ' '.join(f'{one}=VALUE' for one in earlier[-1].parameters)
        raise OptionError('stages', f'got {format_value(name)} after {earlier[-1].name}, expected {pairs}')
    error = stage_registry.unknown_error(name)
    raise OptionError('stages', f"{error.problem}, or module:function; --import MODULE registers a module's stages")


def insert_stages(recipe: Recipe, agent: Any, names: Iterable[str] | None) -> Recipe:
    """Return a recipe with stages inserted. Stages with the same anchor follow in the order of `names`.

    Args:
        recipe: recipe of an agent.
        agent: agent of the recipe.
        names: names of stages, and the values of their parameters (see `find_stages`).

    Raises:
        OptionError: if a name is unknown, or its anchor is not in the recipe.
    """
    last: dict[str, str] = {}
    for part in find_stages(names or ()):
        if part.anchor not in recipe.names:
            got = f'got {part.name}, to insert {part.position} {part.anchor}'
            expected = f'a stage in the recipe of {registry.agent_id_of(type(agent))}: {", ".join(recipe.names)}'
            raise OptionError('stages', f'{got}, expected {expected}')
        if part.position == 'before':
            recipe = recipe.before(part.anchor, part.for_agent(agent), part.name)
        else:
            recipe = recipe.after(last.get(part.anchor, part.anchor), part.for_agent(agent), part.name)
            last[part.anchor] = part.name
    return recipe


stage_registry: PartRegistry[StagePart] = PartRegistry('stages', 'stages', _adopt_stage, STAGE_NAMES)
