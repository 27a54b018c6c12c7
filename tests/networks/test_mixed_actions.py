"""Product distributions of mixed actions, their decoders, and agents that learn with them."""

import contextlib

import gymnasium
import numpy as np
import pytest
import tensorflow as tf
from gymnasium import spaces
from gymnasium.vector.utils import concatenate, create_empty_array

import xagents
from tests.commands import execute
from tests.mixed_problems import NESTINGS, STEPS, Mixed
from xagents.envs.spaces import ActionDecoder
from xagents.networks.distributions import distribution_for
from xagents.networks.sampling import sampler_for
from xagents.options.errors import OptionError
from xagents.system.trees import leaf_at, leaf_spaces, map_tree

IDENTITY, TOOLS = 'tests.mixed_problems:Mixed-v0', 'tests.mixed_problems:Tools-v0'
SMALL = {'n_envs': 2, 'net': [8], 'seed': 1, 'quiet': True}
every = pytest.mark.parametrize('name', NESTINGS)


def random_outputs(distribution, n=6, seed=0):
    rng = np.random.default_rng(seed)
    return [rng.normal(size=(n, units)).astype(np.float32) for units in distribution.parameter_units]


@every
def test_log_probability_entropy_and_divergence_are_sums_over_the_leaves(name):
    distribution = distribution_for(NESTINGS[name])
    outputs, others = random_outputs(distribution), random_outputs(distribution, seed=1)
    noise = distribution.draw_noise(np.random.default_rng(2), (6,))
    actions = distribution.sample(outputs, noise)
    assert actions.shape == (6, *distribution.action_shape) and actions.dtype == np.float32
    sums, at, mean_at = np.zeros((3, 6)), 0, 0
    leaves = [(leaf, distribution_for(leaf)) for _, leaf in leaf_spaces(NESTINGS[name])]
    # continuous leaves have the first units
    starts, place = {}, 0
    for i, (_, own) in sorted(enumerate(leaves), key=lambda item: not item[1][1].has_log_std):
        starts[i], place = place, place + own.n_units
    for i, (_, own) in enumerate(leaves):
        size = int(np.prod(own.action_shape))
        taken = actions[:, at : at + size].reshape(6, *own.action_shape).astype(own.action_dtype)
        at += size
        units = slice(starts[i], starts[i] + own.n_units)
        first, second = ([x[0][:, units]] for x in (outputs, others))
        if own.has_log_std:
            first.append(outputs[1][:, units])
            second.append(others[1][:, units])
            mean_at += own.n_units
        np.testing.assert_array_equal(taken, own.sample(first, noise[:, units]))
        sums += [own.log_prob(first, tf.constant(taken)), own.entropy(first), own.kl(first, second)]
    assert mean_at == distribution.n_log_std and at == actions.shape[1]
    got = distribution.log_prob(outputs, actions), distribution.entropy(outputs), distribution.kl(outputs, others)
    np.testing.assert_allclose(np.stack(got), sums, rtol=1e-5, atol=1e-5)


@every
def test_decoded_actions_are_in_the_space_and_the_inverse_returns_them(name):
    space = NESTINGS[name]
    decoder, sampler = ActionDecoder(space), sampler_for(space)
    actions = sampler.draw_random(np.random.default_rng(0), (20,)).clip(-1, None)
    decoded = decoder(actions)
    for i in range(20):
        assert space.contains(map_tree(lambda leaf, i=i: leaf[i], decoded))
    space.seed(1)
    samples = [space.sample() for _ in range(20)]
    for batch in (decoded, concatenate(space, samples, create_empty_array(space, n=20))):
        again = decoder(decoder.inverse(batch))
        for path, _ in leaf_spaces(space):
            np.testing.assert_allclose(leaf_at(again, path), leaf_at(batch, path), rtol=1e-5, atol=1e-5)


@pytest.mark.usefixtures('eager')
@pytest.mark.parametrize('vector', ['sync', 'async'])
@every
def test_agents_act_in_every_nesting(name, vector):
    if vector == 'async' and name != 'nested':
        pytest.skip('one nesting is enough for worker processes')
    agent = xagents.make('a2c', IDENTITY, env_kwargs={'nesting': name}, n_steps=4, vector=vector, **SMALL)
    with contextlib.closing(agent):
        agent.fit(max_steps=40, final_episodes=0)
        observation = agent.envs.encoder.raw_space.sample()
        assert NESTINGS[name].contains(agent.act(observation)) and NESTINGS[name].contains(
            agent.act(observation, greedy=False)
        )
        many = agent.act(np.stack([observation] * 3))
        for path, leaf in leaf_spaces(NESTINGS[name]):
            assert leaf_at(many, path).shape == (3, *leaf.shape)
        assert agent.evaluate(episodes=2)['length'] == STEPS


def test_log_standard_deviations_belong_to_the_numbers_only():
    agent = xagents.make('ppo', IDENTITY, log_std_init=-0.5, **SMALL)
    assert [output.shape[1] for output in agent.model.outputs] == [2 + 2 + 3 + 4 + 2, 1, 2]
    outputs = agent.actor(np.zeros((1, agent.input_shape[0]), np.float32))
    np.testing.assert_allclose(outputs[1], -0.5)
    agent = xagents.make('ppo', IDENTITY, env_kwargs={'nesting': 'no numbers'}, **SMALL)
    assert [output.shape[1] for output in agent.model.outputs] == [7, 1]


@pytest.mark.parametrize(
    ('agent_id', 'expected'),
    [
        ('dqn', 'has Dict actions, dqn accepts Discrete ones'),
        ('ddpg', 'has Dict actions, ddpg accepts Box ones'),
        ('td3', 'has Dict actions, td3 accepts Box ones'),
        ('sac', 'has Dict actions, sac accepts Box ones'),
        ('tqc', 'has Dict actions, tqc accepts Box ones'),
        ('crossq', 'has Dict actions, crossq accepts Box ones'),
        ('pqn', 'has Dict actions, pqn accepts Discrete ones'),
        ('rainbow', 'has Dict actions, rainbow accepts Discrete ones'),
        ('acer', 'ACER accepts Discrete'),
        ('ppo --sde', '--sde: got true, but tests.mixed_problems:Mixed-v0 has actions of Dict'),
    ],
)
def test_agents_that_do_not_support_mixed_actions_say_so(agent_id, expected, folder):
    code, _, stderr = execute('train', *agent_id.split(), '--env', IDENTITY, '--max-steps', '100')
    assert code == 2 and stderr.count('\n') == 1 and expected in stderr, stderr


class NoSize(gymnasium.Env):
    """Actions without a fixed size, or without any part."""

    observation_space = spaces.Box(-1, 1, (2,))

    def __init__(self, actions):
        self.action_space = actions

    def reset(self, *, seed=None, options=None):
        return np.zeros(2, np.float32), {}


@pytest.mark.parametrize(
    'actions', [spaces.Tuple((spaces.Discrete(2), spaces.Sequence(spaces.Discrete(2)))), spaces.Dict({})]
)
def test_parts_of_no_fixed_size_are_refused(actions):
    with pytest.raises((ValueError, OptionError), match=r'action space') as error:
        xagents.make('ppo', lambda: NoSize(actions), net=[4])
    assert '\n' not in str(error.value)


def test_ppo_chooses_the_tool_and_its_angle():
    """Each half earns less: the tool without its angle 7 at most, the angle of one tool 3.4."""
    options = {'n_envs': 8, 'n_steps': 32, 'net': [32], 'lr': 3e-3, 'gamma': 0.5, 'seed': 1, 'quiet': True}
    with contextlib.closing(xagents.make('ppo', TOOLS, **options)) as agent:
        agent.fit(max_steps=20_000, final_episodes=0)
        assert agent.evaluate(episodes=20)['mean'] > 9


def test_identity_is_a_gymnasium_environment():
    env = Mixed('nested')
    observation, _ = env.reset(seed=1)
    assert env.observation_space.contains(observation)
