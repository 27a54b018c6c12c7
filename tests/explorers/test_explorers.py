"""Explorers: the same weights, to the bit, however many there are, and whatever happens to them."""

import contextlib
import functools
import hashlib
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import gymnasium
import numpy as np
import psutil
import pytest

import xagents
from tests.commands import execute
from xagents.explorers.assignments import ExplorerError
from xagents.explorers.local_launcher import LocalLauncher, local_launcher
from xagents.explorers.worker_pool import WorkerPool
from xagents.options.errors import OptionError
from xagents.system.locks import locked_folder, remove_abandoned_folders

COMMON = {'n_envs': 8, 'seed': 1, 'quiet': True, 'net': [8], 'vector': 'sync'}
OFF = {'buffer_max_size': 3000, 'learning_starts': 200, 'buffer_batch_size': 16, 'train_frequency': 64}
OFF |= {'gradient_steps': 2}
AGENTS = {
    'a2c': ('Pendulum-v1', {'n_steps': 16, 'normalize_reward': True}),
    'acer': ('CartPole-v1', {'n_steps': 16, 'buffer_max_size': 2000, 'learning_starts': 300}),
    'ddpg': ('Pendulum-v1', {**OFF, 'noise': 'ornstein-uhlenbeck'}),
    'dqn': ('CartPole-v1', {**OFF, 'normalize_obs': True, 'epsilon_decay_steps': 300, 'epsilon_ladder': True}),
    'ppo': ('CartPole-v1', {'n_steps': 16, 'normalize_obs': True, 'normalize_reward': True}),
    'small': ('CartPole-v1', {'n_steps': 16, 'normalize_obs': True, 'normalize_reward': True}),
    'td3': ('Pendulum-v1', OFF),
    'trpo': ('CartPole-v1', {'n_steps': 16}),
    'ppo-sde': ('Pendulum-v1', {'n_steps': 16, 'sde': True, 'sde_sample_frequency': 5, 'normalize_obs': True}),
}

NAMES = ['ppo', *(pytest.param(name, marks=pytest.mark.slow) for name in ('ppo-sde', 'dqn'))]
pytestmark = pytest.mark.usefixtures('small_agents', 'shared_programs', 'without_xla_in_module')


def digest(agent):
    """What training has come to: all weights, and what was counted."""
    weights = [w.tobytes() for model in agent.output_models for w in model.get_weights()]
    return hashlib.sha256(b''.join(weights)).hexdigest(), agent.steps, agent.games


def make(name, **options):
    env, own = AGENTS[name]
    return xagents.make(name.partition('-')[0], env, **{**COMMON, **own, **options})


def trained(name, steps=1000, **options):
    with contextlib.closing(make(name)) as agent:
        agent.fit(max_steps=steps, **options)
        return digest(agent)


alone = functools.cache(trained)


@pytest.mark.parametrize('name', NAMES)
def test_weights_are_the_same_however_many_explore(name):
    assert trained(name, explorers=3) == alone(name)


@pytest.mark.slow
@pytest.mark.parametrize('name', ['ppo', 'dqn'])
def test_weights_of_networks_with_convolutions_are_the_same(name):
    own = {'ppo': {'n_steps': 8}, 'dqn': {**OFF, 'learning_starts': 40, 'train_frequency': 16}}[name]
    options = {**COMMON, 'n_envs': 4, 'net': None, 'env_kwargs': {'shown': 'image'}, **own}
    found = []
    for explorers in (None, 2):
        with contextlib.closing(xagents.make(name, 'tests.problems:Anything-v0', **options)) as agent:
            agent.fit(max_steps=64, explorers=explorers)
            assert agent.acting_policy.network.plan.has_convolutions
            found.append(digest(agent))
    assert found[0] == found[1]


@pytest.mark.slow
@pytest.mark.parametrize('name', ['ppo', 'ppo-sde', 'dqn'])
def test_one_iteration_ahead_is_the_same_too(name):
    ahead = trained(name, overlap=True)
    assert ahead != alone(name)
    assert trained(name, overlap=True, explorers=2) == ahead


@pytest.mark.slow
def test_a2c_learns_one_iteration_ahead_with_v_trace():
    with contextlib.closing(make('a2c')) as agent, pytest.raises(OptionError, match='has no correction'):
        agent.fit(max_steps=100, overlap=True)
    found = []
    for options in ({}, {'overlap': True}, {'overlap': True, 'explorers': 2}):
        with contextlib.closing(make('a2c', v_trace=True)) as agent:
            agent.fit(max_steps=500, **options)
            found.append(digest(agent))
    assert found[0] != found[1] == found[2]


def test_a_run_goes_on_with_another_number_or_none(tmp_path):
    folder = str(tmp_path / 'run')
    with contextlib.closing(make('ppo')) as agent:
        agent.fit(max_steps=250, explorers=3, run_dir=folder)
        agent.fit(max_steps=500)
    for steps, explorers in ((750, 2), (1000, None)):
        with contextlib.closing(xagents.resume(folder, max_steps=steps, explorers=explorers)) as agent:
            agent.fit()
            last = digest(agent)
    assert last == alone('ppo')


@pytest.fixture
def launchers(monkeypatch):
    """The crews that are made, so that their processes can be killed."""
    made = []
    begin = LocalLauncher.__init__

    def note(self, *arguments):
        made.append(self)
        begin(self, *arguments)

    monkeypatch.setattr(LocalLauncher, '__init__', note)
    return made


@pytest.mark.slow
def test_kills_at_random_instants_change_nothing(launchers, monkeypatch):
    monkeypatch.setenv('PYTHONPATH', os.getcwd())
    pools = []
    begin = WorkerPool.__init__
    monkeypatch.setattr(WorkerPool, '__init__', lambda self, *a: (pools.append(self), begin(self, *a))[1])
    rng, ended = np.random.default_rng(0), threading.Event()
    killed = []

    def kill():
        while len(killed) < 4 and not ended.wait(rng.uniform(0.05, 0.3)):
            if pools and all(shard.ready for shard in pools[-1].shards):
                process = launchers[-1].processes[rng.integers(3)]
                process.send_signal(signal.SIGKILL)
                killed.append(process)

    thread = threading.Thread(target=kill)
    thread.start()
    try:
        found = trained('small', 20_000, explorers=3)
    finally:
        ended.set()
        thread.join()
    assert killed and pools[-1].n_lost >= 1
    assert found == alone('small', 20_000)
    assert pools[-1].n_lost_envs == 0


@pytest.fixture
def shared_memory(monkeypatch):
    """An empty folder in place of the shared memory; its path is short, as the address of a socket must be."""
    with tempfile.TemporaryDirectory(dir='/tmp') as folder:
        monkeypatch.setattr('xagents.explorers.local_launcher.SHARED_MEMORY_FOLDER', folder)
        yield Path(folder)


def test_nothing_is_left_of_explorers(launchers, shared_memory):
    before = set(threading.enumerate())
    trained('small', 300, explorers=2)
    assert [process.code for process in launchers[0].processes] == [0, 0]
    assert not list(shared_memory.iterdir())
    deadline = time.monotonic() + 5
    while set(threading.enumerate()) - before and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not {thread.name for thread in set(threading.enumerate()) - before}


HOLDER = """
import sys
from xagents.system.locks import locked_folder
with locked_folder('xagents-explorers-', sys.argv[1]) as folder:
    (folder / 'large').touch()
    print(folder, flush=True)
    sys.stdin.read()
"""


def test_folders_of_processes_that_were_killed_are_removed_at_the_next_start(shared_memory):
    words = [sys.executable, '-c', HOLDER, str(shared_memory)]
    holders = [subprocess.Popen(words, stdin=-1, stdout=-1, text=True) for _ in range(2)]
    dead, living = (Path(holder.stdout.readline().strip()) for holder in holders)
    holders[0].kill()
    holders[0].communicate()
    other = shared_memory / 'xagents-explorers-of-another-user'
    other.mkdir()
    if os.getuid() == 0:
        os.chown(other, 12345, -1)
    elsewhere = shared_memory / 'elsewhere'
    elsewhere.mkdir()
    (shared_memory / 'xagents-explorers-link').symlink_to(elsewhere)
    with local_launcher(0, queue.SimpleQueue()):
        assert not dead.exists() and (living / 'large').exists() and elsewhere.exists()
        assert other.exists() or os.getuid() != 0
        assert len(list(shared_memory.glob('xagents-explorers-*'))) == 3 + other.exists()
    holders[1].communicate()
    assert not living.exists()


def test_a_folder_that_goes_before_it_is_locked_is_made_again(tmp_path, monkeypatch):
    make, made = tempfile.mkdtemp, []

    def gone(**others):
        made.append(make(**others))
        if len(made) == 1:
            os.rmdir(made[0])
        return made[-1]

    monkeypatch.setattr('tempfile.mkdtemp', gone)
    with locked_folder('a-', str(tmp_path)) as folder:
        assert len(made) == 2 and [*tmp_path.iterdir()] == [folder]
        remove_abandoned_folders('a-', str(tmp_path))
        assert folder.exists()
    assert not folder.exists()


def test_what_cannot_be_divided_is_one_line():
    with (
        contextlib.closing(make('small')) as agent,
        pytest.raises(OptionError, match='got 9, expected at most the 8 of --n-envs'),
    ):
        agent.fit(max_steps=100, explorers=9)
    with contextlib.closing(make('small', vector='auto')) as agent, pytest.raises(OptionError, match='one vector'):
        agent.fit(max_steps=100, explorers=2)
    cartpoles = [gymnasium.make('CartPole-v1') for _ in range(4)]
    for envs in (xagents.create_envs(lambda: gymnasium.make('CartPole-v1'), 4), cartpoles):
        refused = pytest.raises(OptionError, match='is an object, expected the name')
        with contextlib.closing(xagents.make('small', envs, quiet=True)) as agent, refused:
            agent.fit(max_steps=100, explorers=2)


def test_explorers_step_environments_that_were_created_by_name():
    found = []
    for explorers in (None, 2):
        envs = xagents.create_envs('CartPole-v1', 4, max_episode_steps=20)
        with contextlib.closing(xagents.make('small', envs, n_steps=16, net=[8], seed=1, quiet=True)) as agent:
            agent.fit(max_steps=300, explorers=explorers)
            found.append(digest(agent))
    assert found[0] == found[1]


def test_an_environment_that_fails_ends_the_run_with_its_line(tmp_path, monkeypatch):
    (tmp_path / 'failing.py').write_text(
        'import gymnasium\n'
        'from gymnasium.envs.classic_control import CartPoleEnv\n'
        'class Failing(CartPoleEnv):\n'
        '    def step(self, action):\n'
        "        if self.state[0] > 0.05: raise RuntimeError('the motor is\\nhot')\n"
        '        return super().step(action)\n'
        "gymnasium.register('Failing-v0', entry_point=Failing, max_episode_steps=100)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    options = {**COMMON, 'n_steps': 64, 'explorers': 1}
    failed = pytest.raises(ExplorerError, match=r'3 times at the same task: RuntimeError: the motor is hot$')
    with contextlib.closing(xagents.make('small', 'failing:Failing-v0', **options)) as agent, failed:
        agent.fit(max_steps=1000)


def test_after_a_number_that_is_not_finite_all_begin_new_episodes(tmp_path, monkeypatch):
    (tmp_path / 'breaking.py').write_text(
        'import gymnasium\n'
        'from gymnasium.envs.classic_control import CartPoleEnv\n'
        'class Breaking(CartPoleEnv):\n'
        '    steps = 0\n'
        '    def step(self, action):\n'
        '        self.steps += 1\n'
        "        if self.steps == 40: self.state = (float('nan'),) * 4\n"
        '        return super().step(action)\n'
        "gymnasium.register('Breaking-v0', entry_point=Breaking, max_episode_steps=500)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    found = []
    for explorers in (None, 1):
        options = {**COMMON, 'n_envs': 2, 'n_steps': 16, 'normalize_obs': True, 'normalize_reward': True}
        with contextlib.closing(xagents.make('small', 'breaking:Breaking-v0', **options)) as agent:
            logs = list(agent.train_iter(max_steps=500, on_nan='skip', explorers=explorers))
            assert sum(log.get('stats/refused', 0.0) for log in logs) == 1.0
            found.append(digest(agent))
    assert found[0] == found[1]


def test_the_command_line_knows_them(folder):
    words = ['train', 'small', '--env', 'CartPole-v1', '--n-envs', '8', '--n-steps', '16', '--max-steps', '300']
    code, out, said = execute(*words, '--explorers', '2', '--run-dir', 'run', '--seed', '1')
    assert (code, said) == (0, '')
    assert 'sync' in (folder / 'run' / 'config.yaml').read_text()
    code, out, said = execute(*words, '--explorers', '0')
    assert (code, out) == (2, '') and said.count('\n') == 1 and '--explorers' in said


SLOW = """
import time
import gymnasium
from gymnasium.envs.classic_control import CartPoleEnv

class Slow(CartPoleEnv):
    def step(self, action):
        time.sleep(0.002)
        return super().step(action)

gymnasium.register('Slow-v0', entry_point=Slow, max_episode_steps=500)
"""


def living(place):
    """The explorers of a process that works in a folder, and may be gone."""
    found = []
    for process in psutil.process_iter(['cmdline', 'status', 'cwd']):
        words = process.info['cmdline'] or []
        if 'xagents.explorers.process' in words and process.info['status'] != psutil.STATUS_ZOMBIE:
            found += [process] if process.info['cwd'] == str(place) else []
    return found


LEARNER = 'from tests.small_agents import registered\nfrom xagents.cli import main\nwith registered(): main()'
SLOW_SIGNALS = [pytest.param(n, 128 + n, marks=pytest.mark.slow) for n in (signal.SIGINT, signal.SIGTERM)]


@pytest.mark.parametrize(('number', 'code'), [(signal.SIGKILL, -9), *SLOW_SIGNALS])
def test_no_explorer_outlives_its_learner(number, code, tmp_path):
    (tmp_path / 'slow.py').write_text(SLOW)
    words = 'train small --env slow:Slow-v0 --n-envs 4 --n-steps 64 --explorers 2 --max-steps 100000 --run-dir run'
    environment = {**os.environ, 'PYTHONPATH': f'{tmp_path}:{os.environ.get("PYTHONPATH", "")}'}
    learner = subprocess.Popen(
        [sys.executable, '-c', LEARNER, *words.split()], cwd=tmp_path, env=environment, stdout=-3, stderr=-3
    )
    try:
        deadline = time.monotonic() + 120
        while not (tmp_path / 'run' / 'checkpoints' / 'last').exists() and time.monotonic() < deadline:
            time.sleep(0.1)
        explorers = living(tmp_path)
        folders = {Path(explorer.cmdline()[-2]) for explorer in explorers}
        assert len(explorers) == 2 and len(folders) == 1 and all(folder.exists() for folder in folders)
        learner.send_signal(number)
        assert learner.wait(90) == code
        deadline = time.monotonic() + 10
        while living(tmp_path) and time.monotonic() < deadline:
            time.sleep(0.1)
        assert not living(tmp_path)
        assert not any(folder.exists() for folder in folders)
    finally:
        learner.kill()
        for process in living(tmp_path):
            process.kill()


def test_an_explorer_is_small_and_nobody_else_steps_meanwhile(launchers):
    with contextlib.closing(make('small')) as agent:
        stream = agent.train_iter(max_steps=5000, explorers=1)
        next(stream)
        process = psutil.Process(launchers[0].processes[0]._process.pid)
        maps = {os.path.basename(place.path) for place in process.memory_maps()}
        assert process.memory_info().rss < 90e6
        assert not any('tensorflow' in name for name in maps)
        with pytest.raises(TypeError, match='explorers have the environments'):
            agent.collector.current_observations()
        stream.close()
        assert agent.collector.current_observations().shape == (8, 4)


OWN = """
import os
import pathlib
import gymnasium
from gymnasium.envs.classic_control import CartPoleEnv

class Own(CartPoleEnv):
    def __init__(self, table=None, uncopied=False, **others):
        super().__init__(**others)
        self.place = os.environ['OWN_PLACE']
        self.held = open(os.devnull) if uncopied else None

    def close(self):
        super().close()
        pathlib.Path(self.place, f'closed-{os.getpid()}').touch()

gymnasium.register('Own-v0', entry_point=Own, max_episode_steps=40)
"""


@pytest.fixture
def own(tmp_path, monkeypatch):
    """The name of an environment that notes its end, and may hold what cannot be copied."""
    (tmp_path / 'own_env.py').write_text(OWN)
    monkeypatch.setenv('OWN_PLACE', str(tmp_path))
    monkeypatch.syspath_prepend(tmp_path)
    return 'own_env:Own-v0'


def test_explorers_close_their_environments(own, tmp_path, launchers):
    with contextlib.closing(xagents.make('small', own, **COMMON, n_steps=16, explorers=2)) as agent:
        agent.fit(max_steps=200)
    pids = {process.pid for process in launchers[0].processes}
    assert {int(path.name.split('-')[1]) for path in tmp_path.glob('closed-*')} >= pids


@pytest.mark.parametrize('table', [{1: 2}, {'a': (1, 2)}, len, np.ones(2)], ids=['key', 'tuple', 'function', 'array'])
def test_arguments_that_would_arrive_as_others_are_refused(own, table):
    refused = pytest.raises(OptionError, match='env_kwargs cannot be sent')
    with contextlib.closing(xagents.make('small', own, **COMMON, env_kwargs={'table': table})) as agent, refused:
        agent.fit(max_steps=100, explorers=2)


def test_what_cannot_be_copied_begins_anew_and_is_counted(own, launchers):
    options = {**COMMON, **OFF, 'env_kwargs': {'uncopied': True}}
    with contextlib.closing(xagents.make('small-replay', own, **options)) as agent:
        stream = agent.train_iter(max_steps=3000, explorers=2)
        logs = [next(stream) for _ in range(3)]
        assert logs[-1]['explorers/lost_environments'] == 0
        launchers[0].processes[0].send_signal(signal.SIGKILL)
        lost = [log['explorers/lost_environments'] for log in stream]
    assert lost[-1] == 4


def test_an_explorer_that_is_silent_is_replaced(launchers, monkeypatch):
    monkeypatch.setattr('xagents.explorers.membership.STEP_TIMEOUT', 1.0)
    with contextlib.closing(make('small')) as agent:
        stream = agent.train_iter(max_steps=3000, explorers=2)
        next(stream)
        launchers[0].processes[1].send_signal(signal.SIGSTOP)
        for _ in stream:
            pass
        assert digest(agent) == alone('small', 3000)
