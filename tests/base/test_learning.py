"""Learning tests of seconds: environments whose best policy, or whose value, is known."""

import numpy as np
import pytest

import xagents
from tests import problems
from tests.agents.contract import learn, lesson, make_values_constant

# plain graphs compile faster than XLA's learn here; what is compiled is compared in tests/agents
pytestmark = pytest.mark.usefixtures('without_xla_in_module')


@pytest.mark.usefixtures('eager')
def test_a_truncated_episode_is_worth_what_would_have_come():
    """Reward 1 for ever, cut every 5 steps: a critic that says 1 / (1 − γ) = 10 makes no error."""
    options = {'gamma': 0.9, 'n_steps': 16, 'net': [4], 'ppo_epochs': 1, 'mini_batches': 1, 'normalize_reward': False}
    agent = xagents.make('ppo', problems.ConstantVector(8, length=5), seed=1, quiet=True, **options)
    make_values_constant(agent, 10.0)
    batch, schedule = lesson(agent)
    assert batch['truncated'].any() and not batch['valid'].all()
    assert learn(agent, batch, schedule)['loss/value'] == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize(
    'name, lr, steps, kind',
    [pytest.param('a2c', 1e-2, 12_000, 'Box', marks=pytest.mark.slow), ('ppo', 5e-3, 8_000, 'MultiDiscrete')],
)
def test_identity(name, lr, steps, kind):
    agent = xagents.make(
        name, 'tests.problems:Identity-v0', n_envs=8, seed=2, gamma=0.5, lr=lr, n_steps=16, net=[32],
        entropy_coef=0.001, log_std_init=-1.0, env_kwargs={'kind': kind},
    )  # fmt: skip
    agent.fit(max_steps=steps, quiet=True)
    reached = agent.evaluate(episodes=20)['mean']
    assert reached > (-1.0 if kind == 'Box' else 9.5)


@pytest.mark.slow
@pytest.mark.parametrize('name, seed, target', [('ppo', 1, 195), ('ppo', 2, 195), ('ppo', 3, 195), ('a2c', 1, 150)])
def test_cartpole(name, seed, target):
    agent = xagents.make(name, 'CartPole-v1', n_envs=16, seed=seed)
    agent.fit(target_reward=target, max_steps=300_000, quiet=True)
    assert agent.run.stop_reason == 'target'
    assert agent.evaluate(episodes=20)['mean'] > target


@pytest.mark.slow
def test_ppo_learns_pendulum_with_normalisation():
    """A random policy earns about −1200."""
    agent = xagents.make(
        'ppo', 'Pendulum-v1', n_envs=8, seed=1, gamma=0.9, lr=1e-3, n_steps=256, ppo_epochs=10, mini_batches=8,
        entropy_coef=0.0, clip_norm=0.2, normalize_obs=True, normalize_reward=True,
    )  # fmt: skip
    agent.fit(max_steps=100_000, quiet=True)
    assert agent.evaluate(episodes=20)['mean'] > -600


RECALL = {
    'ppo': ({'n_envs': 16, 'n_steps': 64, 'lr': 3e-3}, 40_000),
    'a2c': ({'n_envs': 16, 'n_steps': 16, 'lr': 3e-3}, 100_000),
    'pqn': ({'n_envs': 16, 'n_steps': 32, 'lr': 2e-3, 'epsilon_decay_steps': 50_000}, 80_000),
    'dqn': (
        {
            **{'n_envs': 8, 'lr': 1e-3, 'epsilon_decay_steps': 20_000, 'double': True, 'buffer_max_size': 50_000},
            **{'buffer_initial_size': 1000, 'train_frequency': 64, 'gradient_steps': 8, 'target_sync_steps': 500},
        },
        50_000,
    ),
}


@pytest.mark.parametrize(
    'name', ['ppo', *(pytest.param(name, marks=pytest.mark.slow) for name in ('a2c', 'pqn', 'dqn'))]
)
def test_agents_with_memory_recall_a_cue_of_the_first_observation(name):
    """Without memory, the best mean is 0.5."""
    options, steps = RECALL[name]
    env = {'env': 'tests.memory_problems:Recall-v0', 'env_kwargs': {'delay': 10}}
    agent = xagents.make(name, **env, seed=1, net=[32], memory=32, **options)
    agent.fit(max_steps=steps, quiet=True, final_episodes=0)
    assert agent.evaluate(episodes=50)['mean'] > 0.95


# ----------------------------------------------------------------------------------------------------------- off-policy


def make_off_policy(name, problem, kwargs, **options):
    """Eight environments, an update for each four steps or so; plain graphs compile faster than they learn here."""
    return xagents.make(
        name, f'tests.problems:{problem}-v0', n_envs=8, quiet=True, env_kwargs=kwargs,
        **{'seed': 1, 'lr': 5e-3, 'buffer_initial_size': 200, 'train_frequency': 32, 'gradient_steps': 8, **options},
    )  # fmt: skip


def test_dqn_learns_identity():
    """A random policy earns 3.3."""
    options = {'normalize_obs': True, 'huber': True, 'double': True, 'dueling': True, 'prioritized': True, 'n_step': 3}
    agent = make_off_policy('dqn', 'Identity', {}, gamma=0.5, net=[32], epsilon_decay_steps=500, **options)
    agent.fit(max_steps=1_000)
    assert agent.evaluate(episodes=20)['mean'] > 9.5


@pytest.mark.slow
def test_dqn_learns_from_images():
    agent = make_off_policy(
        'dqn', 'Identity', {'image': True}, gamma=0.5, lr=1e-3, epsilon_decay_steps=500, buffer_batch_size=16,
        gradient_steps=4,
    )  # fmt: skip
    agent.fit(max_steps=700)
    assert agent.evaluate(episodes=10)['mean'] > 9.0


@pytest.mark.parametrize(
    'name, noise', [pytest.param('ddpg', 'ornstein-uhlenbeck', marks=pytest.mark.slow), ('td3', 'gaussian')]
)
def test_ddpg_and_td3_learn_identity(name, noise):
    """A random policy earns about −6, the best constant one −3.75."""
    agent = make_off_policy(
        name, 'Identity', {'kind': 'Box'}, gamma=0.5, net=[32], tau=0.05, noise=noise, normalize_obs=name == 'td3'
    )
    agent.fit(max_steps=1_200)
    assert agent.evaluate(episodes=20)['mean'] > -0.4


@pytest.mark.parametrize(
    'end, best, values',
    [('truncate', 0, [10.0, 6.0]), pytest.param('terminate', 1, [4.6, 6.0], marks=pytest.mark.slow)],
)
def test_dqn_waits_where_a_time_limit_is_no_end(end, best, values):
    """The values are worked out in `Patience`; all actions are random, so that its shares hold."""
    agent = make_off_policy(
        'dqn', 'Patience', {'end': end}, gamma=0.9, lr=2e-2, net=[8], epsilon_start=1.0, epsilon_end=1.0,
        buffer_initial_size=500, buffer_batch_size=64, gradient_steps=16, target_sync_steps=32,
    )  # fmt: skip
    agent.fit(max_steps=1_500)
    shown = np.ones((1, 1), np.float32)
    assert agent.act(shown)[0] == best
    np.testing.assert_allclose(agent.model(shown)[0], values, atol=0.5)


def test_sums_of_three_rewards_are_worth_the_same():
    """Reward 1 for ever, cut every 5 steps: 10 whatever is done, also where the cut falls within the three."""
    agent = make_off_policy(
        'dqn', 'Constant', {}, gamma=0.9, lr=2e-2, net=[8], n_step=3, gradient_steps=16, target_sync_steps=32
    )
    agent.fit(max_steps=900)
    np.testing.assert_allclose(agent.model(np.ones((1, 1), np.float32))[0], [10, 10], atol=0.5)
