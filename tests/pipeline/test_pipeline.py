"""The stream: order, teardown, exceptions, kept fields, and recipes."""

import dataclasses
import itertools
import math
import threading

import numpy as np
import pytest

from xagents.pipeline.context import Context, kept
from xagents.pipeline.recipe import Recipe, compose, lift, source, stage


def forever(context=Context):
    return source(context())


def run(stages, iterations=2, context=Context):
    stream = compose(forever(context), stages)
    contexts = list(itertools.islice(stream, iterations))
    stream.close()
    return contexts


def test_what_follows_a_yield_runs_in_reverse_order():
    log = []

    def named(name):
        def around(ctx):
            log.append(name)
            yield
            log.append(f'/{name}')

        return around

    stream = compose(forever(), [named('outer'), named('inner'), lambda ctx: log.append('last')])
    next(stream)
    assert log == ['outer', 'inner', 'last']
    next(stream)
    assert log == ['outer', 'inner', 'last', '/inner', '/outer', 'outer', 'inner', 'last']
    stream.close()


def test_closing_runs_finally_last_stage_first_and_reaches_the_source():
    log = []

    def watched():
        try:
            yield from forever()
        finally:
            log.append('source')

    def first(ctx):
        try:
            yield
        finally:
            log.append('first')

    @stage
    def second(stream):
        try:
            for ctx in stream:  # noqa: UP028, because `yield from` would close the stages before this one first
                yield ctx
        finally:
            log.append('second')

    stream = compose(watched(), [first, second])
    next(stream)
    stream.close()
    assert log == ['second', 'first', 'source']


@pytest.mark.parametrize('where', ['before', 'after'])
def test_an_exception_reaches_the_consumer_and_tears_everything_down(where):
    log = []

    def guard(ctx):
        try:
            yield
        finally:
            log.append('torn down')

    def fails(ctx):
        if ctx.iteration == 2 and where == 'before':
            raise ValueError('broken')
        yield
        if ctx.iteration == 1 and where == 'after':
            raise ValueError('broken')

    stream = compose(forever(), [guard, fails])
    next(stream)
    with pytest.raises(ValueError, match='broken'):
        next(stream)
    assert log == (['torn down'] * (2 if where == 'before' else 1))
    assert list(stream) == []


def test_a_stream_that_a_thread_hangs_in_is_left_to_it():
    inside, done = threading.Event(), threading.Event()

    def hanging():
        inside.set()
        done.wait()
        yield Context()

    @stage
    def ahead(stream):
        thread = threading.Thread(target=next, args=(stream,))
        thread.start()
        try:
            inside.wait()
            yield Context()
        finally:
            threads.append(thread)

    threads = []
    chain = compose(hanging(), [ahead])
    next(chain)
    chain.close()
    done.set()
    threads[0].join()


def test_one_failing_teardown_does_not_prevent_the_others():
    log = []

    def teardown(end):
        def stage(ctx):
            try:
                yield
            finally:
                end()

        return stage

    def fails():
        raise RuntimeError('in teardown')

    stream = compose(forever(), [teardown(lambda: log.append('done')), teardown(fails)])
    next(stream)
    with pytest.raises(RuntimeError, match='in teardown'):
        stream.close()
    assert log == ['done']


def test_a_stage_of_one_context_may_return_before_its_yield_and_not_yield_twice():
    def sometimes(ctx):
        if ctx.iteration == 1:
            return
        yield

    assert [ctx.iteration for ctx in run([sometimes], 3)] == [1, 2, 3]

    def twice(ctx):
        yield
        yield

    with pytest.raises(RuntimeError, match='at most once'):
        run([twice], 2)


def test_methods_and_callable_objects_are_stages():
    class Counter:
        n = 0

        def count(self, ctx):
            self.n += 1
            yield
            self.n += 10

        def __call__(self, ctx):
            yield
            self.n += 100

    counter = Counter()
    run([counter.count, counter], 2)
    assert counter.n == 2 + 10 + 100


def test_counters_are_kept_and_data_is_fresh():
    def fill(ctx):
        assert ctx.batch == {} and ctx.logs == {} and ctx.messages == []
        ctx.steps += 5
        ctx.batch['rewards'] = np.ones(3)
        ctx.logs['x'] = 1.0

    contexts = run([fill], 3)
    assert [ctx.steps for ctx in contexts] == [5, 10, 15]
    assert [ctx.iteration for ctx in contexts] == [1, 2, 3]


def test_own_fields():
    @dataclasses.dataclass(slots=True)
    class Own(Context):
        lives: int = kept(3)
        note: str = ''
        data: object = None

    def play(ctx):
        ctx.lives -= 1
        if ctx.iteration == 1:
            ctx.note = 'first'
            ctx.keep('note')

    contexts = run([play], 2, Own)
    assert [(ctx.lives, ctx.note) for ctx in contexts] == [(2, 'first'), (1, 'first')]
    with pytest.raises(AttributeError):
        Own().misspelt = 1
    context = Own(data=[1])
    with pytest.raises(TypeError, match='data: got list, expected a number'):
        context.keep('data')
    with pytest.raises(AttributeError):
        context.keep('nothing')
    context = Own()
    context.keep('data')
    context.data = np.zeros(3)
    with pytest.raises(TypeError, match='data'):  # checked at each renewal, too
        context.next_iteration()


def test_a_context_without_slots_is_refused():
    @dataclasses.dataclass
    class Loose(Context):
        extra: int = 0

    with pytest.raises(TypeError, match='slots=True'):
        Recipe(context=Loose)
    with pytest.raises(TypeError, match='subclass of Context'):
        Recipe(context=dict)


def a(ctx): ...
def b(ctx): ...
def c(ctx): ...


def test_recipes():
    recipe = Recipe().use(a).use(b)
    assert recipe.names == ('a', 'b')
    assert recipe.before('b', c).names == ('a', 'c', 'b')
    assert recipe.after('a', c).names == ('a', 'c', 'b')
    assert recipe.after('b', c, name='last').names == ('a', 'b', 'last')
    assert recipe.replace('a', c).names == ('a', 'b') and recipe.replace('a', c).stages == (c, b)
    assert recipe.without('a').names == ('b',)
    assert recipe.names == ('a', 'b'), 'a recipe never changes'
    with pytest.raises(ValueError, match='did you mean'):
        Recipe().use(a, name='collect').without('colect')
    with pytest.raises(ValueError, match='already one'):
        recipe.use(a)
    with pytest.raises(TypeError, match='stage int: got 3, expected a function'):
        recipe.after('a', 3)


def test_the_sum_of_two_recipes_has_the_context_that_knows_the_fields_of_both():
    @dataclasses.dataclass(slots=True)
    class Own(Context):
        mine: int = 0

    @dataclasses.dataclass(slots=True)
    class Other(Context):
        theirs: int = 0

    plain, own = Recipe([('a', a)]), Recipe([('b', b)], Own)
    assert (plain + own).context is (own + plain).context is Own
    with pytest.raises(TypeError, match='Own and Other'):
        own + Recipe(context=Other)
    one, two = object(), object()
    assert (plain + Recipe([('c', c)], agent=one)).without('a').agent is one
    with pytest.raises(ValueError, match='two agents'):
        Recipe(agent=one) + Recipe(agent=two)


def test_the_source_stops_where_told():
    def stop_at_three(ctx):
        if ctx.iteration == 3:
            ctx.stop = 'enough'

    assert len(list(compose(forever(), [stop_at_three]))) == 3


def test_lifted_stages_keep_their_name_and_defaults_are_nan():
    assert lift(a).__name__ == 'a'
    assert math.isnan(Context().mean_reward)
