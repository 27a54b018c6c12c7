"""TRPO against NumPy in float64, written from the paper (Schulman et al. 2015, appendix C)."""

import itertools

import keras
import numpy as np
import pytest
import tensorflow as tf
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st

import xagents
from tests import reference
from tests.problems import Arbitrary
from tests.reference import LR, SPACES, D, N, T, estimates, flat, gradient, hessian, outputs, rollout, rows
from xagents.checkpoints.agent_state import model_variables
from xagents.trpo import agent as agent_module
from xagents.trpo.agent import TRPO, sampled_rows
from xagents.trpo.natural_gradient import conjugate_gradient, fisher_vector_product, line_search

KINDS = list(SPACES)


def make(kind='Discrete', plain=True, **options):
    """A tiny agent; its critic learns by plain gradient descent, so that its steps show the gradients."""
    envs = reference.environments(kind)
    once = {} if 'minibatch_size' in options else {'mini_batches': 1}
    options = {'fvp_n_steps': 1, 'cg_iterations': 4, 'cg_damping': 0.03, 'max_kl': 0.01, **once, **options}
    options = {'log_std_init': -0.5, 'critic_iterations': 1, **options}
    options = {'n_steps': T, 'seed': 0, 'gamma': 0.9, 'lam': 0.8, 'lr': LR, **options}
    actor = reference.network([sum(reference.CHOICES[kind])], 1, plain=False)
    return TRPO(envs, actor, reference.network([1], 2, plain=plain), **options)


def rollout_of(agent, kind, seed=0):
    """A rollout of the present policy."""
    present = flat(agent.actor_model)
    return rollout(kind, lambda x: outputs(agent.actor_model, present, x), seed)


def learn(agent, batch):
    return agent.learn(batch, {'learning_rate': LR})


def parameters(agent):
    """As they are, bit for bit."""
    return [[v.numpy() for v in model.trainable_variables] for model in agent.output_models]


def all_parameters(agent):
    return list(itertools.chain(*parameters(agent)))


def unchanged(before, after):
    return all(np.array_equal(a, b, equal_nan=True) for a, b in zip(before, after, strict=True))


# --------------------------------------------------------------------------------------------------- conjugate gradient


def positive_definite(rng, n):
    basis = np.linalg.qr(rng.normal(size=(n, n)))[0]
    return basis @ np.diag(rng.uniform(0.2, 5, n)) @ basis.T


def krylov(a, b, iterations):
    """What conjugate gradient reaches: of all x in span {b, A b, …, A^(k-1) b}, the minimum of ½ xᵀ A x − bᵀ x."""
    basis = np.zeros((len(b), 0))
    for _ in range(min(iterations, len(b))):
        new = b if not basis.size else a @ basis[:, -1]
        for _ in range(2):  # twice is enough (Kahan)
            new = new - basis @ (basis.T @ new)
        if np.linalg.norm(new) < 1e-12 * np.linalg.norm(b):
            break
        basis = np.column_stack([basis, new / np.linalg.norm(new)])
    return basis @ np.linalg.solve(basis.T @ a @ basis, basis.T @ b)


def solve(a, b, iterations, tolerance=0.0):
    """The product's calls are counted: one an iteration."""
    calls = []

    def product(x):
        calls.append(1)
        return tf.linalg.matvec(tf.constant(a, tf.float32), x)

    x, residual = conjugate_gradient(product, tf.constant(b, tf.float32), iterations, tolerance)
    return x.numpy(), float(tf.reduce_sum(residual**2)), len(calls)


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), n=st.integers(1, 8))
def test_conjugate_gradient_solves(seed, n):
    rng = np.random.default_rng(seed)
    a, b = positive_definite(rng, n), rng.normal(size=n)
    x, residual, calls = solve(a, b, 30, 1e-10)
    np.testing.assert_allclose(x, np.linalg.solve(a, b), rtol=1e-3, atol=2e-4)
    assert residual <= 1e-10 and calls <= n + 3


@pytest.mark.parametrize('iterations', [1, 2, 3, 5])
def test_few_iterations_reach_the_best_of_what_they_span(iterations):
    rng = np.random.default_rng(iterations)
    a, b = positive_definite(rng, 8), rng.normal(size=8)
    x, residual, calls = solve(a, b, iterations)
    expected = krylov(a, b, iterations)
    np.testing.assert_allclose(x, expected, rtol=1e-4, atol=1e-5)
    assert calls == iterations
    assert residual == pytest.approx(((b - a @ expected) ** 2).sum(), rel=1e-3)
    assert residual > 1e-4, 'or else this shows nothing'


@pytest.mark.parametrize('tolerance', [1.0, 0.1, 1e-3])
def test_conjugate_gradient_stops_at_the_squared_residual(tolerance):
    rng = np.random.default_rng(3)
    a, b = positive_definite(rng, 8), rng.normal(size=8)
    x, residual, calls = solve(a, b, 100, tolerance)
    assert residual <= tolerance < solve(a, b, calls - 1)[1]
    assert residual == pytest.approx(((b - a @ x) ** 2).sum(), rel=1e-2)


def test_nothing_to_solve_takes_no_iteration():
    x, residual, calls = solve(np.eye(3), np.zeros(3), 10)
    assert not x.any() and residual == 0 and calls == 0


def test_many_iterations_without_a_tolerance_stay_finite():
    """Beyond what float32 can tell, the residual goes on to shrink until it is 0."""
    for seed in range(5):
        rng = np.random.default_rng(seed)
        a, b = positive_definite(rng, 5), rng.normal(size=5)
        np.testing.assert_allclose(solve(a, b, 200)[0], np.linalg.solve(a, b), rtol=1e-3, atol=1e-4)


# ------------------------------------------------------------------------------------------------------ Fisher products


def mean_kl(agent, kind, x):
    """From parameters to the mean divergence of the present policy from theirs, over observations x."""
    model = agent.actor_model
    old = outputs(model, flat(model), x)
    return lambda new: reference.kl(kind, old, outputs(model, new, x, frozen=True)).mean(-1)


@pytest.mark.parametrize('damping', [0.3, pytest.param(0.0, marks=pytest.mark.slow)])
@pytest.mark.parametrize('kind, options', [*((kind, {}) for kind in KINDS), ('Box', {'sde': True})])
def test_products_are_with_the_hessian_of_the_divergence(kind, options, damping):
    agent, rng = make(kind, **options), np.random.default_rng(4)
    model, x = agent.actor_model, rng.normal(size=(7, D))
    matrix = hessian(mean_kl(agent, kind, x), flat(model))
    assert np.linalg.matrix_rank(matrix, tol=1e-6) > 6

    def divergence():
        new = agent.policy_outputs(tf.constant(x, tf.float32))
        return tf.reduce_mean(agent.distribution.kl([tf.stop_gradient(y) for y in new], new))

    product = fisher_vector_product(divergence, model.trainable_variables, damping)
    for _ in range(3):
        v = rng.normal(size=len(matrix))
        expected = matrix @ v + damping * v
        np.testing.assert_allclose(product(tf.constant(v, tf.float32)), expected, rtol=1e-3, atol=2e-5)


@pytest.mark.parametrize('steps, envs, every', [(10, 5, 5), (12, 3, 4), (8, 16, 1), (512, 1, 5)])
def test_the_rows_for_the_fisher_matrix_come_from_all_environments_alike(steps, envs, every):
    drawn = sampled_rows(steps, envs, every)
    assert len(set(drawn)) == len(drawn) and drawn.min() >= 0 and drawn.max() < steps * envs
    counts = np.bincount(drawn % envs, minlength=envs)
    assert counts.max() - counts.min() <= 1 and abs(counts.sum() - steps * envs / every) < 1


# ---------------------------------------------------------------------------------------------------------- line search


def search(gain, kl, max_kl=1.0, tries=10):
    """Run the line search; returns its results and the fractions it tried."""
    tried = []

    def measure(fraction):
        tried.append(float(fraction))
        return tf.constant(gain(tried[-1]), tf.float32), tf.constant(kl(tried[-1]), tf.float32)

    return [float(x) for x in line_search(measure, max_kl, tries)], tried


def test_the_whole_step_comes_first():
    result, tried = search(gain=lambda f: f, kl=lambda f: f)
    assert result == [1, 1, 1, 1] and tried == [1], 'a divergence of exactly δ is admitted'


@pytest.mark.parametrize('tries', [1, 7])
@pytest.mark.parametrize(
    'gain, kl',
    [
        (lambda f: -f, lambda f: 0.1),
        (lambda f: 0.0, lambda f: 0.1),
        (lambda f: f, lambda f: 1.001),
        (lambda f: np.nan, lambda f: 0.1),
        (lambda f: np.inf, lambda f: 0.1),
        (lambda f: f, lambda f: np.nan),
        (lambda f: f, lambda f: np.inf),
    ],
    ids=['harmful', 'no gain', 'too far', 'NaN gain', 'infinite gain', 'NaN KL', 'infinite KL'],
)
def test_what_is_rejected(gain, kl, tries):
    result, tried = search(gain, kl, tries=tries)
    assert result[:3] == [0, 0, 0]
    np.testing.assert_equal(np.float32(result[3]), np.float32(kl(1.0)))
    np.testing.assert_allclose(tried, 0.8 ** np.arange(tries), rtol=1e-5)


def test_the_first_acceptable_fraction_is_taken():
    result, tried = search(gain=lambda f: 1 - f**2, kl=lambda f: 4 * f**2)
    fraction = 0.8**4  # 4 · 0.8⁶ > 1 ≥ 4 · 0.8⁸
    assert result == pytest.approx([fraction, 1 - fraction**2, 4 * fraction**2, 4], rel=1e-5)
    assert len(tried) == 5
    assert search(lambda f: f, lambda f: 4 * f**2, tries=4)[0] == [0, 0, 0, 4], 'the tries are used up'
    assert search(lambda f: f - 0.7, lambda f: 2 * f, tries=9)[0][0] == 0, 'one condition, then the other, never both'


# ----------------------------------------------------------------------------------------------------- the whole update


class Problem:
    """The policy's constrained problem on one rollout: maximise the surrogate, keep the divergence below δ."""

    def __init__(self, agent, kind, batch):
        self.agent, self.kind, o = agent, kind, agent.options
        self.model, self.old = agent.actor_model, flat(agent.actor_model)
        every = rows(batch['valid'])
        self.x = rows(batch['observations'][:-1]).astype(np.float64)[every]
        self.actions = rows(batch['actions'])[every]
        advantages = rows(estimates(agent, batch, agent.critic, 0)[0])[every]
        if o.normalize_advantage:
            advantages = (advantages - advantages.mean()) / (advantages.std() + o.advantage_epsilon)
        self.advantages = advantages
        self.old_outputs = outputs(self.model, self.old, self.x)
        self.old_log_prob = reference.log_prob(kind, self.old_outputs, self.actions)
        # every so many rows, from another one on in each environment
        drawn = np.array([(t + n) % o.fvp_n_steps == 0 for t, n in np.ndindex(T, N)])
        self.some = rows(batch['observations'][:-1]).astype(np.float64)[drawn & every]

    def surrogate(self, parameters, frozen=False):
        new = reference.log_prob(self.kind, outputs(self.model, parameters, self.x, frozen), self.actions)
        return (np.exp(new - self.old_log_prob) * self.advantages).mean(-1)

    def divergence(self, parameters):
        return reference.kl(self.kind, self.old_outputs, outputs(self.model, parameters, self.x)).mean(-1)

    def step(self):
        """The update's result and metrics; whether what float32 cannot tell apart was close, as the last of them."""
        o = self.agent.options
        g = gradient(lambda new: self.surrogate(new, frozen=True), self.old)
        matrix = hessian(mean_kl(self.agent, self.kind, self.some), self.old) + o.cg_damping * np.eye(len(g))
        x = np.linalg.solve(matrix, g) if o.cg_iterations >= len(g) else krylov(matrix, g, o.cg_iterations)
        step = x * np.sqrt(2 * o.max_kl / (x @ matrix @ x))
        before, margin = self.surrogate(self.old), np.inf
        metrics = {
            'updates': 0,
            'loss/policy': -before,
            'loss/entropy': reference.entropy(self.kind, self.old_outputs).mean(),
            'stats/grad_norm': np.linalg.norm(g),
            'stats/kl_before': self.divergence(self.old + step),
            'stats/cg_residual': ((g - matrix @ x) ** 2).sum(),
        }
        for k in range(o.actor_iterations):
            fraction = 0.8**k
            new = self.old + fraction * step
            gain, kl = self.surrogate(new) - before, self.divergence(new)
            margin = min(margin, abs(kl / o.max_kl - 1), abs(gain) / 1e-3)
            if gain > 0 and kl <= o.max_kl:
                metrics |= {'updates': 1, 'stats/kl_after': kl, 'stats/improvement': gain}
                return new, {**metrics, 'stats/step_fraction': fraction}, margin
        metrics |= dict.fromkeys(('stats/kl_after', 'stats/improvement', 'stats/step_fraction'), 0)
        return self.old, metrics, margin


EXACT = {'cg_iterations': 60, 'cg_residual_tolerance': 1e-13, 'cg_damping': 0.2, 'fvp_n_steps': 1, 'max_kl': 0.02}
ROUGH = {'cg_iterations': 3, 'cg_damping': 0.02, 'fvp_n_steps': 4, 'max_kl': 0.02}
STEPS = [
    ('Discrete', EXACT, 0, 0),
    ('MultiDiscrete', {**EXACT, 'fvp_n_steps': 4}, 4, 4),
    ('MultiBinary', ROUGH, 5, 5),
    ('Box', {**EXACT, 'max_kl': 2.0}, 3, 2),
    ('Box', {**ROUGH, 'normalize_advantage': False}, 5, 9),
    ('Box', {**ROUGH, 'sde': True}, 7, 2),
]


@pytest.mark.usefixtures('eager')
@pytest.mark.parametrize('kind, options, seed, shortened', STEPS)
def test_the_policy_makes_the_papers_step(kind, options, seed, shortened):
    agent = make(kind, **options)
    batch = rollout_of(agent, kind, seed)
    assert batch['terminated'].any() and batch['truncated'].any() and not batch['valid'][1:].all()
    new, metrics, margin = Problem(agent, kind, batch).step()
    assert margin > 1e-2, 'another seed: float32 cannot decide this one'
    assert metrics['stats/step_fraction'] == 0.8**shortened
    logs = learn(agent, batch)
    np.testing.assert_allclose(flat(agent.actor_model), new, rtol=2e-3, atol=2e-4)
    metrics['updates'] += 1  # the critic's
    if options['cg_iterations'] == 60:
        assert logs['stats/cg_residual'] < 1e-10 > metrics.pop('stats/cg_residual')
    for name, value in metrics.items():
        assert logs[name] == pytest.approx(value, rel=5e-3, abs=1e-5), name
    assert logs['stats/refused'] == 0


@pytest.mark.usefixtures('eager')
@pytest.mark.parametrize(
    'kind, options',
    [
        ('Discrete', {'max_kl': 0.01, 'cg_iterations': 2}),
        ('Box', {'max_kl': 1.0, 'cg_iterations': 1, 'cg_damping': 1e-4, 'fvp_n_steps': 4}),
    ],
)
def test_every_accepted_step_improves_and_keeps_the_constraint(kind, options):
    """Recomputed in float64, over one rollout of each new policy after the other."""
    agent = make(kind, lr=1e-3, actor_iterations=15, **options)
    accepted = 0
    for seed in range(3, 7):
        batch = rollout_of(agent, kind, seed)
        problem = Problem(agent, kind, batch)
        logs = learn(agent, batch)
        new = flat(agent.actor_model)
        if not logs['stats/step_fraction']:
            np.testing.assert_array_equal(new, problem.old)
            continue
        accepted += 1
        kl = problem.divergence(new)
        assert 0 < kl <= options['max_kl'] * (1 + 1e-4)
        assert problem.surrogate(new) > problem.surrogate(problem.old)
        assert logs['stats/kl_after'] == pytest.approx(kl, rel=1e-3, abs=1e-6)
        assert logs['stats/kl_before'] >= logs['stats/kl_after'] * (1 - 1e-4)
        if kind == 'Box':
            assert (new != problem.old)[-2:].all(), 'the deviations are learned, too'
    assert accepted >= 3


# --------------------------------------------------------------------------------------------- nothing is half accepted


def spoil_advantages(agent, batch):
    """All are alike: there is no direction."""
    agent.critic.set_weights([np.zeros_like(w) for w in agent.critic.get_weights()])
    batch['rewards'][:] = 0


def spoil_rewards(agent, batch):
    batch['rewards'][np.nonzero(batch['valid'])[0][0], np.nonzero(batch['valid'])[1][0]] = np.nan


def spoil_actions(agent, batch):
    batch['actions'] = np.full_like(batch['actions'], 1e30)


def spoil_nothing(agent, batch):
    pass


@pytest.mark.usefixtures('eager')
@pytest.mark.parametrize(
    'spoil, options, refused, critic_moves',
    [
        (spoil_advantages, {}, 0, False),
        (spoil_advantages, {'normalize_advantage': False}, 0, False),
        (spoil_rewards, {}, 2, False),
        (spoil_rewards, {'normalize_advantage': False}, 2, False),
        (spoil_actions, {}, 1, True),
        (spoil_nothing, {'max_kl': 1e4, 'actor_iterations': 1}, 0, True),
    ],
)
def test_without_an_accepted_step_the_policy_stays_bit_for_bit(spoil, options, refused, critic_moves):
    agent = make('Box', **options)
    batch = rollout_of(agent, 'Box', 3)
    spoil(agent, batch)
    before, shown = parameters(agent), np.ones((2, D), np.float32)
    acted = agent.act(shown)
    logs = learn(agent, batch)
    after = parameters(agent)
    assert unchanged(before[0], after[0])
    np.testing.assert_array_equal(agent.act(shown), acted)
    assert unchanged(before[1], after[1]) != critic_moves
    assert logs['stats/refused'] == refused
    assert logs['stats/step_fraction'] == logs['stats/kl_after'] == logs['stats/improvement'] == 0
    # of a critic without a gradient, a step was made all the same
    assert logs['updates'] == (0 if refused == 2 else 1)
    if refused:
        assert learn(agent, rollout_of(agent, 'Box', 4))['updates'] == 2, 'and it goes on'


@pytest.mark.usefixtures('eager')
@pytest.mark.parametrize('factor', [-1.0, np.nan])
def test_a_harmful_direction_is_rejected_and_the_policy_restored_exactly(factor, monkeypatch):
    agent = make('Box')
    batch, before = rollout_of(agent, 'Box', 3), parameters(agent)
    tried, real = [], agent.policy_outputs

    def harmful(product, gradient, *limits):
        return factor * gradient, tf.constant(0.0)

    def look(observations):
        tried.append(flat(agent.actor_model))
        return real(observations)

    monkeypatch.setattr(agent_module, 'conjugate_gradient', harmful)
    monkeypatch.setattr(agent, 'policy_outputs', look)
    logs = learn(agent, batch)
    assert sum(not np.array_equal(p, flat(agent.actor_model)) for p in tried) == agent.options.actor_iterations
    assert unchanged(before[0], parameters(agent)[0]) and not unchanged(before[1], parameters(agent)[1])
    assert logs['stats/step_fraction'] == logs['stats/kl_after'] == logs['stats/improvement'] == 0
    assert logs['updates'] == 1, 'the critic learns'


@pytest.mark.usefixtures('eager')
def test_a_step_of_the_critic_that_is_refused_leaves_the_policys_alone(monkeypatch):
    agent, same = make(), make()
    real = agent.step.gradient
    monkeypatch.setattr(agent.step, 'gradient', lambda *a: (*real(*a)[:2], tf.constant(False)))
    batch = rollout_of(agent, 'Discrete', 3)
    before = parameters(agent)
    logs, expected = learn(agent, batch), learn(same, batch)
    assert unchanged(before[1], parameters(agent)[1]) and unchanged(parameters(same)[0], parameters(agent)[0])
    assert not unchanged(before[0], parameters(agent)[0])
    assert (logs['updates'], logs['stats/refused']) == (1, 1)
    assert (expected['updates'], expected['stats/refused']) == (2, 0)


@pytest.mark.usefixtures('eager')
def test_a_rollout_without_a_valid_row_changes_nothing_and_refuses_nothing():
    agent = make(plain=False)  # momentum would move the weights
    learn(agent, rollout_of(agent, 'Discrete', 3))
    before = [v.numpy() for model in agent.output_models for v in model_variables(model)]
    batch = rollout_of(agent, 'Discrete', 4)
    batch['valid'][:], batch['rewards'][:] = False, np.nan
    logs = learn(agent, batch)
    assert unchanged(before, [v.numpy() for model in agent.output_models for v in model_variables(model)])
    assert (logs['updates'], logs['stats/refused'], logs['stats/step_fraction']) == (0, 0, 0)


# --------------------------------------------------------------------------------------------------------------- critic


@pytest.mark.usefixtures('eager')
@pytest.mark.parametrize(
    'options', [{'mini_batches': 4, 'critic_iterations': 3}, {'minibatch_size': 5, 'critic_iterations': 2}]
)
def test_the_critic_descends_minibatch_by_minibatch(options):
    agent, twin = (make(seed=7, max_kl=1e-9, **options) for _ in range(2))
    batch = rollout_of(agent, 'Discrete', 3)
    _, returns, old_values = estimates(agent, batch, agent.critic, 0)
    x, goals, valid = rows(batch['observations'][:-1]).astype(np.float64), rows(returns), rows(batch['valid'])
    minibatches = twin.minibatches.draw(twin.rng('learn'), options['critic_iterations'])
    assert len(minibatches) == (12 if 'mini_batches' in options else 6)
    critic, losses = flat(agent.critic), []
    for rows_ in minibatches:
        some = rows_[valid[rows_]]

        def loss(p, some=some):
            return ((goals[some] - outputs(agent.critic, p, x[some])[0][..., 0]) ** 2).mean(-1)

        if len(some):
            losses.append(loss(critic))
            critic = critic - LR * gradient(loss, critic)
    logs = learn(agent, batch)
    np.testing.assert_allclose(flat(agent.critic), critic, rtol=1e-3, atol=1e-5)
    assert logs['loss/value'] == pytest.approx(np.mean(losses), rel=1e-3)
    assert logs['updates'] == len(losses) + (logs['stats/step_fraction'] > 0)
    explained = 1 - (returns - old_values)[batch['valid']].var() / returns[batch['valid']].var()
    assert logs['stats/explained_variance'] == pytest.approx(explained, rel=1e-3, abs=1e-5)


@pytest.mark.usefixtures('eager')
def test_a_minibatch_without_a_valid_row_is_left_out_and_not_counted_as_refused():
    agent = make(minibatch_size=1, critic_iterations=2, max_kl=1e-9)
    batch = rollout_of(agent, 'Discrete', 3)
    logs = learn(agent, batch)
    assert logs['updates'] == 2 * batch['valid'].sum() + (logs['stats/step_fraction'] > 0) < 2 * T * N
    assert logs['stats/refused'] == 0


# ---------------------------------------------------------------------------------------------------------------- a run

VECTOR = spaces.Box(-1, 1, (D,), np.float32)


def trpo(kind='Discrete', **options):
    options = {'n_envs': 2, 'n_steps': 6, 'seed': 1, 'net': [4], 'quiet': True, 'mini_batches': 2, **options}
    options = {'fvp_n_steps': 1, 'cg_iterations': 1, 'critic_iterations': 1, 'actor_iterations': 4, **options}
    return xagents.make('trpo', lambda **_: Arbitrary(VECTOR, SPACES[kind]), **options)


INEFFECTIVE = {'entropy_coef': 0.1, 'value_loss_coef': 1.0, 'grad_norm': 1.0, 'clip_norm': 0.2, 'ppo_epochs': 3}


@pytest.mark.usefixtures('eager')
def test_what_has_no_effect_is_said_once(capsys):
    agent = trpo(quiet=False, **INEFFECTIVE)
    agent.fit(max_steps=12)
    agent.fit(max_steps=24)
    lines = [line for line in capsys.readouterr().out.splitlines() if 'without effect' in line]
    assert lines == [
        'Warning: without effect on TRPO: --entropy-coef, --value-loss-coef, --grad-norm, --clip-norm, --ppo-epochs'
    ]
    assert trpo(ppo_epochs=4).progress.startup_lines == ['Warning: without effect on TRPO: --ppo-epochs'], (
        'also of a default'
    )
    assert trpo(lam=0.9, log_std_init=0.1, gamma=0.9, normalize_advantage=True).progress.startup_lines == []


# --------------------------------------------------------------------------------------------------------------- learns


@pytest.mark.usefixtures('without_xla')
def test_trpo_learns_identity():
    """A random policy earns about −6."""
    agent = xagents.make(
        'trpo', 'tests.problems:Identity-v0', n_envs=8, seed=2, gamma=0.5, lr=5e-3, n_steps=16, net=[32], max_kl=0.05,
        log_std_init=-1.0, env_kwargs={'kind': 'Box'}, quiet=True,
    )  # fmt: skip
    assert agent.evaluate(episodes=20)['mean'] < -2
    agent.fit(max_steps=3_500)
    assert agent.evaluate(episodes=20)['mean'] > -1


def test_conjugate_gradient_ends_along_a_direction_without_curvature():
    a = np.diag([2.0, 0.0])
    x, residual, calls = solve(a, np.array([4.0, 0.0]), 5, 0.0)
    assert calls <= 2 and np.allclose(x, [2, 0]) and residual == 0
    x, _, calls = solve(a, np.array([0.0, 1.0]), 5, 0.0)
    assert calls == 1 and np.array_equal(x, [0, 0]), 'nothing is divided by nothing'


def test_networks_that_share_layers_are_refused():
    entry = keras.Input((4,))
    trunk = keras.layers.Dense(8)(entry)
    actor, critic = (keras.Model(entry, keras.layers.Dense(n)(trunk)) for n in (2, 1))
    with pytest.raises(ValueError, match='critic_model: got a model that shares layers with actor_model'):
        xagents.TRPO(xagents.create_envs('CartPole-v1', 1), actor, critic, n_steps=8)
