"""State-dependent exploration against brute force: what is drawn, its density, and gradients by differences."""

import keras
import numpy as np
import pytest
import scipy.stats
import tensorflow as tf

from tests.networks.test_forward import assert_mirrors, numpy_of, randomize
from tests.reference import gradient
from xagents.networks.cfg import dense_network
from xagents.networks.distributions import StateDependentGaussian
from xagents.networks.models import ModelReader, with_log_std
from xagents.networks.plan import LayerCall, NetworkPlan
from xagents.networks.state_dependent import Deviations, acting_model, count_features, with_state_dependent_std
from xagents.options.errors import OptionError

INPUTS, FEATURES, ACTIONS = 4, 6, 3


def policy(expln=False, seed=0, init=-0.5, scale=0.6):
    """A policy and its critic, every number of them drawn."""
    network = dense_network([8, FEATURES])
    model = ModelReader(network, [ACTIONS, 1], (INPUTS,)).build_model()
    model = with_state_dependent_std(model, init, expln)
    randomize(model, np.random.default_rng(seed), scale)
    return model


def acting_by(model):
    return acting_model(keras.Model(model.input, model.outputs[::2]))


def layer_of(model):
    return next(layer for layer in model.layers if isinstance(layer, Deviations))


def by_hand(model, x):
    """Mean [B, A], features [B, L] and deviations of the weights [L, A], in float64."""
    head = next(layer for layer in model.layers if layer.output is model.outputs[0])
    kernel, bias = (np.float64(v) for v in head.get_weights())
    features = keras.Model(model.input, head.input)(x).numpy().astype(np.float64)
    log_std = np.float64(layer_of(model).log_std.numpy())
    std = np.where(log_std > 0, 1 + np.log1p(np.abs(log_std)), np.exp(log_std)) if layer_of(model).expln else None
    return features @ kernel + bias, features, np.exp(log_std) if std is None else std


@pytest.mark.parametrize('expln', [False, True])
def test_draws_have_the_mean_and_the_covariance_of_the_random_function(expln):
    """Every draw is the mean plus features @ weights, with normal weights; actions of one state are independent."""
    model, n = policy(expln), 100_000
    network, distribution = numpy_of(acting_by(model)), StateDependentGaussian(ACTIONS, FEATURES)
    x = np.random.default_rng(1).normal(size=(3, INPUTS)).astype(np.float32)
    mean, features, std = by_hand(model, x)
    noise = distribution.draw_noise(np.random.default_rng(2), (n, 3))
    # of the function that the noise is: weights [L, A]
    outputs = [output.copy() for output in network(x)]
    weights = std * noise[0, 1].reshape(FEATURES, ACTIONS)
    np.testing.assert_allclose(distribution.sample(outputs, noise[0])[1], mean[1] + features[1] @ weights, rtol=1e-4)
    for row in range(3):
        drawn = distribution.sample([np.repeat(output[row : row + 1], n, 0) for output in outputs], noise[:, row])
        wanted = np.diag(features[row] ** 2 @ std**2)
        np.testing.assert_allclose(drawn.mean(0), mean[row], atol=5 * np.sqrt(wanted.max() / n))
        np.testing.assert_allclose(np.cov(drawn.T), wanted, atol=0.02 * wanted.max())
        for j in range(ACTIONS):
            assert scipy.stats.kstest(drawn[:, j], 'norm', (mean[row, j], np.sqrt(wanted[j, j]))).pvalue > 1e-3


def test_density_entropy_and_divergence_are_scipys():
    model, other = policy(seed=3), policy(seed=4)
    distribution = StateDependentGaussian(ACTIONS, FEATURES)
    rng = np.random.default_rng(5)
    x, actions = rng.normal(size=(7, INPUTS)).astype(np.float32), rng.normal(size=(7, ACTIONS)).astype(np.float32)
    both, normal = [], []
    for one in (model, other):
        mean, _, log_std = one(x)
        both.append([mean, log_std])
        mean, features, std = by_hand(one, x)
        normal.append([(mean[i], np.diag(features[i] ** 2 @ std**2 + 1e-6)) for i in range(7)])
    density = [scipy.stats.multivariate_normal(m, c) for m, c in normal[0]]
    expected = [d.logpdf(a) for d, a in zip(density, actions, strict=True)]
    np.testing.assert_allclose(distribution.log_prob(both[0], actions), expected, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(distribution.entropy(both[0]), [d.entropy() for d in density], rtol=1e-4, atol=1e-5)
    expected = []
    for (m, c), (n, d) in zip(*normal, strict=True):  # of any two normal distributions
        inverse = np.linalg.inv(d)
        logs = np.linalg.slogdet(d)[1] - np.linalg.slogdet(c)[1]
        expected.append((np.trace(inverse @ c) - ACTIONS + (n - m) @ inverse @ (n - m) + logs) / 2)
    np.testing.assert_allclose(distribution.kl(*both), expected, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize('expln', [False, True])
def test_the_gradient_is_that_of_differences_and_stops_at_the_features(expln):
    model = policy(expln, seed=6, scale=1.0)
    distribution, layer = StateDependentGaussian(ACTIONS, FEATURES), layer_of(model)
    rng = np.random.default_rng(7)
    x, actions = rng.normal(size=(5, INPUTS)).astype(np.float32), rng.normal(size=(5, ACTIONS)).astype(np.float32)
    mean, features, _ = by_hand(model, x)
    log_std = np.float64(layer.log_std.numpy())
    assert (log_std > 0).any() and (log_std < 0).any()

    def mean_log_prob(flat):
        matrix = flat.reshape(-1, FEATURES, ACTIONS)
        above = 1 + np.log1p(np.maximum(matrix, 0))
        std = np.where(matrix > 0, above, np.exp(matrix)) if expln else np.exp(matrix)
        variance = (features**2) @ std**2 + 1e-6
        return scipy.stats.norm.logpdf(actions, mean, np.sqrt(variance)).sum(-1).mean(-1)

    with tf.GradientTape() as tape:
        mean, _, log_std_of_actions = model(x)
        value = tf.reduce_mean(distribution.log_prob([mean, log_std_of_actions], actions))
    (got,) = tape.gradient(value, [layer.log_std.value])
    np.testing.assert_allclose(value, mean_log_prob(log_std.ravel()[None])[0], rtol=1e-4)
    np.testing.assert_allclose(got.numpy().ravel(), gradient(mean_log_prob, log_std.ravel()), rtol=2e-3, atol=1e-5)
    with tf.GradientTape() as tape:
        entropy = tf.reduce_sum(distribution.entropy(model(x)[::2]))
    slopes = tape.gradient(entropy, [v.value for v in model.trainable_variables])
    reached = [v.path for v, slope in zip(model.trainable_variables, slopes, strict=True) if slope is not None]
    assert reached == [layer.log_std.path]


def test_expln_is_smooth_at_0_and_finite_far_out():
    layer = Deviations(1, expln=True)
    layer.build((None, 5))
    layer.log_std.assign(np.float32([[-200], [-1], [0], [1], [200]]))
    with tf.GradientTape() as tape:
        std = layer(tf.ones((1, 5)))
    (slope,) = tape.gradient(std, [layer.log_std.value])
    np.testing.assert_allclose(std[0], [0, np.exp(-1), 1, 1 + np.log(2), 1 + np.log(201)], rtol=1e-6)
    np.testing.assert_allclose(slope[:, 0], [0, np.exp(-1), 1, 1 / 2, 1 / 201], rtol=1e-6)


@pytest.mark.parametrize('expln', [False, True])
def test_acting_in_numpy_agrees_with_keras_in_any_company(expln):
    model = policy(expln, seed=8)
    acting = acting_by(model)
    rng = np.random.default_rng(9)
    network, distribution = numpy_of(acting), StateDependentGaussian(ACTIONS, FEATURES)
    assert tuple(output.shape[-1] for output in acting.outputs) == distribution.output_units
    for n in (1, 2, 5, 33):
        assert_mirrors(acting, rng.normal(size=(n, INPUTS)), network)
    x = rng.normal(size=(33, INPUTS)).astype(np.float32)
    parameters = distribution.parameters(network(x))
    np.testing.assert_allclose(parameters['log_std'], model(x)[2], rtol=1e-5, atol=1e-5)
    # a row's action has the same bits among any others
    for n_actions in (1, 2, 3):
        sampler = StateDependentGaussian(n_actions, 70)
        outputs = [np.asfortranarray(rng.normal(size=(33, units)).astype(np.float32)) for units in sampler.output_units]
        noise = sampler.draw_noise(rng, (33,))
        whole = sampler.sample(outputs, noise), sampler.parameters(outputs)['log_std']
        for rows in (slice(3, 4), slice(7, 9), slice(0, 30)):
            part = [np.asfortranarray(output[rows]) for output in outputs]
            np.testing.assert_array_equal(sampler.sample(part, noise[rows]), whole[0][rows])
            np.testing.assert_array_equal(sampler.parameters(part)['log_std'], whole[1][rows])


def test_the_head_is_found_behind_an_activation_and_added_once():
    x = keras.Input((5,))
    hidden = keras.layers.Dense(7, 'relu')(x)
    mean = keras.layers.Activation('tanh')(keras.layers.Dense(2)(hidden))
    model = with_state_dependent_std(keras.Model(x, mean), -1.5, False)
    assert count_features(model) == 7 and [output.shape[-1] for output in model.outputs] == [2, 2]
    np.testing.assert_array_equal(layer_of(model).log_std.numpy(), np.full((7, 2), -1.5, np.float32))
    assert with_state_dependent_std(model, -1.5, False) is model
    linear = with_state_dependent_std(keras.Model(x, keras.layers.Dense(2)(x)), 0.0, False)
    assert count_features(linear) == 5, 'of a linear policy the features are the observation'
    copy = keras.models.clone_model(model)
    copy.set_weights(model.get_weights())
    given = np.ones((3, 5), np.float32)
    np.testing.assert_array_equal(copy(given)[1], model(given)[1])
    one = keras.Model(x, mean)
    one.compile('adam')
    assert with_state_dependent_std(one, 0.0, False).optimizer.built, 'a compiled one stays compiled'


def test_networks_that_cannot_have_it_are_one_line():
    x, image = keras.Input((5,)), keras.Input((6, 6, 2))
    scaled = keras.Model(
        x, keras.layers.BatchNormalization()(keras.layers.Dense(2)(keras.layers.LayerNormalization()(x)))
    )
    assert count_features(with_state_dependent_std(scaled, 0.0, False)) == 5
    pooled = keras.layers.GlobalAveragePooling2D()(keras.layers.Conv2D(2, 3)(image))
    with pytest.raises(
        OptionError, match=r'first output is made by the GlobalAveragePooling2D .*admits one of a Dense'
    ):
        with_state_dependent_std(keras.Model(image, pooled), 0.0, False)
    both = keras.layers.Add()([keras.layers.Dense(2)(x), keras.layers.Dense(2)(x)])
    with pytest.raises(OptionError, match=r"made by the Add 'add.*', expected one of a Dense layer"):
        with_state_dependent_std(keras.Model(x, both), 0.0, False)
    with pytest.raises(OptionError, match='the InputLayer'):
        with_state_dependent_std(keras.Model(x, x), 0.0, False)
    own = with_log_std(keras.Model(x, keras.layers.Dense(2)(x)), 0.0)
    with pytest.raises(OptionError, match=r'got a network with a log-std of its own, expected one without'):
        with_state_dependent_std(own, 0.0, False)


@pytest.mark.parametrize('change', [{'kernel': (4, 2)}, {'kernel': (5,)}, {'expln': 1}, {'at': 1}])
def test_plans_that_are_none_are_refused(change):
    call = {'kind': 'deviations', 'source': 0, 'target': 1, 'kernel': (5, 2)}
    assert NetworkPlan((5,), (LayerCall(**call),), (1,), 10).shapes()[1] == (10,)
    with pytest.raises(ValueError, match='it is no plan of a network'):
        NetworkPlan((5,), (LayerCall(**{**call, **change}),), (1,), 10)
