"""One update of TQC and of CrossQ against NumPy: losses computed anew in float64, gradients by differences."""

import itertools

import keras
import numpy as np
import pytest
import tensorflow as tf
from gymnasium import spaces

import xagents
from tests.base.test_off_policy_updates import BOX, LR, A, B, D, close, descended, float64, forward, gradient, unflat
from tests.base.test_sac_updates import batch_of, disturb_targets, network, noise_of, squashed
from tests.problems import Arbitrary
from xagents.networks.layers import BATCH_EPSILON, BatchRenorm
from xagents.networks.value_distributions import quantile_huber_loss

M, DROPPED = 4, 1
pytestmark = pytest.mark.usefixtures('eager')


def environments():
    return xagents.create_envs(lambda **_: Arbitrary(spaces.Box(-1, 1, (D,), np.float32), BOX), 2)


def make_tqc(**options):
    models = [network(D, [A, A], 1), network(D + A, [M], 2), network(D + A, [M], 3)]
    options = {'gamma': 0.9, 'seed': 0, 'tau': 0.1, 'n_quantiles': M, 'dropped_quantiles': DROPPED, **options}
    return xagents.TQC(environments(), *models, **options)


def brute_force(quantiles, targets):
    """Equations 9 and 10 of Dabney et al. 2018 for one row, pair by pair."""
    total = 0.0
    for y, (m, theta) in itertools.product(targets, enumerate(quantiles)):
        error, tau = y - theta, (2 * (m + 1) - 1) / (2 * len(quantiles))
        huber = 0.5 * error**2 if abs(error) <= 1 else abs(error) - 0.5
        total += abs(tau - (error < 0)) * huber
    return total / (len(targets) * len(quantiles))


def test_the_quantile_loss_is_that_of_every_pair():
    rng = np.random.default_rng(1)
    quantiles, targets = rng.normal(0, 2, (5, 4)), rng.normal(0, 2, (5, 6))
    got = quantile_huber_loss(quantiles.astype(np.float32), targets.astype(np.float32)).numpy()
    assert got.shape == (5, 6, 4)
    expected = [brute_force(*row) for row in zip(quantiles, targets, strict=True)]
    np.testing.assert_allclose(got.mean((1, 2)), expected, rtol=1e-5)


def test_minimising_the_loss_gives_the_quantiles_of_the_targets():
    samples = np.random.default_rng(2).normal(1.0, 3.0, (1, 1000)).astype(np.float32)
    quantiles, fractions = tf.Variable(tf.zeros((1, M))), (np.arange(M) + 0.5) / M
    for _ in range(200):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(quantile_huber_loss(quantiles, samples))
        quantiles.assign_sub(M * tape.gradient(loss, quantiles))
    found = quantiles.numpy()[0]
    # the Huber loss moves quantiles towards the mean, less than a deviation
    assert (np.diff(found) > 0).all() and np.abs(found - np.quantile(samples, fractions)).max() < 0.5


def test_targets_keep_the_smallest_quantiles_of_both_critics():
    agent, batch = make_tqc(entropy_coef=0.3), batch_of(False)
    disturb_targets(agent)
    noise = noise_of(agent)[0]
    targets = [unflat(t, m) for t, m in zip(agent.target_critics, agent.critic_models, strict=True)]
    next_x = batch['next_observations'][0]
    actions, log_probs = squashed(forward(float64(agent.actor_model), next_x), noise)
    pooled = np.sort(np.concatenate([forward(t, next_x, actions)[0] for t in targets], 1), 1)[:, : 2 * (M - DROPPED)]
    expected = batch['rewards'][0][:, None] + batch['discounts'][0][:, None] * (pooled - 0.3 * log_probs[:, None])
    samples = agent.replay_samples(batch, agent.learning_noise((1, B, A))).take(0)
    goal = agent.goal(samples, samples.next_observations)
    np.testing.assert_allclose(goal, expected, rtol=1e-4, atol=1e-5)


def test_an_update_of_tqc_is_that_of_the_equations():
    agent, batch = make_tqc(entropy_coef=0.3), batch_of(False)
    disturb_targets(agent)
    next_noise, noise = noise_of(agent)
    actor, *critics = map(float64, agent.output_models)
    targets = [unflat(t, m) for t, m in zip(agent.target_critics, agent.critic_models, strict=True)]
    x, next_x, actions = (batch[name][0] for name in ('observations', 'next_observations', 'actions'))
    next_actions, log_probs = squashed(forward(actor, next_x), next_noise)
    pooled = np.sort(np.concatenate([forward(t, next_x, next_actions)[0] for t in targets], 1), 1)
    kept = pooled[:, : 2 * (M - DROPPED)] - 0.3 * log_probs[:, None]
    goal = batch['rewards'][0][:, None] + batch['discounts'][0][:, None] * kept

    def critic_loss(critic):
        return np.mean([brute_force(*row) for row in zip(forward(critic, x, actions)[0], goal, strict=True)])

    def policy_loss(weights, critics):
        mine, log_probs = squashed(forward(weights, x), noise)
        q = np.mean([forward(c, x, mine)[0].mean(1) for c in critics], 0)
        return np.mean(0.3 * log_probs - q)

    moved = [descended(critic, gradient(critic_loss, critic)) for critic in critics]
    losses = [critic_loss(critic) for critic in critics]
    loss = policy_loss(actor, moved)
    moved_actor = descended(actor, gradient(lambda weights: policy_loss(weights, moved), actor))
    logs = agent.learn(batch, {'learning_rate': LR})
    for model, expected in zip(agent.output_models, [moved_actor, *moved], strict=True):
        close(float64(model), expected, rtol=3e-4, atol=3e-6)
    assert logs['loss/value'] == pytest.approx(np.mean(losses), rel=1e-4)
    assert logs['loss/policy'] == pytest.approx(loss, rel=1e-4)


def test_one_quantile_has_the_limits_of_sac():
    """With one quantile, no truncation and small errors, the loss is a quarter of SAC's squared error."""
    quantiles, targets = np.float32([[0.2], [0.1]]), np.float32([[0.5, 0.3], [0.0, 0.4]])
    expected = 0.5 * 0.5 * (targets - quantiles) ** 2
    np.testing.assert_allclose(quantile_huber_loss(quantiles, targets)[..., 0], expected, rtol=1e-5)


# --------------------------------------------------------------------------------------------------------------- CrossQ


def normalised(inputs, outputs, seed):
    """Batch renormalisation of the input, a tanh layer of 4 and its outputs, with gradient descent."""
    entry = keras.Input((inputs,))
    hidden = keras.layers.Dense(4, 'tanh')(BatchRenorm()(entry))
    model = keras.Model(entry, [keras.layers.Dense(n)(hidden) for n in outputs])
    rng = np.random.default_rng(seed)
    for variable in model.weights:
        if 'steps' not in variable.path:
            value = (
                rng.uniform(0.5, 2.0, variable.shape)
                if 'variance' in variable.path or 'gamma' in variable.path
                else None
            )
            scale = 0.8 if len(variable.shape) > 1 else 0.2
            variable.assign(rng.normal(size=variable.shape) * scale if value is None else value)
    model.compile(keras.optimizers.SGD(LR))
    return model


def statistics(model):
    (layer,) = [layer for layer in model.layers if isinstance(layer, BatchRenorm)]
    return layer.moving_mean.numpy().astype(np.float64), layer.moving_variance.numpy().astype(np.float64)


def through(weights, *inputs, moving=None):
    """The outputs of `normalised`; without moving statistics, those of the batch normalise."""
    x = np.concatenate(inputs, -1)
    mean, variance = (x.mean(0), x.var(0)) if moving is None else moving
    gamma, beta, *others = weights
    return forward(others, (x - mean) / np.sqrt(variance + BATCH_EPSILON) * gamma + beta)


@pytest.mark.parametrize('delay', [1, 2])
def test_an_update_of_crossq_is_that_of_the_algorithm(delay):
    models = [normalised(D, [A, A], 1), normalised(D + A, [1], 2), normalised(D + A, [1], 3)]
    options = {'gamma': 0.9, 'seed': 0, 'entropy_coef': 0.3, 'policy_delay': delay}
    agent, batch = xagents.CrossQ(environments(), *models, **options), batch_of(False)
    next_noise, noise = noise_of(agent)
    actor, *critics = map(float64, agent.output_models)
    acting, *judging = map(statistics, agent.output_models)
    x, next_x, actions = (batch[name][0] for name in ('observations', 'next_observations', 'actions'))
    next_actions, log_probs = squashed(through(actor, next_x, moving=acting), next_noise)
    both = np.concatenate([x, next_x]), np.concatenate([actions, next_actions])
    next_q = np.min([through(critic, *both)[0][B:, 0] for critic in critics], 0)
    goal = batch['rewards'][0] + batch['discounts'][0] * (next_q - 0.3 * log_probs)

    def critic_loss(critic):
        return np.mean((goal - through(critic, *both)[0][:B, 0]) ** 2)

    losses = [critic_loss(critic) for critic in critics]
    moved = [descended(critic, gradient(critic_loss, critic)) for critic in critics]
    logs = agent.learn(batch, {'learning_rate': LR})
    for critic, expected in zip(agent.critic_models, moved, strict=True):
        close(float64(critic), expected, rtol=3e-4, atol=3e-6)
    assert logs['loss/value'] == pytest.approx(np.mean(losses), rel=1e-4)
    pairs = np.concatenate(both, 1)
    for critic, (mean, _) in zip(agent.critic_models, judging, strict=True):
        np.testing.assert_allclose(statistics(critic)[0], 0.99 * mean + 0.01 * pairs.mean(0), rtol=1e-4, atol=1e-6)
    if delay == 2:
        assert 'loss/policy' not in logs
        close(float64(agent.actor_model), actor)
        return
    after = [statistics(critic) for critic in agent.critic_models]

    def policy_loss(weights):
        mine, log_probs = squashed(through(weights, x), noise)
        q = np.min([through(c, x, mine, moving=m)[0][:, 0] for c, m in zip(moved, after, strict=True)], 0)
        return np.mean(0.3 * log_probs - q)

    assert logs['loss/policy'] == pytest.approx(policy_loss(actor), rel=2e-4)
    close(float64(agent.actor_model), descended(actor, gradient(policy_loss, actor)), rtol=5e-4, atol=5e-6)


def test_crossq_has_no_target_networks_and_normalises_by_default():
    agent = xagents.make('crossq', 'Pendulum-v1', net=[4], seed=1)
    assert not agent.targets() and not [name for name in agent.parts() if 'target' in name]
    kinds = [type(layer).__name__ for layer in agent.critic_models[0].layers]
    assert kinds.count('BatchRenorm') == 2
    layers = xagents.make('crossq', 'Pendulum-v1', net=[4], normalize_layers='layer').critic_models[0].layers
    assert not any(isinstance(layer, BatchRenorm) for layer in layers)
    shipped = xagents.make('crossq', 'Pendulum-v1').critic_models[0]
    assert sum(isinstance(layer, BatchRenorm) for layer in shipped.layers) == 3
