"""Models that are compiled with an optimizer: their learning rate is that of the agent, and no other one."""

import contextlib

import keras
import pytest

import xagents
from xagents.registry.agents import find_agent

RATE = 0.013
ENVIRONMENTS = {'ppo': 'CartPole-v1', 'a2c': 'CartPole-v1', 'dqn': 'CartPole-v1', 'pqn': 'CartPole-v1'}


@pytest.mark.parametrize('agent_id', ['a2c', 'ppo', 'dqn', 'pqn', 'ddpg', 'td3', 'sac', 'tqc', 'crossq'])
def test_the_learning_rate_is_that_of_the_models(agent_id):
    env = ENVIRONMENTS.get(agent_id, 'Pendulum-v1')
    with contextlib.closing(xagents.make(agent_id, env, net=[4], seed=1)) as made:
        models = [keras.models.clone_model(model) for model in made.output_models]
    for model in models:
        model.compile(keras.optimizers.Adam(RATE))
    agent = find_agent(agent_id).agent(xagents.create_envs(env, 1), *models, seed=1)
    with contextlib.closing(agent):
        assert agent.options.lr == pytest.approx(RATE)
        assert agent.schedules()['learning_rate'](0, None) == pytest.approx(RATE)
        steps = getattr(agent, 'network_steps', None) or [agent.step]
        for step in steps:
            step.set_rate(RATE)
            assert float(step.optimizer.learning_rate) == pytest.approx(RATE)
