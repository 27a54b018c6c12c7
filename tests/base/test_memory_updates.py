"""Updates of agents with memory: against NumPy in float64, and whether cutting a rollout changes them."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from gymnasium import spaces

import xagents
from tests.base.test_off_policy_updates import LR
from tests.networks.test_memory import gru_step
from tests.problems import Arbitrary
from xagents.base.minibatches import Minibatches
from xagents.networks.memory import memory_units
from xagents.networks.recurrent import GRU, LSTM
from xagents.options.errors import OptionError

T, N, D, U, ACTIONS = 8, 4, 3, 5, 3


def environments():
    return xagents.create_envs(lambda **_: Arbitrary(spaces.Box(-1, 1, (D,), np.float32), spaces.Discrete(ACTIONS)), N)


def network(outputs, layer=GRU, seed=1):
    """Return a recurrent layer with heads; gradient descent shows the gradient."""
    entry = keras.Input((D,))
    hidden = layer(U)(entry)
    model = keras.Model(entry, [keras.layers.Dense(n)(hidden) for n in outputs])
    rng = np.random.default_rng(seed)
    model.set_weights([rng.normal(size=v.shape) for v in model.weights])
    model.compile(keras.optimizers.SGD(LR))
    return model


def make(name='PPO', layer=GRU, **options):
    own = {'n_steps': T, 'gamma': 0.9, 'seed': 0, 'grad_norm': 1e9}
    own |= {'ppo_epochs': 1, 'mini_batches': 1} if name == 'PPO' else {}
    own |= {'epochs': 1, 'mini_batches': 1, 'lam': 0.7} if name == 'PQN' else {}
    outputs = [ACTIONS] if name == 'PQN' else [ACTIONS, 1]
    return getattr(xagents, name)(environments(), network(outputs, layer), **{**own, **options})


def rollout(units=U, ends=((1, 0), (2, 1), (6, 1), (7, 2)), seed=2):
    """Return a rollout whose stored memory is only right before the first step."""
    rng = np.random.default_rng(seed)
    terminated, truncated, valid = np.zeros((T, N), bool), np.zeros((T, N), bool), np.ones((T, N), bool)
    for i, (t, n) in enumerate(ends):
        (truncated if i % 2 else terminated)[t, n] = True
        valid[t + 1 : t + 2, n] = False
    memory = np.full((T + 1, N, units), np.nan, np.float32)
    memory[0] = rng.normal(size=(N, units))
    return {
        'observations': rng.normal(size=(T + 1, N, D)).astype(np.float32),
        'memory': memory,
        'actions': rng.integers(0, ACTIONS, (T, N)).astype(np.int32),
        'logits': rng.normal(size=(T, N, ACTIONS)).astype(np.float32),
        'rewards': rng.normal(size=(T, N)).astype(np.float32),
        'terminated': terminated,
        'truncated': truncated,
        'valid': valid,
    }


def run(weights, batch, start=None, steps=T + 1):
    """Return the outputs of all heads [T + 1, N, units] and the memory before each step, in float64."""
    kernel, bias, recurrent, recurrent_bias, *heads = weights
    h = np.array(batch['memory'][0] if start is None else start, float)
    outputs, memory = [], []
    for t in range(steps):
        memory.append(h)
        h = gru_step(batch['observations'][t] @ kernel + bias, h @ recurrent + recurrent_bias, h)
        outputs.append([h @ heads[2 * i] + heads[2 * i + 1] for i in range(len(heads) // 2)])
        h = h * batch['valid'][min(t, T - 1)][:, None]
    return [np.array(head) for head in zip(*outputs, strict=True)], memory


def float64(model):
    return [np.array(w, np.float64) for w in model.get_weights()]


def numerical_gradient(loss, weights, epsilon=1e-6):
    """Return the gradients of a loss by differences in float64."""
    found = []
    for w in weights:
        gradient = np.zeros_like(w)
        for index in np.ndindex(w.shape):
            kept = w[index]
            w[index] = kept + epsilon
            above = loss(weights)
            w[index] = kept - epsilon
            gradient[index] = (above - loss(weights)) / (2 * epsilon)
            w[index] = kept
        found.append(gradient)
    return found


def log_softmax(x):
    return x - np.log(np.exp(x).sum(-1, keepdims=True))


def chosen(x, actions):
    return np.take_along_axis(x, actions[..., None], -1)[..., 0]


def advantages_of(values, batch, gamma=0.9, lam=0.95):
    found, later = np.zeros((T, N)), np.zeros(N)
    for t in reversed(range(T)):
        ended = batch['terminated'][t] | batch['truncated'][t]
        delta = batch['rewards'][t] + gamma * ~batch['terminated'][t] * values[t + 1] - values[t]
        later = delta + gamma * lam * ~ended * later
        found[t] = later
    return found


def ppo_loss(weights, batch, advantages, returns, clip=0.1):
    (logits, values), _ = run(weights, batch)
    log_probs, valid = log_softmax(logits[:T]), batch['valid']
    ratio = np.exp(chosen(log_probs, batch['actions']) - chosen(log_softmax(batch['logits']), batch['actions']))
    policy = -np.minimum(ratio * advantages, np.clip(ratio, 1 - clip, 1 + clip) * advantages)
    entropy = -(np.exp(log_probs) * log_probs).sum(-1)
    value = (returns - values[:T, :, 0]) ** 2
    return (policy + 0.5 * value - 0.01 * entropy)[valid].mean()


def test_an_update_of_ppo_equals_back_propagation_through_the_rollout_in_float64():
    agent, batch = make(), rollout()
    weights = float64(agent.model)
    values = run(weights, batch)[0][1][..., 0]
    advantages = advantages_of(values, batch)
    returns, valid = advantages + values[:T], batch['valid']
    scaled = (advantages - advantages[valid].mean()) / advantages[valid].std()
    expected = numerical_gradient(lambda w: ppo_loss(w, batch, scaled, returns), weights)
    agent.learn(batch, {'learning_rate': LR, 'clip_norm': 0.1})
    for before, after, gradient in zip(weights, agent.model.get_weights(), expected, strict=True):
        np.testing.assert_allclose((before - after) / LR, gradient, rtol=2e-3, atol=2e-4)


def test_an_update_of_pqn_equals_float64():
    agent, batch = make('PQN'), rollout()
    weights = float64(agent.model)
    returns = lambda_returns_of(run(weights, batch)[0][0].max(-1), batch)

    def loss(weights):
        q = chosen(run(weights, batch)[0][0][:T], batch['actions'])
        return ((returns - q) ** 2)[batch['valid']].mean()

    expected = numerical_gradient(loss, weights)
    agent.learn(batch, {'learning_rate': LR, 'epsilon': 0.0})
    for before, after, gradient in zip(weights, agent.model.get_weights(), expected, strict=True):
        np.testing.assert_allclose((before - after) / LR, gradient, rtol=2e-3, atol=2e-4)


def lambda_returns_of(best, batch, gamma=0.9, lam=0.7):
    """The recursion of the paper; `best` is max Q, [T + 1, N]."""
    returns = np.zeros((T, N))
    for t in reversed(range(T)):
        following = np.where(batch['terminated'][t], 0, best[t + 1])
        ended = batch['terminated'][t] | batch['truncated'][t]
        later = following if t == T - 1 else np.where(ended, following, returns[t + 1])
        returns[t] = batch['rewards'][t] + gamma * (lam * later + (1 - lam) * following)
    return returns


@pytest.mark.usefixtures('eager')
@pytest.mark.parametrize('layer', [GRU, LSTM])
@pytest.mark.parametrize('name', ['A2C', 'PPO'])
def test_cuts_where_the_stored_memory_is_exact_change_no_value_and_no_probability(name, layer):
    agent = make(name, layer)
    units = memory_units(agent.model)
    batch = rollout(units)
    # the memory that acting stores
    actor = agent.actor
    memory = batch['memory'][0]
    for t in range(T):
        batch['memory'][t] = memory
        memory = np.array(actor(batch['observations'][t], None, memory)[-1]) * batch['valid'][t][:, None]
    batch['memory'][T] = memory
    steps = agent._steps(batch)
    whole = agent.values(tf.constant(batch['observations']), *steps.sequence).numpy()
    for cut in range(1, T):
        second = {key: x[cut:] for key, x in batch.items()}
        rest = agent._steps(second)
        values = agent.values(tf.constant(second['observations']), *rest.sequence).numpy()
        np.testing.assert_allclose(values, whole[cut:], atol=1e-5)


@pytest.mark.usefixtures('eager')
def test_an_update_of_shorter_sequences_is_the_same_if_cuts_fall_on_the_ends_of_episodes():
    # the third row of each environment only resets, so that gradients through the cut are 0
    batch = rollout(ends=[(2, n) for n in range(N)])
    batch['memory'][4] = 0
    results = []
    for length in (None, 4):
        agent = make(sequence_length=length)
        agent.learn(batch, {'learning_rate': LR, 'clip_norm': 0.1})
        results.append(agent.model.get_weights())
    for whole, cut in zip(*results, strict=True):
        np.testing.assert_allclose(whole, cut, atol=1e-6)
    # another cut loses gradients
    batch = rollout(ends=[])
    agent = make()
    batch['memory'][4] = run(float64(agent.model), batch)[1][4]
    updated = []
    for length in (None, 4):
        agent = make(sequence_length=length)
        agent.learn(batch, {'learning_rate': LR, 'clip_norm': 0.1})
        updated.append(agent.model.get_weights()[2])
    assert np.abs(updated[0] - updated[1]).max() > 1e-4


@pytest.mark.usefixtures('eager')
def test_minibatches_are_whole_sequences():
    agent = make(mini_batches=2, sequence_length=4)
    batch = rollout()
    batch['memory'][:] = np.arange(T + 1)[:, None, None]
    data = agent.transitions(agent._steps(batch))
    assert data.memory.shape == (8, U) and data.observations.shape == (T * N, D)
    taken = data.take(tf.constant([5, 0]))
    # sequence 5 is the second half of environment 1
    np.testing.assert_array_equal(taken.memory[:, 0], [4, 0])
    expected = np.stack([batch['observations'][4:8, 1], batch['observations'][:4, 0]], 1).reshape(-1, D)
    np.testing.assert_array_equal(taken.observations, expected)
    np.testing.assert_array_equal(taken.valid, np.stack([batch['valid'][4:, 1], batch['valid'][:4, 0]], 1).ravel())


def test_sizes_of_minibatches():
    def minibatches(n_envs, length, **options):
        return Minibatches(xagents.PPO.Options.resolve({'n_steps': 16, **options}), n_envs, length)

    assert (minibatches(8, 16).size, minibatches(8, 16).per_pass) == (2, 4)
    assert (minibatches(2, 16).size, minibatches(2, 16).per_pass) == (1, 2)  # the default is at most one for each
    assert (minibatches(2, 4).size, minibatches(2, 4).per_pass) == (2, 4)
    assert (minibatches(8, 16, minibatch_size=64).size, minibatches(8, 16, minibatch_size=64).per_pass) == (4, 2)
    rows = minibatches(4, 16, mini_batches=2).draw(np.random.default_rng(0), 1)
    assert sorted(rows.ravel()) == [0, 1, 2, 3]
    multiple = 'expected a multiple of the 16 steps of a sequence, at most the 32'
    for options, message in (
        ({'mini_batches': 3}, 'mini_batches: got 3, expected at most the 2 sequences of a rollout'),
        ({'minibatch_size': 24}, f'minibatch_size: got 24, {multiple}'),
        ({'minibatch_size': 64}, f'minibatch_size: got 64, {multiple}'),
    ):
        with pytest.raises(OptionError, match=message):
            minibatches(2, 16, **options)


@pytest.mark.usefixtures('eager')
@pytest.mark.parametrize('options', [{}, {'memory_kind': 'lstm'}, {'shared_network': True}, {'sequence_length': 4}])
def test_the_update_computes_the_probabilities_of_acting(options):
    """Actor and critic have memories of equal size, whose order matters."""
    envs = environments()
    agent = xagents.make('ppo', envs, n_steps=T, net=[4], memory=U, seed=1, **options)
    for _ in range(3):
        batch = agent.collector.collect(T)
        data = agent.transitions(agent._steps(batch))
        outputs, values = agent.evaluate_actions(data.observations, *data.sequence)
        log_probs = agent.distribution.log_prob(outputs, data.actions)
        np.testing.assert_allclose(log_probs, data.log_probs, atol=1e-5)
        np.testing.assert_allclose(values, data.values, atol=1e-5)


@pytest.mark.parametrize('agent_id', ['trpo', 'acer', 'sac'])
def test_agents_without_memory_refuse_functions_with_recurrent_layers(agent_id):
    def recurrent(input_shape, output_units, seed=None):
        entry = keras.Input(input_shape)
        hidden = GRU(3)(entry)
        return keras.Model(entry, [keras.layers.Dense(n)(hidden) for n in output_units])

    name = f'recurrent-{agent_id}'
    xagents.register_network(name, recurrent)
    model = 'model' if agent_id == 'acer' else 'actor_model'
    with pytest.raises(ValueError, match=r'got recurrent layers, which .* cannot learn with'):
        xagents.make(agent_id, 'CartPole-v1', **{model: name})


# DQN

L, BURN_IN, B = 4, 2, 3
W = L + BURN_IN


def sequences(seed=3):
    rng = np.random.default_rng(seed)
    valid = np.ones((W + 1, B), bool)
    valid[3, 0] = valid[1, 1] = valid[6, 2] = False
    seen = rng.normal(size=(W + 1, B, D)).astype(np.float32)
    learned = valid[:W] & (np.arange(W) >= BURN_IN)[:, None]
    columns = {
        'actions': rng.integers(0, ACTIONS, (W, B)).astype(np.int32),
        'rewards': rng.normal(size=(W, B)).astype(np.float32),
        'discounts': np.where(rng.random((W, B)) < 0.2, 0, 0.9).astype(np.float32),
        'weights': (learned * (W * B / learned.sum())).astype(np.float32),
        'keep': valid[:W].astype(np.float32),
        'next_keep': valid[1:].astype(np.float32),
        'observations': seen[:W],
        'next_observations': seen[1:],
    }
    batch = {name: x.reshape(1, W * B, *x.shape[2:]) for name, x in columns.items()}
    memory = rng.normal(size=(2, 1, B, U)).astype(np.float32)
    return {**batch, 'memory': memory[0], 'next_memory': memory[1], 'n_updates': 1}, columns, memory, learned


def q_values(weights, seen, keep, memory, frozen=None):
    """Return Q [W, B, n] in float64; the memory after the burn-in is `frozen`, if given."""
    kernel, bias, recurrent, recurrent_bias, head, head_bias = weights
    h, found = np.array(memory, float), []
    for t in range(W):
        if t == BURN_IN and frozen is not None:
            h = frozen
        h = gru_step(seen[t] @ kernel + bias, h @ recurrent + recurrent_bias, h)
        found.append(h @ head + head_bias)
        h = h * keep[t][:, None]
        if t == BURN_IN - 1:
            after_burn_in = h
    return np.array(found), after_burn_in


@pytest.mark.parametrize('double', [False, True])
def test_an_update_of_dqn_equals_float64(double):
    agent = xagents.DQN(
        *(environments(), network([ACTIONS])),
        **{'gamma': 0.9, 'seed': 0, 'grad_norm': 1e9, 'double': double, 'burn_in': BURN_IN, 'sequence_length': L},
        **{'buffer_max_size': 100, 'buffer_batch_size': B},
    )
    target = network([ACTIONS], seed=7)
    agent.target.load({'parameters': np.concatenate([w.ravel() for w in target.get_weights()]), 'steps': np.array(0)})
    batch, columns, memory, learned = sequences()
    weights, others = float64(agent.model), float64(target)
    following = columns['next_observations'], columns['next_keep'], memory[1][0]
    next_values, _ = q_values(others, *following)
    best = q_values(weights, *following)[0].argmax(-1) if double else next_values.argmax(-1)
    goal = columns['rewards'] + columns['discounts'] * chosen(next_values, best)
    present = columns['observations'], columns['keep'], memory[0][0]
    frozen = q_values(weights, *present)[1]

    def loss(weights):
        q = chosen(q_values(weights, *present, frozen)[0], columns['actions'])
        return ((goal - q) ** 2)[learned].mean()

    # the burn-in has no gradient, so the numbers before it are those of the present weights
    expected = numerical_gradient(loss, weights)
    metrics = agent.learn(batch, {'learning_rate': LR, 'steps': 1, 'epsilon': 0.0})
    assert metrics['loss/value'] == pytest.approx(loss(weights), rel=1e-4)
    for before, after, gradient in zip(weights, agent.model.get_weights(), expected, strict=True):
        np.testing.assert_allclose((before - after) / LR, gradient, rtol=2e-3, atol=2e-4)


def test_a_buffer_too_small_for_a_sequence_is_refused():
    options = {'buffer_max_size': 40, 'buffer_batch_size': 4, 'sequence_length': 10, 'burn_in': 2}
    agent = xagents.DQN(environments(), network([ACTIONS]), **options)
    with pytest.raises(OptionError, match='buffer_max_size: got 40, expected at least 48, one sequence of 12 steps'):
        agent.fit(max_steps=10, quiet=True)
