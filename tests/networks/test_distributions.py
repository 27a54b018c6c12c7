"""The policy distributions against SciPy."""

import math

import numpy as np
import pytest
import scipy.special
import scipy.stats
import tensorflow as tf
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from xagents.networks.distributions import Bernoulli, Categorical, Gaussian, MultiCategorical, distribution_for

ALL = [Categorical(2), Categorical(5), Categorical(40), MultiCategorical([2, 4, 3]), MultiCategorical([3, 3])]
ALL += [Bernoulli(3), Gaussian(3)]


def name_of(distribution):
    return f'{type(distribution).__name__}-{distribution.n_units}'


every = pytest.mark.parametrize('distribution', ALL, ids=name_of)


def random_outputs(distribution, n, seed=0, scale=2.0):
    rng = np.random.default_rng(seed)
    outputs = [rng.normal(0, scale, (n, distribution.n_units)).astype(np.float32)]
    if distribution.has_log_std:
        outputs.append(rng.uniform(-2, 1, (n, distribution.n_units)).astype(np.float32))
    return outputs


def random_actions(distribution, outputs, seed=1):
    return distribution.sample(outputs, distribution.draw_noise(np.random.default_rng(seed), (len(outputs[0]),)))


def parts(distribution):
    """Return where each choice's logits stand."""
    sizes = getattr(distribution, 'sizes', (distribution.n_units,))
    ends = np.cumsum(sizes)
    return [slice(end - size, end) for size, end in zip(sizes, ends, strict=True)]


def independent(distribution, outputs, row):
    """Return the SciPy distributions of one row, one for each component of an action."""
    outputs = [output[row].astype(np.float64) for output in outputs]
    if isinstance(distribution, Gaussian):
        return [scipy.stats.norm(mean, math.exp(log_std)) for mean, log_std in zip(*outputs, strict=True)]
    if isinstance(distribution, Bernoulli):
        return [scipy.stats.bernoulli(scipy.special.expit(logit)) for logit in outputs[0]]
    pmfs = [scipy.special.softmax(outputs[0][part]) for part in parts(distribution)]
    return [scipy.stats.rv_discrete(values=(range(len(pmf)), pmf / pmf.sum())) for pmf in pmfs]


@every
def test_log_prob_and_entropy_are_scipys(distribution):
    outputs = random_outputs(distribution, 12)
    actions = random_actions(distribution, outputs)
    rows = [independent(distribution, outputs, i) for i in range(12)]
    log_p = 'logpdf' if distribution.has_log_std else 'logpmf'
    expected = [
        sum(getattr(c, log_p)(a) for c, a in zip(row, np.atleast_1d(action), strict=True))
        for row, action in zip(rows, actions, strict=True)
    ]
    np.testing.assert_allclose(distribution.log_prob(outputs, actions), expected, rtol=2e-5, atol=2e-6)
    expected = [sum(c.entropy() for c in row) for row in rows]
    np.testing.assert_allclose(distribution.entropy(outputs), expected, rtol=2e-5, atol=2e-6)


def numerical_kl(p, q):
    if hasattr(p, 'pmf'):
        values = np.arange(len(p.xk) if hasattr(p, 'xk') else 2)
        return np.sum(p.pmf(values) * (p.logpmf(values) - q.logpmf(values)))
    x = np.linspace(p.mean() - 12 * p.std(), p.mean() + 12 * p.std(), 20001)
    return np.trapezoid(p.pdf(x) * (p.logpdf(x) - q.logpdf(x)), x)


@every
def test_kl_is_the_sum_or_integral_that_defines_it(distribution):
    old, new = random_outputs(distribution, 8, 0), random_outputs(distribution, 8, 1)
    expected = [
        sum(map(numerical_kl, independent(distribution, old, i), independent(distribution, new, i))) for i in range(8)
    ]
    np.testing.assert_allclose(distribution.kl(old, new), expected, rtol=5e-5, atol=1e-5)
    np.testing.assert_allclose(distribution.kl(old, old), np.zeros(8), atol=1e-6)
    assert not np.allclose(distribution.kl(new, old), expected, rtol=1e-2), 'the direction matters'


@every
def test_draws_have_the_distributions_frequencies(distribution):
    n = 20_000
    outputs = [np.repeat(output, n, 0) for output in random_outputs(distribution, 1, 3, 1.0)]
    columns = random_actions(distribution, outputs, 4).reshape(n, -1).T
    for column, component in zip(columns, independent(distribution, outputs, 0), strict=True):
        if distribution.has_log_std:
            assert scipy.stats.kstest(column, component.cdf).pvalue > 1e-3
            continue
        values = np.arange(len(component.xk) if hasattr(component, 'xk') else 2)
        counts = np.bincount(column, minlength=len(values))
        assert scipy.stats.chisquare(counts, n * component.pmf(values)).pvalue > 1e-3
    if distribution.has_log_std:
        assert abs(np.corrcoef(columns)[np.triu_indices(len(columns), 1)]).max() < 0.03
    elif len(columns) > 1:
        counts = np.histogram2d(*columns[:2], [columns[0].max() + 1, columns[1].max() + 1])[0]
        assert scipy.stats.chi2_contingency(counts).pvalue > 1e-3, 'choices are drawn independently'


@every
@pytest.mark.parametrize(('n', 'order'), [(1, 'C'), (16, 'C'), (16, 'F')])
def test_drawing_leaves_the_outputs_as_they_are(distribution, n, order):
    outputs = [np.asarray(output, order=order) for output in random_outputs(distribution, n)]
    noise = distribution.draw_noise(np.random.default_rng(1), (6, n))  # of a rollout
    assert (noise.shape, noise.dtype) == ((6, n, distribution.n_units), np.float32) and np.isfinite(noise).all()
    np.testing.assert_array_equal(noise, distribution.draw_noise(np.random.default_rng(1), (6, n)))
    assert len(np.unique(noise, axis=0)) == 6
    given_outputs = [output.copy() for output in outputs]
    actions = distribution.sample(outputs, noise[0])
    log_probs = distribution.log_prob(outputs, actions).numpy()
    assert actions.shape == (n, *distribution.action_shape)
    assert (actions.dtype, log_probs.dtype) == (distribution.action_dtype, np.float32)
    assert log_probs.shape == (n,)
    np.testing.assert_equal(outputs, given_outputs)
    actions[:] = 0  # what a caller does with an action must not reach the outputs
    distribution.mode(outputs)[:] = 0
    np.testing.assert_equal(outputs, given_outputs)


@every
def test_no_action_is_more_probable_than_the_mode(distribution):
    outputs = random_outputs(distribution, 30)
    mode = distribution.mode(outputs)
    assert (mode.shape, mode.dtype) == ((30, *distribution.action_shape), distribution.action_dtype)
    best = distribution.log_prob(outputs, mode).numpy()
    for seed in range(20):
        actions = random_actions(distribution, outputs, seed)
        other = (actions != mode).reshape(30, -1).any(1)
        assert (distribution.log_prob(outputs, actions).numpy() < best)[other].all()


@pytest.mark.parametrize('distribution', [ALL[3], *ALL[5:]], ids=name_of)
def test_the_learning_half_compiles_with_finite_gradients(distribution):
    old = random_outputs(distribution, 7, 2)
    new = [tf.constant(output) for output in random_outputs(distribution, 7, 3)]
    actions = random_actions(distribution, old)

    def terms(outputs):
        return distribution.log_prob(outputs, actions), distribution.entropy(outputs), distribution.kl(old, outputs)

    @tf.function(jit_compile=True)
    def compiled(outputs):
        with tf.GradientTape() as tape:
            tape.watch(outputs)
            values = terms(outputs)
            total = tf.add_n([tf.reduce_sum(value) for value in values])
        return values, tape.gradient(total, outputs)

    values, gradients = compiled(new)
    for got, expected in zip(values, terms(new), strict=True):
        assert got.shape == (7,)
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5)
    assert all(np.isfinite(gradient).all() and np.any(gradient) for gradient in gradients)


EXTREMES = st.sampled_from([0.0, 1.0, -50.0, 90.0, 1e4, -1e4, 1e30, -1e30])


@pytest.mark.filterwarnings('error')
@settings(max_examples=40, deadline=None)
@given(st.sampled_from([d for d in ALL if not d.has_log_std]), st.data())
def test_huge_logits_are_finite_and_right(distribution, data):
    logits = data.draw(arrays(np.float32, (2, distribution.n_units), elements=EXTREMES))
    other = data.draw(arrays(np.float32, (2, distribution.n_units), elements=EXTREMES))
    actions = distribution.sample([logits], distribution.draw_noise(np.random.default_rng(0), (2,)))
    variable = tf.constant(logits)
    with tf.GradientTape() as tape:
        tape.watch(variable)
        values = distribution.log_prob([variable], actions), distribution.entropy([variable])
        total = tf.reduce_sum(values[0]) + tf.reduce_sum(values[1])
    kl = distribution.kl([logits], [other])
    assert all(np.isfinite(x).all() for x in (*values, kl, tape.gradient(total, variable)))
    assert (values[0].numpy() <= 0).all() and (values[1].numpy() >= 0).all() and (kl.numpy() > -1e-4).all()
    wide = logits.astype(np.float64)
    if isinstance(distribution, Bernoulli):
        expected = -np.logaddexp(0, np.where(actions, -wide, wide)).sum(1)
    else:
        columns = np.atleast_2d(actions.T)
        choices = [scipy.special.log_softmax(wide[:, part], 1) for part in parts(distribution)]
        expected = sum(c[np.arange(2), column] for c, column in zip(choices, columns, strict=True))
    np.testing.assert_allclose(values[0], expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ('space', 'kind', 'n_units', 'shape'),
    [
        (spaces.Discrete(4), Categorical, 4, ()),
        (spaces.Discrete(3, start=-1), Categorical, 3, ()),
        (spaces.MultiDiscrete([2, 5]), MultiCategorical, 7, (2,)),
        (spaces.MultiDiscrete([[2, 3], [4, 5]]), MultiCategorical, 14, (4,)),
        (spaces.MultiBinary(6), Bernoulli, 6, (6,)),
        (spaces.MultiBinary([2, 3]), Bernoulli, 6, (6,)),
        (spaces.Box(-1, 1, (3,)), Gaussian, 3, (3,)),
        (spaces.Box(-1, 1, (2, 2), np.float64), Gaussian, 4, (4,)),
        (spaces.Box(-1, 1, ()), Gaussian, 1, (1,)),
    ],
    ids=str,
)
def test_every_action_space_has_its_distribution(space, kind, n_units, shape):
    distribution = distribution_for(space)
    assert type(distribution) is kind
    assert (distribution.n_units, distribution.action_shape) == (n_units, shape)
    assert distribution.has_log_std == isinstance(space, spaces.Box)


OTHER = [spaces.Box(0, 255, (3,), np.uint8), spaces.Box(-1, 1, (0,)), spaces.Dict({'a': spaces.Text(2)})]


@pytest.mark.parametrize('space', [*OTHER, spaces.Tuple([]), spaces.Text(3)], ids=str)
def test_other_action_spaces_are_refused_in_one_line(space):
    expected = 'expected Discrete, MultiDiscrete, MultiBinary, Box of floating-point numbers, or a Dict'
    with pytest.raises(ValueError, match=rf'^action space: got .*, {expected}') as error:
        distribution_for(space)
    assert len(str(error.value).splitlines()) == 1
