"""One update of each agent against an independent NumPy computation of its loss, and its gradient by differences."""

import keras
import numpy as np
import pytest

import xagents
from tests import problems  # noqa: F401
from tests.reference import entropy, estimates, flat, gradient, log_prob, outputs, rows
from xagents.networks.cfg import dense_network
from xagents.networks.models import ModelReader

LR = 0.05
T, N = 4, 3
ONCE = {'ppo_epochs': 1, 'mini_batches': 1}


def make(agent_class, kind, **options):
    """A tiny agent whose optimiser is plain gradient descent, so that its step shows the gradient."""
    envs = xagents.create_envs('tests.problems:Identity-v0', N, env_kwargs={'kind': kind})
    units = 3 if kind == 'Discrete' else 1
    log_std = -0.5 if kind == 'Box' and not options.get('sde') else None
    model = ModelReader(dense_network([3], 'tanh', False), [units, 1], (3,), seed=1, log_std=log_std).build_model()
    model.compile(keras.optimizers.SGD(LR))
    return agent_class(envs, model, n_steps=T, seed=0, lr=LR, **options)


def rollout(agent, rng):
    """A rollout with every kind of ending and masked rows, its actions by a policy that is not the present one."""
    batch = {k: np.array(v) for k, v in agent.collect({}).items()}
    batch['rewards'] = rng.normal(size=(T, N)).astype(np.float32)
    batch['terminated'][:] = batch['truncated'][:] = False
    batch['valid'][:] = True
    batch['terminated'][1, 0] = batch['truncated'][2, 1] = True
    batch['valid'][2, 0] = batch['valid'][3, 1] = batch['valid'][0, 2] = False
    batch['rewards'][~batch['valid']] = 1e3
    for name in {'logits', 'mean', 'log_std'} & batch.keys():
        batch[name] += rng.normal(size=batch[name].shape).astype(np.float32) * 0.2
    return batch


def loss_in_numpy(agent, batch, kind, fixed, parameters):
    """The scalar loss [*M] at parameters [*M, P], and its parts; `fixed` holds what has no gradient."""
    o = agent.options
    policy, value, *rest = outputs(agent.model, parameters, rows(batch['observations'][:-1]).astype(np.float64), True)
    policy, value, valid, actions = [policy, *rest], value[..., 0], rows(batch['valid']), rows(batch['actions'])
    log_p = log_prob(kind, policy, actions)
    advantages, returns, old_values = map(rows, fixed)

    def mean(x):
        return x[..., valid].mean(-1)

    if o.normalize_advantage:
        epsilon = getattr(o, 'advantage_epsilon', 1e-8)
        advantages = (advantages - advantages[valid].mean()) / (advantages[valid].std() + epsilon)
    if isinstance(agent, xagents.PPO):
        old = [rows(batch[name]) for name in (('logits',) if kind == 'Discrete' else ('mean', 'log_std'))]
        ratio = np.exp(log_p - log_prob(kind, old, actions))
        clipped = np.clip(ratio, 1 - o.clip_norm, 1 + o.clip_norm)
        policy_loss = -mean(np.minimum(ratio * advantages, clipped * advantages))
    else:
        policy_loss = -mean(log_p * advantages)
    error = (returns - value) ** 2
    if getattr(o, 'value_clip', None):
        moved = old_values + np.clip(value - old_values, -o.value_clip, o.value_clip)
        error = np.maximum(error, (returns - moved) ** 2)
    parts = policy_loss, mean(error), mean(entropy(kind, policy))
    return parts[0] + o.value_loss_coef * parts[1] - o.entropy_coef * parts[2], parts


@pytest.mark.usefixtures('eager')
@pytest.mark.parametrize('kind', ['Discrete', 'Box'])
@pytest.mark.parametrize(
    'name, options',
    [
        ('A2C', {}),
        ('A2C', {'normalize_advantage': True, 'lam': 0.8, 'entropy_coef': 0.1, 'grad_norm': 0.01}),
        ('PPO', ONCE),
        ('PPO', {**ONCE, 'value_clip': 0.05, 'clip_norm': 0.3, 'normalize_advantage': False, 'grad_norm': 0.01}),
    ],
)
def test_one_step_follows_the_gradient_of_the_loss(name, options, kind):
    check_step(name, options, kind)


@pytest.mark.usefixtures('eager')
@pytest.mark.parametrize('name, options', [('A2C', {'entropy_coef': 0.1}), ('PPO', ONCE)])
def test_one_step_with_state_dependent_noise(name, options):
    check_step(name, {'sde': True, 'log_std_init': -0.5, **options}, 'Box')


def check_step(name, options, kind):
    agent = make(getattr(xagents, name), kind, **{'grad_norm': 1e9, **options})
    batch = rollout(agent, np.random.default_rng(3))
    before, fixed = flat(agent.model), estimates(agent, batch, agent.model, 1)
    loss, parts = loss_in_numpy(agent, batch, kind, fixed, before)
    slope = gradient(lambda parameters: loss_in_numpy(agent, batch, kind, fixed, parameters)[0], before)

    arguments = {'clip_norm': agent.options.clip_norm} if name == 'PPO' else {}
    logs = agent.learn(batch, {'learning_rate': LR, **arguments})
    np.testing.assert_allclose([logs[f'loss/{k}'] for k in ('policy', 'value', 'entropy')], parts, rtol=2e-4, atol=1e-5)
    norm = np.linalg.norm(slope)
    assert (norm > agent.options.grad_norm) == ('grad_norm' in options)
    np.testing.assert_allclose(logs['stats/grad_norm'], norm, rtol=1e-3, atol=1e-5)
    step = LR * min(1, agent.options.grad_norm / norm) * slope
    np.testing.assert_allclose(flat(agent.model) - before, -step, rtol=1e-3, atol=1e-3 * abs(step).max())
    assert logs['updates'] == 1 and logs['stats/refused'] == 0
    assert np.isfinite(loss)


@pytest.mark.usefixtures('eager')
def test_a_minibatch_without_a_valid_row_is_left_out_and_not_counted_as_refused():
    agent = make(xagents.PPO, 'Discrete', ppo_epochs=1, minibatch_size=1)
    batch = rollout(agent, np.random.default_rng(3))
    logs = agent.learn(batch, {'learning_rate': LR, 'clip_norm': 0.1})
    assert logs['updates'] == batch['valid'].sum() < T * N
    assert logs['stats/refused'] == 0


def test_minibatches_use_every_row_once_an_epoch_and_drop_the_remainder():
    agent = make(xagents.PPO, 'Discrete', ppo_epochs=3, mini_batches=5)
    permutations = agent.minibatches.draw(agent.rng('learn'), agent.options.ppo_epochs)
    assert permutations.shape == (15, 2)  # 12 transitions, 5 minibatches of 2
    for epoch in permutations.reshape(3, 10):
        assert len(set(epoch)) == 10 and set(epoch) <= set(range(12))
    assert not np.array_equal(permutations[:5], permutations[5:10])


@pytest.mark.usefixtures('eager')
def test_target_kl_ends_an_update_early():
    options = {'ppo_epochs': 4, 'clip_norm': 10.0, 'grad_norm': 1e9}
    free, bound = (make(xagents.PPO, 'Discrete', target_kl=kl, **options) for kl in (None, 1e-4))
    batch = rollout(free, np.random.default_rng(3))
    all_steps = free.learn(batch, {'learning_rate': 1.0, 'clip_norm': 10.0})
    few = bound.learn(batch, {'learning_rate': 1.0, 'clip_norm': 10.0})
    assert all_steps['updates'] == 16 and 1 <= few['updates'] < 16


@pytest.mark.usefixtures('eager')
def test_v_trace_of_what_the_present_policy_collected_is_a2c():
    agents = [
        xagents.make('a2c', 'CartPole-v1', n_envs=4, n_steps=16, seed=1, quiet=True, v_trace=v) for v in (False, True)
    ]
    for agent in agents:
        agent.fit(max_steps=64)
    for plain, traced in zip(*(agent.model.get_weights() for agent in agents), strict=True):
        np.testing.assert_allclose(plain, traced, atol=1e-6)


@pytest.mark.parametrize('name', ['a2c', 'ppo'])
def test_an_overridden_policy_loss_changes_the_update(name, without_xla):
    def trained(factor):
        agent = xagents.make(name, 'CartPole-v1', n_envs=2, n_steps=8, net=[4], seed=1, quiet=True)
        plain = agent.policy_loss
        agent.policy_loss = lambda *arguments: factor * plain(*arguments)
        agent.fit(max_steps=16, final_episodes=0)
        return agent.model.get_weights()

    one, same, other = trained(1.0), trained(1.0), trained(0.5)
    assert all(map(np.array_equal, one, same)) and not all(map(np.array_equal, one, other))
