"""Recipes: lists of stages that process the stream of contexts of a run.

A stage takes an iterator of contexts and returns an iterator of contexts, usually as a generator. The code before a
`yield` runs in the order of the stages. The code after a `yield` runs in reverse order, because the last generator of
a chain resumes first. `finally` is the teardown, and exceptions propagate through the generators. Does not load
TensorFlow.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import itertools
import types
from collections.abc import Callable, Generator, Iterable, Iterator
from typing import Any, TypeVar

from xagents.options.errors import did_you_mean
from xagents.pipeline.context import Context, Stage, Stream, check_context

S = TypeVar('S', bound=Callable[..., Any])


def stage(function: S) -> S:
    """Mark a function from a stream of contexts to a stream; `lift` adapts functions of a single context."""
    function.is_stage = True  # type: ignore[attr-defined]
    return function


def for_run(function: S) -> S:
    """Mark a stage that needs its run: `f(run, ctx)`, with at most one `yield`, or `f(run, stream)`."""
    function.for_run = list(inspect.signature(function).parameters)[1]  # type: ignore[attr-defined]
    return function


def _bound_stage(function: Stage, run: Any) -> Stage:
    """Return a stage with its run as the first argument, if it needs one."""
    takes = getattr(function, 'for_run', None)
    if takes is None:
        return function
    bound = functools.partial(function, run)
    return stage(bound) if takes == 'stream' else bound


def lift(middleware: Callable[[Context], Any]) -> Stage:
    """Return a stage from `f(ctx)`, a function or a generator with one `yield`.

    The code after the `yield` runs after all later stages. A `finally` around the `yield` runs on any exit. A
    generator that returns before its `yield` passes the context on.
    """

    @stage
    @functools.wraps(middleware, updated=())
    def lifted(stream: Stream) -> Iterator[Context]:
        for ctx in stream:
            result = middleware(ctx)
            if isinstance(result, types.GeneratorType):
                yield from _run_generator(ctx, result)
            else:
                yield ctx

    return lifted


def _run_generator(ctx: Context, generator: Generator) -> Iterator[Context]:
    with contextlib.closing(generator):
        if next(generator, generator) is generator:  # it returned before its yield
            yield ctx
            return
        yield ctx
        for _ in generator:
            raise RuntimeError('a stage from f(ctx) may yield at most once')


def compose(source: Iterator[Context], stages: Iterable[Stage]) -> Generator[Context, None, None]:
    """Chain `stages` after `source`; closing the result closes every stage, the last one first."""
    streams: list[Any] = [source]
    for s in stages:
        streams.append((s if getattr(s, 'is_stage', False) else lift(s))(streams[-1]))
    try:
        yield from streams[-1]
    finally:
        with contextlib.ExitStack() as closings:
            for s in streams:  # an ExitStack closes in reverse order, and continues after an error
                if hasattr(s, 'close'):
                    closings.callback(_close, s)


def _close(stream: Any) -> None:
    if not getattr(stream, 'gi_running', False):  # a thread that hangs in the stream ends with the process
        stream.close()


def closed_by_consumer(exit: GeneratorExit, handled: BaseException | None = None) -> bool:
    """Return whether the consumer closed the stream, and not an error in the loop.

    `handled` is the exception that was being handled when the stream began, if the loop is inside an `except` block.
    It is not an error of the loop.
    """
    cause = exit.__context__
    while isinstance(cause, GeneratorExit) and cause is not handled:
        cause = cause.__context__
    return cause is None or cause is handled


class Recipe:
    """A list of named stages; every method returns a new recipe and leaves this one as it is.

    Args:
        stages: `(name, stage)` pairs in order.
        context: the class of the run's contexts.
        agent: the agent of the stages; None if they belong to no agent.

    Attributes:
        names: the names of the stages in order.
        stages: the stages in order.
    """

    def __init__(
        self, stages: Iterable[tuple[str, Stage]] = (), context: type[Context] = Context, agent: object | None = None
    ):
        self._stages = tuple(stages)
        self.context, self.agent = check_context(context), agent
        self.names, self.stages = tuple(name for name, _ in self._stages), tuple(s for _, s in self._stages)
        for name, stage in self._stages:
            if not callable(stage):
                raise TypeError(f'stage {name}: got {stage!r}, expected a function of a context or of a stream')
            if self.names.count(name) > 1:
                raise ValueError(f'stage: there is already one named {name!r}; choose another name for the new stage')

    def use(self, stage: Stage, name: str | None = None) -> Recipe:
        """Add a stage at the end."""
        return self._insert(len(self._stages), stage, name)

    def before(self, existing: str, stage: Stage, name: str | None = None) -> Recipe:
        """Add a stage directly before the stage named `existing`."""
        return self._insert(self._index(existing), stage, name)

    def after(self, existing: str, stage: Stage, name: str | None = None) -> Recipe:
        """Add a stage directly after the stage named `existing`."""
        return self._insert(self._index(existing) + 1, stage, name)

    def replace(self, existing: str, stage: Stage) -> Recipe:
        """Replace the stage named `existing`; the new stage has the same position and name."""
        index = self._index(existing)
        return self._replaced((*self._stages[:index], (existing, stage), *self._stages[index + 1 :]))

    def without(self, *names: str) -> Recipe:
        """Remove the stages with these names."""
        for name in names:
            self._index(name)
        return self._replaced(pair for pair in self._stages if pair[0] not in names)

    def with_agent(self, agent: object) -> Recipe:
        """Set the agent of the stages."""
        return Recipe(self._stages, self.context, agent)

    def with_context(self, context: type[Context]) -> Recipe:
        """Use another class of contexts."""
        return Recipe(self._stages, context, self.agent)

    def bind(self, run: Any) -> Recipe:
        """Return the recipe with the run passed to all stages that need it."""
        return self._replaced((name, _bound_stage(s, run)) for name, s in self._stages)

    def stream(self, first: Context, collected: bool = False) -> Generator[Context, None, None]:
        """Return the stream through all stages.

        Args:
            first: the context of the last iteration, or a new context.
            collected: whether `first` is an iteration with a collected batch that no update has used yet. If so, it
                enters the stream after the stages that collect.
        """
        if not collected:
            return compose(source(first), self.stages)
        joins = next((name for name in ('overlap', 'checkpoint') if name in self.names), None)
        index = self._index(joins or 'collect') + (joins is None)
        stages = list(self.stages)
        stages.insert(index, stage(functools.partial(itertools.chain, [first])))
        return compose(source(first), stages)

    def _insert(self, index: int, stage: Stage, name: str | None) -> Recipe:
        name = name or str(getattr(stage, '__name__', type(stage).__name__))
        return self._replaced((*self._stages[:index], (name, stage), *self._stages[index:]))

    def _replaced(self, stages: Iterable[tuple[str, Stage]]) -> Recipe:
        return Recipe(stages, self.context, self.agent)

    def _index(self, name: str) -> int:
        if name not in self.names:
            known, hint = ', '.join(self.names) or 'none', did_you_mean(name, self.names)
            raise ValueError(f'stage: got {name!r}, the recipe has {known}{hint}')
        return self.names.index(name)

    def __add__(self, other: Recipe) -> Recipe:
        """Add the stages of another recipe at the end; the context class is the one that extends the other.

        Raises:
            ValueError: if the recipes belong to different agents.
            TypeError: if neither context class extends the other.
        """
        agent = self.agent if other.agent is None else other.agent
        if self.agent is not None and agent is not self.agent:
            raise ValueError('recipe: the two are of two agents, expected stages of one')
        context = max(self.context, other.context, key=lambda c: len(c.__mro__))
        if not (issubclass(context, self.context) and issubclass(context, other.context)):
            raise TypeError(f'context: {self.context.__name__} and {other.context.__name__}: neither extends the other')
        return Recipe((*self._stages, *other._stages), context, agent)

    def __repr__(self) -> str:
        return f'Recipe({", ".join(self.names)})'


def source(first: Context) -> Iterator[Context]:
    """Yield the contexts after `first`, until a context has a reason to stop."""
    ctx = first
    while not ctx.stop:
        ctx = ctx.next_iteration()
        yield ctx
