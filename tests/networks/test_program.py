"""How arguments travel to a compiled program, and what it may keep of them."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from xagents.networks.cfg import parse_text
from xagents.networks.compiled import SMALL, Actor, Program
from xagents.networks.models import ModelReader

DTYPES = (np.float32, np.int32, np.bool_, np.uint8, np.float64, np.int64)
shapes = st.lists(st.integers(0, 3), max_size=3).map(tuple)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(DTYPES), shapes), max_size=5), st.integers(0, 2**32 - 1), st.booleans())
def test_what_a_program_is_given_arrives(kinds, seed, jit):
    program = Program(lambda arguments, number: (*map(tf.identity, arguments), tf.identity(number)), jit)
    rng = np.random.default_rng(seed)
    for _ in range(2):
        arrays = [np.asarray(rng.integers(-2, 9, shape)).astype(dtype) for dtype, shape in kinds]
        number = float(rng.normal())
        *got, last = program(arrays, number)
        assert float(last) == np.float32(number)
        for array, tensor in zip(arrays, got, strict=True):
            assert tensor.dtype == array.dtype
            np.testing.assert_array_equal(tensor, array)
    assert program.traces == 1


def test_large_arrays_arrive():
    large = np.arange(SMALL, dtype=np.float32)
    program = Program(lambda large, small: (large + small, large[::-1]), jit=True)
    for small in (1.0, 2.0):
        added, turned = program(large, small)
        np.testing.assert_array_equal(added, large + np.float32(small))
        np.testing.assert_array_equal(turned, large[::-1])


@pytest.mark.parametrize('jit', [False, True])
def test_what_was_kept_or_returned_stays_when_the_next_arguments_come(jit):
    variable = tf.Variable(tf.zeros(64))

    def keep(values):
        variable.assign(values)
        return values, values[:1]

    program, numbers = Program(keep, jit), np.arange(64, dtype=np.float32)
    first, _ = program(numbers)
    kept = variable.read_value()
    program(numbers + 1)
    np.testing.assert_array_equal(variable, numbers + 1)
    for before in (first, kept):
        np.testing.assert_array_equal(before, numbers)
    Program(lambda values: (values * 2,), jit)(numbers + 5)
    np.testing.assert_array_equal(variable, numbers + 1)


def test_acting_by_a_graph_takes_any_number_of_observations():
    import keras

    keras.config.set_dtype_policy('mixed_bfloat16')
    try:
        model = ModelReader(parse_text('[dense-0]\nunits=8\n[dense-1]\noutput=1\n'), [3], (4,)).build_model()
    finally:
        keras.config.set_dtype_policy('float32')
    actor = Actor(model)
    assert actor.plan is None and actor.traces == 0
    for n in (1, 5, 2):
        observations = np.random.default_rng(n).normal(size=(n, 4))
        (got,) = actor(observations.astype(np.float32))
        np.testing.assert_array_equal(got, model(observations.astype(np.float32)))
    assert actor.traces == 1


def test_threads_take_turns():
    program = Program(lambda number: (tf.fill((1000,), number),), jit=True)
    program(0.0)

    def call(number):
        return all((program(float(number))[0].numpy() == number).all() for _ in range(200))

    with ThreadPoolExecutor(4) as threads:
        assert all(threads.map(call, range(4)))
