"""State-dependent exploration in agents: how long its noise stays, and that they learn by it."""

import contextlib

import numpy as np
import pytest
from gymnasium import spaces

import xagents
from tests.commands import refused
from tests.problems import Arbitrary
from xagents.collecting.policies import SamplingPolicy

N = 3


class Still(Arbitrary):
    """Shows the same for ever, so that an action changes with the noise alone."""

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed, options=options)
        return np.ones(2, np.float32), {}

    def step(self, action):
        return np.ones(2, np.float32), *super().step(action)[1:]


def make(name='a2c', actions=None, **options):
    space = spaces.Box(-1, 1, (2,), np.float32)
    actions = actions or spaces.Box(-2, 2, (2,), np.float32)
    return xagents.make(
        name, lambda **_: Still(space, actions), n_envs=N, seed=1, quiet=True, net=[5], **{'sde': True, **options}
    )


@pytest.mark.parametrize('n_steps, frequency', [(10, 3), (10, 1), (10, -1), (10, 64), (9, 3)])
def test_noise_stays_for_so_many_steps_and_is_drawn_anew_with_each_rollout(n_steps, frequency):
    with contextlib.closing(make(n_steps=n_steps, sde_sample_frequency=frequency)) as agent:
        rollouts = [np.array(agent.collect({})['actions']) for _ in range(2)]
    actions = np.concatenate(rollouts)
    changes = (actions[1:] != actions[:-1]).any(-1)  # [2 T - 1, N]
    every = n_steps if frequency == -1 else frequency
    expected = [t % n_steps % every == 0 for t in range(1, 2 * n_steps)]
    np.testing.assert_array_equal(changes, np.repeat(np.array(expected)[:, None], N, 1))
    assert len(np.unique(actions[0], axis=0)) == N, 'each environment has a function of its own'


def test_what_noise_takes_is_said_where_that_is_much(monkeypatch):
    from xagents.base import on_policy

    def said(**options):
        with contextlib.closing(make(n_steps=10, **options)) as agent:
            return [line for line in agent.progress.startup_lines if 'noise' in line]

    assert said(sde_sample_frequency=1) == []
    # ten draws of five features for two actions
    monkeypatch.setattr(on_policy, 'NOISE_REPORT_BYTES', 10 * N * 5 * 2 * 4)
    (line,) = said(sde_sample_frequency=1)
    assert 'noise a rollout: a larger --sde-sample-frequency' in line
    assert said(sde_sample_frequency=2) == said() == []


def test_only_what_differs_is_drawn():
    drawn = []

    class Counting(xagents.A2C):
        def make_policy(self, network):
            policy = super().make_policy(network)

            class Counted(SamplingPolicy):
                def draw_noise(self, rng, shape):
                    drawn.append(super().draw_noise(rng, shape))
                    return drawn[-1]

            policy.__class__ = Counted
            return policy

    with contextlib.closing(make(n_steps=100, sde_sample_frequency=40)) as agent:
        other = Counting(agent.envs, agent.model, n_steps=100, sde=True, sde_sample_frequency=40, seed=1)
        other.collect({})
    assert [noise.shape for noise in drawn] == [(3, N, 5 * 2)]


def test_a_policy_of_ones_own_keeps_the_noise_as_long():
    class Own(xagents.PPO):
        def policy(self, observations, noise, **schedule):
            return super().policy(observations, noise)

    with contextlib.closing(make('ppo')) as agent:
        own = Own(agent.envs, agent.model, n_steps=8, sde=True, sde_sample_frequency=4, seed=1)
        actions = np.array(own.collect({})['actions'])
    assert (actions[:4] == actions[0]).all() and (actions[4:] == actions[4]).all()
    assert (actions[4] != actions[0]).all()


def test_greedy_actions_are_the_mean_and_sampled_ones_have_noise_of_their_own():
    with contextlib.closing(make()) as agent:
        x = np.random.default_rng(0).normal(size=(7, 2)).astype(np.float32)
        mean = agent.model(x)[0].numpy()
        np.testing.assert_allclose(agent.act(x), np.clip(mean, -1, 1) * 2, rtol=1e-5, atol=1e-6)
        same = np.ones((500, 2), np.float32)
        columns = agent.acting_policy(same, agent.acting_policy.draw_noise(np.random.default_rng(0), (500,)))
        deviations = np.exp(columns['log_std'][0])
        np.testing.assert_allclose(columns['actions'].std(0), deviations, rtol=0.15)
        np.testing.assert_allclose(columns['log_std'], agent.model(same)[2], rtol=1e-5, atol=1e-6)
        assert agent.model.outputs[2].shape[-1] == 2


def test_log_std_init_is_the_matrix_that_it_starts_with():
    with contextlib.closing(make(log_std_init=-2)) as agent:
        (matrix,) = (v.numpy() for v in agent.model.trainable_variables if v.name == 'log_std')
        np.testing.assert_array_equal(matrix, np.full((5, 2), -2, np.float32))


@pytest.mark.usefixtures('without_xla')
def test_an_update_is_compiled_once_and_starts_from_the_policy_that_acted():
    with contextlib.closing(make('ppo', n_steps=8, sde_sample_frequency=3, lr=1e-3)) as agent:
        logs = [log for _, log in zip(range(4), agent.train_iter(max_steps=10_000), strict=False)]
        assert agent._update.traces == 1 and agent.actor.traces == 0
        assert all(np.isfinite(log['loss/policy']) and log['stats/refused'] == 0 for log in logs)
        # the ratio begins at 1: NumPy's density is the update's
        batch = agent.collect({})
        x = batch['observations'][:-1].reshape(-1, 2)
        policy = [batch[part].reshape(-1, 2) for part in ('mean', 'log_std')]
        actions = batch['actions'].reshape(-1, 2)
        mean, _, log_std = agent.model(x)
        densities = [agent.distribution.log_prob(given, actions) for given in (policy, [mean, log_std])]
        np.testing.assert_allclose(*densities, rtol=1e-3, atol=1e-3)


def test_a_file_with_a_log_std_of_its_own_is_refused(folder):
    (folder / 'own.cfg').write_text(
        '[dense-0]\nunits=4\ncommon=1\n[dense-1]\noutput=1\n[log-std-0]\ninit=0\n[dense-2]\noutput=1\n'
    )
    line = refused('a2c', 'Pendulum-v1', {'model': 'own.cfg', 'sde': True})
    assert '--sde: got a network with its own log-std' in line
    assert [path.name for path in folder.iterdir()] == ['own.cfg']


@pytest.mark.slow
@pytest.mark.usefixtures('without_xla')
def test_ppo_learns_by_it():
    """A random policy earns about −10."""
    agent = xagents.make(
        'ppo', 'tests.problems:Identity-v0', n_envs=8, seed=2, gamma=0.5, n_steps=16, net=[32], quiet=True, lr=5e-3,
        env_kwargs={'kind': 'Box'}, sde=True, sde_sample_frequency=4, log_std_init=-1.0, entropy_coef=0.001,
        sde_expln=True,
    )  # fmt: skip
    with contextlib.closing(agent):
        agent.fit(max_steps=10_000)
        assert agent.evaluate(episodes=20)['mean'] > -1.0
