"""PQN against NumPy: λ-returns by their recursion, and one update in float64."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from gymnasium import spaces

import xagents
from tests.base.test_off_policy_updates import LR, D, close, descended, float64, forward, gradient
from tests.problems import Arbitrary
from xagents.base.batches import RolloutBatch

T, N, ACTIONS = 6, 3, 4


def make(**options):
    entry = keras.Input((D,))
    model = keras.Model(entry, keras.layers.Dense(ACTIONS)(keras.layers.Dense(4, 'tanh')(entry)))
    rng = np.random.default_rng(1)
    model.set_weights([rng.normal(size=v.shape) for v in model.weights])
    model.compile(keras.optimizers.SGD(LR))
    envs = xagents.create_envs(lambda **_: Arbitrary(spaces.Box(-1, 1, (D,), np.float32), spaces.Discrete(ACTIONS)), N)
    options = {'n_steps': T, 'gamma': 0.9, 'lam': 0.7, 'seed': 0, 'epochs': 1, 'mini_batches': 1, **options}
    return xagents.PQN(envs, model, grad_norm=1e9, **options)


def rollout(seed=2):
    rng = np.random.default_rng(seed)
    terminated, truncated, valid = np.zeros((T, N), bool), np.zeros((T, N), bool), np.ones((T, N), bool)
    terminated[1, 0] = truncated[2, 1] = terminated[4, 1] = truncated[5, 2] = True
    valid[2, 0] = valid[3, 1] = valid[5, 1] = False  # the row after an end only resets
    return {
        'observations': rng.normal(size=(T + 1, N, D)).astype(np.float32),
        'actions': rng.integers(0, ACTIONS, (T, N)).astype(np.int32),
        'rewards': rng.normal(size=(T, N)).astype(np.float32),
        'terminated': terminated,
        'truncated': truncated,
        'valid': valid,
    }


def lambda_returns(batch, best, gamma=0.9, lam=0.7):
    """The recursion of the paper, one environment at a time; `best` is max Q, [T + 1, N]."""
    returns = np.zeros((T, N))
    for n in range(N):
        for t in reversed(range(T)):
            following = 0.0 if batch['terminated'][t, n] else best[t + 1, n]
            ended = batch['terminated'][t, n] or batch['truncated'][t, n]
            later = following if ended or t == T - 1 else returns[t + 1, n]
            returns[t, n] = batch['rewards'][t, n] + gamma * (lam * later + (1 - lam) * following)
    return returns


@pytest.mark.usefixtures('eager')
def test_targets_are_the_returns_of_the_recursion():
    agent, batch = make(), rollout()
    best = forward(float64(agent.model), batch['observations'])[0].max(-1)
    data = agent.transitions(RolloutBatch(*(tf.constant(batch[name]) for name in RolloutBatch._fields[:6])))
    got = data.returns.numpy().reshape(T, N)
    np.testing.assert_allclose(got[batch['valid']], lambda_returns(batch, best)[batch['valid']], rtol=1e-4, atol=1e-5)


@pytest.mark.usefixtures('eager')
def test_an_update_follows_the_gradient_of_the_squared_error():
    agent, batch = make(), rollout()
    weights = float64(agent.model)
    returns = lambda_returns(batch, forward(weights, batch['observations'])[0].max(-1))[batch['valid']]
    x, actions = batch['observations'][:-1][batch['valid']], batch['actions'][batch['valid']]

    def loss(weights):
        return np.mean((returns - forward(weights, x)[0][np.arange(len(x)), actions]) ** 2)

    logs = agent.learn(batch, {'learning_rate': LR})
    assert logs['loss/value'] == pytest.approx(loss(weights), rel=1e-4) and logs['updates'] == 1
    close(float64(agent.model), descended(weights, gradient(loss, weights)), rtol=2e-4, atol=2e-6)


@pytest.mark.usefixtures('eager')
def test_epochs_and_minibatches_count_as_updates():
    agent = make(epochs=3, mini_batches=2)
    assert agent.learn(rollout(), {'learning_rate': LR})['updates'] == 6


@pytest.mark.usefixtures('eager')
def test_the_default_network_is_normalised_and_epsilon_falls():
    agent = xagents.make('pqn', 'CartPole-v1', n_envs=2, n_steps=8, seed=1, epsilon_decay_steps=100, quiet=True)
    assert sum(isinstance(layer, keras.layers.LayerNormalization) for layer in agent.model.layers) == 2
    logs = list(agent.train_iter(max_steps=120))
    epsilons = [log['stats/epsilon'] for log in logs]
    assert epsilons[0] == 1.0 and epsilons[-1] == pytest.approx(0.05, abs=1e-6) and sorted(epsilons)[::-1] == epsilons


def test_it_learns_to_balance():
    agent = xagents.make('pqn', 'CartPole-v1', n_envs=8, seed=1, epsilon_decay_steps=15_000, lr=1e-3, quiet=True)
    agent.fit(max_steps=40_000)
    assert agent.evaluate(episodes=10)['mean'] > 100
