"""One update of SAC against NumPy: losses computed anew in float64, gradients by differences."""

import gymnasium
import keras
import numpy as np
import pytest
import tensorflow as tf
from gymnasium import spaces
from scipy import stats

import xagents
from tests.base.test_off_policy_updates import BOX, LR, A, B, D, close, descended, float64, forward, gradient, unflat
from tests.problems import Arbitrary
from xagents.networks.distributions import SquashedGaussian
from xagents.options.errors import OptionError
from xagents.sac.discrete.agent import DiscreteSAC

N_ACTIONS = 3
pytestmark = pytest.mark.usefixtures('eager')


def network(inputs, outputs, seed):
    """A tanh layer of 4 and its outputs, with gradient descent: a step shows the gradient."""
    entry = keras.Input((inputs,))
    hidden = keras.layers.Dense(4, 'tanh')(entry)
    model = keras.Model(entry, [keras.layers.Dense(n)(hidden) for n in outputs])
    rng = np.random.default_rng(seed)
    model.set_weights([rng.normal(size=v.shape) * (0.8 if len(v.shape) > 1 else 0.1) for v in model.weights])
    model.compile(keras.optimizers.SGD(LR))
    return model


def make(discrete=False, **options):
    taken = spaces.Discrete(N_ACTIONS) if discrete else BOX
    envs = xagents.create_envs(lambda **_: Arbitrary(spaces.Box(-1, 1, (D,), np.float32), taken), 2)
    options = {'gamma': 0.9, 'seed': 0, 'tau': 0.1, **options}
    if discrete:
        models = [network(D, [N_ACTIONS], seed) for seed in (1, 2, 3)]
        return DiscreteSAC(envs, *models, **options)
    return xagents.SAC(envs, network(D, [A, A], 1), network(D + A, [1], 2), network(D + A, [1], 3), **options)


def batch_of(discrete, k=1, seed=3):
    rng, shape = np.random.default_rng(seed), (k, B)
    actions = rng.integers(0, N_ACTIONS, shape).astype(np.int32) if discrete else rng.uniform(-1, 1, (*shape, A))
    return {
        'observations': rng.normal(size=(*shape, D)).astype(np.float32),
        'actions': actions if discrete else actions.astype(np.float32),
        'rewards': (2 * rng.normal(size=shape)).astype(np.float32),
        'next_observations': rng.normal(size=(*shape, D)).astype(np.float32),
        'discounts': np.tile(np.float32([0.9, 0.81, 0.729, 0.0, 0.0, 0.9]), (k, 1)),
        'n_updates': k,
    }


def disturb_targets(agent):
    rng = np.random.default_rng(7)
    for target in agent.target_critics:
        state = target.state()
        target.load({**state, 'parameters': state['parameters'] + 0.5 * rng.normal(size=state['parameters'].shape)})


def noise_of(agent):
    """The noise [2, B, A] that the next update will draw."""
    state = agent.rng('learn').bit_generator.state
    noise = agent.learning_noise((1, B, A))
    agent.rng('learn').bit_generator.state = state
    return np.asarray(noise, np.float64)[0]


def squashed(outputs, noise):
    """Actions and log-probabilities, with the density of tanh(x) by its derivative."""
    mean, log_std = outputs
    log_std = np.clip(log_std, -20, 2)
    x = mean + np.exp(log_std) * noise
    log_probs = stats.norm.logpdf(x, mean, np.exp(log_std)) - np.log(1 - np.tanh(x) ** 2)
    return np.tanh(x), log_probs.sum(-1)


def softmax(logits):
    e = np.exp(logits - logits.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


class Continuous:
    """SAC for Box actions in float64."""

    def __init__(self, agent):
        self.next_noise, self.noise = noise_of(agent)

    def next_values(self, actor, targets, observations, alpha):
        actions, log_probs = squashed(forward(actor, observations), self.next_noise)
        return np.min([forward(t, observations, actions)[0][:, 0] for t in targets], 0) - alpha * log_probs

    def chosen(self, critic, observations, actions):
        return forward(critic, observations, actions)[0][:, 0]

    def policy_loss(self, actor, critics, observations, alpha):
        actions, log_probs = squashed(forward(actor, observations), self.noise)
        q = np.min([forward(c, observations, actions)[0][:, 0] for c in critics], 0)
        return np.mean(alpha * log_probs - q), -log_probs.mean()


class Discrete:
    """SAC for discrete actions in float64: expectations as sums."""

    def __init__(self, agent):
        pass

    def next_values(self, actor, targets, observations, alpha):
        p = softmax(forward(actor, observations)[0])
        q = np.min([forward(t, observations)[0] for t in targets], 0)
        return (p * (q - alpha * np.log(p))).sum(-1)

    def chosen(self, critic, observations, actions):
        return forward(critic, observations)[0][np.arange(len(actions)), actions]

    def policy_loss(self, actor, critics, observations, alpha):
        p = softmax(forward(actor, observations)[0])
        q = np.min([forward(c, observations)[0] for c in critics], 0)
        return (p * (alpha * np.log(p) - q)).sum(-1).mean(), -(p * np.log(p)).sum(-1).mean()


@pytest.mark.parametrize('discrete', [False, True])
@pytest.mark.parametrize('entropy_coef', [None, 0.3])
def test_an_update_is_that_of_the_equations(discrete, entropy_coef):
    agent, batch = make(discrete, entropy_coef=entropy_coef), batch_of(discrete)
    disturb_targets(agent)
    agent.temperature._log.assign([-0.5])
    alpha = np.exp(-0.5) if entropy_coef is None else entropy_coef
    actor, *critics = map(float64, agent.output_models)
    targets = [unflat(t, m) for t, m in zip(agent.target_critics, agent.critic_models, strict=True)]
    reference = (Discrete if discrete else Continuous)(agent)
    x, next_x, actions = (batch[name][0] for name in ('observations', 'next_observations', 'actions'))
    goal = batch['rewards'][0] + batch['discounts'][0] * reference.next_values(actor, targets, next_x, alpha)
    gradients = [
        gradient(lambda c: np.mean((goal - reference.chosen(c, x, actions)) ** 2), critic) for critic in critics
    ]
    losses = [np.mean((goal - reference.chosen(critic, x, actions)) ** 2) for critic in critics]
    moved = [descended(critic, g) for critic, g in zip(critics, gradients, strict=True)]
    loss, entropy = reference.policy_loss(actor, moved, x, alpha)
    moved_actor = descended(actor, gradient(lambda a: reference.policy_loss(a, moved, x, alpha)[0], actor))

    logs = agent.learn(batch, {'learning_rate': LR})
    for model, expected in zip(agent.output_models, [moved_actor, *moved], strict=True):
        close(float64(model), expected, rtol=2e-4, atol=2e-6)
    for target, before, after in zip(agent.target_critics, targets, moved, strict=True):
        expected = np.concatenate([(0.9 * b + 0.1 * a).ravel() for b, a in zip(before, after, strict=True)])
        np.testing.assert_allclose(target.state()['parameters'], expected, rtol=2e-4, atol=2e-6)
    wanted = {'loss/value': np.mean(losses), 'loss/policy': loss, 'stats/entropy': entropy, 'stats/temperature': alpha}
    for name, value in wanted.items():
        assert logs[name] == pytest.approx(value, rel=1e-4), name
    # Adam's first step is the learning rate in the direction of the gradient: entropy above its target lowers α
    step = 0.0 if entropy_coef is not None else -LR * np.sign(entropy - agent.temperature.target)
    assert agent.temperature._log.numpy()[0] == pytest.approx(-0.5 + step, abs=1e-5)


def test_the_density_of_squashed_actions_is_a_density():
    distribution, grid = SquashedGaussian(1), np.linspace(-0.9999, 0.9999, 200_001)
    outputs = [np.full((len(grid), 1), 0.4, np.float32), np.full((len(grid), 1), -0.3, np.float32)]
    density = np.exp(distribution.log_prob(outputs, grid[:, None].astype(np.float32)).numpy())
    assert np.trapezoid(density, grid) == pytest.approx(1.0, abs=1e-3)
    # by SciPy: a density of x, divided by the derivative of tanh
    x = np.arctanh(grid[::1000])
    expected = stats.norm.pdf(x, 0.4, np.exp(-0.3)) / (1 - np.tanh(x) ** 2)
    np.testing.assert_allclose(density[::1000], expected, rtol=2e-3)


def test_the_correction_is_finite_where_tanh_rounds_to_one():
    distribution, outputs = SquashedGaussian(2), [tf.constant([[40.0, -40.0]]), tf.constant([[0.0, 0.0]])]
    with tf.GradientTape() as tape:
        tape.watch(outputs)
        actions, log_probs = distribution.sample_with_log_prob(outputs, tf.constant([[0.5, -0.5]]))
    gradients = tape.gradient(log_probs, outputs)
    assert np.isfinite(log_probs.numpy()).all() and all(np.isfinite(g.numpy()).all() for g in gradients)
    np.testing.assert_array_equal(actions.numpy(), [[1.0, -1.0]])
    assert log_probs.numpy()[0] == pytest.approx(stats.norm.logpdf([0.5, -0.5]).sum() + 2 * (2 * 40.5 - np.log(4)))
    assert np.isfinite(distribution.log_prob(outputs, np.float32([[1.0, -1.0]])).numpy()).all()
    extreme = [np.float32([[0.0, 0.0]]), np.float32([[90.0, -90.0]])]
    assert np.isfinite(distribution.sample(extreme, np.float32([[1.0, 1.0]]))).all()


def test_without_entropy_and_noise_it_is_td3_without_delay(monkeypatch):
    """The limit: temperature 0, no noise, the target actor is the actor, and the policy follows the lower critic."""
    agent, batch = make(entropy_coef=0.0), batch_of(False)
    disturb_targets(agent)
    monkeypatch.setattr(agent, 'learning_noise', lambda shape: np.zeros((shape[0], 2, *shape[1:]), np.float32))
    options = {'gamma': 0.9, 'seed': 0, 'tau': 0.1, 'policy_delay': 1, 'policy_noise_coef': 0.0}
    actor = network(D, [A, A], 1)
    deterministic = keras.Model(actor.input, keras.layers.Activation('tanh')(actor.outputs[0]))
    deterministic.compile(keras.optimizers.SGD(LR))
    twin = xagents.TD3(agent.envs, deterministic, network(D + A, [1], 2), network(D + A, [1], 3), **options)
    for target, other in zip(twin.target_critics, agent.target_critics, strict=True):
        target.load(other.state())

    def lower(observations, buffer_actions, critics_updated):
        with tf.GradientTape() as tape:
            actions = twin.actor_model(observations, training=True)
            q = tf.reduce_min([twin.critic_value(c, observations, actions) for c in twin.critic_models], 0)
            loss = -tf.reduce_mean(q)
        _, updated, refused = twin.actor_step(tape, loss, critics_updated > 0)
        for target in twin.targets():
            target.soft_update(twin.traced_options.tau * updated)
        return {'loss/policy': loss, 'policy_updates': updated, 'stats/refused': refused}

    monkeypatch.setattr(twin, 'update_policy', lower)
    logs, others = agent.learn(batch, {'learning_rate': LR}), twin.learn(batch, {'learning_rate': LR})
    assert logs['loss/policy'] == pytest.approx(others['loss/policy'], rel=1e-5)
    for critic, other in zip(agent.critic_models, twin.critic_models, strict=True):
        close(float64(critic), float64(other))
    mean = keras.Model(agent.actor_model.input, agent.actor_model.outputs[0])
    close(float64(mean), float64(deterministic))


@pytest.mark.parametrize('value', [np.nan, np.inf])
@pytest.mark.parametrize('discrete', [False, True])
def test_a_refused_update_keeps_the_temperature(discrete, value):
    agent, batch = make(discrete), batch_of(discrete)
    batch['rewards'][0, 0] = value
    before = agent.temperature.state()
    logs = agent.learn(batch, {'learning_rate': LR})
    assert logs['updates'] == 0 and logs['stats/refused'] == 1
    for name, array in agent.temperature.state().items():
        if name != '2':  # the learning rate
            np.testing.assert_array_equal(array, before[name])


def test_a_learned_temperature_moves_the_entropy_to_its_target():
    """On one state and constant values, the policy ends with the target entropy."""
    agent = make(True, target_entropy=0.9)
    for critic in agent.critic_models:
        critic.set_weights([np.zeros(v.shape) for v in critic.weights[:-1]] + [np.float32([0.0, 0.5, 1.0])])
    observations = tf.zeros((4, D))
    for _ in range(400):
        logs = agent.update_policy(observations, (), tf.ones(()))
        agent.actor_step.optimizer.learning_rate.assign(0.05)
    assert float(logs['stats/entropy']) == pytest.approx(0.9, abs=0.05)


@pytest.mark.parametrize(
    ('discrete', 'target', 'expected'),
    [
        (True, 1.1, 'at least 0 and less than 1.1 nats'),
        (True, -0.1, 'at least 0 and less than 1.1 nats'),
        (False, 1.4, 'less than 1.39 nats'),
    ],
)
def test_a_target_that_no_policy_has_is_refused(discrete, target, expected):
    with pytest.raises(OptionError, match=f'^target_entropy: got {target:g}, expected {expected}'):
        make(discrete, target_entropy=target)


def test_warm_up_and_greedy_actions():
    agent = make(buffer_initial_size=8)
    assert agent.acting_policy.warming_up
    noise = agent.acting_policy.draw_exploration(np.random.default_rng(1), (200, 2))
    assert noise.shape == (200, 2, A) and abs(noise).max() <= 1 and abs(noise.mean()) < 0.1 and noise.std() > 0.5
    columns = agent.acting_policy(np.zeros((2, D), np.float32), noise[0], valid=np.ones(2, bool))
    np.testing.assert_array_equal(columns['actions'], noise[0])
    mean = forward(float64(agent.actor_model), np.zeros((2, D)))[0]
    low, high = BOX.low, BOX.high
    greedy = agent.act(np.zeros((2, D), np.float32))
    np.testing.assert_allclose(greedy, low + (np.tanh(mean) + 1) / 2 * (high - low), rtol=1e-5)
    discrete = make(True, buffer_initial_size=8)
    drawn = discrete.acting_policy.draw_exploration(np.random.default_rng(1), (300, 2))
    assert drawn.shape == (300, 2) and set(np.unique(drawn)) == {0, 1, 2}


def test_forms_belong_to_action_spaces():
    assert type(xagents.make('sac', 'CartPole-v1', net=[4])) is DiscreteSAC
    assert type(xagents.make('sac', 'Pendulum-v1', net=[4])) is xagents.SAC
    assert xagents.make('sac', 'CartPole-v1', net=[4]).id == 'sac'
    with pytest.raises(ValueError, match=r'env: .* has Discrete actions, sac accepts Box ones'):
        xagents.SAC(xagents.create_envs('CartPole-v1', 1), network(4, [2, 2], 1), network(6, [1], 2))
    with pytest.raises(ValueError, match=r'env: .* has Box actions, DiscreteSAC accepts Discrete ones'):
        DiscreteSAC(xagents.create_envs('Pendulum-v1', 1), network(3, [2], 1), network(3, [2], 2))
    several = gymnasium.spaces.MultiDiscrete([2, 2])
    with pytest.raises(ValueError, match=r'has MultiDiscrete actions, sac accepts Box ones \(try ppo or a2c\)'):
        xagents.make('sac', lambda **_: Arbitrary(spaces.Box(-1, 1, (D,), np.float32), several), net=[4])
    assert xagents.make('sac', 'Pendulum-v1', entropy_coef='auto', net=[4]).options.entropy_coef is None
    assert xagents.make('sac', 'Pendulum-v1', net=[4]).temperature.target == -1.0


def test_state_dependent_noise_has_the_density_that_updates_assume():
    """Actions of the policy, many noises for one state, against the squashed Gaussian of the update's outputs."""
    agent = xagents.make('sac', 'Pendulum-v1', net=[8], sde=True, log_std_init=-1.0, train_frequency=16, seed=2)
    observation = np.float32([[0.3, -0.5, 1.2]])
    mean, log_std = (x.numpy()[0, 0] for x in agent.policy_outputs(observation, False))
    policy = agent.acting_policy
    assert policy.noise_repeat == 16, 'one sample a rollout'
    noise = policy.draw_noise(np.random.default_rng(0), (40_000,))
    actions = policy(np.repeat(observation, 40_000, 0), noise)['actions'][:, 0]
    before = np.arctanh(actions.astype(np.float64).clip(-0.9999999, 0.9999999))
    assert before.mean() == pytest.approx(mean, abs=0.02)
    assert before.std() == pytest.approx(np.exp(log_std), rel=0.02)
    np.testing.assert_allclose(policy(observation, None)['actions'], np.tanh([[mean]]), rtol=1e-5)
    outputs = [np.float32([[mean]]), np.float32([[log_std]])]
    _, log_prob = agent.distribution.sample_with_log_prob(outputs, np.zeros((1, 1), np.float32))
    density = stats.norm.logpdf(mean, mean, np.exp(log_std)) - np.log(1 - np.tanh(mean) ** 2)
    assert float(log_prob[0]) == pytest.approx(density, rel=1e-4)
    other = xagents.make('sac', 'Pendulum-v1', net=[8], sde=True, sde_sample_frequency=4, train_frequency=16, seed=2)
    assert other.acting_policy.noise_repeat == 4


@pytest.mark.parametrize('agent_id', ['sac', 'tqc', 'crossq'])
def test_state_dependent_noise_learns_its_deviations(agent_id):
    options = {'net': [8], 'sde': True, 'train_frequency': 8, 'buffer_initial_size': 40, 'buffer_batch_size': 8}
    agent = xagents.make(agent_id, 'Pendulum-v1', seed=2, **options)
    log_std = next(v for v in agent.actor_model.weights if 'deviations' in v.path)
    before = log_std.numpy().copy()
    agent.fit(max_steps=80, quiet=True)
    assert (log_std.numpy() != before).all()


def test_state_dependent_noise_is_for_continuous_actions():
    with pytest.raises(ValueError, match='sde: got true, but CartPole-v1 has Discrete actions'):
        xagents.make('sac', 'CartPole-v1', sde=True)
    with pytest.raises(ValueError, match=r'log_std_init: got -2.0, which requires --sde'):
        xagents.make('sac', 'Pendulum-v1', log_std_init=-2)


def test_noise_cannot_be_kept_for_longer_than_a_rollout():
    with pytest.raises(ValueError, match='sde_sample_frequency: got 8, expected at most the 4 steps of a rollout'):
        xagents.make('sac', 'Pendulum-v1', net=[4], sde=True, sde_sample_frequency=8, train_frequency=4)
    agent = xagents.make('sac', 'Pendulum-v1', net=[4], sde=True)
    assert 'the noise is drawn at each step' in agent.progress.startup_lines[-1]
