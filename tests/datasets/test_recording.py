"""What is recorded is what environments gave and took, to the bit; a kill leaves whole episodes that open."""

import dataclasses
import json
import signal
import subprocess
import sys
import time
from contextlib import nullcontext
from types import SimpleNamespace

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given
from hypothesis import strategies as st

import xagents
from tests.commands import execute
from xagents.datasets import dataset_names, reading
from xagents.datasets.environments import dataset_environment_options
from xagents.datasets.reading import RecordedEpisode, open_dataset
from xagents.datasets.recorder import DatasetRecorder
from xagents.datasets.writing import DatasetWriter, check_keys
from xagents.envs.create import create_envs
from xagents.envs.spaces import ActionDecoder, ObservationEncoder
from xagents.options import OptionError

minari = pytest.importorskip('minari')

SHOWN = {
    'float64': spaces.Box(-1, 1, (3,), np.float64),
    'image': spaces.Box(0, 255, (40, 36, 3), np.uint8),
    'Discrete': spaces.Discrete(5, start=1),
    'MultiDiscrete': spaces.MultiDiscrete([3, 4], start=[1, -2]),
    'MultiBinary': spaces.MultiBinary((2, 3)),
    'Dict': spaces.Dict({'z': spaces.Discrete(3, start=2), 'a': spaces.Box(0, 1, (2, 2), np.float64)}),
    'Tuple': spaces.Tuple((spaces.Box(0, 1, (1,), np.float32), spaces.Dict({'b': spaces.MultiBinary(2)}))),
}
TAKEN = {
    'Discrete': spaces.Discrete(3, start=1),
    'MultiDiscrete': spaces.MultiDiscrete([2, 3], start=[1, 0]),
    'MultiBinary': spaces.MultiBinary(3),
    'Box': spaces.Box(-2, 3, (2,), np.float64),
}


class Told(gymnasium.Env):
    """Shows random values of a space, and remembers all that it gave and took; episodes have 1 to 6 steps."""

    def __init__(self, shown, taken, told, seed=0):
        self.observation_space, self.action_space, self.told = shown, taken, told
        shown.seed(seed)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.left = int(self.np_random.integers(1, 7))
        shown = self.observation_space.sample()
        self.told.append({'observations': [shown], 'actions': [], 'rewards': [], 'terminated': [], 'truncated': []})
        return shown, {}

    def step(self, action):
        self.left -= 1
        ends = [False, False] if self.left else [(True, False), (False, True), (True, True)][self.np_random.integers(3)]
        shown, reward = self.observation_space.sample(), float(self.np_random.normal())
        one = self.told[-1]
        one['observations'].append(shown)
        one['actions'].append(action)
        one['rewards'].append(reward)
        one['terminated'].append(ends[0])
        one['truncated'].append(ends[1])
        return shown, reward, *ends, {}


@pytest.fixture(autouse=True)
def place(monkeypatch, tmp_path):
    monkeypatch.setenv(dataset_names.ROOT, str(tmp_path / 'datasets'))
    return tmp_path


def writer_of(name, envs, **about):
    return DatasetWriter(name, envs.encoder.raw_space, envs.action_space, about)


def equal(one, other):
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(equal(one[key], other[key]) for key in one)
    if isinstance(one, tuple):
        return len(one) == len(other) and all(map(equal, one, other))
    return one.dtype == other.dtype and np.array_equal(one, other)


def stacked(values):
    first = values[0]
    if isinstance(first, dict):
        return {key: stacked([value[key] for value in values]) for key in first}
    if isinstance(first, tuple):
        return tuple(map(stacked, zip(*values, strict=True)))
    return np.stack([np.asarray(value) for value in values])


def recorded(kind, taken, n_envs, steps, name='told/x-v0', **options):
    """Record random play in environments that remember; return what they remember, of whole episodes only."""
    told = [[] for _ in range(n_envs)]
    made = iter(told)
    envs = create_envs(lambda **_: Told(SHOWN[kind], TAKEN[taken], next(made)), n_envs, **options)
    envs.recorder = DatasetRecorder(writer_of(name, envs), n_envs)
    envs.action_space.seed(1)
    envs.reset(0)
    for _ in range(steps):
        envs.step(np.stack([envs.action_space.sample() for _ in range(n_envs)]))
    envs.recorder.flush()
    envs.recorder.writer.finish()
    return [one for own in told for one in own if any(one['terminated']) or any(one['truncated'])]


@pytest.mark.parametrize(('kind', 'taken'), [(kind, 'Box') for kind in SHOWN] + [('float64', kind) for kind in TAKEN])
def test_episodes_are_read_as_they_were_given_and_taken(kind, taken):
    told = recorded(kind, taken, 2, 15)
    dataset = open_dataset('told/x-v0')
    assert len(dataset) == len(told) >= 5
    assert dataset.observation_space == SHOWN[kind] and dataset.action_space == TAKEN[taken]
    read = list(dataset)
    # an environment's episodes in their order; of two environments they are interleaved
    for one in told:
        same = [e for e in read if np.array_equal(e.rewards, one['rewards'])]
        assert len(same) == 1
        (episode,) = same
        assert equal(episode.observations, stacked(one['observations']))
        assert equal(episode.actions, stacked(one['actions']))
        assert episode.rewards.dtype == np.float64
        assert episode.terminated.tolist() == one['terminated'] and episode.truncated.tolist() == one['truncated']
    by_minari = list(minari.load_dataset('told/x-v0'))
    assert [len(e) for e in by_minari] == [len(e) for e in read] == dataset.lengths()
    assert all(equal(e.observations, o.observations) for e, o in zip(by_minari, read, strict=True))


def test_what_minari_wrote_is_read(place):
    episodes = [
        minari.data_collector.episode_buffer.EpisodeBuffer(
            observations=np.full((4, 2), i, np.float32),
            actions=np.array([0, 1, 1]),
            rewards=[1.0, 2.0, float(i)],
            terminations=[False, False, i == 1],
            truncations=[False] * 3,
        )
        for i in range(3)
    ]
    box = spaces.Box(-9, 9, (2,), np.float32)
    minari.create_dataset_from_buffers(
        'theirs/y-v1', episodes, observation_space=box, action_space=spaces.Discrete(2), algorithm_name='mine'
    )
    dataset = open_dataset('theirs/y-v1')
    assert (dataset.episodes, dataset.steps, dataset.mean_return, dataset.environment_options) == (3, 9, 4.0, {})
    encoder, decoder = ObservationEncoder(dataset.observation_space), ActionDecoder(dataset.action_space)
    batch = next(reading.episode_batches(reading.encode_episode(e, encoder, decoder) for e in dataset))
    # an episode that is cut without a word is truncated
    assert batch['terminated'][:, 0].nonzero()[0].tolist() == [6] and batch['truncated'].sum() == 2


def test_minari_finds_the_environment_again():
    agent = xagents.make('dqn', 'CartPole-v1', seed=1, buffer_max_size=500, buffer_initial_size=500)
    agent.fit(max_steps=100, record_dataset='cartpole/x-v0', quiet=True, final_episodes=0)
    env = minari.load_dataset('cartpole/x-v0').recover_environment()
    assert env.spec.id == 'CartPole-v1'
    assert open_dataset('cartpole/x-v0').environment_options == {'env': 'CartPole-v1'}
    told = json.loads((dataset_names.data_folder('cartpole/x-v0') / dataset_names.METADATA).read_text())
    assert told['xagents']['agent'] == told['algorithm_name'] == 'dqn'
    assert told['xagents']['version'] == xagents.__version__
    (first,) = minari.load_dataset('cartpole/x-v0').storage.get_episode_metadata([0])
    assert first['policy_version'] >= 0


def test_an_environment_that_was_registered_with_a_class_is_recorded(place):
    spec = gymnasium.envs.registration.EnvSpec('Told-v0', entry_point=Told)
    writer = DatasetWriter('told/class-v0', SHOWN['float64'], TAKEN['Box'], {'environment': {}}, spec=spec)
    writer.add([episode(1, 3)])
    writer.finish()
    assert values('told/class-v0') == [1.0]


# ------------------------------------------------------------------------------------------------------- as batches


@given(st.lists(st.integers(1, 9), min_size=1, max_size=12), st.integers(1, 4), st.integers(1, 20))
def test_batches_hold_every_transition_once(lengths, n_envs, rows):
    """Each real row is followed by its own next observation; rows that only reset stand between."""
    episodes, first = [], 0
    for length in lengths:
        ages = np.arange(first, first + length + 1, dtype=np.float32)[:, None]
        flags = np.zeros(length + 1, bool)
        flags[length - 1] = True
        valid = np.arange(length + 1) < length
        own = {'observations': ages, 'actions': np.arange(first, first + length + 1), 'rewards': ages[:, 0]}
        episodes.append({**own, 'terminated': flags, 'truncated': ~flags & False, 'valid': valid})
        first += 100
    seen = []
    for batch in reading.episode_batches(iter(episodes), n_envs, rows):
        t, n = batch['valid'].nonzero()
        assert batch['observations'].shape[0] == batch['valid'].shape[0] + 1
        assert not batch['valid'][-1].any()  # nothing is lost where the next batch begins anew
        now, after = batch['observations'][t, n, 0], batch['observations'][t + 1, n, 0]
        assert (after - now == 1).all() and (batch['actions'][t, n] == now).all()
        seen += now.tolist()
    assert sorted(seen) == [100 * i + k for i, length in enumerate(lengths) for k in range(length)]


def test_the_newest_episodes_are_found_from_their_lengths():
    recorded('float64', 'Box', 1, 60)
    dataset = open_dataset('told/x-v0')
    lengths = dataset.lengths()
    for steps in (1, 5, 20, 10_000):
        first = dataset.first_recent_episode(steps)
        assert first == 0 or sum(lengths[first:]) >= steps > sum(lengths[first + 1 :])


# ---------------------------------------------------------------------------------------------------------- writing


def episode(value, length):
    flags = np.arange(length) == length - 1
    shown, taken = np.full((length + 1, 3), value, np.float64), np.full((length, 2), value / 10, np.float64)
    return RecordedEpisode(shown, taken, np.full(length, value, np.float64), flags, ~flags & False)


def small_writer(name='told/w-v0'):
    return DatasetWriter(name, SHOWN['float64'], TAKEN['Box'], {'environment': {}})


def values(name='told/w-v0'):
    return [float(e.rewards[0]) for e in open_dataset(name)]


def test_a_data_set_opens_after_every_part_and_is_one_file_at_the_end(place):
    writer = small_writer()
    for i in range(4):
        writer.add([episode(2 * i, 3), episode(2 * i + 1, 2)], [i, i])
        assert values() == list(range(2 * i + 2))  # without an end: this is what a kill leaves
        assert len(minari.load_dataset('told/w-v0')[2 * i].rewards) == 3
    writer.finish()
    assert values() == list(range(8)) and open_dataset('told/w-v0').mean_return == np.mean(
        [i * (3 - i % 2) for i in range(8)]
    )
    assert sorted(p.name for p in writer.folder.iterdir()) == ['main_data.hdf5', 'metadata.json']


@pytest.mark.parametrize(('finished', 'kept'), [(True, 0), (False, 3), (True, 4), (False, 8)])
def test_recording_goes_on_behind_what_a_checkpoint_knew(finished, kept):
    writer = small_writer()
    for i in range(4):
        writer.add([episode(2 * i, 1), episode(2 * i + 1, 1)])
    if finished:
        writer.finish()
    with pytest.raises(OptionError, match='which another process is recording') if not finished else nullcontext():
        small_writer().close()
    writer.close()
    other = small_writer()
    other.resume(kept, writer.identity)
    other.add([episode(100, 2)])
    assert values() == [*range(kept), 100]
    other.add([episode(101, 2)])
    other.finish()
    assert values() == [*range(kept), 100, 101]
    assert open_dataset('told/w-v0').steps == kept + 4


def test_another_data_set_of_the_same_name_is_left_alone():
    writer = small_writer()
    writer.add([episode(1, 2), episode(2, 2)])
    writer.finish()
    other = small_writer()
    for kept in (0, 1, 3):
        with pytest.raises(OptionError, match='expected the data set that the run has recorded'):
            other.resume(kept, 'another')
    with pytest.raises(OptionError, match='with 2 episodes, expected 3 at least'):
        other.resume(3, writer.identity)
    other.close()
    assert values() == [1, 2]


def test_a_killed_recording_leaves_whole_episodes(place):
    code = """
import sys, numpy as np
from tests.datasets.test_recording import episode, small_writer
writer = small_writer()
for i in range(10_000):
    writer.add([episode(i, 50)])
    print(i, flush=True)
"""
    for wait in (0.0, 0.1):
        process = subprocess.Popen([sys.executable, '-c', code], stdout=subprocess.PIPE, text=True)
        assert process.stdout.readline() == '0\n'
        time.sleep(wait)
        process.send_signal(signal.SIGKILL)
        last = [0, *map(int, process.communicate()[0].split())][-1]
        read = values()
        assert read == list(range(len(read))) and last < len(read) <= last + 2
        subprocess.run(['rm', '-r', dataset_names.root()], check=True)


# -------------------------------------------------------------------------------------------------- wrong and listed


def test_wrong_data_sets_are_refused_in_one_line(place, folder):
    small = small_writer('told/good-v0')
    small.add([episode(1, 3)])
    small.finish()
    base = ('train', 'td3', '--max-steps', '10', '--dataset')

    def refusal(name):
        code, stdout, stderr = execute(*base, name)
        assert (code, stdout, stderr.count('\n')) == (2, '', 1)
        return stderr

    assert 'no data set told/god-v0' in refusal('told/god-v0') and 'did you mean told/good-v0?' in refusal(
        'told/god-v0'
    )
    assert 'got pendulum, expected a name with a version' in refusal('pendulum')
    assert 'got ../x-v0, expected a name with a version' in refusal('../x-v0')
    data = dataset_names.data_folder('told/good-v0')
    whole, metadata = (data / 'main_data.hdf5').read_bytes(), (data / dataset_names.METADATA).read_text()
    for wrong in (whole[:100], b'', whole[: len(whole) // 2]):
        (data / 'main_data.hdf5').write_bytes(wrong)
        assert 'told/good-v0 is damaged or not a data set' in refusal('told/good-v0')
    (data / 'main_data.hdf5').write_bytes(whole)
    for wrong in ('', '{}', '[1]', metadata.replace('"total_steps": 3', '"total_steps": "many"')):
        (data / dataset_names.METADATA).write_text(wrong)
        assert 'told/good-v0 is damaged or not a data set' in refusal('told/good-v0')
    (data / dataset_names.METADATA).write_text(metadata.replace('"total_episodes": 1', '"total_episodes": 2'))
    assert 'episode_1' in refusal('told/good-v0')


def test_numbers_that_are_not_finite_and_actions_that_do_not_exist_are_refused(place):
    for name, change in {
        'rewards': {'rewards': np.array([1.0, np.nan])},
        'observations': {'observations': np.full((3, 3), np.inf)},
        'shape': {'observations': np.zeros((2, 3))},
        'actions': {'actions': np.zeros((2, 3))},
    }.items():
        writer = small_writer(f'told/{name}-v0')
        writer.add([dataclasses.replace(episode(1, 2), **change)])
        with pytest.raises(OptionError, match='episode 0: '):
            list(open_dataset(f'told/{name}-v0'))


def test_the_list_of_data_sets(place, folder):
    assert 'There is no data set in' in execute('datasets')[1]
    writer = small_writer('told/a-v0')
    writer.add([episode(2, 3), episode(1, 3)])
    dataset_names.data_folder('told/b-v0').mkdir(parents=True)
    (dataset_names.data_folder('told/b-v0') / dataset_names.METADATA).write_text('{')
    code, page, _ = execute('datasets')
    assert code == 0
    assert [line.split() for line in page.splitlines()][1] == ['told/a-v0', '-', '2', '6', '4.50', '-']
    assert 'told/b-v0 is damaged' in page
    (record, broken) = map(json.loads, execute('datasets', '--json')[1].splitlines())
    assert (record['dataset'], record['episodes'], record['mean_return']) == ('told/a-v0', 2, 4.5)
    assert broken['problem'] and broken['steps'] is None
    assert execute('datasets', 'told/c-v0')[0] == 2
    assert execute('datasets', '--download')[2].count('\n') == 1


def test_a_name_that_cannot_be_taken_is_refused_before_anything_is_written(place, monkeypatch, tmp_path):
    writer = small_writer('told/a-v0')
    writer.add([episode(1, 2)])
    writer.finish()
    for name, message in {
        'told/a-v0': 'which exists already, expected a new name, such as told/a-v1',
        'told/a-v0/data/b-v0': 'expected a name outside the data set told/a-v0',
        'told/a-v0/b-v0': 'expected a name outside the data set told/a-v0',
        f'{"x" * 300}-v0': 'got a name of 303 characters',
    }.items():
        with pytest.raises(OptionError, match=message):
            dataset_names.check_new('dataset', name)
    file = tmp_path / 'file'
    file.write_text('')
    monkeypatch.setenv(dataset_names.ROOT, str(file))
    with pytest.raises(OptionError, match='is not writable'):
        dataset_names.check_new('dataset', 'told/b-v0')
    with pytest.raises(OptionError, match='is not writable'):
        small_writer('told/b-v0')


def test_a_full_disk_is_an_error_and_what_was_written_opens(monkeypatch):
    writer = small_writer()
    writer.add([episode(1, 2)])
    monkeypatch.setattr('shutil.disk_usage', lambda path: SimpleNamespace(free=2**20 + 100))
    with pytest.raises(OSError, match='No space left on device'):
        writer.add([episode(2, 2)])
    assert values() == [1]


def test_keys_with_a_slash_are_refused():
    space = spaces.Dict({'a': spaces.Tuple((spaces.Dict({'b/c': spaces.Discrete(2)}),))})
    with pytest.raises(OptionError, match="with the key 'b/c', expected names without a slash"):
        check_keys('record_dataset', space)


def test_metadata_may_say_anything_and_is_not_believed(place, folder):
    writer = small_writer('told/a-v0')
    writer.add([episode(2, 3), episode(1, 3)])
    writer.finish()
    path = dataset_names.data_folder('told/a-v0') / dataset_names.METADATA
    metadata = json.loads(path.read_text())

    def told(**others):
        path.write_text(json.dumps({**metadata, **others}))
        return open_dataset('told/a-v0')

    for own in ([1, 2], 'text', None, {'environment': 'x', 'mean_return': 'y'}):
        assert told(xagents=own).mean_return == 4.5
        code, page, _ = execute('datasets')
        assert code == 0 and 'told/a-v0' in page
    with pytest.raises(OptionError, match='its 2 episodes have 6 steps, expected 7'):
        told(total_steps=7).check_counts()
    with pytest.raises(OptionError, match='its 1 episodes have 3 steps, expected 6'):
        told(total_episodes=1).check_counts()
    for environment in (
        {'env': 'CartPole-v1', 'env_kwargs': 'abc'},
        {'env': 'gymnasium_robotics:os:x'},
        {'env': 'tests.environments:Counter-v0'},
        {'env': 'CartPole-v1', 'wrapper': ['os:system']},
        {'env': 'CartPole-v1', 'frame_stack': 'many'},
    ):
        assert dataset_environment_options(told(xagents={'environment': environment}))[0] == {}
    for module, known in (('minigrid', True), ('somewhere', False)):
        spec = json.dumps({'id': 'Unseen-v0', 'entry_point': f'{module}.envs:Unseen'})
        options, why = dataset_environment_options(told(env_spec=spec, xagents=None))
        env = f'{module}:Unseen-v0'
        assert options == {'env': env} if known else (options == {} and f'recorded in {env}, which needs' in why)
    drawn = {'env': 'CartPole-v1', 'env_kwargs': {'render_mode': 'human'}, 'nothing': 1}
    assert dataset_environment_options(told(xagents={'environment': drawn})) == ({'env': 'CartPole-v1'}, '')
    told(algorithm_name='\x1b[31mred')
    page = execute('datasets')[1]
    assert 'red' in page and '\x1b' not in page


def test_without_minari_one_line_says_what_to_install(place, folder, monkeypatch):
    monkeypatch.setitem(sys.modules, 'minari.dataset._storages.hdf5_storage', None)
    lines = ['datasets', 'train dqn --env CartPole-v1 --max-steps 9 --run-dir run --record-dataset a-v0']
    for line in lines:
        code, _, stderr = execute(*line.split())
        assert code == 2 and "data sets need an extra: pip install '.[datasets]'" in stderr
        assert stderr.count('\n') == 1 and not (folder / 'run').exists()
