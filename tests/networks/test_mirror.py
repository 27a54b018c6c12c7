"""The NumPy mirror against the Keras models it mirrors."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from xagents.networks.cfg import dense_network, parse_text
from xagents.networks.mirror import DenseMirror, flat_parameters
from xagents.networks.models import LogStd, ModelReader

pytestmark = pytest.mark.filterwarnings(r'error::DeprecationWarning:xagents\..*')

MIRRORED = ['linear', 'relu', 'tanh', 'sigmoid', 'softmax', 'elu', 'selu', 'silu', 'leaky_relu', 'softplus']
MIRRORED += ['softsign', 'exponential']


def randomize(model, rng, scale=0.5):
    """Give every variable, biases too, a value of its own."""
    for variable in model.variables:
        variable.assign(rng.normal(0, scale, variable.shape))


def assert_mirrors(model, observations, mirror=None, atol=1e-5):
    mirror = mirror or DenseMirror(model)
    expected = tf.nest.flatten(model(observations.astype(np.float32)))
    got = mirror(observations)
    assert len(got) == len(expected)
    for e, g in zip(expected, got, strict=True):
        assert g.dtype == np.float32
        np.testing.assert_allclose(g, e, rtol=1e-5, atol=atol)
    return mirror


def dense_model(net, activation='tanh', shared=False, units=(3, 1), inputs=4, **options):
    return ModelReader(dense_network(net, activation, shared), units, (inputs,), **options).build_model()


@settings(max_examples=15, deadline=None, phases=[Phase.explicit, Phase.generate])  # each shrinking builds models
@given(
    st.lists(st.integers(1, 40), min_size=1, max_size=3),
    st.sampled_from(MIRRORED[:-1]),  # exponentials of exponentials overflow
    st.booleans(),
    st.sampled_from([None, -0.5]),
    st.integers(1, 33),
    st.integers(1, 20),
    st.integers(0, 2**32 - 1),
)
def test_any_dense_network_agrees_with_keras(net, activation, shared, log_std, n, inputs, seed):
    rng = np.random.default_rng(seed)
    model = dense_model(net, activation, shared, units=(int(rng.integers(1, 7)), 1), inputs=inputs, log_std=log_std)
    randomize(model, rng, 0.2)
    mirror = assert_mirrors(model, rng.normal(size=(n, inputs)))
    policy = keras.Model(model.input, model.outputs[::2])  # the mean and, if there is one, its log_std
    assert DenseMirror.supports(model) and DenseMirror.supports(policy)
    assert DenseMirror(policy).n_parameters < mirror.n_parameters
    assert_mirrors(policy, rng.normal(size=(n, inputs)))


@pytest.mark.parametrize('activation', MIRRORED)
def test_activations_agree_far_out(activation):
    model = keras.Sequential([keras.Input((6,)), keras.layers.Activation(activation)])
    x = np.array([[-60, -3, -1e-4, 0, 2, 60], [-900, 0.5, 0, 0, 0, -0.5]], np.float32)
    assert_mirrors(model, x)


def test_weights_are_copied_when_the_mirror_is_made_and_at_a_refresh():
    rng = np.random.default_rng(1)
    model = dense_model([8, 6], units=(2, 1), log_std=0.1)
    mirror = DenseMirror(model)
    x = rng.normal(size=(5, 4)).astype(np.float32)
    before = [output.copy() for output in mirror(x)]
    randomize(model, rng)
    for a, b in zip(mirror(x), before, strict=True):
        np.testing.assert_array_equal(a, b)
    expected = np.concatenate([v.numpy().ravel() for v in model.trainable_variables])
    vector = tf.function(lambda: flat_parameters(model))().numpy()
    np.testing.assert_array_equal(vector, expected)
    assert mirror.n_parameters == len(expected)
    mirror.refresh(vector)
    vector[:] = 7
    assert_mirrors(model, x, mirror)


def test_other_numbers_of_observations_and_other_dtypes():
    model = dense_model([16], log_std=-1.0)
    randomize(model, np.random.default_rng(2))
    mirror = DenseMirror(model)
    rng = np.random.default_rng(3)
    for n in [4, 1, 4, *range(2, 20), 4]:
        assert_mirrors(model, rng.normal(size=(n, 4)), mirror)
    for dtype in (np.uint8, np.int64, np.float16, np.float64):
        assert_mirrors(model, np.arange(12).reshape(3, 4).astype(dtype), mirror)
    assert_mirrors(model, np.asfortranarray(rng.normal(size=(3, 4))), mirror)
    assert_mirrors(model, rng.normal(size=(4, 3)).T, mirror)
    buffers = [mirror(np.ones((n, 4)))[0] for n in (1, 4)]
    mirror.refresh(rng.normal(size=mirror.n_parameters).astype(np.float32))
    rows = [mirror(np.ones((n, 4), np.float32))[0] for n in (1, 4)]
    np.testing.assert_allclose(rows[1], np.repeat(rows[0], 4, 0), rtol=1e-5)
    assert all(np.shares_memory(a, b) for a, b in zip(buffers, rows, strict=True)), 'the steady state allocates'


def test_a_call_checks_the_observations_shape():
    with pytest.raises(ValueError):
        DenseMirror(dense_model([8]))(np.ones((3, 5), np.float32))
    with pytest.raises(ValueError, match=r'vector: got shape \(3,\), admits'):
        DenseMirror(dense_model([8])).refresh(np.zeros(3, np.float32))


def test_graphs_that_are_not_chains_and_flattened_images():
    x = keras.Input((4,))
    trunk = keras.layers.Dense(8, 'tanh', use_bias=False)(x)
    again = keras.layers.Dense(8, 'relu')
    first = again(trunk)
    second = again(first)  # one layer, called twice
    output = keras.layers.Dense(3)(keras.layers.Identity()(second))
    activated = keras.layers.Activation('softmax')(output)  # must not write into its source
    model = keras.Model(x, [output, activated, LogStd(0.3)(output), first])
    x = keras.Input((3, 4, 2))
    images = keras.Model(x, keras.layers.Dense(3, 'elu')(keras.layers.Flatten()(x)))
    for network in (model, images):
        randomize(network, np.random.default_rng(5))
        assert_mirrors(network, np.random.default_rng(6).normal(size=(7, *network.input_shape[1:])))


ACTION = '[dense-0]\nunits=5\n[action-0]\n[dense-1]\noutput=1\n'


def unsupported_models():
    x, image, pair = keras.Input((4,)), keras.Input((8, 8, 3)), keras.Input((2, 4))
    dense = keras.layers.Dense
    yield 'convolution', keras.Model(image, dense(2)(keras.layers.Flatten()(keras.layers.Conv2D(2, 3)(image))))
    yield 'gelu', keras.Model(x, dense(2, 'gelu')(x))
    yield 'own activation', keras.Model(x, dense(2, lambda x: x * 2)(x))
    yield 'normalisation', keras.Model(x, keras.layers.LayerNormalization()(dense(2)(x)))
    yield 'two inputs', keras.Model([x, keras.Input((4,))], dense(2)(x))
    yield 'a critic with an action section', ModelReader(parse_text(ACTION), [1], (4,), action_units=2).build_model()
    yield 'dense on a sequence', keras.Model(pair, dense(2)(pair))
    yield 'nested', keras.Model(x, keras.Model(x, dense(2)(x))(x))
    yield 'bfloat16', keras.Model(x, dense(2, dtype='mixed_bfloat16')(x))
    yield 'unbuilt', keras.Sequential([dense(2)])
    frozen = keras.Model(x, dense(2)(dense(3)(x)))
    frozen.layers[1].trainable = False
    yield 'frozen', frozen

    yield 'subclassed', type('Subclassed', (keras.Model,), {'call': lambda self, x: x})()


@pytest.mark.parametrize(('name', 'model'), unsupported_models(), ids=lambda x: x if isinstance(x, str) else '')
def test_what_has_no_mirror_says_so(name, model):
    assert not DenseMirror.supports(model)
    with pytest.raises(ValueError, match='admits dense networks'):
        DenseMirror(model)
