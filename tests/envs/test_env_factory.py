"""The factory of environments: JSON for names and specs, a pickle for code of a script, and clear errors."""

import dataclasses
import inspect
import json
import pickle

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import SyncVectorEnv

from tests import environments
from xagents.envs import env_factory
from xagents.envs.create import as_envs, create_envs
from xagents.envs.env_factory import EnvFactory, envs_from_bytes, factory_to_bytes
from xagents.options.declaration import declared_options
from xagents.options.environment import EnvironmentOptions
from xagents.options.errors import OptionError

COUNTER = 'tests.environments:Counter-v0'
PONG = {'frame_stack': 2, 'sticky_actions': True, 'episodic_life': False, 'preprocess': True}


def over_json(factory):
    return EnvFactory.from_dict(json.loads(json.dumps(factory.to_dict())))


@pytest.mark.parametrize(
    'arguments',
    [
        {'env': 'CartPole-v1'},
        {'env': 'ALE/Pong-v5', **PONG},
        {'env': COUNTER, 'n_envs': np.int64(3), 'env_kwargs': {'length': 2}, 'max_episode_steps': 5},
        {'env': COUNTER, 'wrapper': 'tests.environments:Scaled', 'imports': ['tests.environments']},
        {'env': 'tests.environments:Counter', 'render_mode': 'rgb_array', 'vector': 'async'},
        {'env': gymnasium.spec('CartPole-v1')},
    ],
)
def test_a_factory_survives_json(arguments):
    factory = EnvFactory(**arguments)
    assert over_json(factory) == factory


def test_every_option_of_environments_is_a_field():
    names = {field.name for field in dataclasses.fields(EnvFactory)}
    assert names == {*declared_options(EnvironmentOptions), 'render_mode'} == {*EnvFactory('CartPole-v1').to_dict()}
    assert [*inspect.signature(create_envs).parameters] == [*inspect.signature(EnvFactory).parameters]


@pytest.mark.parametrize('wrapper', ['tests.environments:Scaled', environments.Scaled])
def test_a_call_makes_environments_with_other_values(wrapper):
    with create_envs(COUNTER, 3, env_kwargs={'length': 2}, wrapper=wrapper) as envs:
        assert envs.factory == EnvFactory(COUNTER, 3, env_kwargs={'length': 2}, wrapper=[wrapper])
        with envs.factory() as equal, envs.factory(n_envs=1, render_mode='rgb_array') as other:
            assert (equal.n_envs, equal.can_render, other.n_envs, other.can_render) == (3, False, 1, True)
            other.reset(0)
            assert other.step(np.array([1]))[1].tolist() == [100]
            assert other.factory.render_mode == 'rgb_array' and other.factory.env_kwargs == {'length': 2}


def test_options_of_atari_reach_another_process_and_change_for_evaluation():
    with create_envs('ALE/Pong-v5', **PONG) as envs, over_json(envs.factory)() as other:
        assert other.observation_space.shape == (84, 84, 2) and other.atari
        names = str(other._vector.envs[0])
        assert 'StickyActions' in names and 'ClipReward' in names and 'EpisodicLife' not in names
        with envs_from_bytes(factory_to_bytes(envs), 1) as evaluated:
            assert 'ClipReward' not in str(evaluated._vector.envs[0])


@pytest.fixture
def no_pickle(monkeypatch):
    def refuse(*_):
        raise AssertionError('a pickle of what is JSON')

    monkeypatch.setattr(env_factory, 'pickle', type('', (), {'dumps': refuse, 'loads': refuse}))


@pytest.mark.parametrize(
    'make',
    [
        lambda: create_envs('CartPole-v1', 2),
        lambda: create_envs('CartPole-v1', 20_000),
        lambda: create_envs(COUNTER, 2, wrapper='tests.environments:Scaled'),
        lambda: as_envs(gymnasium.make('CartPole-v1', max_episode_steps=7)),
        lambda: as_envs(gymnasium.wrappers.RescaleAction(gymnasium.make('Pendulum-v1', g=9.0), -1.0, 1.0)),
        lambda: as_envs(gymnasium.make_vec('CartPole-v1', 2, max_episode_steps=7)),
    ],
)
def test_names_and_specs_are_sent_without_a_pickle(make, no_pickle):
    with make() as envs, envs_from_bytes(factory_to_bytes(envs), 3) as other:
        assert (other.n_envs, other.id, other.action_space) == (3, envs.id, envs.action_space)
        assert other.observation_space == envs.observation_space


def test_the_spec_of_ready_made_environments_is_sent(no_pickle):
    with as_envs(gymnasium.make('CartPole-v1', max_episode_steps=7)) as envs:
        sent = factory_to_bytes(envs)
    with envs_from_bytes(sent, 1) as other:
        other.reset(0)
        assert [other.step(np.array([i % 2]))[3][0] for i in range(7)] == [False] * 6 + [True]


def test_a_name_that_only_this_process_knows_is_sent_as_its_spec(no_pickle):
    entry = 'gymnasium.envs.classic_control:CartPoleEnv'
    gymnasium.register('OfThisScript-v0', entry_point=entry, max_episode_steps=7)
    try:
        with create_envs('OfThisScript-v0', 2) as envs:
            sent = factory_to_bytes(envs)
    finally:
        del gymnasium.registry['OfThisScript-v0']
    with envs_from_bytes(sent, 1) as other:
        assert other.spec.max_episode_steps == 7


def test_functions_and_classes_of_a_script_go_by_pickle():
    def of_script(**options):
        return environments.Counter(**options)

    class OfScript(environments.Counter):
        pass

    for envs in (
        create_envs(of_script, env_kwargs={'length': 2}),
        create_envs(OfScript, env_kwargs={'length': 2}),
        create_envs(COUNTER, wrapper=lambda env: environments.Scaled(env)),
        as_envs(SyncVectorEnv([of_script])),
    ):
        with envs, pytest.raises(ValueError, match='cannot be sent to other processes, expected numbers and texts'):
            envs.factory.to_dict()
        sent = factory_to_bytes(envs)
        assert not sent.startswith(b'{')
        with envs_from_bytes(sent, 2) as other:
            assert other.n_envs == 2
    gymnasium.register('OfThisScript-v0', entry_point=OfScript)
    try:
        with create_envs('OfThisScript-v0', 2) as envs:
            sent = factory_to_bytes(envs)
    finally:
        del gymnasium.registry['OfThisScript-v0']
    assert isinstance(pickle.loads(sent).fn.env, gymnasium.envs.registration.EnvSpec)
    with envs_from_bytes(sent, 1) as other:
        assert other.id == 'OfThisScript-v0'


def test_modules_to_import_are_imported_when_the_environments_are_made(tmp_path, monkeypatch):
    (tmp_path / 'registers_short.py').write_text(
        "import gymnasium\ngymnasium.register('Short-v0', entry_point='gymnasium.envs.classic_control:CartPoleEnv')\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    sent = {'env': 'Short-v0', 'imports': ['registers_short']}
    factory = EnvFactory.from_dict(sent)
    assert 'Short-v0' not in gymnasium.registry
    try:
        with factory() as envs:
            assert envs.id == 'Short-v0'
    finally:
        gymnasium.registry.pop('Short-v0', None)


@pytest.mark.parametrize(
    ('record', 'problem'),
    [
        ([], r'environment: got \[\], expected a dict'),
        ({'env': print}, 'environment: got .*, expected a dict of JSON values'),
        ({'n_envs': 2}, 'env: got None'),
        ({'env': 3}, 'env: got 3'),
        ({'env': {'id': 'A-v0', 'code': 'print()'}}, 'env: got .*, expected the fields of a spec'),
        ({'env': 'CartPole-v1', 'render_mode': 3}, 'render_mode 3'),
        ({'env': 'CartPole-v1', 'n_envs': 0}, 'n_envs: got 0'),
        ({'env': 'CartPole-v1', 'n_envs': 'two'}, "n_envs: got 'two'"),
        ({'env': 'CartPole-v1', 'vector': 'fork'}, 'vector: got fork'),
        ({'env': 'CartPole-v1', 'env_kwargs': [1]}, 'env_kwargs: got'),
        ({'env': 'CartPole-v1', 'wrapper': [3]}, 'wrapper: got 3'),
        ({'env': 'CartPole-v1', 'flattern': True}, 'flattern: is no option here'),
    ],
)
def test_a_wrong_dict_is_one_line(record, problem):
    with pytest.raises(ValueError, match=problem) as refused:
        EnvFactory.from_dict(record)
    assert '\n' not in str(refused.value)


def test_wrong_arguments_are_refused_before_anything_is_made():
    for arguments, problem in (
        ({'n_envs': 0}, 'n_envs: got 0, expected a whole number of at least 1'),
        ({'frame_stack': True}, 'frame_stack: got True'),
        ({'max_episode_steps': 1.5}, 'max_episode_steps: got 1.5'),
    ):
        with pytest.raises(OptionError, match=problem):
            EnvFactory('Unknown-v0', **arguments)
