"""One update of each agent against an independent NumPy computation of its loss, and its gradient by differences."""

import keras
import numpy as np
import pytest

import xagents
from tests import problems  # noqa: F401
from xagents.networks.cfg import dense_network
from xagents.networks.models import ModelReader

LR = 0.05
T, N = 4, 3


def make(agent_class, kind, **options):
    """A tiny agent whose optimiser is plain gradient descent, so that its step shows the gradient."""
    envs = xagents.create_envs('tests.problems:Identity-v0', N, env_kwargs={'kind': kind})
    units = 3 if kind == 'Discrete' else 1
    model = ModelReader(
        dense_network([3], 'tanh', False), [units, 1], (3,), seed=1, log_std=-0.5 if kind == 'Box' else None
    ).build_model()
    model.compile(keras.optimizers.SGD(LR))
    return agent_class(envs, model, n_steps=T, seed=0, lr=LR, **options)


def rollout(agent, rng):
    """A rollout with every kind of ending and masked rows, its actions by a policy that is not the present one."""
    batch = {k: np.array(v) for k, v in agent.collect().items()}
    batch['rewards'] = rng.normal(size=(T, N)).astype(np.float32)
    batch['terminated'][:] = batch['truncated'][:] = False
    batch['valid'][:] = True
    batch['terminated'][1, 0] = batch['truncated'][2, 1] = True
    batch['valid'][2, 0] = batch['valid'][3, 1] = batch['valid'][0, 2] = False
    batch['rewards'][~batch['valid']] = 1e3
    for name in {'logits', 'mean', 'log_std'} & batch.keys():
        batch[name] += rng.normal(size=batch[name].shape).astype(np.float32) * 0.2
    return batch


def numpy_outputs(agent, weights, x):
    """Outputs of the agent's model at other weights, computed layer by layer in float64."""
    values = {id(v): w for v, w in zip(agent.model.trainable_variables, weights, strict=True)}
    tensors = {}
    for operation in agent.model._operations:
        node = operation._inbound_nodes[0]
        outputs = node.output_tensors
        if not node.input_tensors:
            tensors[id(outputs[0])] = x
            continue
        value = tensors[id(node.input_tensors[0])]
        if isinstance(operation, keras.layers.Dense):
            kernel, bias = (values[id(v)] for v in operation.trainable_variables)
            value = value @ kernel + bias
            value = np.tanh(value) if operation.activation.__name__ == 'tanh' else value
        else:
            value = np.zeros_like(value) + values[id(operation.trainable_variables[0])]
        tensors[id(outputs[0])] = value
    return [tensors[id(output)] for output in agent.model.outputs]


def log_prob_and_entropy(kind, policy, actions):
    if kind == 'Discrete':
        logits = policy[0]
        log_p = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
        chosen = np.take_along_axis(log_p, actions[..., None].astype(int), -1)[..., 0]
        return chosen, -(np.exp(log_p) * log_p).sum(-1)
    mean, log_std = policy
    z = (actions - mean) / np.exp(log_std)
    return (-0.5 * z**2 - log_std - 0.5 * np.log(2 * np.pi)).sum(-1), (log_std + 0.5 * np.log(2 * np.pi * np.e)).sum(-1)


def loss_in_numpy(agent, batch, kind, weights, fixed):
    """The scalar loss; `fixed` holds advantages and returns, which have no gradient."""
    o = agent.options
    policy, value, *rest = numpy_outputs(agent, weights, batch['observations'][:-1].astype(np.float64))
    log_prob, entropy = log_prob_and_entropy(kind, [policy, *rest], batch['actions'])
    value, valid = value[..., 0], batch['valid']
    advantages, returns, old_values = fixed

    def mean(x):
        return x[valid].mean()

    if o.normalize_advantage:
        epsilon = getattr(o, 'advantage_epsilon', 1e-8)
        advantages = (advantages - advantages[valid].mean()) / (advantages[valid].std() + epsilon)
    if isinstance(agent, xagents.PPO):
        old = [batch[name] for name in (('logits',) if kind == 'Discrete' else ('mean', 'log_std'))]
        ratio = np.exp(log_prob - log_prob_and_entropy(kind, old, batch['actions'])[0])
        clipped = np.clip(ratio, 1 - o.clip_norm, 1 + o.clip_norm)
        policy_loss = -mean(np.minimum(ratio * advantages, clipped * advantages))
    else:
        policy_loss = -mean(log_prob * advantages)
    error = (returns - value) ** 2
    if getattr(o, 'value_clip', None):
        moved = old_values + np.clip(value - old_values, -o.value_clip, o.value_clip)
        error = np.maximum(error, (returns - moved) ** 2)
    parts = policy_loss, mean(error), mean(entropy)
    return parts[0] + o.value_loss_coef * parts[1] - o.entropy_coef * parts[2], parts


def advantages_in_numpy(agent, batch, weights):
    values = numpy_outputs(agent, weights, batch['observations'].astype(np.float64))[1][..., 0]
    advantages = np.zeros((T, N))
    for n in range(N):
        for t in range(T):
            weight = 1.0
            for k in range(t, T):
                bootstrap = 0 if batch['terminated'][k, n] else values[k + 1, n]
                delta = batch['rewards'][k, n] + agent.options.gamma * bootstrap - values[k, n]
                advantages[t, n] += weight * delta
                weight *= agent.options.gamma * agent.options.lam
                if batch['terminated'][k, n] or batch['truncated'][k, n]:
                    break
    return advantages, advantages + values[:-1], values[:-1]


@pytest.mark.parametrize('kind', ['Discrete', 'Box'])
@pytest.mark.parametrize(
    'name, options',
    [
        ('A2C', {}),
        ('A2C', {'normalize_advantage': True, 'lam': 0.8, 'entropy_coef': 0.1}),
        ('PPO', {'ppo_epochs': 1, 'mini_batches': 1}),
        (
            'PPO',
            {'ppo_epochs': 1, 'mini_batches': 1, 'value_clip': 0.05, 'clip_norm': 0.3, 'normalize_advantage': False},
        ),
    ],
)
def test_one_step_follows_the_gradient_of_the_loss(name, options, kind):
    agent = make(getattr(xagents, name), kind, grad_norm=1e9, **options)
    batch = rollout(agent, np.random.default_rng(3))
    weights = [v.numpy().astype(np.float64) for v in agent.model.trainable_variables]
    fixed = advantages_in_numpy(agent, batch, weights)
    loss, parts = loss_in_numpy(agent, batch, kind, weights, fixed)

    step = 1e-5
    gradients = []
    for i, w in enumerate(weights):
        gradient = np.zeros_like(w)
        for index in np.ndindex(w.shape):
            sides = []
            for sign in (1, -1):
                moved = [x.copy() for x in weights]
                moved[i][index] += sign * step
                sides.append(loss_in_numpy(agent, batch, kind, moved, fixed)[0])
            gradient[index] = (sides[0] - sides[1]) / (2 * step)
        gradients.append(gradient)

    arguments = {'clip_norm': agent.options.clip_norm} if name == 'PPO' else {}
    logs = agent.learn(batch, learning_rate=LR, **arguments)
    np.testing.assert_allclose([logs[f'loss/{k}'] for k in ('policy', 'value', 'entropy')], parts, rtol=2e-4, atol=1e-5)
    np.testing.assert_allclose(
        logs['stats/grad_norm'], np.sqrt(sum((g**2).sum() for g in gradients)), rtol=1e-3, atol=1e-5
    )
    for before, gradient, variable in zip(weights, gradients, agent.model.trainable_variables, strict=True):
        np.testing.assert_allclose(variable.numpy(), before - LR * gradient, rtol=1e-3, atol=2e-5)
    assert logs['updates'] == 1 and logs['stats/refused'] == 0
    assert np.isfinite(loss)


def test_gradients_are_clipped_by_their_global_norm():
    agent = make(xagents.A2C, 'Discrete', grad_norm=0.01)
    before = [v.numpy() for v in agent.model.trainable_variables]
    agent.learn(rollout(agent, np.random.default_rng(3)), learning_rate=LR)
    moved = np.sqrt(
        sum(((v.numpy() - b) ** 2).sum() for v, b in zip(agent.model.trainable_variables, before, strict=True))
    )
    np.testing.assert_allclose(moved, LR * 0.01, rtol=1e-3)


@pytest.mark.parametrize('name', ['A2C', 'PPO'])
def test_an_update_that_is_not_finite_is_refused_and_counted(name):
    agent = make(getattr(xagents, name), 'Discrete')
    batch = rollout(agent, np.random.default_rng(3))
    batch['rewards'][3, 2] = np.nan
    before = [v.numpy() for v in agent.model.trainable_variables]
    arguments = {'clip_norm': 0.1} if name == 'PPO' else {}
    logs = agent.learn(batch, learning_rate=LR, **arguments)
    assert logs['stats/refused'] >= 1
    assert all(np.isfinite(v.numpy()).all() for v in agent.model.trainable_variables)
    if name == 'A2C':
        assert logs['updates'] == 0
        for variable, old in zip(agent.model.trainable_variables, before, strict=True):
            np.testing.assert_array_equal(variable.numpy(), old)


def test_a_minibatch_without_a_valid_row_is_left_out_and_not_counted_as_refused():
    agent = make(xagents.PPO, 'Discrete', ppo_epochs=1, minibatch_size=1)
    batch = rollout(agent, np.random.default_rng(3))
    logs = agent.learn(batch, learning_rate=LR, clip_norm=0.1)
    assert logs['updates'] == batch['valid'].sum() < T * N
    assert logs['stats/refused'] == 0


def test_minibatches_use_every_row_once_an_epoch_and_drop_the_remainder():
    agent = make(xagents.PPO, 'Discrete', ppo_epochs=3, mini_batches=5)
    permutations = agent.minibatches.draw(agent.rng('learn'), agent.options.ppo_epochs)
    assert permutations.shape == (15, 2)  # 12 transitions, 5 minibatches of 2
    for epoch in permutations.reshape(3, 10):
        assert len(set(epoch)) == 10 and set(epoch) <= set(range(12))
    assert not np.array_equal(permutations[:5], permutations[5:10])


def test_target_kl_ends_an_update_early():
    free = make(xagents.PPO, 'Discrete', ppo_epochs=10, clip_norm=10.0, grad_norm=1e9)
    bound = make(xagents.PPO, 'Discrete', ppo_epochs=10, clip_norm=10.0, grad_norm=1e9, target_kl=1e-4)
    batch = rollout(free, np.random.default_rng(3))
    all_steps = free.learn(batch, learning_rate=1.0, clip_norm=10.0)
    few = bound.learn(batch, learning_rate=1.0, clip_norm=10.0)
    assert all_steps['updates'] == 40 and 1 <= few['updates'] < 40


def test_the_learning_rate_and_clip_range_are_arguments_and_trace_nothing_anew():
    agent = make(xagents.PPO, 'Discrete')
    batch = rollout(agent, np.random.default_rng(3))
    before = [v.numpy() for v in agent.model.trainable_variables]
    agent.learn(batch, learning_rate=0.0, clip_norm=0.2)
    for variable, old in zip(agent.model.trainable_variables, before, strict=True):
        np.testing.assert_array_equal(variable.numpy(), old)
    for lr in (0.1, 0.01, 0.001):
        agent.learn(batch, learning_rate=lr, clip_norm=lr)
    assert agent._update.traces == 1


def test_acting_uses_the_new_weights_after_an_update():
    agent = make(xagents.PPO, 'Discrete')
    batch = rollout(agent, np.random.default_rng(3))
    agent.learn(batch, learning_rate=LR, clip_norm=0.1)
    observations = batch['observations'][0]
    np.testing.assert_allclose(agent.actor(observations)[0], agent.model(observations)[0].numpy(), atol=1e-5)
