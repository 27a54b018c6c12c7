"""Learning tests of seconds: environments whose best policy, or whose value, is known."""

import gymnasium
import numpy as np
import pytest

import xagents
from tests import problems


def constant_envs(kind, **kwargs):
    """The same environment behind each kind of vector."""
    name = 'tests.problems:Constant-v0'
    if kind == 'list':
        return [gymnasium.make(name, **kwargs) for _ in range(8)]
    if kind == 'native':
        return problems.ConstantVector(8, **kwargs)
    if kind == 'gymnasium':
        return gymnasium.make_vec(name, 8, 'sync', **kwargs)
    return xagents.create_envs(name, 8, vector=kind, env_kwargs=kwargs)


@pytest.mark.parametrize('kind', ['sync', 'async', 'list', 'gymnasium', 'native'])
def test_a_truncated_episode_is_worth_what_would_have_come(kind):
    """Reward 1 for ever, cut every 5 steps: the value is 1 / (1 − γ) = 10; taken for ends it would be below 5."""
    steps = 6_000 if kind == 'async' else 20_000
    agent = xagents.make('ppo', constant_envs(kind, length=5), seed=1, gamma=0.9, lr=3e-3, n_steps=16, net=[16])
    agent.fit(max_steps=steps, quiet=True)
    value = float(agent.critic(np.ones((1, 1), np.float32))[0, 0])
    agent.close()
    assert abs(value - 10) < 1.0


@pytest.mark.parametrize('name', ['a2c', 'ppo'])
def test_a_terminated_episode_is_worth_what_was_earned(name):
    """It ends with probability 1 / 4 a step: the value is 1 / (1 − 0.9 · 0.75)."""
    agent = xagents.make(
        name, 'tests.problems:Constant-v0', n_envs=8, seed=1, gamma=0.9, lr=2e-3, n_steps=16, net=[16],
        env_kwargs={'length': 1000, 'p': 0.25},
    )  # fmt: skip
    agent.fit(max_steps=40_000, quiet=True)
    value = float(agent.critic(np.ones((1, 1), np.float32))[0, 0])
    assert abs(value - 1 / (1 - 0.9 * 0.75)) < 0.4


@pytest.mark.parametrize('kind', ['Discrete', 'MultiDiscrete', 'MultiBinary', 'Box'])
@pytest.mark.parametrize('name', ['a2c', 'ppo'])
def test_identity(name, kind):
    agent = xagents.make(
        name, 'tests.problems:Identity-v0', n_envs=8, seed=2, gamma=0.5, lr=5e-3, n_steps=16, net=[32],
        entropy_coef=0.001, log_std_init=-1.0, env_kwargs={'kind': kind},
    )  # fmt: skip
    agent.fit(max_steps=40_000, quiet=True)
    reached = agent.evaluate(episodes=20)['mean']
    assert reached > (-1.0 if kind == 'Box' else 9.5)


def test_images():
    agent = xagents.make(
        'ppo', 'tests.problems:Identity-v0', n_envs=8, seed=1, gamma=0.5, lr=1e-3, n_steps=32,
        env_kwargs={'image': True}, normalize_obs=False,
    )  # fmt: skip
    agent.fit(max_steps=6_000, quiet=True)
    assert agent.evaluate(episodes=10)['mean'] > 9.0


@pytest.mark.parametrize('seed', [1, 2, 3])
def test_ppo_learns_cartpole(seed):
    agent = xagents.make('ppo', 'CartPole-v1', n_envs=16, seed=seed)
    agent.fit(target_reward=195, max_steps=150_000, quiet=True)
    assert agent.stopped == 'target'
    assert agent.evaluate(episodes=20)['mean'] > 195


def test_a2c_learns_cartpole():
    agent = xagents.make('a2c', 'CartPole-v1', n_envs=16, seed=1)
    agent.fit(target_reward=150, max_steps=300_000, quiet=True)
    assert agent.stopped == 'target'


def test_ppo_learns_pendulum_with_normalisation():
    """A random policy earns about −1200."""
    agent = xagents.make(
        'ppo', 'Pendulum-v1', n_envs=8, seed=1, gamma=0.9, lr=1e-3, n_steps=256, ppo_epochs=10, mini_batches=8,
        entropy_coef=0.0, clip_norm=0.2, normalize_obs=True, normalize_reward=True,
    )  # fmt: skip
    agent.fit(max_steps=100_000, quiet=True)
    assert agent.evaluate(episodes=20)['mean'] > -600
