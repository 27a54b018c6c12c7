"""One update of DQN, DDPG and TD3 against NumPy: losses computed anew in float64, gradients by differences.

The updates run eagerly, which needs no compilation; one test compiles them as they are shipped.
"""

import gymnasium
import keras
import numpy as np
import pytest
import tensorflow as tf
from gymnasium import spaces

import xagents
from tests.problems import Arbitrary
from xagents.checkpoints.agent_state import model_variables

LR = 0.05
B, D, A = 6, 3, 2
BOX = spaces.Box(np.float32([-2.0, 0.5]), np.float32([6.0, 1.25]))


# --------------------------------------------------------------------------------------------------- agents and batches


def network(inputs, outputs, seed, head='linear', optimizer=None):
    """Input (or two, joined), a tanh layer of 4, outputs; its weights and biases are drawn."""
    tensors = [keras.Input((n,)) for n in np.atleast_1d(inputs)]
    joined = keras.layers.Concatenate()(tensors) if len(tensors) > 1 else tensors[0]
    hidden = keras.layers.Dense(4, 'tanh')(joined)
    model = keras.Model(
        tensors if len(tensors) > 1 else tensors[0], [keras.layers.Dense(n, head)(hidden) for n in outputs]
    )
    rng = np.random.default_rng(seed)
    model.set_weights([rng.normal(size=v.shape) * (0.8 if len(v.shape) > 1 else 0.1) for v in model.weights])
    if optimizer is not None:
        model.compile(optimizer)
    return model


def make(name, plain=True, two_inputs=False, observations=None, **options):
    """A tiny agent; with `plain` gradient descent, a step shows the gradient."""
    shown = spaces.Box(-1, 1, (D,), np.float32) if observations is None else observations
    taken = spaces.Discrete(3) if name == 'dqn' else BOX

    def optimizer():
        return keras.optimizers.SGD(LR) if plain else None

    if name == 'dqn':
        models = [network(D, [3, 1] if options.get('dueling') else [3], 1, optimizer=optimizer())]
    else:
        joined = [D, A] if two_inputs else D + A
        models = [network(D, [A], 1, 'tanh', optimizer())]
        models += [network(joined, [1], 2 + i, optimizer=optimizer()) for i in range(1 + (name == 'td3'))]
    envs = xagents.create_envs(lambda **_: Arbitrary(shown, taken), 2)
    options = {'gamma': 0.9, 'seed': 0, **({} if plain else {'lr': LR}), **options}
    if name == 'dqn':
        options = {'grad_norm': 1e9, **options}
    return getattr(xagents, name.upper())(envs, *models, **options)


def batches(name, k=1, seed=3):
    """K batches with every discount of a three-step return, zeros of terminations among them."""
    rng = np.random.default_rng(seed)
    shape = (k, B)
    batch = {
        'observations': rng.normal(size=(*shape, D)).astype(np.float32),
        'actions': rng.integers(0, 3, shape).astype(np.int32)
        if name == 'dqn'
        else rng.uniform(-1, 1, (*shape, A)).astype(np.float32),
        'rewards': (2 * rng.normal(size=shape)).astype(np.float32),
        'next_observations': rng.normal(size=(*shape, D)).astype(np.float32),
        'discounts': np.tile(np.float32([0.9, 0.81, 0.729, 0.0, 0.0, 0.9]), (k, 1)),
        'weights': rng.uniform(0.2, 1, shape).astype(np.float32),
        'rows': np.arange(k * B).reshape(shape),
        'n_updates': k,
    }
    if name != 'dqn':
        del batch['weights'], batch['rows']
    return batch


def rows(batch, *which):
    """Some of the K batches."""
    return {k: v[list(which)] if isinstance(v, np.ndarray) else len(which) for k, v in batch.items()}


class DatasetPriorities:
    """Stands for the replay buffer: keeps the TD errors that it is told."""

    def __init__(self):
        self.told = []

    def prioritize(self, rows, errors):
        self.told.append((rows, errors))


def learn(agent, batch, steps=1):
    if isinstance(agent, xagents.DQN):
        if 'buffer' not in vars(agent):
            agent.buffer = DatasetPriorities()
        batch = batch if agent.options.prioritized else {k: v for k, v in batch.items() if k != 'weights'}
        return agent.learn(batch, {'learning_rate': LR, 'steps': steps})
    return agent.learn(batch, {'learning_rate': LR})


def targets(agent):
    if isinstance(agent, xagents.DQN):
        return [agent.target]
    return [agent.target_actor, *agent.target_critics]


def disturb_targets(agent):
    """Give the targets parameters of their own, as they have after a while."""
    rng = np.random.default_rng(7)
    for target in targets(agent):
        state = target.state()
        target.load({**state, 'parameters': state['parameters'] + 0.5 * rng.normal(size=state['parameters'].shape)})


def everything(agent):
    """Weights, the optimisers' variables, targets."""
    variables = [v.numpy() for model in agent.output_models for v in model_variables(model)]
    return variables + [target.state()['parameters'] for target in targets(agent)]


def close(got, expected, **tolerance):
    for a, b in zip(got, expected, strict=True):
        np.testing.assert_allclose(a, b, **{'rtol': 1e-4, 'atol': 1e-6, **tolerance})


# ---------------------------------------------------------------------------------------------------- the same in NumPy


def float64(model):
    return [v.numpy().astype(np.float64) for v in model.trainable_variables]


def unflat(target, model):
    parameters = target.state()['parameters'].astype(np.float64)
    shapes = [tuple(v.shape) for v in model.trainable_variables]
    parts = np.split(parameters, np.cumsum([np.prod(s) for s in shapes])[:-1].astype(int))
    return [part.reshape(shape) for part, shape in zip(parts, shapes, strict=True)]


def forward(weights, *inputs):
    hidden = np.tanh(np.concatenate(inputs, -1) @ weights[0] + weights[1])
    return [hidden @ w + b for w, b in zip(weights[2::2], weights[3::2], strict=True)]


def gradient(loss, weights, step=1e-5):
    gradients = [np.zeros_like(w) for w in weights]
    for i, w in enumerate(weights):
        for index in np.ndindex(w.shape):
            sides = []
            for sign in (1, -1):
                moved = [x.copy() for x in weights]
                moved[i][index] += sign * step
                sides.append(loss(moved))
            gradients[i][index] = (sides[0] - sides[1]) / (2 * step)
    return gradients


def norm(gradients):
    return np.sqrt(sum((g**2).sum() for g in gradients))


def descended(weights, gradients):
    return [w - LR * g for w, g in zip(weights, gradients, strict=True)]


# ------------------------------------------------------------------------------------------------------------------ DQN


def q_values(options, weights, observations):
    outputs = forward(weights, observations)
    if not options.dueling:
        return outputs[0]
    advantages, value = outputs
    return value + advantages - advantages.mean(1, keepdims=True)


def munchausen_goal(options, target, batch):
    """Equation 2 of Vieillard et al. 2020, by probabilities instead of their logarithms."""
    tau, alpha = options.munchausen_temperature, options.munchausen_alpha

    def soft(name):
        q = q_values(options, target, batch[name][0])
        e = np.exp((q - q.max(1, keepdims=True)) / tau)
        return q, e / e.sum(1, keepdims=True)

    (_, now), (after_q, after) = soft('observations'), soft('next_observations')
    bonus = np.clip(tau * np.log(now[np.arange(B), batch['actions'][0]]), -1, 0)
    values = (after * (after_q - tau * np.log(after))).sum(1)
    assert (bonus == -1).any() == (tau > 0.5) and (bonus > -1).any(), 'some are clipped'
    return batch['rewards'][0] + alpha * bonus + batch['discounts'][0] * values


def dqn_goal(options, online, target, batch):
    values = q_values(options, target, batch['next_observations'][0])
    best = values.argmax(1)
    if options.munchausen:
        return munchausen_goal(options, target, batch), best
    if options.double:
        best = q_values(options, online, batch['next_observations'][0]).argmax(1)
    return batch['rewards'][0] + batch['discounts'][0] * values[np.arange(B), best], best


def dqn_losses(options, weights, batch, goal):
    chosen = q_values(options, weights, batch['observations'][0])[np.arange(B), batch['actions'][0]]
    errors = goal - chosen
    losses = errors**2
    if options.huber:
        losses = np.where(abs(errors) <= 1, 0.5 * errors**2, abs(errors) - 0.5)
    return np.mean(batch['weights'][0] * losses if options.prioritized else losses), errors, chosen


@pytest.mark.usefixtures('eager')
@pytest.mark.parametrize(
    'options',
    [
        {},
        {'double': True, 'huber': True},
        {'dueling': True, 'prioritized': True},
        {'munchausen': True, 'munchausen_temperature': 0.4},
        {'munchausen': True, 'munchausen_temperature': 0.8, 'munchausen_alpha': 0.5, 'dueling': True},
        {'double': True, 'dueling': True, 'huber': True, 'prioritized': True, 'grad_norm': 0.05},
    ],
    ids=lambda options: '-'.join(options) or 'plain',
)
def test_dqn_follows_the_gradient_of_its_loss(options):
    agent, batch = make('dqn', **options), batches('dqn')
    disturb_targets(agent)
    online, target, o = float64(agent.model), unflat(agent.target, agent.model), agent.options
    close(forward(online, batch['observations'][0]), [x.numpy() for x in agent.outputs(batch['observations'][0])])
    goal, best = dqn_goal(o, online, target, batch)
    loss, errors, chosen = dqn_losses(o, online, batch, goal)
    # the numbers tell the variants apart
    assert (best != q_values(o, target, batch['next_observations'][0]).argmax(1)).any() == o.double
    assert min(abs(errors)) < 1 < max(abs(errors)) and len(set(batch['actions'][0])) > 1

    logs = learn(agent, batch)
    gradients = gradient(lambda w: dqn_losses(o, w, batch, goal)[0], online)
    size = norm(gradients)
    assert (size > o.grad_norm) == ('grad_norm' in options)
    factor = min(1, o.grad_norm / size)
    close([v.numpy() for v in agent.model.trainable_variables], descended(online, [factor * g for g in gradients]))
    expected = {
        'updates': 1, 'stats/refused': 0, 'loss/value': loss, 'stats/q': chosen.mean(),
        'stats/td_error': abs(errors).mean(), 'stats/grad_norm': size,
    }  # fmt: skip
    assert logs == {name: pytest.approx(x, rel=1e-4) for name, x in expected.items()}
    close(unflat(agent.target, agent.model), target, rtol=0, atol=0)
    if o.prioritized:
        ((told, td_errors),) = agent.buffer.told
        np.testing.assert_array_equal(told, batch['rows'])
        np.testing.assert_allclose(td_errors[0], errors, rtol=1e-4, atol=1e-5)
    else:
        assert not agent.buffer.told


@pytest.mark.usefixtures('eager')
def test_dqn_copies_the_target_before_the_updates_of_the_step_that_crosses_a_multiple():
    agent, batch = make('dqn', target_sync_steps=10), batches('dqn', 2)
    disturb_targets(agent)
    own = agent.target.state()['parameters']
    for steps, due in ((3, False), (9, False), (12, True), (19, False), (20, True), (55, True), (58, False)):
        before = agent.target.state()['parameters'], np.concatenate([w.ravel() for w in float64(agent.model)])
        learn(agent, batch, steps)
        np.testing.assert_array_equal(agent.target.state()['parameters'], before[due])
    assert not np.array_equal(own, agent.target.state()['parameters'])
    # the batch of the step that copies is learned from with the new target
    synced, fresh = make('dqn', target_sync_steps=10), make('dqn', target_sync_steps=10)
    disturb_targets(synced)
    learn(synced, batch, 10)
    learn(fresh, batch, 9)
    close(float64(synced.model), float64(fresh.model))


# --------------------------------------------------------------------------------------------------------- DDPG and TD3


def value_of(weights, observations, actions):
    return forward(weights, observations, actions)[0][:, 0]


def act(weights, observations):
    return np.tanh(forward(weights, observations)[0])


def twin_of(agent, batch):
    """Where an update of DDPG or TD3 leads, in NumPy: weights of actor and critics, of their targets, and metrics."""
    models, o = agent.output_models, agent.options
    actor, *critics = (float64(model) for model in models)
    old = [unflat(target, model) for target, model in zip(targets(agent), models, strict=True)]
    observations, actions, rewards, after, discounts = (
        batch[name][0].astype(np.float64)
        for name in ('observations', 'actions', 'rewards', 'next_observations', 'discounts')
    )
    next_actions = act(old[0], after)
    if isinstance(agent, xagents.TD3):
        noisy = next_actions + make('td3', **agent_noise(o)).learning_noise((1, B, A))[0]
        assert (abs(noisy) > 1).any() and (abs(noisy) < 1).any()
        next_actions = noisy.clip(-1, 1)
    opinions = np.stack([value_of(w, after, next_actions) for w in old[1:]])
    if isinstance(agent, xagents.TD3):
        assert len(set(opinions.argmin(0))) == 2, 'now the one is lower and now the other'
    goal = rewards + discounts * opinions.min(0)

    def critic_loss(w):
        return ((goal - value_of(w, observations, actions)) ** 2).mean()

    gradients = [gradient(critic_loss, w) for w in critics]
    new_critics = [descended(w, g) for w, g in zip(critics, gradients, strict=True)]

    def policy_loss(w):  # by the first critic, after its step
        return -value_of(new_critics[0], observations, act(w, observations)).mean()

    new_actor = descended(actor, gradient(policy_loss, actor))
    q = value_of(critics[0], observations, actions)
    metrics = {
        'updates': 1, 'stats/refused': 0, 'loss/value': np.mean([critic_loss(w) for w in critics]),
        'loss/policy': policy_loss(actor), 'stats/q': q.mean(), 'stats/td_error': abs(goal - q).mean(),
        'stats/grad_norm': max(map(norm, gradients)),
    }  # fmt: skip
    followed = [
        [(1 - o.tau) * x + o.tau * y for x, y in zip(target, new, strict=True)]
        for target, new in zip(old, [new_actor, *new_critics], strict=True)
    ]
    return [new_actor, *new_critics], followed, metrics


def agent_noise(options):
    return {'policy_noise_coef': options.policy_noise_coef, 'noise_clip': options.noise_clip}


NOISY = {'policy_noise_coef': 0.8, 'noise_clip': 0.9}


@pytest.mark.usefixtures('eager')
@pytest.mark.parametrize('two_inputs', [False, True])
@pytest.mark.parametrize('name, options', [('ddpg', {}), ('td3', {'policy_delay': 1, **NOISY})])
def test_critics_then_actor_then_targets(name, options, two_inputs):
    agent, batch = make(name, tau=0.2, two_inputs=two_inputs, **options), batches(name)
    disturb_targets(agent)
    weights, followed, metrics = twin_of(agent, batch)
    logs = learn(agent, batch)
    for model, target, new, slow in zip(agent.output_models, targets(agent), weights, followed, strict=True):
        close([v.numpy() for v in model.trainable_variables], new)
        close(unflat(target, model), slow)
    assert logs == {name: pytest.approx(x, rel=2e-4) for name, x in metrics.items()}


@pytest.mark.usefixtures('eager')
def test_td3s_policy_and_targets_wait_for_the_critics():
    agent, moves = make('td3', policy_delay=2), []
    for update in range(1, 6):
        batch = batches('td3', seed=update)
        actor, *critics = (float64(model) for model in agent.output_models)
        old = [target.state()['parameters'] for target in targets(agent)]
        logs = learn(agent, batch)
        new_actor, *new_critics = (float64(model) for model in agent.output_models)
        assert all(
            norm([a - b for a, b in zip(x, y, strict=True)]) > 0 for x, y in zip(critics, new_critics, strict=True)
        )
        followed = [not np.array_equal(a, t.state()['parameters']) for a, t in zip(old, targets(agent), strict=True)]
        moved = norm([a - b for a, b in zip(actor, new_actor, strict=True)]) > 0
        assert len({moved, *followed, 'loss/policy' in logs}) == 1
        if moved:
            moves.append(update)
            close(new_actor, twin_of_actor(agent, actor, batch))
    assert moves == [2, 4]
    together = make('td3', policy_delay=2)
    logs = learn(together, stacked([batches('td3', seed=update) for update in range(1, 6)]))
    close(everything(together), everything(agent))
    assert logs['updates'] == 5


def twin_of_actor(agent, actor, batch):
    """The actor after an update that moves it, by the first critic as it is now."""
    observations, critic = batch['observations'][0].astype(np.float64), float64(agent.critic_models[0])
    return descended(actor, gradient(lambda w: -value_of(critic, observations, act(w, observations)).mean(), actor))


def stacked(all_batches):
    return {
        k: np.concatenate([b[k] for b in all_batches]) if isinstance(v, np.ndarray) else len(all_batches)
        for k, v in all_batches[0].items()
    }


@pytest.mark.usefixtures('eager')
def test_the_mean_of_the_policys_loss_is_over_the_updates_that_moved_it():
    batch = batches('td3', 4)
    agent, same = make('td3', policy_delay=2), make('td3', policy_delay=2)
    losses = [learn(agent, rows(batch, i)).get('loss/policy') for i in range(4)]
    assert losses[0] is losses[2] is None
    assert learn(same, batch)['loss/policy'] == pytest.approx((losses[1] + losses[3]) / 2, rel=1e-4)


def test_noise_on_target_actions_is_gaussian_and_clipped():
    agent = make('td3', policy_noise_coef=0.3, noise_clip=0.5)
    noise = agent.learning_noise((20, 500, A))
    assert noise.dtype == np.float32 and noise.max() == np.float32(0.5) == -noise.min()
    # of a normal variable, 9.56 % lie beyond 5/3 of its deviation, and 68.27 % within 1
    assert np.mean(abs(noise) == np.float32(0.5)) == pytest.approx(0.0956, abs=0.01)
    assert np.mean(abs(noise) < 0.3) == pytest.approx(0.6827, abs=0.015)
    assert not np.array_equal(noise, agent.learning_noise((20, 500, A)))
    assert make('ddpg').learning_noise((1, B, A)) == ()


# --------------------------------------------------------------------------------------------------------- all the same

AGENTS = ('dqn', 'ddpg', 'td3')
FULL = {'dqn': {'double': True, 'prioritized': True, 'grad_norm': 1.0}, 'ddpg': {}, 'td3': {}}


@pytest.mark.usefixtures('eager')
@pytest.mark.parametrize('name', AGENTS)
def test_three_updates_in_one_call_equal_three_calls(name):
    batch = batches(name, 3)
    together, apart = (make(name, plain=False, **FULL[name]) for _ in range(2))
    logs = learn(together, batch)
    each = [learn(apart, rows(batch, k)) for k in range(3)]
    close(everything(together), everything(apart), rtol=1e-3, atol=1e-5)
    assert logs['updates'] == 3
    for metric in ('loss/value', 'stats/q', 'stats/td_error', 'stats/grad_norm'):
        assert logs[metric] == pytest.approx(np.mean([log[metric] for log in each]), rel=1e-4)
    if name == 'dqn':
        close([together.buffer.told[0][1]], [np.concatenate([errors for _, errors in apart.buffer.told])])


@pytest.mark.usefixtures('eager')
@pytest.mark.parametrize('name', ['dqn', 'td3'])
def test_rows_beyond_the_number_of_updates_are_not_learned_from(name):
    batch = batches(name, 3)
    for array in batch.values():
        if isinstance(array, np.ndarray) and array.dtype == np.float32:
            array[2] = 1e6
    some, two = (make(name, plain=False, **FULL[name]) for _ in range(2))
    logs = learn(some, {**batch, 'n_updates': 2})
    # the noise of the first two is that of a call for three
    two.learning_noise = lambda shape: type(two).learning_noise(two, (3, *shape[1:]))[:2]
    expected = learn(two, rows(batch, 0, 1))
    close(everything(some), everything(two), rtol=1e-4)
    assert logs == {k: pytest.approx(v, rel=1e-4) for k, v in expected.items()} and logs['updates'] == 2
    if name == 'dqn':
        ((told, errors),) = some.buffer.told
        np.testing.assert_array_equal(told, batch['rows'][:2])
        assert errors.shape == (2, B)


@pytest.mark.usefixtures('eager')
@pytest.mark.parametrize('name', AGENTS)
def test_the_updates_around_a_refused_one_are_made(name):
    batch = batches(name, 3)
    batch['rewards'][1, 0] = np.nan
    options = {**FULL[name], **({'policy_delay': 1, 'policy_noise_coef': 0} if name == 'td3' else {})}
    some, two = (make(name, plain=False, **options) for _ in range(2))
    logs, expected = learn(some, batch), learn(two, rows(batch, 0, 2))
    assert logs == {k: pytest.approx(v, rel=1e-4) for k, v in {**expected, 'stats/refused': 1}.items()}
    close(everything(some), everything(two))


def test_a_critic_that_does_not_fit_is_refused():
    envs = xagents.create_envs(lambda **_: Arbitrary(spaces.Box(-1, 1, (D,), np.float32), BOX), 1)
    with pytest.raises(ValueError, match='critic_model: got inputs'):
        xagents.DDPG(envs, network(D, [A], 1), network(D, [1], 2))
    with pytest.raises(ValueError, match='actor_model: got inputs'):
        xagents.TD3(envs, network(D, [A + 1], 1), network(D + A, [1], 2))
    with pytest.raises(ValueError, match='model: got inputs'):
        xagents.DQN(gymnasium.make('CartPole-v1'), network(4, [2], 1), dueling=True)


def test_td3s_second_critic_starts_elsewhere():
    envs = xagents.create_envs(lambda **_: Arbitrary(spaces.Box(-1, 1, (D,), np.float32), BOX), 1)
    first, second = (
        xagents.TD3(envs, network(D, [A], 1), keras_critic(), seed=1).critic_models[1].get_weights() for _ in range(2)
    )
    close(first, second, rtol=0, atol=0)
    assert not np.array_equal(first[0], keras_critic().get_weights()[0])


def keras_critic():
    """With initializers of its own seeds, as every network here has."""
    layer = keras.Input((D + A,))
    hidden = keras.layers.Dense(4, 'tanh', kernel_initializer=keras.initializers.GlorotUniform(3))(layer)
    return keras.Model(layer, keras.layers.Dense(1, kernel_initializer=keras.initializers.GlorotUniform(4))(hidden))


@pytest.mark.usefixtures('eager')
def test_critics_make_their_steps_together_or_not_at_all():
    agent = make('td3', plain=False, policy_delay=1)
    learn(agent, batches('td3'))
    wrong = agent.critic_models[1]
    wrong.set_weights([w * 1e30 for w in wrong.get_weights()])  # the second one's loss overflows
    before = everything(agent)
    logs = learn(agent, batches('td3', seed=5))
    assert logs == {'updates': 0, 'stats/refused': 1}, 'of no update there is no loss'
    for now, then in zip(everything(agent), before, strict=True):
        np.testing.assert_array_equal(now, then)


@pytest.mark.usefixtures('eager')
def test_a_policy_whose_gradient_is_not_finite_stays_and_so_do_the_targets(monkeypatch):
    agent = make('ddpg', plain=False)
    disturb_targets(agent)
    actor, goals = agent.actor_model.get_weights(), [t.state()['parameters'] for t in targets(agent)]
    real = agent.actor_step.gradient
    monkeypatch.setattr(agent.actor_step, 'gradient', lambda *a: (*real(*a)[:2], tf.constant(False)))
    logs = learn(agent, batches('ddpg'))
    assert (logs['updates'], logs['stats/refused']) == (1, 1) and 'loss/policy' not in logs
    for now, then in zip(agent.actor_model.get_weights(), actor, strict=True):
        np.testing.assert_array_equal(now, then)
    for target, goal in zip(targets(agent), goals, strict=True):
        np.testing.assert_array_equal(target.state()['parameters'], goal)


@pytest.mark.usefixtures('eager')
def test_networks_that_are_compiled_keep_their_own_learning_rates():
    rates = (1e-3, 1e-2)
    models = [
        network(D, [A], 1, 'tanh', keras.optimizers.Adam(rates[0])),
        network(D + A, [1], 2, optimizer=keras.optimizers.Adam(rates[1])),
    ]
    envs = xagents.create_envs(lambda **_: Arbitrary(spaces.Box(-1, 1, (D,), np.float32), BOX), 2)
    agent = xagents.DDPG(envs, *models, seed=0)
    agent.learn(batches('ddpg'), {'learning_rate': agent.options.lr / 2})
    steps = (agent.actor_step, *agent.critic_steps)
    assert [float(step.optimizer.learning_rate) for step in steps] == [pytest.approx(rate / 2) for rate in rates]


@pytest.mark.usefixtures('eager')
def test_bfloat16_makes_nearly_the_same_update_without_xla():
    def agent(precision):
        shown, taken = spaces.Box(-1, 1, (D,), np.float32), spaces.Discrete(3)
        net = {'net': [32, 32], 'buffer_batch_size': B, 'buffer_max_size': 32}
        envs = xagents.create_envs(lambda **_: Arbitrary(shown, taken), 2)
        return xagents.make('dqn', envs, precision=precision, seed=1, quiet=True, **net)

    narrow, wide = agent('bfloat16'), agent('float32')
    before = everything(wide)
    close(everything(narrow), before, rtol=0, atol=0)
    assert wide._update._jit and not narrow._update._jit
    logs = [learn(one, batches('dqn', 2)) for one in (narrow, wide)]
    assert logs[0]['updates'] == 2
    assert logs[0]['loss/value'] == pytest.approx(logs[1]['loss/value'], rel=0.05)
    assert logs[0]['loss/value'] != logs[1]['loss/value']
    assert {v.dtype for v in narrow.output_models[0].weights} == {'float32'}
    moved = np.concatenate([(a - b).ravel() for a, b in zip(everything(wide), before, strict=True)])
    other = np.concatenate([(a - b).ravel() for a, b in zip(everything(narrow), before, strict=True)])
    assert np.corrcoef(moved, other)[0, 1] > 0.9
