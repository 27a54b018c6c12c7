"""The stream that a run is: contexts that pass through stages.

A stage takes an iterator of contexts and gives one. When the consumer of a chain of generators asks for the next item,
the last generator resumes first; so what stands after a stage's `yield` runs in reverse order, a dependency is a
position in a list, `finally` is teardown, and an exception travels the natural way. Imports no TensorFlow.
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
    """Mark a function that takes a stream of contexts and returns one; others are lifted from a single context."""
    function.is_stage = True  # type: ignore[attr-defined]
    return function


def for_run(function: S) -> S:
    """Mark a stage that needs its run: `f(run, ctx)`, with at most one `yield`, or `f(run, stream)`."""
    function.for_run = list(inspect.signature(function).parameters)[1]  # type: ignore[attr-defined]
    return function


def _bound_stage(function: Stage, run: Any) -> Stage:
    """Return a stage for a run."""
    takes = getattr(function, 'for_run', None)
    if takes is None:
        return function
    bound = functools.partial(function, run)
    return stage(bound) if takes == 'stream' else bound


def lift(middleware: Callable[[Context], Any]) -> Stage:
    """Make a stage of `f(ctx)`, or of `f(ctx)` with one `yield`: what follows it runs after every later stage.

    A `finally` around the yield runs on any exit. A generator that returns before its yield passes the context on.
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
            raise RuntimeError('a stage made of f(ctx) yields at most once')


def compose(source: Iterator[Context], stages: Iterable[Stage]) -> Generator[Context, None, None]:
    """Chain `stages` behind `source`; closing the result closes every stage, the last one first."""
    streams: list[Any] = [source]
    for s in stages:
        streams.append((s if getattr(s, 'is_stage', False) else lift(s))(streams[-1]))
    try:
        yield from streams[-1]
    finally:
        with contextlib.ExitStack() as closings:
            for s in streams:  # an ExitStack runs backwards, and goes on after an error
                if hasattr(s, 'close'):
                    closings.callback(_close, s)


def _close(stream: Any) -> None:
    if not getattr(stream, 'gi_running', False):  # a thread that hangs in it is given up with its process
        stream.close()


def closed_by_consumer(exit: GeneratorExit, handled: BaseException | None = None) -> bool:
    """Return whether a stream was closed by its consumer, and not on the way out of an error.

    `handled` was being handled when the stream began, and is no error of the loop's, which may stand in an `except`.
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
        agent: whose stages they are; None where they are nobody's.
    """

    def __init__(
        self, stages: Iterable[tuple[str, Stage]] = (), context: type[Context] = Context, agent: object | None = None
    ):
        self._stages = tuple(stages)
        self.context, self.agent = check_context(context), agent
        for name, stage in self._stages:
            if not callable(stage):
                raise TypeError(f'stage {name}: got {stage!r}, takes a function of a context or of a stream')
        names = self.names
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f'stage: there is already one named {name!r}; give the new one a name of its own')

    @property
    def names(self) -> tuple[str, ...]:
        """The stages' names in order."""
        return tuple(name for name, _ in self._stages)

    @property
    def stages(self) -> tuple[Stage, ...]:
        """The stages in order."""
        return tuple(s for _, s in self._stages)

    def use(self, stage: Stage, name: str | None = None) -> Recipe:
        """Put a stage at the end."""
        return self._insert(len(self._stages), stage, name)

    def before(self, existing: str, stage: Stage, name: str | None = None) -> Recipe:
        """Put a stage directly before the one named `existing`."""
        return self._insert(self._index(existing), stage, name)

    def after(self, existing: str, stage: Stage, name: str | None = None) -> Recipe:
        """Put a stage directly after the one named `existing`."""
        return self._insert(self._index(existing) + 1, stage, name)

    def replace(self, existing: str, stage: Stage) -> Recipe:
        """Put a stage in the place, and under the name, of the one named `existing`."""
        index = self._index(existing)
        return self._replaced((*self._stages[:index], (existing, stage), *self._stages[index + 1 :]))

    def without(self, *names: str) -> Recipe:
        """Leave out the stages with these names."""
        for name in names:
            self._index(name)
        return self._replaced(pair for pair in self._stages if pair[0] not in names)

    def with_agent(self, agent: object) -> Recipe:
        """Let the stages be those of an agent."""
        return Recipe(self._stages, self.context, agent)

    def with_context(self, context: type[Context]) -> Recipe:
        """Use another class of contexts."""
        return Recipe(self._stages, context, self.agent)

    def bind(self, run: Any) -> Recipe:
        """Return the recipe with those stages ready that need their run."""
        return self._replaced((name, _bound_stage(s, run)) for name, s in self._stages)

    def stream(self, first: Context, collected: bool = False) -> Generator[Context, None, None]:
        """Return the stream through all stages, after the context that the last iteration left, or a new one.

        If it is `collected`, it is an iteration that was collected before, and is still to be learned from.
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
            raise ValueError(
                f'stage: got {name!r}, the recipe has {", ".join(self.names) or "none"}{did_you_mean(name, self.names)}'
            )
        return self.names.index(name)

    def __add__(self, other: Recipe) -> Recipe:
        """Put the stages of another recipe at the end; the context is that of the two which has all fields of both.

        Raises:
            ValueError: where they are of two agents.
            TypeError: where neither class of contexts extends the other.
        """
        agent = self.agent if other.agent is None else other.agent
        if self.agent is not None and agent is not self.agent:
            raise ValueError('recipe: the two are of two agents, expected stages of one')
        context = max(self.context, other.context, key=lambda c: len(c.__mro__))
        if not (issubclass(context, self.context) and issubclass(context, other.context)):
            raise TypeError(f'context: {self.context.__name__} and {other.context.__name__} are of two recipes')
        return Recipe((*self._stages, *other._stages), context, agent)

    def __repr__(self) -> str:
        return f'Recipe({", ".join(self.names)})'


def source(first: Context) -> Iterator[Context]:
    """Give contexts until one's `stop` is set, after the one that the last iteration left, or a new one."""
    ctx = first
    while not ctx.stop:
        ctx = ctx.next_iteration()
        yield ctx
