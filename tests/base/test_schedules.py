"""What changes during a run: values between their ends, and what each agent hands to collecting and learning."""

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

import xagents
from tests import problems  # noqa: F401
from xagents.collecting.policies import EpsilonGreedyPolicy
from xagents.pipeline.context import Context
from xagents.pipeline.schedules import SCHEDULE_TYPES, Schedule


@pytest.mark.parametrize(
    'kind, values',
    [
        ('constant', [3.0, 3.0, 3.0, 3.0, 3.0]),
        ('linear', [3.0, 2.5, 2.0, 1.0, 1.0]),
        ('cosine', [3.0, 2 + math.sqrt(0.5), 2.0, 1.0, 1.0]),
    ],
)
def test_values_at_the_quarters_and_beyond_the_end(kind, values):
    schedule = Schedule(3.0, kind, 1.0)
    assert [schedule(step, 100) for step in (0, 25, 50, 100, 250)] == pytest.approx(values)


def test_a_length_of_its_own_wins_over_the_runs():
    assert Schedule(1.0, 'linear', 0.0, steps=10)(5, 1000) == 0.5
    assert Schedule(1.0, 'linear', 0.0, steps=10)(5, None) == 0.5
    assert Schedule(1.0, 'linear', 0.0)(5, 1000) == pytest.approx(0.995)


def test_only_what_changes_without_a_length_of_its_own_needs_the_runs():
    assert not Schedule(1.0).needs_length()
    assert Schedule(1.0, 'linear').needs_length() and Schedule(1.0, 'cosine').needs_length()
    assert not Schedule(1.0, 'linear', steps=10).needs_length()


numbers = st.floats(-10, 10)


@given(
    numbers, numbers, st.sampled_from(SCHEDULE_TYPES), st.integers(1, 1000), st.lists(st.integers(0, 2000), min_size=2)
)
def test_a_schedule_goes_from_start_to_end_and_never_back(start, end, kind, length, steps):
    schedule = Schedule(start, kind, end)
    values = [schedule(step, length) for step in sorted(steps)]
    low, high = sorted([start, end])
    assert all(low - 1e-9 <= value <= high + 1e-9 for value in values)
    sign = math.copysign(1, end - start)
    assert all(sign * (b - a) >= -1e-9 for a, b in itertools.pairwise(values))
    assert schedule(0, length) == pytest.approx(start)
    assert schedule(length, length) == pytest.approx(start if kind == 'constant' else end)


# ------------------------------------------------------------------------------------------------- in a run of an agent


def make(name, n_envs=1, **options):
    """An agent that fills its buffer for longer than it runs: nothing is learned, and nothing is compiled."""
    kind = 'Discrete' if name == 'dqn' else 'Box'
    return xagents.make(
        name, 'tests.problems:Identity-v0', n_envs=n_envs, seed=1, net=[4], quiet=True, env_kwargs={'kind': kind},
        **options,
    )  # fmt: skip


@pytest.mark.parametrize('n_envs', [1, 4])
def test_epsilon_falls_by_environment_steps_whatever_their_number(n_envs):
    """By its own length, not by the run's; the value is that of the step an iteration begins at."""
    agent = make('dqn', n_envs, epsilon_start=0.9, epsilon_end=0.1, epsilon_decay_steps=80)
    begun = 0
    for log in agent.train_iter(max_steps=120):
        assert log['stats/epsilon'] == pytest.approx(max(0.9 - 0.8 * begun / 80, 0.1))
        begun = log['steps']
    assert log['stats/epsilon'] == pytest.approx(0.1) and 'stats/beta' not in log


def test_collecting_gets_the_scheduled_epsilon(monkeypatch):
    agent, seen = make('dqn', epsilon_start=0.5, epsilon_end=0.25, epsilon_decay_steps=4), []
    act = EpsilonGreedyPolicy.__call__
    monkeypatch.setattr(
        EpsilonGreedyPolicy, '__call__', lambda *a, epsilon, **k: seen.append(epsilon) or act(*a, epsilon=epsilon, **k)
    )
    for _ in agent.train_iter(max_steps=6):
        pass
    assert seen == pytest.approx([0.5, 0.4375, 0.375, 0.3125, 0.25, 0.25])


def test_beta_reaches_1_with_the_runs_last_step():
    agent = make('dqn', prioritized=True, priority_beta=0.4)
    betas = [log['stats/beta'] for log in agent.train_iter(max_steps=9)]
    assert betas == pytest.approx([0.4 + 0.6 * i / 9 for i in range(9)])
    # a run without an end has no length to anneal over
    assert agent.schedules()['beta'](9, agent.run.schedule_steps) == 1.0
    endless = make('dqn', prioritized=True, priority_beta=0.4)
    assert next(endless.train_iter(max_time=100))['stats/beta'] == 0.4
    own = make('dqn', prioritized=True, priority_beta=0.4, schedule_steps=20)
    assert own.schedules()['beta'](10, own.options.schedule_steps) == pytest.approx(0.7)


@pytest.mark.usefixtures('eager')
def test_replaying_gets_the_scheduled_beta():
    agent = make('dqn', prioritized=True, priority_beta=0.5, buffer_batch_size=2, buffer_initial_size=2)
    seen, sample = [], agent.buffer.sample
    agent.buffer.sample = lambda *a, beta, **k: seen.append(beta) or sample(*a, beta=beta, **k)
    for _ in agent.train_iter(max_steps=5):
        pass
    assert seen == pytest.approx([0.6, 0.7, 0.8, 0.9])


@pytest.mark.parametrize('name', ['ddpg', 'td3'])
def test_the_scale_of_the_noise_is_a_constant_of_the_log(name):
    agent = make(name, step_noise_coef=0.3)
    assert [log['stats/noise'] for log in agent.train_iter(max_steps=3)] == [0.3] * 3


@pytest.mark.usefixtures('eager')
@pytest.mark.parametrize('name', ['dqn', 'ddpg', 'td3'])
def test_the_learning_rate_is_scheduled_and_reaches_every_optimiser(name):
    agent = make(name, lr=0.1, lr_schedule='linear', buffer_initial_size=2, buffer_batch_size=2)
    agent.progress.context = Context(plateau_factor=0.5)
    for log in agent.train_iter(max_steps=4):
        rates = [float(model.optimizer.learning_rate) for model in agent.output_models]
        assert log['learning_rate'] == pytest.approx(0.1 * 0.5 * (1 - (log['steps'] - 1) / 4))
        if log['updates']:
            assert rates == pytest.approx([log['learning_rate']] * len(rates))
    assert log['updates'] > 0
