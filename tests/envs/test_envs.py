"""One face over every kind of environment: NEXT_STEP, masks, raw statistics, seeds, and errors in one line."""

import importlib.util
import multiprocessing
import os
import signal
import subprocess
import sys
from typing import ClassVar

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv
from gymnasium.wrappers.vector import RecordEpisodeStatistics

from tests import environments
from xagents.envs import maker
from xagents.envs.create import as_envs, create_envs
from xagents.envs.interface import Envs, _success
from xagents.envs.vectors import NATIVE_FROM, LoopVectorEnv
from xagents.options.errors import OptionError
from xagents.pipeline.context import EpisodeEnd

COUNTER = 'tests.environments:Counter-v0'


def made(kind, name='Counter', n=2, **options):
    env = getattr(environments, name)
    if kind == 'vector':
        return as_envs(SyncVectorEnv([lambda: env(**options)] * n))
    if kind == 'list':
        return as_envs([env(**options) for _ in range(n)])
    source = env if kind == 'function' else f'tests.environments:{name}-v0'
    return create_envs(source, n, env_kwargs=options, vector='async' if kind == 'async' else 'auto')


def played(envs: Envs, steps: int, action: int = 1) -> list[list[np.ndarray]]:
    """Steps with one action: copies of (observations, rewards, terminated, truncated, valid before the step)."""
    rows = []
    for _ in range(steps):
        valid = envs.valid.copy()
        rows.append([np.copy(array) for array in envs.step(np.full(len(envs), action))] + [valid])
    return rows


@pytest.mark.parametrize(
    ('kind', 'end'),
    [*((kind, 'truncate') for kind in ('loop', 'function', 'async', 'vector', 'list')), ('loop', 'terminate')],
)
def test_the_last_observation_comes_back_and_the_next_step_only_resets(kind, end):
    with made(kind, length=3, end=end, reward=2.5) as envs:
        assert envs.reset(0).tolist() == [[0], [0]]
        assert envs.valid.tolist() == [True, True]
        rows = played(envs, 6)
        ages = [row[0][0, 0] for row in rows]
        assert ages == [1, 2, 3, 0, 1, 2]
        assert [row[1][1] for row in rows] == [2.5, 2.5, 2.5, 0, 2.5, 2.5]
        over = [False, False, True, False, False, False]
        assert [row[2][0] for row in rows] == (over if end == 'terminate' else [False] * 6)
        assert [row[3][0] for row in rows] == (over if end == 'truncate' else [False] * 6)
        assert [row[4][0] for row in rows] == [True, True, True, False, True, True]
        observations, rewards, terminated, truncated = envs.step(np.ones(2, np.int64))
        assert (observations.dtype, rewards.dtype) == (np.float32, np.float32)
        assert (terminated.dtype, truncated.dtype) == (bool, bool)
        assert envs.pop_episodes() == [EpisodeEnd(7.5, 3, i % 2, None) for i in range(4)]
        assert envs.pop_episodes() == []
        envs.reset(0)
        played(envs, 2)
        envs.reset(0)  # unfinished episodes are forgotten
        assert envs.valid.all()
        played(envs, 3)
        assert envs.pop_episodes() == [EpisodeEnd(7.5, 3, i, None) for i in range(2)]


def test_environments_of_different_lengths_reset_on_their_own():
    envs = as_envs([environments.Counter(length=n) for n in (2, 3)])
    envs.reset(0)
    rows = played(envs, 6)
    assert [row[0].reshape(-1).tolist() for row in rows] == [[1, 1], [2, 2], [0, 3], [1, 0], [2, 1], [0, 2]]
    assert np.array([row[4] for row in rows], int).T.tolist() == [[1, 1, 0, 1, 1, 0], [1, 1, 1, 0, 1, 1]]
    assert [(e.env, e.length) for e in envs.pop_episodes()] == [(0, 2), (1, 3), (0, 2)]


class Generous(gymnasium.vector.VectorWrapper):
    """Gives a reward with every step, those that only reset included."""

    def step(self, actions):
        observations, rewards, terminated, truncated, info = self.env.step(actions)
        return observations, np.full_like(rewards, 7), terminated, truncated, info


def test_a_reset_step_earns_nothing_whatever_the_vector_says():
    envs = as_envs(Generous(SyncVectorEnv([lambda: environments.Counter(length=2)])))
    envs.reset(0)
    assert [row[1][0] for row in played(envs, 6)] == [7, 7, 0, 7, 7, 0]
    assert envs.pop_episodes() == [EpisodeEnd(14, 2, 0, None)] * 2


def test_the_action_of_a_reset_step_reaches_no_environment():
    env = environments.Counter(length=1)
    envs = as_envs(env)
    envs.reset(0)
    for action in (0, 1, 0, 1):
        envs.step(np.array([action]))
    assert [int(action) for action in env.actions] == [0, 0]


def test_gymnasiums_native_vector_is_used_and_masked():
    envs = create_envs('CartPole-v1', 16, vector='native')
    assert type(envs._vector).__name__ == 'CartPoleVectorEnv'
    envs.reset(3)
    rows = played(envs, 200, action=0)
    valid = np.array([row[4] for row in rows])
    ended = np.array([row[2] | row[3] for row in rows])
    assert valid[0].all() and (valid[1:] == ~ended[:-1]).all()
    assert (np.array([row[1] for row in rows]) == valid).all()  # one for each real step, none for a reset
    episodes = envs.pop_episodes()
    assert [e.env for e in episodes] == np.nonzero(ended)[1].tolist() and len(episodes) > 200
    for i in range(16):
        lengths = [e.length for e in episodes if e.env == i]
        assert lengths == [e.reward for e in episodes if e.env == i]
        assert np.cumsum(np.add(lengths, 1)).tolist() == (np.flatnonzero(ended[:, i]) + 2).tolist()


WRAPPER = 'gymnasium.wrappers:TimeAwareObservation'


@pytest.mark.parametrize(
    'settings', [{'n_envs': NATIVE_FROM - 1}, {'vector': 'sync'}, {'wrapper': WRAPPER}, {'render_mode': 'human'}]
)
def test_the_loop_is_used_where_a_native_vector_cannot_do_what_is_asked(settings):
    with create_envs('CartPole-v1', **{'n_envs': NATIVE_FROM, **settings}) as envs:
        assert isinstance(envs._vector, LoopVectorEnv)


@pytest.mark.parametrize('kind', ['loop', 'async', 'vector', 'list', 'native'])
def test_each_environment_has_a_seed_of_its_own_and_equal_seeds_give_equal_streams(kind):
    native = kind == 'native'  # has numbers that come twice
    with create_envs('CartPole-v1', 8, vector='native') if native else made(kind, 'Drawn', 3) as envs:

        def stream(seed):
            return np.array([envs.reset(seed).copy()] + [row[0] for row in played(envs, 14)])[..., 0]

        first, other, repeat = stream(7), stream(8), stream(7)
        np.testing.assert_array_equal(first, repeat)
        assert native or len(np.unique(np.concatenate([first, other]))) == 2 * first.size
        following = stream(None)  # goes on from 7: the same again after the same seed
        stream(7)
        np.testing.assert_array_equal(following, stream(None))
        assert not np.isin(following[0], first).any() and not np.isin(other[0], first).any()
    if kind not in ('async', 'native'):
        with made('loop', 'Drawn') as fewer:
            np.testing.assert_array_equal(fewer.reset(7)[:, 0], first[0, :2])  # the same for any number of them


NEVER, SECOND = [False] * 6, [False, True, False] * 2


@pytest.mark.parametrize(
    ('wrapper', 'vector', 'rewards', 'truncated', 'episode'),
    [
        *[('Scaled', v, [50] * 5 + [0], NEVER, (2.5, 5)) for v in ('sync', 'async')],
        ('Impatient', 'sync', [0.5, 0.5, 0] * 2, SECOND, (1, 2)),
        ('Endless', 'sync', [0.5, 0.5, 0] * 2, SECOND, (1, 2)),  # never resets
    ],
)
def test_statistics_are_raw_whatever_wrappers_do(wrapper, vector, rewards, truncated, episode):
    kwargs = {'reward': 0.5, 'length': 50 if wrapper == 'Endless' else 5}
    with create_envs(COUNTER, 2, vector=vector, wrapper=f'tests.environments:{wrapper}', env_kwargs=kwargs) as envs:
        envs.reset(0)
        rows = played(envs, 6)
        assert [row[1][0] for row in rows] == rewards
        assert [row[3][1] for row in rows] == truncated
        assert envs.pop_episodes() == [EpisodeEnd(*episode, i % 2, None) for i in range(2 * (1 + (episode[1] == 2)))]


def test_statistics_of_handed_environments_are_raw_too():
    counters = [environments.Counter(reward=0.5) for _ in range(2)]
    envs = as_envs([environments.Scaled(gymnasium.wrappers.TimeLimit(env, 3)) for env in counters])
    envs.reset(0)
    rows = played(envs, 3)
    assert rows[0][1].tolist() == [50, 50]
    assert rows[2][3].all()
    assert envs.pop_episodes() == [EpisodeEnd(1.5, 3, i, None) for i in range(2)]


@pytest.mark.parametrize(
    ('kind', 'name'), [('loop', 'Success'), ('loop', 'Achieved'), ('async', 'Achieved'), ('vector', 'Achieved')]
)
def test_success_is_reported(kind, name):
    with made(kind, name, 2 if kind == 'async' else 8) as envs:
        envs.reset(2)
        played(envs, 5)
        episodes = envs.pop_episodes()
        assert {type(e.success) for e in episodes} == {bool}
        if kind == 'loop':
            won = [bool(env.get_wrapper_attr('won')) for env in envs._vector.envs]
            assert [e.success for e in episodes] == won
            assert len(set(won)) == 2


def test_success_in_the_forms_infos_take():
    masked = {'is_success': np.array([True, False]), '_is_success': np.array([True, False])}
    assert (_success(masked, 0), _success(masked, 1)) == (True, None)
    assert _success({'is_success': np.array([True, False])}, 1) is False
    assert _success({}, 0) is None
    assert _success({'success': np.array([1.0])}, 0) is True
    assert _success({'success': np.array(['yes'], object)}, 0) is None


@pytest.mark.parametrize(
    ('kind', 'name', 'shape', 'after_two'),
    [
        ('loop', 'Composite', (102,), [*np.eye(100)[2], 2, 1]),
        ('async', 'Composite', (102,), [*np.eye(100)[2], 2, 1]),
        ('loop', 'Tuples', (2,), [2, 0]),
    ],
)
def test_composite_observations_become_vectors(kind, name, shape, after_two):
    with made(kind, name) as envs:
        assert envs.observation_space.shape == shape and not envs.is_image
        assert envs.reset(0).shape == (2, *shape)
        observations = played(envs, 2)[-1][0]
        assert observations.dtype == np.float32
        assert observations[1].tolist() == after_two


def test_images_are_told_from_vectors():
    with made('loop', 'Image') as envs:
        assert envs.is_image and envs.observation_space.dtype == np.uint8
        envs.reset(0)
        observations = played(envs, 3)[-1][0]
        assert observations.shape == (2, 12, 10, 3) and (observations == 3).all()
    with made('loop', 'Image', 1, shape=(12, 10)) as envs:
        assert envs.reset(0).shape == (1, 12, 10, 1)
    assert not made('loop').is_image


def test_time_limits_truncate():
    for env, n_envs in ((COUNTER, 1), (environments.Counter, 1), ('CartPole-v1', NATIVE_FROM)):
        with create_envs(env, n_envs, max_episode_steps=2) as envs:
            envs.reset(0)
            assert [row[3][0] for row in played(envs, 3)] == [False, True, False]


def test_what_old_notebooks_ask_of_environments():
    envs = create_envs('CartPole-v1', 3)
    assert len(envs) == len(list(envs)) == envs.n_envs == 3
    assert envs[0].observation_space.shape == (4,)
    assert envs[-1].action_space.n == 2
    assert envs[0].spec.id == envs.id == 'CartPole-v1'
    with pytest.raises(IndexError):
        envs[3]


def test_another_is_the_same_environment_afresh():
    with create_envs(COUNTER, 3, env_kwargs={'length': 2}, wrapper='tests.environments:Scaled') as envs:
        other = envs.recreate(1, render_mode='rgb_array')
        assert (other.n_envs, other.id) == (1, COUNTER)
        other.reset(0)
        rows = played(other, 2)
        assert rows[0][1].tolist() == [100] and rows[1][2].tolist() == [True]
        (frame,) = other.render()
        assert frame.shape == (32, 32, 3) and (frame == 2).all()
        assert envs.render() == []


def test_another_of_handed_environments_follows_their_spec():
    environments.register()
    for handed in (
        as_envs([gymnasium.make('Counter-v0', length=2, max_episode_steps=9) for _ in range(2)]),
        as_envs(gymnasium.make('Counter-v0', length=2)),
        as_envs(gymnasium.make_vec('Counter-v0', 2, vectorization_mode='sync', length=2)),
        as_envs(SyncVectorEnv([lambda: environments.Counter(length=2)])),
        as_envs(RecordEpisodeStatistics(SyncVectorEnv([lambda: environments.Counter(length=2)]))),
        create_envs(lambda: environments.Counter(length=2)),
    ):
        with handed, handed.recreate(3) as other:
            other.reset(0)
            assert played(other, 2)[-1][2].tolist() == [True] * 3
    handed = as_envs(gymnasium.make_vec('CartPole-v1', 2, max_episode_steps=5))
    with handed.recreate(1, render_mode='rgb_array') as other:
        other.reset(0)
        assert played(other, 5)[-1][3].all()
        assert len(other.render()) == 1


@pytest.mark.parametrize(
    'handed',
    [
        environments.Counter,
        lambda: environments.Scaled(gymnasium.make('Counter-v0')),  # a wrapper that no spec can make again
        lambda: gymnasium.wrappers.vector.TransformReward(SyncVectorEnv([environments.Counter]), np.negative),
    ],
)
def test_another_of_what_nobody_can_make_again_says_what_to_do(handed):
    with pytest.raises(ValueError, match='pass create_envs a function that makes the environment') as refused:
        as_envs(handed()).recreate(1)
    assert '\n' not in str(refused.value)


def silent():
    vector = SyncVectorEnv([environments.Counter])
    vector.metadata = {}
    return vector


@pytest.mark.parametrize(
    ('wrong', 'problem'),
    [
        ('CartPole-v1', 'got str'),
        ([], 'got list'),
        ([environments.Counter(), 3], "'int'"),
        ([environments.Counter(), environments.OddBox()], 'different spaces'),
        ([environments.Counter()] * 2, 'twice'),
        (silent(), 'autoreset mode None'),
        *[
            (
                SyncVectorEnv([environments.Counter], autoreset_mode=mode),
                f'{mode.name}, .*: pass autoreset_mode=',
            )
            for mode in (AutoresetMode.SAME_STEP, AutoresetMode.DISABLED)
        ],
    ],
)
def test_wrong_things_handed_over_are_refused(wrong, problem):
    with pytest.raises(ValueError, match=problem) as refused:
        as_envs(wrong)
    assert '\n' not in str(refused.value)


@pytest.mark.parametrize(
    ('arguments', 'option', 'problem'),
    [
        ({'env': 'CartPol-v1'}, 'env', r"no environment 'CartPol-v1' \(did you mean CartPole-v1\?\)"),
        ({'env': 'no good id!'}, 'env', "no environment 'no good id!'"),
        ({'env': 'no.such.module:Env-v0'}, 'env', "cannot import 'no.such.module'"),
        ({'env': 'tests.environments:Countre-v0'}, 'env', r'did you mean tests.environments:Counter-v0\?'),
        (
            {'env': 'headway-v0'},
            'env',
            r"no environment 'headway-v0', expected an id of Gymnasium, or module:Id or module:Class",
        ),
        ({'env': 3}, 'env', 'got a int, expected a name or a function'),
        ({'env': lambda: 'nothing'}, 'env', '<lambda> made a str'),
        ({'env': 'tests.environments:Worded-v0'}, None, 'is a Text; .*wrappers:FlattenObservation'),
        ({'env': COUNTER, 'env_kwargs': {'lenght': 3}}, 'env_kwargs', r"no 'lenght', expected .*did you mean length\?"),
        ({'env': COUNTER, 'n_envs': 2.5}, 'n_envs', 'got 2.5'),
        ({'env': COUNTER, 'max_episode_steps': -1}, 'max_episode_steps', 'got -1'),
        (
            {'env': COUNTER, 'vector': 'asinc'},
            'vector',
            r'expected auto, sync, async, compiled, native, envpool \(did you mean async\?\)',
        ),
        ({'env': COUNTER, 'preprocess': True}, 'preprocess', 'not an Atari game'),
        ({'env': COUNTER, 'wrapper': ['Scaled']}, 'wrapper', "got 'Scaled', expected module:Class"),
        ({'env': COUNTER, 'wrapper': ['nowhere:Scaled']}, 'wrapper', "cannot import 'nowhere'"),
        ({'env': COUNTER, 'wrapper': ['tests.environments:Scled']}, 'wrapper', r'did you mean Scaled\?'),
        ({'env': COUNTER, 'wrapper': [3]}, 'wrapper', 'got a int'),
        ({'env': COUNTER, 'wrapper': ['gymnasium.wrappers:TimeLimit']}, 'wrapper', 'TimeLimit cannot wrap Counter: '),
        ({'env': COUNTER, 'wrapper': [lambda env: None]}, 'wrapper', 'returned a NoneType'),
        ({'env': COUNTER, 'vector': 'envpool'}, 'vector', "expected one of EnvPool's own"),
        ({'env': COUNTER, 'vector': 'async', 'env_kwargs': {'x': 3}}, 'env_kwargs', "takes no 'x'"),
    ],
)
def test_wrong_input_is_one_line_that_names_the_option(arguments, option, problem):
    with pytest.raises(ValueError, match=problem) as refused:
        create_envs(**arguments)
    assert '\n' not in str(refused.value)
    if option:
        assert isinstance(refused.value, OptionError) and refused.value.name == option


@pytest.mark.parametrize(
    ('module', 'env', 'extra'),
    [
        ('mujoco', 'HalfCheetah-v5', 'mujoco'),
        ('gym', 'gym:CartPole-v1', 'gym'),
        ('ale_py', 'ALE/Nowhere-v5', 'atari'),
        ('cv2', 'ALE/Pong-v5', 'atari'),
        ('envpool', 'CartPole-v1', 'envpool'),
        ('gymnasium_robotics', 'gymnasium_robotics:FetchReach-v4', 'robotics'),
    ],
)
def test_a_missing_extra_is_named(monkeypatch, module, env, extra):
    for loaded in [name for name in sys.modules if name.startswith('gymnasium.envs.' + extra)]:
        monkeypatch.delitem(sys.modules, loaded)
    monkeypatch.setitem(sys.modules, module, None)  # importing it raises ImportError
    with pytest.raises(OptionError) as refused:
        create_envs(env, vector=extra if extra == 'envpool' else 'auto')
    assert f"needs an extra: pip install '.[{extra}]'" in str(refused.value)
    assert '\n' not in str(refused.value)


def test_an_id_of_envpool_and_a_game_without_its_namespace_are_named(tmp_path, monkeypatch):
    with pytest.raises(OptionError, match=r"no environment 'Pong-v5' \(did you mean ALE/Pong-v5\?\)"):
        create_envs('Pong-v5')
    (tmp_path / 'envpool.py').write_text("def list_all_envs():\n    return ['CheetahRun-v1']\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, 'envpool', raising=False)
    with pytest.raises(OptionError, match="no environment 'CheetahRun-v1' in Gymnasium, expected --vector envpool"):
        create_envs('CheetahRun-v1')
    monkeypatch.delitem(sys.modules, 'envpool')  # the module of this test
    with pytest.raises(OptionError, match="'<lambda>', which is a function of a script, expected an id"):
        create_envs('<lambda>')


REGISTER = "gymnasium.register('{}', 'gymnasium.envs.classic_control.cartpole:CartPoleEnv')"


@pytest.mark.parametrize(
    ('module', 'env'),
    [('minigrid', 'MiniGrid-Fake-v0'), ('highway_env', 'highway-v0'), ('my_fakes', 'my_fakes/Fake-v0')],
)
def test_the_module_of_an_id_is_named_and_not_imported(tmp_path, monkeypatch, module, env):
    (tmp_path / f'{module}.py').write_text('import gymnasium\n' + REGISTER.format(env))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, module, raising=False)
    monkeypatch.setattr(gymnasium.envs.registration, 'registry', registry := dict(gymnasium.registry))
    monkeypatch.setattr(maker, 'registry', registry)
    with pytest.raises(OptionError, match=rf'did you mean {module}:{env}\?'):
        create_envs(env)
    assert module not in sys.modules
    assert create_envs(f'{module}:{env}').observation_space.shape == (4,)
    with pytest.raises(OptionError, match=rf'did you mean {module}:{env}\?'):
        create_envs(f'{module}:{env[:-1]}9')
    monkeypatch.setitem(sys.modules, module, None)  # it is not installed
    del registry[env]
    if module != 'my_fakes':
        for name in (env, f'{module}:{env}'):
            with pytest.raises(OptionError, match=rf'{module}:\S+ needs a package: pip install {module[:7]}'):
                create_envs(name)


def test_a_package_with_an_entry_point_for_an_old_gymnasium_is_registered(tmp_path, monkeypatch):
    register = REGISTER.format('MinAtar/Fake-v0')
    (tmp_path / 'minatar.py').write_text(f'import gymnasium\ndef register_envs():\n    {register}')
    about = tmp_path / 'minatar-1.dist-info'
    about.mkdir()
    (about / 'METADATA').write_text('Name: minatar\nVersion: 1\n')
    (about / 'entry_points.txt').write_text('[gymnasium.envs]\nMinAtar = minatar:register_envs\n')
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, 'minatar', raising=False)
    monkeypatch.setattr(gymnasium.envs.registration, 'registry', registry := dict(gymnasium.registry))
    monkeypatch.setattr(maker, 'registry', registry)
    assert create_envs('minatar:MinAtar/Fake-v0').observation_space.shape == (4,)


def test_modules_are_found_in_the_working_directory(tmp_path, monkeypatch):
    (tmp_path / 'my_own_envs.py').write_text(
        "import gymnasium\ngymnasium.register('MyOwn-v0', 'gymnasium.envs.classic_control.cartpole:CartPoleEnv')\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, 'path', [entry for entry in sys.path if entry])
    assert create_envs('my_own_envs:MyOwn-v0').observation_space.shape == (4,)


def test_errors_name_the_nearest_class_of_the_module(tmp_path, monkeypatch):
    (tmp_path / 'my_class_envs.py').write_text('import gymnasium\nclass Slope(gymnasium.Env): pass\n')
    monkeypatch.syspath_prepend(tmp_path)
    for name in ('slope', 'Slop'):
        with pytest.raises(
            OptionError, match=rf"no environment 'my_class_envs:{name}' \(did you mean my_class_envs:Slope\?"
        ):
            create_envs(f'my_class_envs:{name}')
    with pytest.raises(OptionError, match='my_class_envs neither registers an environment Valleys'):
        create_envs('my_class_envs:Valleys')


def test_old_gym_runs_through_shimmy():
    pytest.importorskip('gym')
    pytest.importorskip('shimmy')
    with create_envs('gym:CartPole-v1', 2, max_episode_steps=4) as envs:
        assert envs.id == 'gym:CartPole-v1'
        first = envs.reset(1).copy()
        np.testing.assert_array_equal(envs.reset(1), first)
        rows = played(envs, 5)
        assert rows[3][3].all() and rows[3][4].all() and not rows[4][4].any()
        assert envs.pop_episodes() == [EpisodeEnd(4, 4, 0, None), EpisodeEnd(4, 4, 1, None)]
        with envs.recreate(1, render_mode='rgb_array') as other:
            assert other.observation_space == envs.observation_space
    with pytest.raises(OptionError, match=r'did you mean CartPole-v1\?'):
        create_envs('gym:CartPol-v1')


def test_workers_are_not_forked_and_leave_nothing_behind():
    before = set(multiprocessing.active_children())
    envs = create_envs(COUNTER, 2, vector='async')
    workers = set(multiprocessing.active_children()) - before
    assert isinstance(envs._vector, AsyncVectorEnv) and len(workers) == 2
    assert all(type(worker).__name__ in ('SpawnProcess', 'ForkServerProcess') for worker in workers)
    envs.reset(0)
    for worker in workers:  # workers leave signals to the process that runs
        os.kill(worker.pid, signal.SIGINT)
        assert os.getpgid(worker.pid) != os.getpgid(0)  # of which a terminal sends Ctrl-C to all
    assert played(envs, 1)[0][0].tolist() == [[1], [1]]
    envs.close()
    envs.close()
    assert not any(worker.is_alive() for worker in workers)


def test_environments_are_made_and_networks_read_without_tensorflow():
    code = 'import sys; from xagents.envs import create_envs; create_envs("CartPole-v1", 8, vector="native").reset(0)\n'
    code += 'from xagents.networks.cfg import dense_network; dense_network([3]).shapes((4,), [2, 1])\n'
    heavy = '{"tensorflow", "keras", "pandas", "matplotlib", "cv2", "ale_py", "envpool"}'
    subprocess.run([sys.executable, '-c', code + f'sys.exit(bool({heavy} & set(sys.modules)))'], check=True)


@pytest.mark.skipif(importlib.util.find_spec('envpool') is None, reason='envpool is not installed')
class TestEnvPool:
    def test_next_step_statistics_and_seeds(self):
        with create_envs('CartPole-v1', 3, vector='envpool', max_episode_steps=4) as envs:
            assert isinstance(envs.action_space, spaces.Discrete)
            first = envs.reset(1).copy()
            assert len(np.unique(first)) == first.size
            rows = played(envs, 6)
            assert [row[3][0] for row in rows] == [False, False, False, True, False, False]
            assert [row[4][0] for row in rows] == [True, True, True, True, False, True]
            assert [row[1][0] for row in rows] == [1, 1, 1, 1, 0, 1]
            assert np.abs(rows[4][0]).max() < 0.06 < np.abs(rows[3][0]).max()
            assert envs.pop_episodes() == [EpisodeEnd(4, 4, i, None) for i in range(3)]
            np.testing.assert_array_equal(envs.reset(1), first)
            assert not np.array_equal(envs.reset(2), first)
            with envs.recreate(1) as other:
                assert other.reset(0).shape == (1, 4)

    def test_actions_outside_the_space_are_refused(self):
        with create_envs('CartPole-v1', 2, vector='envpool') as envs:
            envs.reset(1)
            for wrong in ([0, 2], [-1, 0]):
                with pytest.raises(ValueError, match=r'expected elements of Discrete\(2\)'):
                    envs.step(np.array(wrong))

    def test_floats_become_float32(self):
        with create_envs('Hopper-v4', 2, vector='envpool') as envs:
            shown = [envs.reset(0), *envs.step(np.zeros((2, 3)))[:2]]
            assert [array.dtype for array in shown] == [np.float32] * 3

    @pytest.mark.parametrize('name', ['Breakout-v5', 'ALE/Breakout-v5', 'BreakoutNoFrameskip-v4'])
    def test_atari(self, name):
        with create_envs(name, 2, vector='envpool') as envs:
            assert envs.observation_space.shape == (84, 84, 4) and envs.is_image
            frames = envs.reset(0)
            assert frames.shape == (2, 84, 84, 4) and frames.flags['C_CONTIGUOUS']
            if name != 'Breakout-v5':
                return
            rng = np.random.default_rng(0)
            lost, ended, bricks = 0, 0, 0.0
            for _ in range(900):
                _, rewards, terminated, _ = envs.step(rng.integers(0, 4, 2))
                assert np.isin(rewards, (0, 1)).all()
                bricks += rewards.sum()
                lost += np.count_nonzero(terminated)
                episodes = envs.pop_episodes()
                ended += len(episodes)
                assert all(episode.length > 60 for episode in episodes)  # whole games, not lives
            assert 3 <= ended < lost / 3
            with envs.recreate(1) as calm:
                calm.reset(0)
                terminations = sum(bool(calm.step(np.array([0]))[2][0]) for _ in range(100))
                assert terminations == 0  # standing still loses lives, which end nothing when not training

    def test_images_of_other_games_are_not_those_of_atari(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)  # ViZDoom writes its settings
        with create_envs('Basic-v1', 2, vector='envpool') as envs:
            assert not envs.atari and envs.reset(0).shape == (2, 84, 84, 12)

    def test_wrong_input_is_one_line(self):
        for arguments, problem in (
            ({'env': 'CartPole-v1', 'preprocess': True}, 'expected Atari games only'),
            ({'env': 'Pong-v5', 'preprocess': False}, 'expected preprocessed Atari only'),
            ({'env': 'CartPole-v1', 'wrapper': 'tests.environments:Scaled'}, 'got envpool with wrappers'),
            ({'env': 'TicTacToe-v1'}, 'has several players in envpool'),
        ):
            with pytest.raises(OptionError, match=problem) as refused:
                create_envs(vector='envpool', **arguments)
            assert '\n' not in str(refused.value)


@pytest.mark.slow
def test_a_script_without_a_main_guard_is_told_what_to_write(tmp_path):
    script = tmp_path / 'script.py'
    script.write_text("import xagents\n\nxagents.create_envs('CartPole-v1', 2, vector='async')\n")
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=120)
    said = done.stderr.strip().splitlines()
    assert said[-1].endswith("expected the script's calls below the line: if __name__ == '__main__':")
    assert done.returncode == 1 and 'RuntimeError' not in done.stderr and done.stderr.count('Traceback') == 1


class Old(gymnasium.Env):
    """An environment whose results have the form that a test gives."""

    observation_space, action_space = spaces.Box(-1, 1, (2,), np.float32), spaces.Discrete(2)
    returned: ClassVar[dict] = {}
    right: ClassVar[dict] = {'reset': (np.zeros(2), {}), 'step': (np.zeros(2), 1.0, False, False, {})}

    def reset(self, *, seed=None, options=None):
        return {**self.right, **self.returned}['reset']

    def step(self, action):
        return {**self.right, **self.returned}['step']


@pytest.mark.parametrize(
    ('returned', 'message'),
    [
        ({'reset': np.zeros(2)}, r'Old.reset returned ndarray of shape \[2\], expected observation and info'),
        ({'reset': (np.zeros(3), {})}, r'Old.reset returned an observation of shape \[3\], expected \[2\], as its'),
        ({'step': (np.zeros(2), 1.0, True, {})}, r'Old.step returned a tuple of 4, expected observation, reward, ter'),
        ({'step': (np.zeros(2), None, True, False, {})}, 'Old.step returned the reward None, expected a number'),
        ({'step': (np.zeros(1), 1.0, True, False, {})}, r'Old.step returned an observation of shape \[1\]'),
    ],
)
def test_results_of_another_form_name_the_method(returned, message, monkeypatch):
    monkeypatch.setattr(Old, 'returned', returned)
    with pytest.raises(OptionError, match=f'env: {message}'):
        envs = create_envs(Old, 1)
        envs.reset(1)
        envs.step(np.zeros(1, np.int64))


def test_what_a_class_of_environments_lacks_is_named():
    class Sized(Old):
        def __init__(self, size, colour):
            pass

    with pytest.raises(OptionError, match=r'env_kwargs: Sized lacks arguments, expected size=VALUE colour=VALUE'):
        create_envs(Sized, 1)
    with pytest.raises(OptionError, match=r'env: Spaceless has no action_space, expected a space of gymnasium'):
        create_envs(type('Spaceless', (Old,), {'action_space': None}), 1)
