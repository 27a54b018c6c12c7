"""SAC, TQC and CrossQ with data sets and hindsight, which they inherit."""

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

import xagents

FAMILY = ['sac', 'tqc', 'crossq']
SMALL = {'net': [16], 'buffer_batch_size': 16, 'seed': 1}


@pytest.fixture(scope='module')
def pendulum(tmp_path_factory):
    """A recorded data set of random actions in Pendulum-v1."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv('MINARI_DATASETS_PATH', str(tmp_path_factory.mktemp('datasets')))
        agent = xagents.make('td3', 'Pendulum-v1', n_envs=4, seed=3, net=[8])
        xagents.record(agent, 'pendulum/random-v0', episodes=4, random_actions=1.0, seed=2, say=lambda line: None)
        yield 'pendulum/random-v0'


@pytest.mark.usefixtures('eager')
@pytest.mark.parametrize('agent_id', FAMILY)
def test_a_buffer_begins_with_recorded_transitions(agent_id, pendulum):
    agent = xagents.make(agent_id, 'Pendulum-v1', train_frequency=8, gradient_steps=2, buffer_initial_size=100, **SMALL)
    log = next(agent.train_iter(max_steps=8, fill_from=pendulum))
    assert agent.buffer.stored == 4 * 200 + 8 and log['updates'] > 0, 'learns at once'


@pytest.mark.usefixtures('eager')
@pytest.mark.parametrize('agent_id', FAMILY)
def test_a_data_set_is_all_that_is_learned_from(agent_id, pendulum):
    agent = xagents.make(agent_id, dataset=pendulum, gradient_steps=3, **SMALL)
    before = [w.copy() for w in agent.actor_model.get_weights()]
    logs = list(agent.train_iter(max_steps=6, eval_frequency=1000))
    assert [log['updates'] for log in logs] == [3, 6] and np.isfinite(logs[-1]['loss/value'])
    assert any((a != b).any() for a, b in zip(before, agent.actor_model.get_weights(), strict=True))


class Reach(gymnasium.Env):
    """A point on a line that should move to a goal in 20 steps; the reward is 0 at the goal, otherwise −1."""

    def __init__(self):
        place = spaces.Box(-1, 1, (1,), np.float32)
        self.observation_space = spaces.Dict(observation=place, achieved_goal=place, desired_goal=place)
        self.action_space = spaces.Box(-1, 1, (1,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place, self.goal = self.np_random.uniform(-1, 1, (2, 1)).astype(np.float32)
        self.steps = 0
        return self.observation(), {}

    def observation(self):
        return {'observation': self.place.copy(), 'achieved_goal': self.place.copy(), 'desired_goal': self.goal.copy()}

    def step(self, action):
        self.place = np.clip(self.place + np.float32(0.2) * action, -1, 1).astype(np.float32)
        self.steps += 1
        reward = float(self.compute_reward(self.place, self.goal, {}))
        return self.observation(), reward, False, self.steps == 20, {}

    def compute_reward(self, achieved, desired, info):
        return -(np.abs(np.asarray(achieved) - np.asarray(desired)) > 0.1).astype(np.float32)[..., 0]


@pytest.mark.parametrize('agent_id', FAMILY)
def test_hindsight_replaces_goals(agent_id):
    shares = []
    for her in (True, False):  # nothing is learned yet
        agent = xagents.make(agent_id, Reach, n_envs=2, her=her, buffer_initial_size=1000, **SMALL)
        agent.fit(max_steps=200, quiet=True)
        batch = agent.buffer.sample(30, np.random.default_rng(0))
        shares.append(float((batch['rewards'] == 0).mean()))
    assert shares[0] > shares[1] + 0.1, 'goals that were reached later give rewards of 0'


def test_sac_learns_to_reach_goals_by_hindsight():
    options = {'her': True, 'train_frequency': 8, 'buffer_initial_size': 200, 'lr': 0.003, 'net': [32, 32]}
    agent = xagents.make('sac', Reach, n_envs=4, **{**SMALL, **options, 'buffer_batch_size': 64})
    agent.fit(max_steps=3000, quiet=True)
    assert agent.evaluate(episodes=20, seed=5)['mean'] > -8
