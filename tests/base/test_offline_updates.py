"""Updates of agents for data sets, against NumPy, SciPy and what is known: BC, TD3+BC, conservative DQN, IQL."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from gymnasium import spaces
from scipy.optimize import minimize, minimize_scalar

import xagents
from tests.base.test_off_policy_updates import (
    BOX,
    LR,
    A,
    D,
    batches,
    close,
    descended,
    disturb_targets,
    float64,
    forward,
    gradient,
    network,
    unflat,
)
from tests.problems import Arbitrary
from tests.reference import SPACES, log_prob
from xagents.iql.agent import expectile_loss

EAGER, COMPILED = pytest.mark.usefixtures('eager'), pytest.mark.usefixtures('without_xla')


def envs_of(shown, taken):
    return xagents.create_envs(lambda **_: Arbitrary(spaces.Box(-1, 1, (shown,), np.float32), taken), 1)


def repeated(batch, k):
    return {n: np.repeat(x[None], k, 0) for n, x in batch.items()} | {'n_updates': k}


def transitions(observations, actions, rewards=0.0):
    """A batch [B, …] of steps that terminate."""
    size = len(observations)
    return {
        **{'observations': np.float32(observations), 'next_observations': np.float32(observations)},
        **{'actions': actions, 'rewards': np.full(size, rewards, np.float32), 'discounts': np.zeros(size, np.float32)},
    }


# ------------------------------------------------------------------------------------------------------------------- BC


def cloning(shown, kind, heads, **options):
    """BC by a linear network of each observation, with plain softmax tables where those are one-hot."""
    entry = keras.Input((shown,))
    policy = keras.layers.Dense(heads, use_bias=False, kernel_initializer='zeros')(entry)
    model = keras.Model(entry, [policy, keras.layers.Dense(1)(entry)])
    taken = SPACES[kind] if isinstance(kind, str) else kind
    return xagents.BC(envs_of(shown, taken), model, seed=0, grad_norm=1e9, **options)


@COMPILED
def test_imitation_learns_the_probabilities_of_a_table():
    rng, shares = (
        np.random.default_rng(0),
        np.array([[0.7, 0.3, 0], [0.1, 0.1, 0.8], [1 / 3] * 3, [0.5, 0, 0.5], [1, 0, 0]]),
    )
    states = np.repeat(np.arange(5), 200)
    actions = np.concatenate([rng.choice(3, 200, p=p) for p in shares]).astype(np.int32)
    agent = cloning(5, 'Discrete', 3)
    batch = transitions(np.eye(5)[states], actions)
    for _ in range(6):
        metrics = agent.learn(repeated(batch, 100), {'learning_rate': 0.1})
    frequencies = np.array([np.bincount(actions[states == s], minlength=3) / 200 for s in range(5)])
    logits = agent.actor(np.eye(5, dtype=np.float32))[0]
    learned = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    np.testing.assert_allclose(learned, frequencies, atol=0.02)
    entropy = -np.mean([np.sum(p[p > 0] * np.log(p[p > 0])) for p in frequencies])
    assert metrics['loss/policy'] == pytest.approx(entropy, abs=0.02)
    assert metrics['updates'] == 100


@COMPILED
def test_imitation_learns_the_mean_and_deviation_of_normal_actions():
    rng = np.random.default_rng(1)
    observations = rng.normal(size=(500, 2)).astype(np.float32)
    weights = np.array([[0.3, -0.2], [0.1, 0.4]])
    actions = (observations @ weights + rng.normal(size=(500, 2)) * [0.1, 0.4]).astype(np.float32)
    agent = cloning(2, 'Box', 2, log_std_init=-0.5)
    for _ in range(6):
        agent.learn(repeated(transitions(observations, actions), 100), {'learning_rate': 0.03})
    # least squares are the maximum of the likelihood, and the deviation of what they leave
    best, *_ = np.linalg.lstsq(observations.astype(np.float64), actions.astype(np.float64), rcond=None)
    mean, log_std = agent.actor(observations)
    np.testing.assert_allclose(mean, observations @ best, atol=0.02)
    np.testing.assert_allclose(np.exp(log_std[0]), (actions - observations @ best).std(0), rtol=0.03)


@EAGER
@pytest.mark.parametrize('kind', SPACES)
def test_the_loss_of_imitation_is_the_negative_log_likelihood(kind):
    rng = np.random.default_rng(2)
    units = {'Discrete': 3, 'MultiDiscrete': 5, 'MultiBinary': 3, 'Box': 2}[kind]
    agent = cloning(4, kind, units)
    agent.model.layers[1].set_weights([rng.normal(size=(4, units))])
    agent.refresh()
    observations = rng.normal(size=(7, 4)).astype(np.float32)
    actions = {
        'Discrete': rng.integers(0, 3, 7),
        'MultiDiscrete': np.stack([rng.integers(0, 3, 7), rng.integers(0, 2, 7)], 1),
        'MultiBinary': rng.integers(0, 2, (7, 3)),
        'Box': rng.normal(size=(7, 2)),
    }[kind].astype(agent.distribution.action_dtype)
    policy = [np.asarray(x, np.float64) for x in agent.actor(observations)]
    expected = -np.mean(log_prob(kind, policy, actions))
    metrics = agent.learn(repeated(transitions(observations, actions), 1), {'learning_rate': 0.01})
    assert metrics['loss/policy'] == pytest.approx(expected, rel=1e-5)


@COMPILED
def test_actions_that_never_vary_are_learned_and_stay_finite():
    agent = cloning(1, 'Box', 2)
    batch = transitions(np.ones((8, 1)), np.full((8, 2), 0.25, np.float32))
    for _ in range(15):
        metrics = agent.learn(repeated(batch, 100), {'learning_rate': 0.02})
    assert np.isfinite(metrics['loss/policy']) and metrics['updates'] == 100
    mean, log_std = agent.actor(np.ones((1, 1), np.float32))
    np.testing.assert_allclose(mean, 0.25, atol=0.02)
    assert (log_std > -5.5).all()


# --------------------------------------------------------------------------------------------------- conservative DQN


@COMPILED
@pytest.mark.parametrize(
    ('weight', 'huber'),
    [(0.3, True), pytest.param(0.0, False, marks=pytest.mark.slow), pytest.param(2.0, False, marks=pytest.mark.slow)],
)
def test_conservative_values_of_a_bandit_are_the_minimiser(weight, huber):
    """One state, three actions of which the data have two: the loss has one minimum, which SciPy finds as well."""
    actions, rewards = np.array([0] * 6 + [1] * 2, np.int32), np.float32([1, 1, 1, 2, 1, 0, 3, 4])
    entry = keras.Input((1,))
    model = keras.Model(entry, keras.layers.Dense(3, use_bias=False, kernel_initializer='zeros')(entry))
    taken = spaces.Discrete(3)
    agent = xagents.DQN(
        envs_of(1, taken), model, seed=0, conservative=weight, huber=huber, grad_norm=1e9, target_sync_steps=10**9
    )
    batch = {**transitions(np.ones((8, 1)), actions), 'rewards': rewards}
    for _ in range(10):
        agent.learn(repeated(batch, 200), {'learning_rate': 0.02, 'steps': 1})
    learned = agent.actor(np.ones((1, 1), np.float32))[0][0]

    def loss(q):
        errors = rewards - q[actions]
        each = np.where(abs(errors) <= 1, errors**2 / 2, abs(errors) - 0.5) if huber else errors**2
        return np.mean(each + weight * (np.log(np.exp(q).sum()) - q[actions]))

    best = minimize(loss, np.zeros(3), tol=1e-10).x
    known = slice(2) if not weight else slice(3)  # without the weight nothing is said of an action that is not there
    if weight:
        # the value of the third only falls: both have gone down until the gradient is small
        assert learned[2] < learned[:2].min() - 2
        known = slice(2)
    np.testing.assert_allclose(learned[known], best[known], atol=0.05)


# ------------------------------------------------------------------------------------------------------------ TD3+BC


def twin(name, **options):
    actor = network(D, [A], 1, 'tanh', keras.optimizers.SGD(LR))
    critics = [network(D + A, [1], 2 + i, optimizer=keras.optimizers.SGD(LR)) for i in range(2)]
    envs = xagents.create_envs(lambda **_: Arbitrary(spaces.Box(-1, 1, (D,), np.float32), BOX), 2)
    agent = getattr(xagents, name)(envs, actor, *critics, gamma=0.9, seed=0, policy_delay=1, **options)
    disturb_targets(agent)
    return agent


def moved(agent, batch):
    """How far the actor's weights moved, in units of the learning rate."""
    before = float64(agent.actor_model)
    agent.learn(batch, {'learning_rate': LR})
    return [(a - b) / LR for a, b in zip(float64(agent.actor_model), before, strict=True)]


@EAGER
@pytest.mark.parametrize('alpha', [0.0, 2.5])
def test_td3_bc_climbs_and_stays_as_its_equations_say(alpha):
    agent, batch = twin('TD3BC', alpha=alpha), batches('td3')
    actor = float64(agent.actor_model)
    observations, actions = (batch[n][0].astype(np.float64) for n in ('observations', 'actions'))
    got = moved(agent, batch)
    critic = float64(agent.critic_models[0])  # its step comes first

    def made(weights):
        return np.tanh(forward(weights, observations)[0])

    def q(weights):
        return forward(critic, observations, made(weights))[0][:, 0]

    scale = alpha / abs(q(actor)).mean()

    def loss(weights):
        return -scale * q(weights).mean() + ((made(weights) - actions) ** 2).mean()

    close(got, [-g for g in gradient(loss, actor)], rtol=2e-3, atol=1e-5)


@EAGER
def test_td3_bc_at_its_limits_is_regression_and_td3():
    batch = batches('td3')
    imitating, plain, far = (moved(twin(name, **o), batch) for name, o in (
        ('TD3BC', {'alpha': 0.0}), ('TD3', {}), ('TD3BC', {'alpha': 1e6})
    ))  # fmt: skip
    agent = twin('TD3')
    observations, actions = (batch[n][0].astype(np.float64) for n in ('observations', 'actions'))
    actor = float64(agent.actor_model)
    regression = gradient(lambda w: ((np.tanh(forward(w, observations)[0]) - actions) ** 2).mean(), actor)
    close(imitating, [-g for g in regression], rtol=2e-3, atol=1e-5)

    def direction(parts):
        vector = np.concatenate([p.ravel() for p in parts])
        return vector / np.linalg.norm(vector)

    np.testing.assert_allclose(direction(far), direction(plain), atol=1e-4)


# ---------------------------------------------------------------------------------------------------------------- IQL


def implicit(**options):
    actor = network(D, [A], 1, 'tanh', keras.optimizers.SGD(LR))
    critics = [network(D + A, [1], 2 + i, optimizer=keras.optimizers.SGD(LR)) for i in range(2)]
    value = network(D, [1], 4, optimizer=keras.optimizers.SGD(LR))
    envs = xagents.create_envs(lambda **_: Arbitrary(spaces.Box(-1, 1, (D,), np.float32), BOX), 2)
    agent = xagents.IQL(envs, actor, *critics, value, gamma=0.9, seed=0, **options)
    rng = np.random.default_rng(7)
    for target in agent.target_critics:
        state = target.state()
        target.load({**state, 'parameters': state['parameters'] + 0.5 * rng.normal(size=state['parameters'].shape)})
    return agent


@EAGER
@pytest.mark.parametrize('options', [{}, {'expectile': 0.9, 'inverse_temperature': 1.0, 'max_weight': 1.5, 'tau': 0.5}])
def test_iql_steps_as_its_algorithm_says(options):
    agent, batch = implicit(log_std_init=-0.3, **options), batches('td3')
    o = agent.options
    one = {n: x[0].astype(np.float64) for n, x in batch.items() if n != 'n_updates'}
    actor, value = float64(agent.actor_model), float64(agent.value_model)
    critics = [float64(critic) for critic in agent.critic_models]
    targets = [unflat(t, m) for t, m in zip(agent.target_critics, agent.critic_models, strict=True)]

    def v(weights, observations):
        return forward(weights, observations)[0][:, 0]

    def q(weights):
        return forward(weights, one['observations'], one['actions'])[0][:, 0]

    lower = np.minimum(*map(q, targets))
    advantages = lower - v(value, one['observations'])
    goal = one['rewards'] + one['discounts'] * v(value, one['next_observations'])

    def value_loss(weights):
        u = lower - v(weights, one['observations'])
        return np.mean(np.where(u < 0, 1 - o.expectile, o.expectile) * u**2)

    weights = np.minimum(np.exp(o.inverse_temperature * advantages), o.max_weight)

    def policy_loss(parameters):
        *dense, log_std = parameters
        z = (one['actions'] - np.tanh(forward(dense, one['observations'])[0])) / np.exp(log_std)
        return np.mean(weights * (z**2 / 2 + log_std + np.log(2 * np.pi) / 2).sum(1))

    metrics = agent.learn(batch, {'learning_rate': LR})
    close(float64(agent.value_model), descended(value, gradient(value_loss, value)), rtol=1e-3)
    close(float64(agent.actor_model), descended(actor, gradient(policy_loss, actor)), rtol=1e-3, atol=1e-5)
    for critic, before, target, old in zip(agent.critic_models, critics, agent.target_critics, targets, strict=True):
        after = descended(before, gradient(lambda w: np.mean((goal - q(w)) ** 2), before))
        close(float64(critic), after, rtol=1e-3)
        close(unflat(target, critic), [t + o.tau * (w - t) for t, w in zip(old, after, strict=True)], rtol=1e-3)
    expected = {'loss/value': value_loss(value), 'loss/policy': policy_loss(actor), 'stats/weight': weights.mean()}
    for name, number in expected.items():
        assert metrics[name] == pytest.approx(number, rel=1e-4)
    assert metrics['stats/q'] == pytest.approx(lower.mean(), rel=1e-4)


@pytest.mark.parametrize('expectile', [0.1, 0.5, 0.7, 0.99])
def test_the_expectile_of_a_fair_coin_is_its_share(expectile):
    coin = np.float32([0, 1] * 50)
    best = minimize_scalar(lambda v: float(tf.reduce_mean(expectile_loss(coin - np.float32(v), expectile)))).x
    assert best == pytest.approx(expectile, abs=1e-3)
