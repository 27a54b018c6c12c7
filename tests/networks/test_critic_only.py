"""Observations of which only critics receive some parts."""

import contextlib

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

import xagents
from tests.commands import execute
from xagents.envs.create import create_envs
from xagents.envs.spaces import Encoding, ObservationEncoder
from xagents.export.write import export
from xagents.networks.cfg import dense_network, parse_text
from xagents.networks.description import with_actor_part
from xagents.options.errors import OptionError

HIDDEN = 'tests.privileged_problems:HiddenBonus-v0'
SMALL = {'n_envs': 2, 'net': [8], 'seed': 1, 'quiet': True, 'critic_only': ['bonus']}
AGENTS = {'a2c': {}, 'ppo': {}, 'trpo': {}, 'ddpg': {}, 'td3': {}, 'sac': {}, 'tqc': {}, 'crossq': {}}
DISCRETE = {'ppo': {}, 'acer': {}, 'sac': {}}


def make(agent_id, discrete=False, **options):
    return xagents.make(agent_id, HIDDEN, env_kwargs={'discrete': discrete}, **{**SMALL, **options})


def critics_of(agent):
    """Return functions from observations [N, 2] to outputs of the critics of an agent."""
    if hasattr(agent, 'critic_models'):
        n = 0 if agent.critic_models[0].input_shape[-1] == 2 else agent.n_actions

        def of(critic):
            return lambda x: np.array(critic(np.concatenate([x, np.zeros((len(x), n), np.float32)], 1)))

        return [of(critic) for critic in agent.critic_models]
    return [lambda x: np.array(agent.critic(x) if hasattr(agent, 'critic') else agent.model(x)[1])]


@pytest.mark.parametrize(
    ('agent_id', 'discrete'), [*((name, False) for name in AGENTS), *((name, True) for name in DISCRETE)]
)
def test_the_actor_does_not_depend_on_parts_that_its_critic_depends_on(agent_id, discrete):
    agent = make(agent_id, discrete)
    assert agent.envs.actor_shape == (1,) and agent.envs.network_shape == (2,)
    assert list(agent.envs.encoder.slices()) == ['goal', 'bonus']
    observations = np.random.default_rng(0).normal(size=(20, 2)).astype(np.float32)
    for model in agent.output_models:  # the last layers of policies begin near 0
        model.set_weights([np.full_like(w, 0.1) + w for w in model.get_weights()])
    agent.refresh()
    others = observations + np.array([0, 3], np.float32)
    moved = observations + np.array([3, 0], np.float32)
    before, after, elsewhere = (np.array(agent.actor(x)[0]) for x in (observations, others, moved))
    np.testing.assert_array_equal(before, after)
    assert np.abs(before - elsewhere).max() > 1e-4
    for critic in critics_of(agent):
        assert np.abs(critic(observations) - critic(others)).max() > 1e-4


def test_observations_for_acting_may_lack_the_parts_for_critics(tmp_path):
    with contextlib.closing(make('ppo', normalize_obs=True)) as agent:
        agent.fit(max_steps=100, final_episodes=0)
        whole = {'bonus': np.full((3, 1), 7, np.float32), 'goal': np.array([[-1], [0], [1]], np.float32)}
        goal = {'goal': whole['goal']}
        agent.save(tmp_path / 'run')
        policy = xagents.policy(tmp_path / 'run')
        for acting in (agent.act, policy):
            np.testing.assert_array_equal(acting(whole), acting(goal))
            one = acting({'goal': whole['goal'][0]})
            assert one.shape == (1,)
            np.testing.assert_array_equal(one, acting(goal)[0])
            np.testing.assert_array_equal(acting([{'goal': x} for x in whole['goal']]), acting(goal))
            with pytest.raises(ValueError, match='lacks goal'):
                acting({'bonus': whole['bonus']})
        export(agent, 'numpy', tmp_path / 'numpy')
        assert '"bonus"' not in (tmp_path / 'numpy' / 'policy.json').read_text()


def test_masks_and_parts_for_critics_together():
    space = spaces.Dict(
        action_mask=spaces.MultiBinary(2),
        b=spaces.Discrete(3),
        z=spaces.Box(0, 255, (2,), np.uint8),
        c=spaces.Discrete(2),
    )
    encoder = ObservationEncoder(space, Encoding(critic_only=('z', 'b')))
    assert encoder.slices() == {'c': slice(0, 2), 'z': slice(2, 4), 'b': slice(4, 7), 'action_mask': slice(7, 9)}
    assert (encoder.n_critic_only, encoder.n_mask) == (5, 2)
    observations = {'action_mask': np.array([[0, 1]]), 'c': np.array([1])}
    np.testing.assert_array_equal(encoder(observations), [[0, 1, 0, 0, 0, 0, 0, 0, 1]])

    class Env(gymnasium.Env):
        observation_space, action_space = space, spaces.Discrete(2)

        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            return {**space.sample(), 'action_mask': np.array([0, 1], np.int8)}, {}

        def step(self, action):
            assert action == 1
            return self.reset()[0], 1.0, False, True, {}

    agent = xagents.make('ppo', Env, **{**SMALL, 'critic_only': ['z', 'b']}, n_steps=4)
    with contextlib.closing(agent):
        agent.fit(max_steps=20, final_episodes=0)
        assert (agent.envs.actor_shape, agent.envs.network_shape) == ((2,), (7,))


def test_an_actor_that_shares_layers_is_refused(tmp_path, folder):
    part = with_actor_part(dense_network([4, 4]), 3)
    assert part.shapes((5,), [2, 1])['dense-actor-0'] == (4,)
    assert [layer.source for layer in part.layers if layer.name.endswith('-0')] == ['part-actor', 'input']
    shared = dense_network([4], shared=True)
    with pytest.raises(ValueError, match=r'\[dense-0\] leads to the actor and to the critic, expected separate layers'):
        with_actor_part(shared, 3)
    text = '[dense-a]\nunits=4\ncommon=1\n[dense-actor]\noutput=1\n[dense-critic]\noutput=1\n'
    parse_text(text)
    (tmp_path / 'own.cfg').write_text(text)
    code, _, stderr = execute(
        *f'train ppo --env {HIDDEN} --critic-only bonus --model {tmp_path}/own.cfg --max-steps 100'.split()
    )
    assert code == 2 and '--critic-only: ' in stderr and 'leads to the actor and to the critic' in stderr


@pytest.mark.parametrize(
    ('words', 'expected'),
    [
        ('ppo --critic-only bonsu', 'got bonsu, but the observation space is Dict'),
        ('ppo --critic-only bonus goal', 'got all parts of the observation, bonus, goal, expected some'),
        ('ppo --critic-only bonus --shared-network', 'cannot be used with --shared-network: actor and critic receive'),
        ('dqn --critic-only bonus', 'got bonus, but dqn has no actor with a critic, expected one of a2c, acer'),
        ('pqn --critic-only bonus', 'got bonus, but pqn has no actor with a critic'),
        ('rainbow --critic-only bonus', 'got bonus, but rainbow has no actor with a critic'),
        ('ppo --env CartPole-v1 --critic-only x', 'got x, but the observation space is Box'),
    ],
)
def test_wrong_keys_are_one_line(words, expected, folder):
    words = words if '--env' in words else f'{words} --env {HIDDEN}'
    code, _, stderr = execute('train', *words.split(), '--max-steps', '100')
    assert code == 2 and stderr.startswith('xagents train: --critic-only: ') and expected in stderr, stderr
    assert stderr.count('\n') == 1
    if 'bonsu' in words:
        assert 'did you mean bonus?' in stderr


def test_several_agents_refuse_parts_for_critics():
    with pytest.raises(OptionError, match=r'critic_only: got x, but Walks has several agents'):
        from tests.team_problems import Walks

        create_envs(Walks, 1, critic_only=['x'])
