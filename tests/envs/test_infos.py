"""Numbers of infos: every kind of vector passes them on, and sums them over episodes."""

import gymnasium
import numpy as np
import pytest
import tensorflow as tf
from gymnasium import spaces
from gymnasium.vector import AutoresetMode

from tests.info_problems import Costly, CostlyTeam
from xagents.envs import FunctionalEnv
from xagents.envs.create import as_envs, create_envs
from xagents.envs.env_factory import EnvFactory
from xagents.envs.functional.interface import FunctionalEnv as Functional
from xagents.envs.multi_policy import MultiPolicyEnvs
from xagents.envs.values.infos import missing_message, number_of
from xagents.envs.vectors import EnvNeeds
from xagents.options.errors import OptionError

COSTLY = 'tests.info_problems:Costly-v0'
NAN = np.nan


class CostlyVector(gymnasium.vector.VectorEnv):
    """`Costly` as a vector of its own, whose infos have a mask, objects and a number for all steps."""

    metadata = {'autoreset_mode': AutoresetMode.NEXT_STEP}

    def __init__(self, num_envs, wrong=None):
        self.num_envs, self.wrong = num_envs, wrong
        self.single_observation_space, self.single_action_space = Costly.observation_space, Costly.action_space
        self.observation_space = gymnasium.vector.utils.batch_space(self.single_observation_space, num_envs)
        self.action_space = gymnasium.vector.utils.batch_space(self.single_action_space, num_envs)

    def reset(self, *, seed=None, options=None):
        self.age = 0
        return np.zeros((self.num_envs, 2), np.float32), {}

    def step(self, actions):
        n, self.age = self.num_envs, self.age + 1 if self.age < 5 else 0
        here = np.full(n, self.age % 2 == 1)
        odd = np.full(n, 0.5 if here[0] else None, object)
        infos = {
            'cost': np.full(n, self.age),
            '_cost': np.ones(n, bool),
            'odd': odd,
            '_odd': here,
            'height': np.ones(n),
        }
        if self.wrong is not None:
            infos['cost'] = self.wrong
        ends = np.full(n, self.age == 5)
        return np.zeros((n, 2), np.float32), np.ones(n), np.zeros(n, bool), ends, infos


class CostlyFunctions(FunctionalEnv):
    """`Costly` as functions: step t of 5 costs t times `scale`."""

    observation_space = spaces.Box(-1, 9, (1,), np.float32)
    action_space = spaces.Discrete(2)
    max_episode_steps = 5
    default_params = {'scale': 1.0}

    def initial(self, rng, n, params):
        return tf.zeros((n, 1))

    def transition(self, state, action, rng, params):
        return state + 1.0

    def observation(self, state, params):
        return state

    def reward(self, state, action, next_state, params):
        return tf.ones_like(state[:, 0])

    def terminal(self, state, params):
        return state[:, 0] < 0

    def info(self, state, action, next_state, params):
        return {'cost': next_state[:, 0] * params['scale'], 'right': action == 1}


class WrongInfo(CostlyFunctions):
    """An info of the wrong shape."""

    def info(self, state, action, next_state, params):
        return {'cost': state}


def ready_made_list():
    return as_envs([gymnasium.make('Costly-v0') for _ in range(2)])


def ready_made_vector(kind):
    return as_envs(kind([lambda: gymnasium.make('Costly-v0')] * 2))


KINDS = {
    'loop': lambda: create_envs(COSTLY, 2, vector='sync'),
    'workers': lambda: create_envs(COSTLY, 2, vector='async'),
    'list': ready_made_list,
    'vector': lambda: ready_made_vector(gymnasium.vector.SyncVectorEnv),
    'own vector': lambda: as_envs(CostlyVector(2)),
}


def walk(envs, steps):
    """Return the numbers of each step by name, and the sums of the episodes that ended."""
    envs.reset(1)
    found, ended = {name: [] for name in envs.infos.names}, []
    for _ in range(steps):
        envs.step(np.zeros(envs.n_envs, int))
        for name in envs.infos.names:
            found[name].append(envs.infos.numbers[name].copy())
        ended += [episode.info for episode in envs.pop_episodes()]
    return {name: np.array(rows) for name, rows in found.items()}, ended


@pytest.mark.parametrize('kind', KINDS)
def test_numbers_of_steps_and_sums_of_episodes(kind):
    """The fifth step ends the episode; the sixth only resets, and its numbers do not count."""
    with KINDS[kind]() as envs:
        envs.select_infos(['cost', 'odd', 'none'])
        found, ended = walk(envs, 11)
        np.testing.assert_array_equal(found['cost'][:, 0], [1, 2, 3, 4, 5, NAN, 1, 2, 3, 4, 5])
        np.testing.assert_array_equal(found['odd'][:6, 1], [0.5, NAN, 0.5, NAN, 0.5, NAN])
        assert np.isnan(found['none']).all()
        assert ended == [{'cost': 15.0, 'odd': 1.5}] * 4
        assert {'cost', 'odd', 'height'} <= envs.seen_infos | {'odd'} and 'name' not in envs.seen_infos
        envs.select_infos([])
        assert walk(envs, 5) == ({}, [None, None])


def test_without_selection_infos_stay_in_the_environment():
    with create_envs(COSTLY, 2, vector='sync') as envs:
        envs.reset(1)
        assert envs._vector.step(np.zeros(2, int))[-1] == {}


def test_envpool_passes_its_infos_on():
    from xagents.envs.envpool import EnvPoolVectorEnv

    class Pool:
        def step(self, actions):
            none = np.zeros(2, bool)
            return np.zeros((2, 1), np.float32), np.ones(2), none, none, {'cost': np.array([1, 2])}

    vector = EnvPoolVectorEnv.__new__(EnvPoolVectorEnv)
    vector._pool, vector._n_actions, vector.atari, vector._clip, vector._has_frames = Pool(), None, False, False, False
    vector._totals, vector._lengths, vector._ended = np.zeros(2), np.zeros(2, int), np.zeros(2, bool)
    vector.passes_infos = False
    assert vector.step(np.zeros(2))[-1] == {}
    vector.passes_infos = True
    np.testing.assert_array_equal(vector.step(np.zeros(2))[-1]['cost'], [1, 2])


@pytest.mark.parametrize('vector', ['sync', 'async'])
def test_agents_of_one_environment_have_their_own_numbers(vector):
    with EnvFactory(CostlyTeam, 2, vector=vector)() as envs:
        envs.select_infos(['cost', 'late'])
        found, ended = walk(envs, 6)
        np.testing.assert_array_equal(found['cost'][:, 0], [1, 1, 1, NAN, NAN, NAN])
        np.testing.assert_array_equal(found['cost'][:, 3], [2, 2, 2, 2, 2, NAN])
        np.testing.assert_array_equal(found['late'][:, 1], [0, 0, 0, 1, 1, NAN])
        assert ended == [{'cost': 3.0, 'late': 0.0}] * 2 + [{'cost': 10.0, 'late': 2.0}] * 2
        assert envs.seen_infos == {'cost', 'late'}


def test_several_policies_and_a_changed_mapping():
    envs = MultiPolicyEnvs(EnvFactory(CostlyTeam, 1), {'one': ['a'], 'two': ['b']})
    with envs:
        envs.select_infos(['cost'])
        envs.reset(1)
        actions = [np.zeros(1, int)] * 2
        envs.step_groups(actions)
        assert [float(group.infos.numbers['cost'][0]) for group in envs.groups.values()] == [1.0, 2.0]
        envs.set_policy_mapping({'two': ['a'], 'one': ['b']})
        for _ in range(4):
            envs.step_groups(actions)
        assert [episode.info for episode in envs.pop_episodes()] == [{'cost': 3.0}, {'cost': 10.0}]


@pytest.mark.parametrize(
    ('make', 'message'),
    [
        (lambda: create_envs(COSTLY, 1, env_kwargs={'wrong': 'text'}), f'{COSTLY}: cost in its infos is str'),
        (lambda: create_envs(COSTLY, 1, env_kwargs={'wrong': 'array'}), r'cost in its infos is ndarray of shape \[3\]'),
        (lambda: create_envs(COSTLY, 2, vector='async', env_kwargs={'wrong': 'text'}), 'cost in its infos is str'),
        (
            lambda: create_envs(COSTLY, 1, env_kwargs={'wrong': 10**400}),
            'cost in its infos is an int beyond the range of floats',
        ),
        (lambda: as_envs(CostlyVector(2, np.zeros((2, 3)))), r'cost in its infos is ndarray of shape \[3\]'),
        (lambda: as_envs(CostlyVector(2, ['a', 'b'])), 'CostlyVector: cost in its infos is str'),
        (lambda: as_envs(CostlyVector(2, {'a': 1})), 'cost in its infos is dict'),
    ],
)
def test_values_that_are_no_numbers(make, message):
    with make() as envs:
        envs.select_infos(['cost'])
        with pytest.raises(OptionError, match=f'log_info: .*{message}, expected number|{message}, expected a number'):
            walk(envs, 3)


@pytest.mark.parametrize('value', [True, 2, 2.5, np.float32(3), np.int8(4), np.array([5.0]), np.array(6)])
def test_numbers(value):
    assert number_of(value) == float(np.reshape(value, ()))


@pytest.mark.parametrize('value', ['1', None, [1, 2], np.zeros(0), {}, {'a': 1}, object(), 1j, [[1], [2, 3]]])
def test_no_numbers(value):
    assert number_of(value) is None


class OddKeys(Costly):
    """Infos with keys that are not text."""

    def step(self, action):
        *result, info = super().step(action)
        return *result, {0: 1.0, ('a', 'b'): 2.0, None: 3.0, **info}


@pytest.mark.parametrize(
    'make', [lambda: as_envs([OddKeys()]), lambda: as_envs(gymnasium.vector.SyncVectorEnv([OddKeys]))]
)
def test_keys_that_are_not_text_do_not_count(make):
    with make() as envs:
        envs.select_infos(['cost'])
        found, _ = walk(envs, 3)
        np.testing.assert_array_equal(found['cost'][:, 0], [1, 2, 3])
        assert {'cost', 'height'} <= envs.seen_infos


def test_a_copy_continues_the_sums():
    with create_envs(COSTLY, 2, vector='sync') as envs, create_envs(COSTLY, 2, vector='sync') as others:
        for own in (envs, others):
            own.select_infos(['height', 'cost'])
        envs.reset(1)
        for _ in range(3):
            envs.step(np.zeros(2, int))
        whole, each = envs.snapshot(), envs.snapshot_each()
        rest = []
        for restore in (lambda: None, lambda: others.restore(whole), lambda: others.restore_each(each)):
            restore()
            own = others if rest else envs
            for _ in range(2):
                own.step(np.zeros(2, int))
            rest.append([episode.info for episode in own.pop_episodes()])
        assert rest[0] == rest[1] == rest[2] and rest[0][0]['cost'] == 15.0


def test_a_copy_is_restored_with_other_selected_names():
    with create_envs(COSTLY, 1, vector='sync') as envs:
        walk(envs, 3)
        copy = envs.snapshot()
        envs.select_infos(['cost'])
        walk(envs, 2)
        envs.restore(copy)
        envs.select_infos(['cost'])
        for _ in range(2):
            envs.step(np.zeros(1, int))
        assert envs.pop_episodes()[0].info == {'cost': 9.0}
        with_cost = envs.snapshot()
        envs.select_infos([])
        envs.restore(with_cost)
        envs.select_infos([])
        assert envs.step(np.zeros(1, int)) and not envs.infos.numbers


def test_functions_with_infos():
    with EnvFactory(CostlyFunctions, 2, vector='compiled')(needs=EnvNeeds(infos=True)) as envs:
        envs.select_infos(['cost', 'right'])
        found, ended = walk(envs, 7)
        np.testing.assert_array_equal(found['cost'][:, 0], [1, 2, 3, 4, 5, NAN, 1])
        assert ended == [{'cost': 15.0, 'right': 0.0}] * 2 and envs.seen_infos == {'cost', 'right'}
    with EnvFactory(CostlyFunctions, 1, vector='sync', env_kwargs={'scale': 2.0})() as envs:
        envs.select_infos(['cost'])
        assert walk(envs, 5)[1] == [{'cost': 30.0}]


def test_functions_without_infos():
    with pytest.raises(OptionError, match='got compiled, but CartPole-v1 has no infos as functions'):
        EnvFactory('CartPole-v1', 2, vector='compiled')(needs=EnvNeeds(infos=True))
    with EnvFactory('CartPole-v1', 8)(needs=EnvNeeds(infos=True)) as envs:
        assert envs.functional_vector is None
    with EnvFactory(CostlyFunctions, 8)(needs=EnvNeeds(infos=True)) as envs:
        assert envs.functional_vector is not None
    with EnvFactory('CartPole-v1', 8)() as envs, pytest.raises(OptionError, match='is compiled and has no infos'):
        envs.select_infos(['cost'])
    message = r"WrongInfo.info\['cost'\] returned float32 \[2, 1\], expected"
    with EnvFactory(WrongInfo, 2, vector='compiled')() as envs, pytest.raises(OptionError, match=message):
        envs.reset(1)
    assert not Functional.info(CostlyFunctions(), None, None, None, {})


def test_the_warning_names_the_nearest_number():
    assert missing_message('hight', 'Tower', {'height', 'cost'}).endswith(
        '--log-info hight has not appeared in Tower: its infos have cost, height (did you mean height?)'
    )
    assert missing_message('cost', 'Tower', ()).endswith('its infos have no numbers')
