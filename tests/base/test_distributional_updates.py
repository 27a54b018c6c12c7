"""Distributional and noisy DQN against NumPy: projections by brute force, losses and gradients in float64."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st

import xagents
from tests.base.test_off_policy_updates import (
    LR,
    B,
    D,
    batches,
    close,
    descended,
    disturb_targets,
    float64,
    gradient,
    learn,
    unflat,
)
from tests.problems import Arbitrary
from xagents.cli.commands import find_command
from xagents.cli.dispatch import parse
from xagents.networks.keras_to_plan import flat_parameters, plan_from_model, without_noise
from xagents.networks.layers import NoisyDense, noise_units
from xagents.networks.models import ModelReader
from xagents.networks.numpy_inference import NumpyNetwork
from xagents.networks.plan import NetworkPlan
from xagents.networks.value_distributions import ActionValues, CategoricalDistribution, QuantileDistribution

N, K = 3, 5
LOW, HIGH = -1.5, 2.5


def make(**options):
    """A tiny agent that learns by plain gradient descent, so that a step shows the gradient."""
    form = {'n_quantiles': K} if options['distribution'] == 'quantile' else {}
    form = form or {'n_atoms': K, 'value_min': LOW, 'value_max': HIGH}
    x = keras.Input((D,))
    hidden = keras.layers.Dense(4, 'tanh')(x)
    sizes = [N * K, K] if options.get('dueling') else [N * K]
    model = keras.Model(x, [keras.layers.Dense(n)(hidden) for n in sizes])
    rng = np.random.default_rng(1)
    model.set_weights([rng.normal(size=v.shape) * 0.6 for v in model.weights])
    model.compile(keras.optimizers.SGD(LR))
    envs = xagents.create_envs(lambda **_: Arbitrary(spaces.Box(-1, 1, (D,), np.float32), spaces.Discrete(N)), 2)
    return xagents.DQN(envs, model, gamma=0.9, seed=0, grad_norm=1e9, **form, **options)


# ---------------------------------------------------------------------------------------------------- the same in NumPy


def atoms_of(o, weights, observations):
    """[B, n, K]"""
    hidden = np.tanh(observations @ weights[0] + weights[1])
    outputs = [hidden @ w + b for w, b in zip(weights[2::2], weights[3::2], strict=True)]
    atoms = outputs[0].reshape(len(observations), N, K)
    if o.dueling:
        atoms = atoms + outputs[1][:, None] - atoms.mean(1, keepdims=True)
    return atoms


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def means_of(o, atoms):
    if o.distribution == 'quantile':
        return atoms.mean(-1)
    return (softmax(atoms) * np.linspace(LOW, HIGH, K)).sum(-1)


def projected(probabilities, reward, discount, support):
    """Algorithm 1 of Bellemare et al. 2017, one atom after the other."""
    low, high, step = support[0], support[-1], support[1] - support[0]
    result = np.zeros(len(support))
    for z, p in zip(support, probabilities, strict=True):
        b = (min(max(reward + discount * z, low), high) - low) / step
        below, above = int(np.floor(b + 1e-12)), int(np.ceil(b - 1e-12))
        if below == above:
            result[below] += p
        else:
            result[below] += p * (above - b)
            result[above] += p * (b - below)
    return result


def losses_of(o, atoms, goal):
    """[B]"""
    if o.distribution == 'categorical':
        return -(goal * np.log(softmax(atoms))).sum(1)
    losses = np.zeros(B)
    for b in range(B):
        for i in range(K):  # equation 10, sums over the quantiles of means over the targets
            for target in goal[b]:
                u = target - atoms[b, i]
                h = 0.5 * u**2 if abs(u) <= 1 else abs(u) - 0.5
                losses[b] += abs((2 * i + 1) / (2 * K) - (u < 0)) * h / K
    return losses


CASES = [
    {'distribution': 'quantile'},
    {'distribution': 'quantile', 'double': True, 'dueling': True},
    {'distribution': 'categorical'},
    {'distribution': 'categorical', 'double': True, 'dueling': True, 'prioritized': True},
    {'distribution': 'quantile', 'prioritized': True, 'double': True},
]


@pytest.mark.usefixtures('eager')
@pytest.mark.parametrize('options', CASES, ids='-'.join)
def test_an_update_follows_the_gradient_of_its_loss(options):
    agent, batch = make(**options), batches('dqn')
    disturb_targets(agent)
    o, online, target = agent.options, float64(agent.model), unflat(agent.target, agent.model)
    now, after = batch['observations'][0], batch['next_observations'][0]
    next_atoms = atoms_of(o, target, after)
    chooser = atoms_of(o, online, after) if o.double else next_atoms
    best = means_of(o, chooser).argmax(1)
    assert (best != means_of(o, next_atoms).argmax(1)).any() == o.double
    next_atoms = next_atoms[np.arange(B), best]
    rewards, discounts = batch['rewards'][0].astype(np.float64), batch['discounts'][0].astype(np.float64)
    if o.distribution == 'quantile':
        goal = rewards[:, None] + discounts[:, None] * next_atoms
    else:
        support, shares = np.linspace(LOW, HIGH, K), softmax(next_atoms)
        goal = np.stack([projected(*row, support) for row in zip(shares, rewards, discounts, strict=True)])
        assert (rewards < LOW).any() or (rewards > HIGH).any(), 'some returns are outside'

    def loss_of(weights):
        losses = losses_of(o, atoms_of(o, weights, now)[np.arange(B), batch['actions'][0]], goal)
        return np.mean(losses * (batch['weights'][0] if o.prioritized else 1))

    chosen = atoms_of(o, online, now)[np.arange(B), batch['actions'][0]]
    logs = learn(agent, batch)
    close([v.numpy() for v in agent.model.trainable_variables], descended(online, gradient(loss_of, online)))
    assert logs['loss/value'] == pytest.approx(loss_of(online), rel=1e-4)
    assert logs['stats/q'] == pytest.approx(means_of(o, chosen).mean(), rel=1e-4)
    if o.distribution == 'quantile':
        errors = goal.mean(1) - chosen.mean(1)
    else:  # the divergence, by its definition
        ratio = np.where(goal > 0, goal, 1) / np.where(goal > 0, softmax(chosen), 1)
        errors = (goal * np.log(ratio)).sum(1)
    assert logs['stats/td_error'] == pytest.approx(abs(errors).mean(), rel=1e-4)
    if o.prioritized:
        np.testing.assert_allclose(agent.buffer.told[0][1][0], errors, rtol=1e-4, atol=1e-5)


@settings(max_examples=60, deadline=None)
@given(st.integers(2, 12), st.floats(-30, 30), st.sampled_from([0.0, 0.5, 0.9, 1.0]), st.integers(0, 2**31))
def test_the_projection_equals_that_of_single_atoms(n, reward, discount, seed):
    distribution = CategoricalDistribution(n, -10.0, 10.0)
    logits = np.random.default_rng(seed).normal(size=(1, n)).astype(np.float32)
    got = distribution.targets(np.float32([reward]), np.float32([discount]), tf.constant(logits)).numpy()[0]
    expected = projected(softmax(logits[0].astype(np.float64)), reward, discount, np.linspace(-10, 10, n))
    np.testing.assert_allclose(got, expected, atol=2e-5)
    assert got.sum() == pytest.approx(1, abs=1e-5)


def test_a_categorical_loss_is_zero_error_for_equal_distributions():
    distribution = CategoricalDistribution(K, LOW, HIGH)
    logits = tf.random.stateless_normal((4, K), (1, 2))
    losses, errors = distribution.losses(logits, tf.nn.softmax(logits))
    np.testing.assert_allclose(errors, 0, atol=1e-6)
    assert (losses.numpy() > 0).all()


def test_the_best_quantiles_are_those_of_the_targets():
    """The loss of one distribution is smallest, over a grid, where κ is small beside the spread: at the quantiles."""
    distribution, targets = QuantileDistribution(1), np.float32([[0.0, 100.0, 200.0, 300.0, 1000.0]])
    losses = [float(distribution.losses(tf.constant([[float(x)]]), targets)[0][0]) for x in range(0, 1001, 10)]
    assert 10 * int(np.argmin(losses)) == 200, 'the median, not the mean'


# ------------------------------------------------------------------------------------------------------------- acting


@pytest.mark.parametrize('support', [(), (-10.0, 10.0)], ids=['quantile', 'categorical'])
@pytest.mark.parametrize('dueling', [False, True])
def test_numpy_computes_action_values(support, dueling):
    x = keras.Input((D,))
    hidden = keras.layers.Dense(7, 'relu')(x)
    outputs = [keras.layers.Dense(n)(hidden) for n in ([N * K, K] if dueling else [N * K])]
    model = keras.Model(x, ActionValues(N, K, support)(outputs if dueling else outputs[0]))
    plan = NetworkPlan.from_dict(plan_from_model(model).to_dict())
    network, observations = NumpyNetwork(plan, flat_parameters(model).numpy()), np.random.default_rng(0)
    observations = observations.normal(size=(50, D)).astype(np.float32) * 3
    values = network(observations)[0].copy()
    np.testing.assert_allclose(values, model(observations).numpy(), rtol=1e-5, atol=1e-5)
    for n in (1, 2, 7):
        np.testing.assert_array_equal(network(observations[:n])[0], values[:n])
    copy = keras.Model.from_config(model.get_config())
    copy.set_weights(model.get_weights())
    np.testing.assert_array_equal(copy(observations), model(observations))


def noisy_model(sizes=(N,), units=6):
    from xagents.networks.cfg import dense_network

    description = dense_network([units], 'relu', True, [f'out{i}' for i in range(len(sizes))])
    return ModelReader(description, list(sizes), (D,), seed=3, noisy=True).build_model()


def test_a_noisy_layer_computes_with_noisy_weights():
    """Equation 9, with the weights of each row put together one by one."""
    layer = NoisyDense(4, 2, 'tanh')
    rng = np.random.default_rng(0)
    x, noise = rng.normal(size=(B, D)).astype(np.float32), rng.normal(size=(B, 2 + D + 4)).astype(np.float32)
    got = layer([x, noise]).numpy()
    layer.bias.assign(rng.normal(size=4))
    got = layer([x, noise]).numpy()
    kernel, bias, kernel_std, bias_std = (v.numpy().astype(np.float64) for v in layer.weights)
    np.testing.assert_allclose(kernel_std, 0.5 / np.sqrt(D), rtol=1e-6)
    for row in range(B):
        into, out = noise[row, 2 : 2 + D], noise[row, 2 + D :]
        w, b = kernel + kernel_std * np.outer(into, out), bias + bias_std * out
        np.testing.assert_allclose(got[row], np.tanh(x[row] @ w + b), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(layer(x), np.tanh(x @ kernel + bias), rtol=1e-4, atol=1e-5)


def test_numpy_computes_noisy_networks():
    model = noisy_model((N, 1))
    assert noise_units(model) == (D + 6) + (6 + N) + (6 + 1)
    plan = NetworkPlan.from_dict(plan_from_model(model).to_dict())
    network = NumpyNetwork(plan, flat_parameters(model).numpy())
    rng = np.random.default_rng(0)
    x, noise = rng.normal(size=(9, D)).astype(np.float32), rng.normal(size=(9, plan.noise_units)).astype(np.float32)
    noisy = [output.copy() for output in network(x, noise)]
    for got, expected in zip(noisy, model([x, noise]), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)
    for n in (1, 2, 5):
        np.testing.assert_array_equal(network(x[:n], noise[:n])[0], noisy[0][:n])
    mean = without_noise(model)
    for outputs in (network(x), network(x, 0 * noise)):
        for got, expected in zip(outputs, mean(x), strict=True):
            np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)
    assert abs(noisy[0] - network(x)[0]).max() > 0.01
    np.testing.assert_array_equal(flat_parameters(mean), flat_parameters(model))


@pytest.mark.usefixtures('eager')
def test_an_update_of_a_noisy_network_has_three_noises():
    """Double DQN whose three networks are those of given noise, by mean networks with the noisy weights."""
    envs = xagents.create_envs(lambda **_: Arbitrary(spaces.Box(-1, 1, (D,), np.float32), spaces.Discrete(N)), 2)
    model = noisy_model()
    model.compile(keras.optimizers.SGD(LR))
    agent, batch = xagents.DQN(envs, model, gamma=0.9, seed=0, grad_norm=1e9, noisy=True, double=True), batches('dqn')
    disturb_targets(agent)
    noise = agent.learning_noise((1, B))[0]
    assert noise.shape == (3, 1, agent.n_noise)
    agent.learning_noise = lambda shape: noise[None]
    online, target = float64(agent.model), unflat(agent.target, agent.model)

    def values(weights, noise, observations):
        x, at = observations.astype(np.float64), 0
        for i in (0, 4):
            kernel, bias, kernel_std, bias_std = weights[i : i + 4]
            n, u = kernel.shape
            into, out = noise[0, at : at + n], noise[0, at + n : at + n + u]
            x, at = x @ (kernel + kernel_std * np.outer(into, out)) + bias + bias_std * out, at + n + u
            x = np.maximum(x, 0) if i == 0 else x
        return x

    after = batch['next_observations'][0]
    best = values(online, noise[2], after).argmax(1)
    goal = batch['rewards'][0] + batch['discounts'][0] * values(target, noise[1], after)[np.arange(B), best]

    def loss(weights):
        q = values(weights, noise[0], batch['observations'][0])[np.arange(B), batch['actions'][0]]
        return ((goal - q) ** 2).mean()

    logs = learn(agent, batch)
    assert logs['loss/value'] == pytest.approx(loss(online), rel=1e-4)
    close([v.numpy() for v in agent.model.trainable_variables], descended(online, gradient(loss, online)), rtol=1e-3)


def test_noise_acts_only_while_collecting():
    options = {'n_envs': 4, 'seed': 2, 'net': [8], 'noisy': True, 'buffer_initial_size': 10}
    agent = xagents.make('dqn', 'CartPole-v1', epsilon_end=0.0, **options)
    observations = np.random.default_rng(0).normal(size=(200, 4)).astype(np.float32)
    greedy = agent.act(observations)
    np.testing.assert_array_equal(greedy, agent.act(observations))
    sampled = [agent.act(observations, greedy=False) for _ in range(3)]
    assert (sampled[0] != sampled[1]).any() and (sampled[0] != greedy).any()
    assert 'epsilon' not in agent.schedules()
    policy, rng = agent.acting_policy, np.random.default_rng(1)
    noise = policy.draw_noise(rng, (200,))
    assert noise.shape == (200, 2 + agent.n_noise)
    expected = agent.actor(observations, noise[:, 2:])[0].argmax(1)
    np.testing.assert_array_equal(policy(observations, noise)['actions'], expected)


def test_random_actions_join_the_noise():
    options = {'n_envs': 4, 'seed': 2, 'net': [8], 'noisy': True, 'buffer_initial_size': 10}
    agent = xagents.make('dqn', 'CartPole-v1', epsilon_end=0.25, **options)
    assert {agent.schedules()['epsilon'](t, 100) for t in (0, 50, 10**6)} == {0.25}
    falling = xagents.make('dqn', 'CartPole-v1', epsilon_start=1.0, epsilon_end=0.0, epsilon_decay_steps=100, **options)
    assert [falling.schedules()['epsilon'](t, 100) for t in (0, 50, 200)] == [1, 0.5, 0]
    policy, n = agent.acting_policy, 4000
    observations = np.random.default_rng(0).normal(size=(n, 4)).astype(np.float32)
    noise = policy.draw_noise(np.random.default_rng(1), (n,))
    noisy = agent.actor(observations, noise[:, 2:])[0].argmax(1)
    random = noise[:, 0] < 0.25
    assert random.mean() == pytest.approx(0.25, abs=0.02)
    actions = policy(observations, noise, epsilon=0.25)['actions']
    np.testing.assert_array_equal(actions, np.where(random, noise[:, 1] >= 0.5, noisy))
    assert actions[random].mean() == pytest.approx(0.5, abs=0.05)


@pytest.mark.usefixtures('eager')
@pytest.mark.parametrize('distribution', [None, 'quantile', 'categorical'])
def test_noisy_dueling_networks_act_and_learn(distribution):
    options = {'dueling': True, 'noisy': True, 'double': True, 'distribution': distribution, 'prioritized': True}
    agent = xagents.make('dqn', 'CartPole-v1', net=[8], seed=1, buffer_initial_size=20, buffer_batch_size=8, **options)
    agent.fit(max_steps=30, quiet=True)
    assert agent.context.updates > 0


def test_noise_of_another_length_is_refused():
    x, noise = keras.Input((4,)), keras.Input((3,))
    model = keras.Model([x, noise], NoisyDense(2, 0)([x, noise]))
    with pytest.raises(ValueError, match='got noise of length 3, expected 6 for its noisy layers'):
        xagents.DQN(xagents.create_envs('CartPole-v1'), model, noisy=True)


def test_weights_fit_one_form_of_values(folder):
    options = {'net': [8], 'seed': 1, 'buffer_initial_size': 500}
    agent = xagents.make('dqn', 'CartPole-v1', distribution='quantile', n_quantiles=10, **options)
    agent.fit(max_steps=30, checkpoints=['w.tf'], run_dir='run', quiet=True)
    other = xagents.make('dqn', 'CartPole-v1', distribution='categorical', n_atoms=10, **options)
    with pytest.raises(ValueError, match=r'distribution: got categorical with w.tf, which was trained with quantile'):
        other.load_weights(['w.tf'])
    with pytest.raises(ValueError, match=r'n_quantiles: got 9, expected 10, as in w.tf'):
        xagents.make('dqn', weights=['w.tf'], n_quantiles=9)
    with pytest.raises(ValueError, match=r'n_quantiles: got 9, was 10: this option cannot change'):
        xagents.resume('run', n_quantiles=9)
    assert xagents.make('dqn', weights=['w.tf']).options.n_quantiles == 10


def test_overridden_values_are_not_ignored():
    class Mine(xagents.DQN):
        def next_values(self, observations):
            return tf.zeros(len(observations))

    envs = xagents.create_envs('CartPole-v1')
    with pytest.raises(ValueError, match=r'which does not use Mine\.next_values: override next_atoms'):
        Mine(envs, noisy_model(), distribution='quantile')


# ------------------------------------------------------------------------------------------------------------- options


@pytest.mark.parametrize(
    ('options', 'message'),
    [
        ({'n_quantiles': 3}, r'n_quantiles: got 3, which requires --distribution quantile'),
        ({'distribution': 'quantile', 'n_atoms': 3}, r'n_atoms: got 3, which requires --distribution categorical'),
        ({'distribution': 'categorical', 'value_min': 11}, r'value_min: got 11, expected less than the 10'),
        ({'distribution': 'quantile', 'huber': True}, r'huber: cannot be used with --distribution quantile'),
        ({'distribution': 'categorical', 'munchausen': True}, r'munchausen: cannot be used with --distribution cat'),
        ({'distribution': 'quantiles'}, r'distribution: got .?quantiles.?, expected one of quantile, categorical'),
    ],
)
def test_options_that_exclude_each_other_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        xagents.make('dqn', 'CartPole-v1', **options)


def test_rainbow_is_dqn_with_its_extensions():
    agent = xagents.make('rainbow', 'CartPole-v1', seed=1, net=[8], n_quantiles=4)
    o = agent.options
    assert isinstance(agent, xagents.DQN) and agent.id == 'rainbow'
    assert (o.double, o.dueling, o.prioritized, o.n_step, o.distribution, o.noisy) == (
        True,
        True,
        True,
        3,
        'quantile',
        True,
    )
    assert [x.shape[1] for x in agent.model.outputs] == [8, 4]
    plain = xagents.make('rainbow', 'CartPole-v1', dueling=False, noisy=False, distribution=None, net=[8])
    assert [x.shape[1] for x in plain.model.outputs] == [2] and not plain.n_noise
    with pytest.raises(ValueError, match='noisy layers'):
        xagents.DQN(plain.envs, plain.model, noisy=True)


def test_the_command_line_switches_parts_off():
    line = 'train rainbow --env CartPole-v1 --distribution none --no-noisy --no-dueling'
    options = parse(find_command('train'), 'rainbow', line.split()[2:])[1]
    assert options['distribution'] is None and options['noisy'] is options['dueling'] is False
