"""A run that was stopped and goes on is, to the bit, the run that was never stopped.

`tests/agents` tests this for each agent; the tests here add hindsight, state-dependent noise and plateaus.
"""

import pytest

import xagents
from tests.runs.folders import assert_same_run, stopped_in_the_middle
from xagents.factory.load import resume

SETTINGS = {
    'hindsight': {
        **{'agent_id': 'dqn', 'env': 'benchmarks.envs.bits:BitFlip-v0', 'her': True, 'n_envs': 2, 'net': [16]},
        **{'buffer_initial_size': 50, 'buffer_max_size': 150, 'train_frequency': 16},
        **{'divergence_monitoring_steps': 1, 'plateau_reduce_patience': 1, 'early_stop_patience': 1000},
    },
    'state-dependent': {
        **{'agent_id': 'ppo', 'env': 'Pendulum-v1', 'normalize_obs': True, 'n_envs': 4, 'n_steps': 8, 'net': [16]},
        **{'sde': True, 'sde_sample_frequency': 3, 'max_episode_steps': 30},
    },
}
STEPS = 160
pytestmark = pytest.mark.usefixtures('without_xla_in_module')


def train(folder, agent_id):
    agent = xagents.make(**{'agent_id': agent_id, 'schedule_steps': 2 * STEPS, 'seed': 7, **SETTINGS[agent_id]})
    agent.fit(max_steps=2 * STEPS, run_dir=str(folder), checkpoint_frequency=STEPS, quiet=True, save_seconds=1.0)
    agent.close()


@pytest.mark.parametrize('name', ['hindsight', pytest.param('state-dependent', marks=pytest.mark.slow)])
def test_a_run_killed_in_the_middle_goes_on_as_if_it_had_never_stopped(name, tmp_path):
    whole, killed = tmp_path / 'whole', tmp_path / 'killed'
    train(whole, name)
    step = stopped_in_the_middle(whole, killed)
    agent = resume(killed)
    assert agent.steps == step < 2 * STEPS
    agent.fit()
    agent.close()
    assert agent.steps >= 2 * STEPS
    assert_same_run(whole, killed)
