"""The monitor of trackio: what a run logs is in its database, once, and nothing reaches for the network."""

import math
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

import xagents
from xagents.logs import monitors
from xagents.logs.metrics import read_metrics
from xagents.logs.monitors import TRACKIO_REMOTE_VARIABLES, TrackioMonitor, check_trackio
from xagents.options.errors import OptionError
from xagents.runs import reporting

pytestmark = pytest.mark.skipif(find_spec('trackio') is None, reason='needs trackio')


@pytest.fixture
def storage(tmp_path, monkeypatch):
    """The storage of trackio, in a directory of its own."""
    from trackio import sqlite_storage, utils

    for name in (*TRACKIO_REMOTE_VARIABLES, 'TRACKIO_STORAGE_MODE'):
        monkeypatch.delenv(name, raising=False)
    for module in (sqlite_storage, utils):
        monkeypatch.setattr(module, 'TRACKIO_DIR', tmp_path / 'trackio')
    return sqlite_storage.SQLiteStorage


def logged(storage, run_id):
    """The rows of a run, oldest first: step and metrics."""
    rows = storage.get_logs('xagents', run_id=run_id)
    assert all(row.pop('timestamp') for row in rows)
    return [(row.pop('step'), row) for row in rows]


def runs(storage):
    return [(record['id'], record['name']) for record in storage.get_run_records('xagents')]


def log(steps, **more):
    monitor = TrackioMonitor('my run', {'lr': 0.25, 'net': [64, 64], 'wrapper': log}, **more)
    for step in steps:
        monitor.write(step, {'loss/policy': -step / 4})
    monitor.close()
    return monitor


def test_a_killed_run_goes_on_as_the_same_run_and_logs_no_step_twice(storage, tmp_path, capfd):
    memory = tmp_path / 'trackio.json'
    first, other = log(range(0, 150, 10), id_file=memory), log(range(0, 150, 10))  # of equal names
    second = log(range(105, 180, 10), id_file=memory, resumed_at=100)
    assert second.id == first.id and runs(storage) == [(first.id, 'my run'), (other.id, 'my run')]
    rows = [(step, {'loss/policy': -step / 4}) for step in (*range(0, 110, 10), *range(105, 180, 10))]
    assert logged(storage, first.id) == rows
    assert len(logged(storage, other.id)) == 15, 'the rows of another run were removed'
    renamed = TrackioMonitor('another name', {'lr': 0.5}, id_file=memory, resumed_at=175)
    renamed.write(180, {'loss/policy': 0.0})
    assert len(runs(storage)) == 2 and len(logged(storage, first.id)) == len(rows) + 1
    assert storage.get_run_config('xagents', run_id=first.id)['lr'] == 0.5
    assert capfd.readouterr() == ('', '')


def test_a_deleted_database_is_made_again(storage, tmp_path):
    first = log([1], id_file=tmp_path / 'run.json')
    storage.get_project_db_path('xagents').unlink()
    log([2], id_file=tmp_path / 'run.json', resumed_at=1)
    assert [step for step, _ in logged(storage, first.id)] == [2]


def test_only_finite_metrics_are_logged_and_reserved_names_are_kept(storage):
    monitor = log([])
    monitor.write(7, {'a': 1, 'mean_reward': math.nan, 'best_reward': -math.inf, 'step': 3.0, 'time': 2.0})
    assert logged(storage, monitor.id) == [(7, {'a': 1.0, '__step': 3.0, '__time': 2.0})]
    config = storage.get_run_config('xagents', run_id=monitor.id)
    assert (config['net'], config['wrapper'].split()[:2]) == ([64, 64], ['<function', 'log'])


def test_a_run_logs_what_its_metrics_hold_also_when_it_is_resumed(storage, tmp_path, without_xla, monkeypatch):
    monkeypatch.setattr(reporting, 'MONITOR_SECONDS', 0.0)
    options = {'n_envs': 2, 'n_steps': 16, 'seed': 1, 'quiet': True, 'final_episodes': 0}
    run_dir = tmp_path / 'run'
    agent = xagents.make('ppo', 'CartPole-v1', run_dir=run_dir, monitor_session='s', monitor='trackio', **options)
    agent.fit(max_steps=160)
    agent.close()
    agent = xagents.resume(run_dir, max_steps=320, quiet=True)
    agent.fit()
    agent.close()
    ((run_id, name),) = runs(storage)
    assert name == 's' and storage.get_run_config('xagents', run_id=run_id)['max_steps'] == 320
    rows = logged(storage, run_id)
    expected = read_metrics(run_dir / 'metrics.parquet').to_dict('records')
    steps = [step for step, _ in rows]
    assert steps == sorted(set(steps)) and steps[0] <= 32 and steps[-1] >= 320 and len(steps) >= 10
    for (step, metrics), row in zip(rows, expected, strict=True):
        assert metrics == {name: value for name, value in row.items() if math.isfinite(value)}
        assert metrics['steps'] == step


# what opens, accepts or resolves an address; sockets of this machine's files (AF_UNIX) are left
OFFLINE = """
import socket, sys
calls = []
def record(name):
    def call(self, *arguments):
        if self.family != getattr(socket, 'AF_UNIX', None):
            calls.append((name, arguments))
            raise OSError('no network')
    return call
for name in ('connect', 'connect_ex', 'bind', 'listen', 'sendto'):
    setattr(socket.socket, name, record(name))
def resolve(*arguments, **keywords):
    calls.append(('getaddrinfo', arguments))
    raise socket.gaierror('no network')
socket.getaddrinfo = resolve

from xagents.logs.monitors import TrackioMonitor
for resumed_at in (None, 20):
    monitor = TrackioMonitor('r', {'lr': 1.0}, id_file=sys.argv[1], resumed_at=resumed_at)
    for step in range(10, 50, 10):
        monitor.write((resumed_at or 0) + step, {'a': step / 4})
    monitor.close()
assert 'trackio' in sys.modules and calls == [], calls
for try_it in (lambda: socket.create_connection(('localhost', 9)), lambda: socket.socket().bind(('', 0))):
    try:
        try_it()
    except OSError:
        pass
assert [name for name, _ in calls] == ['getaddrinfo', 'bind'], calls  # the network would have been seen
"""


def test_no_network_is_used_even_with_a_login_of_hugging_face(tmp_path, monkeypatch):
    for name in TRACKIO_REMOTE_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv('TRACKIO_DIR', str(tmp_path / 'trackio'))
    monkeypatch.setenv('HF_TOKEN', 'hf_none')
    monkeypatch.setenv('PYTHONPATH', str(Path(xagents.__file__).parents[1]))
    words = [sys.executable, '-c', OFFLINE, str(tmp_path / 'run.json')]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=100)
    assert (done.returncode, done.stdout, done.stderr) == (0, '', '')
    assert (tmp_path / 'trackio' / 'xagents.db').exists()


@pytest.mark.parametrize('name', TRACKIO_REMOTE_VARIABLES)
def test_variables_that_name_a_server_are_refused(name, storage, monkeypatch):
    monkeypatch.setenv(name, 'someone/something')
    with pytest.raises(ValueError, match=f'^--monitor trackio logs to this machine only, but {name} is set: unset it'):
        check_trackio()


def test_a_directory_that_takes_no_database_is_refused(storage, monkeypatch, tmp_path, capsys):
    from trackio import utils

    monkeypatch.setattr(utils, 'is_network_filesystem', lambda path: True)
    monkeypatch.setattr(utils, '_storage_mode_notified', False)
    with pytest.raises(ValueError, match=r'^--monitor trackio needs a database.*set TRACKIO_DIR to a local directory'):
        check_trackio()
    assert capsys.readouterr() == ('', '')
    monkeypatch.setenv('TRACKIO_STORAGE_MODE', 'sqlite')
    check_trackio()
    (tmp_path / 'trackio').write_text('')
    with pytest.raises(OptionError, match=r'^monitor: got .*trackio is a file, expected a directory'):
        check_trackio()


def test_the_tracker_needs_a_session_and_its_package(storage, tmp_path, monkeypatch):
    def make(**options):
        xagents.make('ppo', 'CartPole-v1', run_dir=tmp_path / 'run', **options)

    with pytest.raises(OptionError, match=r'^monitor: got trackio, which requires --monitor-session$'):
        make(monitor='trackio')
    with pytest.raises(OptionError, match=r'^monitor: got tracio, expected one of wandb, trackio'):
        make(monitor='tracio', monitor_session='s')
    monkeypatch.setattr(monitors.importlib.util, 'find_spec', lambda name: None)
    with pytest.raises(ValueError, match=r"^--monitor trackio needs trackio.*: pip install '\.\[trackio\]'$"):
        make(monitor='trackio', monitor_session='s')
    assert not (tmp_path / 'run').exists()


def test_an_error_of_the_database_reaches_the_run(storage, tmp_path):
    monitor = log([1], id_file=tmp_path / 'run.json')
    path = storage.get_project_db_path('xagents')
    for file in path.parent.glob('xagents.db*'):
        file.unlink()
    path.write_text('no database' * 1000)
    refused = r'^trackio could not log a metric: file is not a database$'
    with pytest.raises(RuntimeError, match=refused):
        monitor.write(2, {'a': 1.0})
    with pytest.raises(RuntimeError, match=refused):
        log([], id_file=tmp_path / 'run.json', resumed_at=1)
