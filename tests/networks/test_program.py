"""How arguments travel to a compiled program, and what it may keep of them."""

from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import keras
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from xagents.networks.cfg import parse_text
from xagents.networks.models import ModelReader
from xagents.networks.programs import MAX_PACKED_BYTES, KerasNetwork, Program, _fast_call, _has_parameters

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
    large = np.arange(MAX_PACKED_BYTES, dtype=np.float32)
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


def in_bfloat16(text, shape):
    keras.config.set_dtype_policy('mixed_bfloat16')
    try:
        return ModelReader(parse_text(text), [3], shape).build_model()
    finally:
        keras.config.set_dtype_policy('float32')


CONVOLVES = '[convolutional-0]\nfilters=2\nsize=3\nstride=1\n[flatten-0]\n[dense-0]\noutput=1\n'


def test_acting_by_a_graph_takes_any_number_of_observations():
    model = in_bfloat16(CONVOLVES, (6, 6, 1))
    actor = KerasNetwork(model)
    assert actor.plan is None and actor.traces == 0
    for n in (1, 5, 2):
        observations = np.random.default_rng(n).normal(size=(n, 6, 6, 1)).astype(np.float32)
        np.testing.assert_array_equal(actor(observations)[0], model(observations))
    assert actor.traces == 1


def test_a_dense_network_that_learns_in_bfloat16_acts_in_float32():
    model = in_bfloat16('[dense-0]\nunits=8\nactivation=tanh\n[dense-1]\noutput=1\n', (4,))
    actor, observations = KerasNetwork(model), np.random.default_rng(1).normal(size=(5, 4)).astype(np.float32)
    (kernel, bias), (last, offset) = (layer.get_weights() for layer in model.layers if layer.get_weights())
    (got,) = actor(observations)
    np.testing.assert_allclose(got, np.tanh(observations @ kernel + bias) @ last + offset, rtol=1e-5, atol=1e-6)
    learned = model(observations).numpy()
    assert 1e-4 < abs(got - learned).max() < 0.05


class Traced:
    """A concrete function as releases of TensorFlow may have it."""

    structured_outputs = (tf.constant(0.0),)

    def __init__(self, function, call_flat):
        self._inference_function, self._call_flat = function, call_flat

    def __call__(self, *tensors):
        return 'as usual', tensors


def test_a_release_of_tensorflow_without_the_short_way_is_called_as_usual():
    def call_function(name, tensor_inputs, num_outputs):
        return name, tensor_inputs, num_outputs

    def call_flat(tensor_inputs, captured_inputs):
        return tensor_inputs, captured_inputs

    def other(context, name, *rest):
        raise AssertionError

    short = SimpleNamespace(name='f', _bound_context=SimpleNamespace(call_function=call_function))
    assert _fast_call(Traced(short, call_flat), [9])(1, 2) == ('f', [1, 2, 9], 1)
    short._bound_context.call_function = other
    assert _fast_call(Traced(short, call_flat), [9])(1, 2) == ([1, 2], [9])
    assert _fast_call(Traced(None, other), [9])(1, 2) == ('as usual', (1, 2))
    # and this one has it
    traced = tf.function(lambda x: (x + 1.0, x)).get_concrete_function(tf.TensorSpec((2,)))
    assert _has_parameters(
        traced._inference_function._bound_context.call_function, 'name', 'tensor_inputs', 'num_outputs'
    )


def test_threads_take_turns():
    program = Program(lambda number: (tf.fill((1000,), number),), jit=True)
    program(0.0)

    def call(number):
        return all((program(float(number))[0].numpy() == number).all() for _ in range(200))

    with ThreadPoolExecutor(4) as threads:
        assert all(threads.map(call, range(4)))
