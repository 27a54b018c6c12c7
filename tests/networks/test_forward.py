"""Networks in NumPy, by their plans, against the Keras models that the plans are of."""

import itertools
import json
import os
import subprocess
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from xagents.networks.cfg import dense_network, parse_text
from xagents.networks.keras_to_plan import flat_parameters, has_plan, plan_from_model
from xagents.networks.models import LogStd, ModelReader
from xagents.networks.numpy_inference import NumpyNetwork
from xagents.networks.plan import LayerCall, NetworkPlan

pytestmark = pytest.mark.filterwarnings(r'error::DeprecationWarning:xagents\..*')

MIRRORED = ['linear', 'relu', 'tanh', 'sigmoid', 'softmax', 'elu', 'selu', 'silu', 'leaky_relu', 'softplus']
MIRRORED += ['softsign', 'gelu', 'exponential']


def numpy_of(model):
    plan = NetworkPlan.from_dict(json.loads(json.dumps(plan_from_model(model).to_dict())))
    return NumpyNetwork(plan, flat_parameters(model).numpy())


def randomize(model, rng, scale=0.5):
    """Give every variable, biases too, a value of its own."""
    for variable in model.variables:
        variable.assign(rng.normal(0, scale, variable.shape))


def assert_mirrors(model, observations, mirror=None, atol=1e-5):
    mirror = mirror or numpy_of(model)
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
    assert has_plan(model) and has_plan(policy)
    assert plan_from_model(policy).n_parameters < mirror.plan.n_parameters
    assert_mirrors(policy, rng.normal(size=(n, inputs)))


@pytest.mark.parametrize('activation', MIRRORED)
def test_activations_agree_far_out(activation):
    model = keras.Sequential([keras.Input((6,)), keras.layers.Activation(activation)])
    x = np.array([[-60, -3, -1e-4, 0, 2, 60], [-900, 0.5, 0, 0, 0, -0.5]], np.float32)
    assert_mirrors(model, x)


def test_weights_are_copied_when_the_mirror_is_made_and_at_a_refresh():
    rng = np.random.default_rng(1)
    model = dense_model([8, 6], units=(2, 1), log_std=0.1)
    mirror = numpy_of(model)
    x = rng.normal(size=(5, 4)).astype(np.float32)
    before = [output.copy() for output in mirror(x)]
    randomize(model, rng)
    for a, b in zip(mirror(x), before, strict=True):
        np.testing.assert_array_equal(a, b)
    expected = np.concatenate([v.numpy().ravel() for v in model.trainable_variables])
    vector = tf.function(lambda: flat_parameters(model))().numpy()
    np.testing.assert_array_equal(vector, expected)
    assert mirror.plan.n_parameters == len(expected)
    mirror.refresh(vector)
    vector[:] = 7
    assert_mirrors(model, x, mirror)


def test_other_numbers_of_observations_and_other_dtypes():
    model = dense_model([16], log_std=-1.0)
    randomize(model, np.random.default_rng(2))
    mirror = numpy_of(model)
    rng = np.random.default_rng(3)
    for n in [4, 1, 4, *range(2, 20), 4]:
        assert_mirrors(model, rng.normal(size=(n, 4)), mirror)
    for dtype in (np.int64, np.float16, np.float64):
        assert_mirrors(model, np.arange(12).reshape(3, 4).astype(dtype), mirror)
    shades = np.arange(12, dtype=np.uint8).reshape(3, 4)
    np.testing.assert_array_equal(mirror(shades)[0].copy(), mirror(shades / np.float32(255))[0])
    assert_mirrors(model, np.asfortranarray(rng.normal(size=(3, 4))), mirror)
    assert_mirrors(model, rng.normal(size=(4, 3)).T, mirror)
    buffers = [mirror(np.ones((n, 4)))[0] for n in (1, 4)]
    mirror.refresh(rng.normal(size=mirror.plan.n_parameters).astype(np.float32))
    rows = [mirror(np.ones((n, 4), np.float32))[0] for n in (1, 4)]
    np.testing.assert_allclose(rows[1], np.repeat(rows[0], 4, 0), rtol=1e-5)
    assert all(np.shares_memory(a, b) for a, b in zip(buffers, rows, strict=True)), 'the steady state allocates'


def test_a_call_checks_the_observations_shape():
    with pytest.raises(ValueError):
        numpy_of(dense_model([8]))(np.ones((3, 5), np.float32))
    with pytest.raises(ValueError, match=r'weights: got shape \(3,\), expected'):
        numpy_of(dense_model([8])).refresh(np.zeros(3, np.float32))


def test_graphs_that_are_not_chains_and_flattened_images():
    x = keras.Input((4,))
    trunk = keras.layers.Dense(8, 'tanh', use_bias=False)(x)
    layer = keras.layers.Dense(8, 'relu')
    first = layer(trunk)
    second = layer(first)  # one layer, called twice
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
    padded = keras.layers.Conv2D(2, 3, padding='same')(image)
    yield 'a padded convolution', keras.Model(image, dense(2)(keras.layers.Flatten()(padded)))
    yield 'an image as its output', keras.Model(image, keras.layers.Conv2D(2, 3)(image))
    yield 'an operation', keras.Model(x, dense(2)(x) * 2.0)
    yield 'mish', keras.Model(x, dense(2, 'mish')(x))
    yield 'own activation', keras.Model(x, dense(2, lambda x: x * 2)(x))
    yield 'group normalisation', keras.Model(x, keras.layers.GroupNormalization(1)(dense(2)(x)))
    yield 'two inputs', keras.Model([x, keras.Input((4,))], dense(2)(x))
    yield 'a critic with an action section', ModelReader(parse_text(ACTION), [1], (4,), action_units=2).build_model()
    yield 'dense on a sequence', keras.Model(pair, dense(2)(pair))
    yield 'nested', keras.Model(x, keras.Model(x, dense(2)(x))(x))
    narrow = keras.layers.Conv2D(2, 3, dtype='mixed_bfloat16')(image)
    yield 'convolutions in bfloat16', keras.Model(image, dense(2)(keras.layers.Flatten()(narrow)))
    yield 'weights in bfloat16', keras.Model(x, dense(2, dtype='bfloat16')(x))
    yield 'unbuilt', keras.Sequential([dense(2)])
    frozen = keras.Model(x, dense(2)(dense(3)(x)))
    frozen.layers[1].trainable = False
    yield 'frozen', frozen

    yield 'subclassed', type('Subclassed', (keras.Model,), {'call': lambda self, x: x})()


@pytest.mark.parametrize(('name', 'model'), unsupported_models(), ids=lambda x: x if isinstance(x, str) else '')
def test_what_has_no_mirror_says_so(name, model):
    assert not has_plan(model)
    with pytest.raises(ValueError, match=r'expected one input and the layers in docs/policy\.md'):
        plan_from_model(model)


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.sampled_from([1, 2, 7, 64, 130, 257, 600]), max_size=3),
    st.sampled_from(MIRRORED[:-1]),  # exponentials of exponentials overflow
    st.integers(1, 5),
    st.integers(1, 40),
    st.sampled_from([2, 3, 5, 16, 40, 700]),
    st.integers(0, 2**32 - 1),
)
def test_a_row_has_the_same_bits_among_any_others(net, activation, units, inputs, n, seed):
    rng = np.random.default_rng(seed)
    sizes = [inputs, *net, units]
    calls, at = [], 0
    for i, kernel in enumerate(itertools.pairwise(sizes)):
        calls.append(LayerCall('dense', i, i + 1, at, kernel, True, (), activation if i < len(net) else 'linear'))
        at += calls[-1].n_parameters
    network = NumpyNetwork(NetworkPlan((inputs,), tuple(calls), (len(calls),), at), rng.normal(0, 0.3, at))
    x = rng.normal(size=(n, inputs)).astype(np.float32)
    whole = network(x)[0].copy()
    cut = int(rng.integers(1, n))
    parts = np.concatenate([network(part)[0].copy() for part in (x[:cut], x[cut:], x[:1])])
    np.testing.assert_array_equal(parts, np.concatenate([whole, whole[:1]]))


@pytest.mark.parametrize('shape', [(84, 84, 4), (10, 12, 1)])
def test_convolutions_agree_with_keras_and_rows_have_the_same_bits(shape):
    kernels = '[convolutional-0]\nfilters=5\nsize=3\nstride=2\nactivation=relu\n'
    kernels += '[convolutional-1]\nfilters=7\nsize=2\nstride=1\nactivation=tanh\n'
    text = f'{kernels}[flatten-0]\n[dense-0]\nunits=9\nactivation=relu\n[dense-actor]\noutput=1\n'
    model = ModelReader(parse_text(text), [3], shape).build_model()
    rng = np.random.default_rng(7)
    randomize(model, rng, 0.1)
    images = rng.integers(0, 256, (5, *shape), dtype=np.uint8)
    network = numpy_of(model)
    whole = network(images)[0].copy()
    np.testing.assert_allclose(whole, model(images.astype(np.float32) / 255), rtol=1e-5, atol=1e-5)
    parts = [network(images[rows])[0].copy() for rows in (slice(1), slice(1, 3), slice(3, 5))]
    np.testing.assert_array_equal(np.concatenate(parts), whole)


@pytest.mark.parametrize(
    'change',
    [
        lambda plan: plan.pop('calls'),
        lambda plan: plan['calls'][0].update(kind='recurrent'),
        lambda plan: plan['calls'][0].update(source=5),
        lambda plan: plan['calls'][1].update(kernel=[9, 2]),
        lambda plan: plan['calls'][1].update(at=10**6),
        lambda plan: plan['calls'][1].update(units=3),
        lambda plan: plan.update(outputs=[]),
        lambda plan: plan.update(input_shape=4),
        lambda plan: plan['calls'][0].update(activation='mish'),
        lambda plan: plan['calls'][0].update(kernel=['4', 8]),
    ],
)
def test_a_wrong_plan_is_refused_in_one_line(change):
    plan = plan_from_model(dense_model([8], units=(2, 1))).to_dict()
    plan = json.loads(json.dumps(plan))
    change(plan)
    with pytest.raises(ValueError, match=r'^not a network plan') as error:
        NetworkPlan.from_dict(plan)
    assert '\n' not in str(error.value)


KERNELS = """
import sys
import numpy as np
from xagents.networks.numpy_inference import NumpyNetwork, columns_are_independent
from xagents.networks.plan import LayerCall, NetworkPlan

rng = np.random.default_rng(0)
for sizes in [(4, 64, 64, 2), (17, 300, 6), (3, 7, 1), (11, 33, 9), (600, 40, 5)]:
    calls, at = [], 0
    for i, kernel in enumerate(zip(sizes, sizes[1:])):
        calls.append(LayerCall('dense', i, i + 1, at, kernel, True, (), 'tanh'))
        at += kernel[0] * kernel[1] + kernel[1]
    plan = NetworkPlan(sizes[:1], tuple(calls), (len(calls),), at)
    network = NumpyNetwork(plan, rng.normal(size=at).astype(np.float32) * np.float32(0.1))
    x = rng.normal(size=(130, sizes[0])).astype(np.float32)
    whole = network(x)[0].copy()
    for n in (1, 2, 3, 5, 7, 8, 16, 17, 33, 64, 129):
        first = int(rng.integers(0, 131 - n))
        assert np.array_equal(network(x[first : first + n])[0], whole[first : first + n]), (sizes, n)
print(columns_are_independent())
"""


@pytest.mark.parametrize('kernels', ['', 'Haswell', 'Sandybridge'])
def test_a_row_has_the_same_bits_by_the_kernels_of_other_processors(kernels):
    """OpenBLAS chooses its kernels by the processor, or by this variable; elsewhere it is without effect."""
    environment = {**os.environ, **({'OPENBLAS_CORETYPE': kernels} if kernels else {})}
    done = subprocess.run([sys.executable, '-c', KERNELS], env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() in ('True', 'False')


BLAS_THREADS = """
import numpy as np
from threadpoolctl import threadpool_info
from xagents.networks.numpy_inference import NumpyNetwork
from xagents.networks.plan import LayerCall, NetworkPlan

def threads():
    return max(pool['num_threads'] for pool in threadpool_info() if pool['user_api'] == 'blas')

plan = NetworkPlan((256,), (LayerCall('dense', 0, 1, 0, (256, 256), True, (), 'tanh'),), (1,), 256 * 257)
network = NumpyNetwork(plan, np.zeros(256 * 257, np.float32))
for n in (1, 32):
    network(np.zeros((n, 256), np.float32))
    seen = []
    network._prepared[n, False].steps.append((lambda source, target: seen.append(threads()), None, None))
    network(np.zeros((n, 256), np.float32))
    print(*seen, threads())
"""


def test_a_large_product_uses_one_thread_of_blas_and_leaves_the_setting_of_the_process():
    environment = {**os.environ, 'OPENBLAS_NUM_THREADS': '2', 'OMP_NUM_THREADS': '2', 'MKL_NUM_THREADS': '2'}
    done = subprocess.run([sys.executable, '-c', BLAS_THREADS], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    small, large = (line.split() for line in done.stdout.splitlines())
    assert small[0] == small[1] == large[1] and large[0] == '1'
