"""ACER against NumPy in float64, written from the papers (Wang et al. 2017, algorithm 2; Munos et al. 2016)."""

import time

import keras
import numpy as np
import pytest
import tensorflow as tf
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st

import xagents
from tests import reference
from tests.base.test_returns import episodes_of
from tests.problems import Arbitrary
from tests.reference import LR, SPACES, D, N, T, flat, gradient, outputs, rollout, rows, softmax
from xagents.acer.agent import ACER
from xagents.acer.policy_gradient import divergence, entropy, entropy_gradient, policy_gradient, project
from xagents.base.returns import retrace
from xagents.checkpoints.agent_state import model_variables

A = 3
SEEDS = st.integers(0, 2**32 - 1)


def tensors(*arrays):
    return [tf.constant(array, tf.float32) for array in arrays]


# -------------------------------------------------------------------------------------------------------------- Retrace


def retrace_sum(rewards, q, values, ratios, terminated, truncated, valid, gamma, lam, t, n):
    """Equation 4, term by term: Q + Σ γᵏ⁻ᵗ (Π c) [r + γ E Q(x', ·) − Q], with c = λ min(1, ρ), for one row."""
    total, weight = q[t, n], 1.0
    for k in range(t, len(rewards)):
        following = 0.0 if terminated[k, n] else values[k + 1, n]
        total += weight * (rewards[k, n] + gamma * following - q[k, n])
        if terminated[k, n] or truncated[k, n] or k + 1 == len(rewards) or not valid[k + 1, n]:
            break
        weight *= gamma * lam * min(1.0, ratios[k + 1, n])
    return total


def retrace_of(rewards, q, values, ratios, terminated, truncated, valid, gamma, lam):
    arrays = tensors(rewards, q, values, ratios, terminated, terminated | truncated, valid)
    return retrace(*arrays, gamma, lam).numpy()


@settings(max_examples=40, deadline=None)
@given(seed=SEEDS, gamma=st.floats(0, 1), lam=st.floats(0, 1), known=st.sampled_from(['all', 'most', 'each row']))
def test_retrace_is_the_sum_of_its_operator(seed, gamma, lam, known):
    rng = np.random.default_rng(seed)
    steps, envs = 7, 3
    terminated, truncated, valid = episodes_of(rng, steps, envs)
    if known == 'each row':  # ends end a sum by themselves
        valid[:] = True
    if known == 'most':  # as the buffer draws it: rows without an end before them, of which nothing is known
        unknown = rng.random((steps, envs)) < 0.15
        valid &= ~unknown
        terminated &= valid
        truncated &= valid
    rewards, q, values = rng.normal(size=(steps, envs)), rng.normal(size=(steps, envs)), rng.normal(size=(8, envs))
    ratios = rng.lognormal(sigma=1, size=(steps, envs))
    rewards[~valid] = ratios[~valid] = 1e5  # nothing of a row that only resets may leak into others
    arguments = rewards, q, values, ratios, terminated, truncated, valid, gamma, lam
    targets = retrace_of(*arguments)
    for t, n in zip(*np.nonzero(valid), strict=True):
        np.testing.assert_allclose(targets[t, n], retrace_sum(*arguments, t, n), rtol=1e-4, atol=1e-4)


# ----------------------------------------------------------------------------------------------- the policy's direction


def distributions(rng, count=1):
    """Probabilities none of which is tiny."""
    return softmax(rng.normal(size=(count, A)))


@settings(max_examples=30, deadline=None)
@given(seed=SEEDS, c=st.floats(0.1, 5))
def test_the_gradient_is_unbiased_whatever_is_truncated(seed, c):
    """With exact Q values, its mean over the actions of μ is Σ_a f(a) ∇log f(a) (Q(a) − V), whatever c is."""
    rng = np.random.default_rng(seed)
    f, mu, q = distributions(rng)[0], distributions(rng)[0], rng.normal(size=A)
    others = q - f @ q
    each = [policy_gradient(*tensors(f, f / mu, np.eye(A)[a], others[a], others), c, 1e-12).numpy() for a in range(A)]
    np.testing.assert_allclose(mu @ each, others, rtol=1e-3, atol=1e-4)  # f(a) · 1 / f(a) stands in the place of a


def test_beyond_c_the_rest_comes_from_the_q_values():
    f, mu, others = np.array([[0.6, 0.3, 0.1]]), np.array([[0.1, 0.6, 0.3]]), np.array([[2.0, -1.0, 5.0]])
    g = policy_gradient(*tensors(f, f / mu, [[1, 0, 0]], [7.0], others), 2.0, 1e-12).numpy()
    # ρ = 6, ½, ⅓: 2 · 7 / f of the one taken, and (1 − 2/6) · 2 for it
    np.testing.assert_allclose(g, [[2 * 7 / 0.6 + 4 / 3, 0, 0]], rtol=1e-5)
    g = policy_gradient(*tensors(f, f / mu, [[0, 0, 1]], [7.0], others), 2.0, 1e-12).numpy()
    np.testing.assert_allclose(g, [[4 / 3, 0, 7 / 0.3]], rtol=1e-5)


@settings(max_examples=40, deadline=None)
@given(seed=SEEDS, delta=st.floats(0.01, 3))
def test_the_projection_fulfils_the_conditions_of_its_problem(seed, delta):
    """min ½ |g − z|² s.t. kᵀz ≤ δ: z = g − λk, λ ≥ 0, kᵀz ≤ δ, λ (kᵀz − δ) = 0 (equation 12)."""
    rng = np.random.default_rng(seed)
    g, k = 2 * rng.normal(size=(5, A)), rng.normal(size=(5, A))
    z, projected = (x.numpy() for x in project(*tensors(g, k), delta, 1e-12))
    for row in range(5):
        multiplier = max(0, (k[row] @ g[row] - delta) / (k[row] @ k[row]))
        np.testing.assert_allclose(z[row], g[row] - multiplier * k[row], rtol=1e-3, atol=1e-4)
        if abs(k[row] @ g[row] - delta) > 1e-5:
            assert projected[row] == (multiplier > 0)
        assert k[row] @ z[row] <= delta + 1e-3
        if not projected[row]:
            np.testing.assert_array_equal(z[row], g[row].astype(np.float32))


def test_entropy_and_divergence_and_their_gradients():
    rng = np.random.default_rng(5)
    f, average = distributions(rng, 4), distributions(rng, 4)
    np.testing.assert_allclose(entropy(*tensors(f), 1e-9), -(f * np.log(f)).sum(-1), rtol=1e-5)
    np.testing.assert_allclose(
        divergence(*tensors(average, f), 1e-9), (average * np.log(average / f)).sum(-1), rtol=1e-4
    )
    expected = [gradient(lambda x: -(x * np.log(x)).sum(-1), row) for row in f]
    np.testing.assert_allclose(entropy_gradient(*tensors(f), 1e-9), expected, rtol=1e-4, atol=1e-5)


# ----------------------------------------------------------------------------------------------------- the whole update


def make(plain=True, heads=(), **options):
    """A tiny agent; with plain gradient descent, a step shows the gradient."""
    options = {'n_steps': T, 'seed': 0, 'gamma': 0.9, 'lr': LR, 'grad_norm': 1e9, 'epsilon': 1e-9, **options}
    return ACER(reference.environments('Discrete'), reference.network([A, A], 1, heads, plain=plain), **options)


def learn(agent, batch):
    return agent.learn(batch, {'learning_rate': LR})


def disturb_average(agent, size=0.5):
    """Give the average policy parameters of its own, as it has after a while."""
    state = agent.average_policy.state()
    change = size * np.random.default_rng(7).normal(size=state['parameters'].shape)
    agent.average_policy.load({**state, 'parameters': state['parameters'] + change})


def stale_rollout(agent, seed=3, size=0.7):
    """A rollout of another policy than the present one."""
    other = flat(agent.model)
    other = other + size * np.random.default_rng(9).normal(size=other.shape)
    return rollout('Discrete', lambda x: outputs(agent.model, other, x)[:1], seed)


def everything(agent):
    variables = [v.numpy() for v in model_variables(agent.model)]
    return [*variables, agent.average_policy.state()['parameters']]


def same(a, b):
    return all(np.array_equal(x, y) for x, y in zip(a, b, strict=True))


class Algorithm:
    """Algorithm 2 on one rollout, at the present parameters of an agent."""

    def __init__(self, agent, batch):
        self.agent, o = agent, agent.options
        self.model, self.parameters = agent.model, flat(agent.model)
        self.valid = rows(batch['valid'])
        self.x = batch['observations'].astype(np.float64)
        self.actions = rows(batch['actions'])
        mu = softmax(rows(batch['logits']).astype(np.float64))
        logits, q = outputs(self.model, self.parameters, rows(self.x))
        f, q = softmax(logits).reshape(T + 1, N, A), q.reshape(T + 1, N, A)
        values = (f * q).sum(-1)
        taken = np.arange(T * N), self.actions
        self.f, self.q_taken = rows(f[:-1]), rows(q[:-1])[taken]
        rho = self.f / mu
        self.ratio = rho[taken]
        grid = (T, N)
        arguments = [batch['rewards'], self.q_taken.reshape(grid), values, self.ratio.reshape(grid)]
        arguments += [batch[name] for name in ('terminated', 'truncated', 'valid')]
        targets = [retrace_sum(*arguments, o.gamma, o.lam, t, n) for t, n in np.ndindex(grid)]
        self.targets = np.array(targets)
        v = rows(values[:-1])
        advantage, others = self.targets - v, rows(q[:-1]) - v[:, None]
        if o.normalize_advantage:
            scale = advantage[self.valid].std()
            advantage, others = (advantage - advantage[self.valid].mean()) / scale, others / scale
        self.truncated = np.minimum(o.importance_c, self.ratio) * advantage
        self.corrected = np.maximum(0, 1 - o.importance_c / rho) * self.f * others
        average = agent.average_policy.state()['parameters'].astype(np.float64)
        self.average = softmax(outputs(agent.actor.model, average, rows(self.x[:-1]))[0])
        one_hot = np.eye(A)[self.actions]
        # ∇_φ log f(a) is 1 / f(a) in the place of a
        g = (one_hot * self.truncated[:, None] + self.corrected) / self.f
        g += o.entropy_coef * (-np.log(self.f) - 1)
        k = -self.average / self.f
        excess = np.maximum(0, (k * g).sum(-1) - o.delta)
        self.projected = excess > 0
        self.z = g - (excess / (k**2).sum(-1))[:, None] * k if o.trust_region else g

    def mean(self, x):
        """Over valid rows, of [*M, T * N]."""
        return x[..., self.valid].mean(-1)

    def probabilities(self, parameters):
        logits, q = outputs(self.model, parameters, rows(self.x[:-1]))
        return softmax(logits), q[..., np.arange(T * N), self.actions]

    def loss(self, parameters):
        """Without the trust region, equation 9 and the entropy themselves; with it, −zᵀφ, as z has no gradient."""
        f, q_taken = self.probabilities(parameters)
        o = self.agent.options
        if o.trust_region:
            objective = (self.z * f).sum(-1)
        else:
            log_f = np.log(f)
            objective = self.truncated * log_f[..., np.arange(T * N), self.actions] + (self.corrected * log_f).sum(-1)
            objective = objective - o.entropy_coef * (f * log_f).sum(-1)
        return o.value_loss_coef * self.mean((self.targets - q_taken) ** 2) - self.mean(objective)

    def metrics(self):
        valid = self.valid
        return {
            'updates': 1,
            'stats/refused': 0,
            'loss/policy': -self.mean((self.z * self.f).sum(-1)),
            'loss/value': self.mean((self.targets - self.q_taken) ** 2),
            'loss/entropy': self.mean(-(self.f * np.log(self.f)).sum(-1)),
            'stats/grad_norm': np.linalg.norm(gradient(self.loss, self.parameters)),
            'stats/importance': self.mean(self.ratio),
            'stats/kl_average': self.mean((self.average * np.log(self.average / self.f)).sum(-1)),
            'stats/projected': self.mean(self.projected) if self.agent.trust_region else 0.0,
            'stats/explained_variance': 1 - (self.targets - self.q_taken)[valid].var() / self.targets[valid].var(),
        }


@pytest.mark.usefixtures('eager')
@pytest.mark.parametrize(
    'options',
    [
        {},
        {'trust_region': False, 'entropy_coef': 0.0},
        {'trust_region': False, 'entropy_coef': 0.3, 'importance_c': 0.8, 'lam': 0.7},
        {'delta': 0.05, 'importance_c': 0.8, 'entropy_coef': 0.3, 'ema_alpha': 0.9, 'grad_norm': 0.1},
        {'delta': 0.05, 'normalize_advantage': True, 'importance_c': 1.2, 'value_loss_coef': 2.0, 'lam': 0.9},
        {'trust_region': False, 'normalize_advantage': True, 'importance_c': 1.2, 'gamma': 0.5, 'ema_alpha': 0.0},
    ],
)
def test_one_step_is_that_of_the_paper(options):
    agent = make(**options)
    disturb_average(agent)
    batch = stale_rollout(agent)
    assert batch['terminated'].any() and batch['truncated'].any() and not batch['valid'][1:].all()
    paper = Algorithm(agent, batch)
    valid = paper.valid
    if agent.importance_c < 10:
        assert (paper.corrected[valid] != 0).any() and (paper.ratio[valid] < agent.importance_c).any()
    if agent.trust_region and agent.delta < 1:
        assert paper.projected[valid].any() and not paper.projected[valid].all()
    old_average = agent.average_policy.state()['parameters']
    slope = gradient(paper.loss, paper.parameters)
    factor = min(1, agent.options.grad_norm / np.linalg.norm(slope))
    assert (factor < 1) == ('grad_norm' in options)
    new = paper.parameters - LR * factor * slope

    logs = learn(agent, batch)
    np.testing.assert_allclose(flat(agent.model), new, rtol=1e-3, atol=3e-5)
    assert logs == {name: pytest.approx(x, rel=1e-3, abs=1e-5) for name, x in paper.metrics().items()}
    alpha, policy = agent.options.ema_alpha, flat(agent.actor.model)
    expected = alpha * old_average + (1 - alpha) * policy
    np.testing.assert_allclose(agent.average_policy.state()['parameters'], expected, rtol=1e-5, atol=1e-6)
    shown = batch['observations'][0]
    np.testing.assert_allclose(agent.actor(shown)[0], agent.model(shown)[0].numpy(), atol=1e-5)


@pytest.mark.usefixtures('eager')
def test_a_rollout_without_a_valid_row_changes_nothing_and_refuses_nothing():
    agent = make(plain=False)
    disturb_average(agent)
    learn(agent, stale_rollout(agent))
    before, batch = everything(agent), stale_rollout(agent, 4)
    batch['valid'][:], batch['rewards'][:] = False, np.nan
    logs = learn(agent, batch)
    assert (logs['updates'], logs['stats/refused']) == (0, 0) and same(before, everything(agent))


# --------------------------------------------------------------------------------------------------------- softmax head


@pytest.mark.usefixtures('eager')
def test_a_policy_that_ends_in_softmax_acts_and_learns_as_without():
    linear = make()
    entry = keras.Input((D,))
    hidden = keras.layers.Dense(3, 'tanh')(entry)
    model = keras.Model(entry, [keras.layers.Softmax()(keras.layers.Dense(A)(hidden)), keras.layers.Dense(A)(hidden)])
    model.set_weights(linear.model.get_weights())
    model.compile(keras.optimizers.SGD(LR))
    agent = ACER(linear.envs, model, n_steps=T, seed=0, gamma=0.9, lr=LR, grad_norm=1e9, epsilon=1e-9)
    shown = np.random.default_rng(0).normal(size=(5, D)).astype(np.float32)
    for seed in (3, 4):
        np.testing.assert_allclose(softmax(agent.actor(shown)[0]), softmax(linear.actor(shown)[0]), atol=1e-6)
        logs = [learn(a, stale_rollout(linear, seed)) for a in (agent, linear)]
        assert logs[0] == {name: pytest.approx(x, rel=1e-4, abs=1e-6) for name, x in logs[1].items()}
        np.testing.assert_allclose(flat(agent.model), flat(linear.model), rtol=1e-5, atol=1e-6)


# ----------------------------------------------------------------------------------------------------------- the replay

VECTOR = spaces.Box(-1, 1, (D,), np.float32)


def acer(env=None, **options):
    options = {'n_envs': 2, 'n_steps': 5, 'seed': 1, 'net': [4], 'quiet': True, 'buffer_initial_size': 10, **options}
    return xagents.make('acer', env or (lambda **_: Arbitrary(VECTOR, SPACES['Discrete'])), **options)


def counting(**options):
    """An agent that only counts what it is to learn from: (logits, observations) by their first numbers."""
    agent = acer(**options)
    agent.learned = []

    def learn(batch, schedule):
        agent.learned.append(batch['logits'].copy())
        return {'updates': 1, 'stats/refused': 0, 'loss/policy': float(len(agent.learned))}

    agent.learn = learn
    return agent


def test_replays_are_drawn_anew_in_each_iteration_and_repeat_with_the_seed():
    counts = []
    for seed in (1, 1, 2):
        agent = counting(seed=seed, replay_ratio=2.0)
        logs = list(agent.train_iter(max_steps=250))
        counts.append([log['replay/count'] for log in logs])
        updates = np.cumsum([1 + log['replay/count'] for log in logs])
        assert [log['updates'] for log in logs] == list(updates) and len(agent.learned) == updates[-1]
        assert all(log['replay/updates'] == log['replay/count'] for log in logs)
    assert counts[0] == counts[1] != counts[2]
    assert len(set(counts[0])) > 3


@pytest.mark.parametrize('ratio', [0.0, 0.5, 4.0])
def test_the_number_of_replays_is_poisson(ratio):
    agent = counting(replay_ratio=ratio)
    draws = np.array([agent.draw_replays() for _ in range(4000)])
    assert draws.mean() == pytest.approx(ratio, rel=0.06) and draws.var() == pytest.approx(ratio, rel=0.12)
    assert np.mean(draws == 0) == pytest.approx(np.exp(-ratio), rel=0.3)


def test_what_is_replayed_is_a_stored_rollout_and_what_came_last_is_learned_first():
    agent = counting(replay_ratio=3.0, buffer_max_size=40)
    collected, seen = [], 0

    def look(ctx):
        nonlocal seen
        collected.append(ctx.batch['logits'].copy())
        yield
        new, seen = agent.learned[seen:], len(agent.learned)
        np.testing.assert_array_equal(new[0], collected[-1])
        for replayed in new[1:]:
            age = [np.array_equal(replayed, other) for other in collected[::-1]].index(True)
            ages.append(age)

    ages = []
    agent.fit(max_steps=300, recipe=agent.recipe().after('collect', look))
    assert set(ages) == {0, 1, 2, 3}, 'of the four that are stored, the present one among them'


def test_nothing_is_replayed_before_enough_is_stored():
    agent = counting(replay_ratio=3.0, buffer_initial_size=35, buffer_max_size=100)
    seen = []

    def look(ctx):
        yield
        seen.append((agent.buffer.stored, ctx.note, 'replay/count' in ctx.logs, ctx.logs['updates']))

    logs = list(agent.train_iter(max_steps=100, recipe=agent.recipe().after('replay', look)))
    filling = [row for row in seen if row[0] < 40]  # 35 in whole rollouts of 10
    assert 3 < len(filling) < len(seen)
    for i, (stored, note, replayed, updates) in enumerate(filling):
        assert note == f'replay buffer: {stored} of 40'
        assert not replayed and updates == i + 1, 'meanwhile it learns on-policy'
    assert all(replayed and not note for _, note, replayed, _ in seen[len(filling) :])
    assert logs[-1]['replay/size'] == len(agent.buffer) and logs[-1]['replay/fill'] == len(agent.buffer) / 100


@pytest.mark.usefixtures('eager')
def test_the_metrics_of_replays_have_names_of_their_own():
    agent = acer(replay_ratio=1.5)
    logs = list(agent.train_iter(max_steps=60))
    learned = ACER.METRICS
    replaying = [log for log in logs if log['replay/count']]
    for log in replaying:
        assert set(learned) | {f'replay/{name}' for name in learned} <= log.keys()
        assert all(isinstance(value, (int, float)) for value in log.values())
        assert log['stats/importance'] == pytest.approx(1, abs=1e-3), 'the policy that acted learns first'
    assert any(abs(log['replay/stats/importance'] - 1) > 1e-4 for log in replaying)
    assert len(replaying) > 2 and agent.context.updates == len(logs) + sum(log['replay/count'] for log in logs)


@pytest.mark.usefixtures('eager')
def test_refused_replays_are_told(capsys):
    agent = acer(replay_ratio=1.5, quiet=False)

    def spoil(ctx):
        ctx.batch['rewards'] = np.full(ctx.batch['rewards'].shape, np.nan, np.float32)

    before = everything(agent)
    logs = list(agent.train_iter(max_steps=40, recipe=agent.recipe().after('collect', spoil), on_nan='skip'))
    out = capsys.readouterr().out
    replays = max(int(log['replay/count']) for log in logs)
    assert replays and f'Refused {replays} replayed updates that were not finite' in out
    assert 'Refused 1 updates that were not finite' in out
    assert logs[-1]['updates'] == 0 and same(before, everything(agent))


@pytest.mark.usefixtures('eager')
def test_normalisation_happens_when_rollouts_are_learned_from(monkeypatch):
    """By the statistics of then; what is stored stays raw."""
    agent = acer(normalize_obs=True, normalize_reward=True, reward_scale=0.25, replay_ratio=1.5)
    collected, given = [], []
    run_update, learn = agent.run_update, agent.learn
    monkeypatch.setattr(agent, 'run_update', lambda batch, *a: given[-1].append(batch) or run_update(batch, *a))

    def spy(batch, schedule):
        given.append([{name: array.copy() for name, array in batch.items()}])
        return learn(batch, schedule)

    monkeypatch.setattr(agent, 'learn', spy)

    def look(ctx):
        collected.append(ctx.batch['observations'].copy())
        first = len(given)
        yield
        for raw, learned in given[first:]:
            assert any(np.array_equal(raw['observations'], other) for other in collected), 'as they came'
            assert abs(raw['observations']).max() <= 1
            wanted = agent.statistics.observations(raw['observations'])
            np.testing.assert_allclose(learned['observations'], wanted, rtol=1e-6)
            factor = 0.25 / np.sqrt(agent.statistics.rewards.statistics.var + 1e-8)
            np.testing.assert_allclose(learned['rewards'], factor * raw['rewards'], rtol=1e-4, atol=1e-6)

    agent.fit(max_steps=40, recipe=agent.recipe().after('collect', look))
    assert len(given) > 5
    stored = agent.buffer._ring.arrays
    assert abs(stored['observations']).max() <= 1 and abs(stored['rewards']).max() > 1


# ------------------------------------------------------------------------------------------------ equal seeds, going on


@pytest.mark.usefixtures('eager')
def test_weights_given_before_the_first_update_reach_the_average_policy():
    agent = acer()
    agent.model.set_weights([w + 1 for w in agent.model.get_weights()])
    agent.begin(max_steps=1)
    np.testing.assert_array_equal(agent.average_policy.state()['parameters'], flat(agent.actor.model))


# --------------------------------------------------------------------------------------------------------------- learns


def make_learner(problem, kwargs, **options):
    return xagents.make(
        'acer', f'tests.problems:{problem}-v0', n_envs=8, quiet=True, env_kwargs=kwargs,
        **{'seed': 1, 'lr': 5e-3, 'gamma': 0.5, 'n_steps': 8, 'net': [32], 'replay_ratio': 2, **options},
        buffer_initial_size=200,
    )  # fmt: skip


@pytest.mark.slow
@pytest.mark.usefixtures('without_xla')
def test_acer_learns_identity():
    """A random policy earns 3.3."""
    agent = make_learner('Identity', {}, trust_region=False, normalize_obs=True, normalize_reward=True)
    assert agent.evaluate(episodes=20)['mean'] < 8
    agent.fit(max_steps=1_500)
    assert agent.evaluate(episodes=20)['mean'] > 9.5


@pytest.mark.usefixtures('without_xla')
def test_acer_learns_from_what_another_policy_did():
    """No step of its own is learned from: a random policy's rollouts are replayed."""
    agent = make_learner('Identity', {})
    learn = agent.learn
    agent.learn, agent.draw_replays = lambda batch, schedule: {'updates': 0}, lambda: 0
    weights = agent.model.get_weights()
    agent.fit(max_steps=1_500)
    assert same(weights, agent.model.get_weights()) and agent.buffer.stored >= 1_500
    assert agent.evaluate(episodes=20)['mean'] < 8
    importance = [learn(agent.replay(), {'learning_rate': 5e-3})['stats/importance'] for _ in range(200)]
    assert agent.evaluate(episodes=20)['mean'] > 9.5
    assert importance[0] == pytest.approx(1, abs=1e-3) and np.std(importance[100:]) > 0.05, (
        'it is not that policy any more'
    )


def test_a_reset_between_two_rollouts_joins_no_episodes():
    agent = counting(env='CartPole-v1', buffer_max_size=100, buffer_initial_size=None)
    for steps in (10, 20):
        list(agent.train_iter(max_steps=steps))
        if steps == 10:
            agent.collector.reset()
    first = [agent.buffer.sample(np.random.default_rng(i))['valid'][-1].copy() for i in range(30)]
    assert any(not last.any() for last in first), 'the last step before the reset has no next observation'
    assert any(last.all() for last in first)


def test_the_buffer_knows_stacks_of_frames_and_that_memory_is_finite(monkeypatch):
    agent = xagents.make('acer', 'PongNoFrameskip-v4', n_envs=1, n_steps=5, buffer_max_size=100_000, seed=1)
    assert agent.buffer.stack == 4
    assert agent.buffer_bytes() < 100_000 * 84 * 84 * 1.1, 'each frame once'
    monkeypatch.setattr('xagents.system.memory.free_memory', lambda: 10**6)
    with pytest.raises(ValueError, match='buffer_max_size: got 100000, which needs'):
        agent.fit(max_steps=10)


def test_replays_are_training_time():
    agent, seconds = counting(env='CartPole-v1', buffer_max_size=10, replay_ratio=20.0), 0.002
    learn = agent.learn

    def slow(batch, schedule):
        time.sleep(seconds)
        return learn(batch, schedule)

    agent.learn = slow
    log = list(agent.train_iter(max_steps=60))[-1]
    assert log['seconds/learn'] >= (1 + log['replay/count']) * seconds
    assert agent.context.seconds >= len(agent.learned) * seconds
