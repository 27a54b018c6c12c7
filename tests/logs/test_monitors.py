"""Monitors: what was written is read back; W&B never asks and never needs the network to say that it cannot log."""

import contextlib
import errno
import inspect
import json
import math
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from xagents.logs import monitors
from xagents.logs.monitors import TensorBoardMonitor, WandbMonitor, check_wandb

needs_wandb = pytest.mark.skipif(find_spec('wandb') is None, reason='needs wandb')


def read_events(path):
    """All events of a file, by tensorboard's own reader, which checks lengths and checksums."""
    from tensorboard.backend.event_processing.event_file_loader import LegacyEventFileLoader

    return list(LegacyEventFileLoader(str(path)).Load())


def scalars(events):
    return [(event.step, {value.tag: value.simple_value for value in event.summary.value}) for event in events]


def test_tensorboard_gets_every_finite_scalar(tmp_path):
    folder = tmp_path / 'logs' / 'run'
    monitor = TensorBoardMonitor(folder)
    expected = []
    for step in range(0, 5000, 100):
        metrics = {f'loss/{i}': step + i / 8 for i in range(60)}
        monitor.write(step, {**metrics, 'mean_reward': math.nan, 'best_reward': -math.inf, 'games': np.int64(step)})
        expected.append((step, {**metrics, 'games': float(step)}))
    monitor.close()
    monitor.close()
    (name,) = os.listdir(folder)
    assert 'tfevents' in name  # what TensorBoard looks for
    first, *events = read_events(folder / name)
    assert first.file_version == 'brain.Event:2'
    assert scalars(events) == expected


def test_tensorboard_sees_metrics_while_the_run_goes_on(tmp_path, monkeypatch):
    monitor = TensorBoardMonitor(tmp_path)
    monitor.write(1, {'a': 1.0})
    monitor.flush()
    assert scalars(read_events(monitor.path))[1:] == [(1, {'a': 1.0})]
    monkeypatch.setattr(monitors, 'FLUSH_SECONDS', 0.0)
    monitor.write(2, {'a': 2.0})
    assert scalars(read_events(monitor.path))[1:] == [(1, {'a': 1.0}), (2, {'a': 2.0})]
    monitor.close()


def test_tensorboard_refuses_a_file_as_its_folder(tmp_path):
    (tmp_path / 'log').write_text('')
    with pytest.raises(ValueError, match=r'tensorboard: .*log'):
        TensorBoardMonitor(tmp_path / 'log')


@pytest.mark.skipif(not Path('/dev/full').exists(), reason='needs /dev/full')
def test_a_full_disk_is_an_error_that_names_the_file(tmp_path, monkeypatch):
    monitor = TensorBoardMonitor(tmp_path)
    monitor._file = tf.io.TFRecordWriter('/dev/full')
    monitor.write(1, {'a': 1.0})
    with pytest.raises(OSError, match=r'No space left on device.*tfevents') as error:
        monitor.flush()
    assert error.value.errno == errno.ENOSPC


def test_what_is_not_installed_is_named_with_its_remedy(tmp_path, monkeypatch):
    monkeypatch.setattr(monitors.importlib.util, 'find_spec', lambda name: None)
    with pytest.raises(ValueError, match=r"^--monitor-session needs wandb.*pip install '\.\[wandb\]'"):
        check_wandb()
    with pytest.raises(ValueError, match=r'^--tensorboard needs tensorboard.*pip install'):
        TensorBoardMonitor(tmp_path)


@pytest.fixture
def stranger(tmp_path, monkeypatch):
    """The environment of a person who never logged in to W&B; its proxy leads nowhere."""
    for name in list(os.environ):
        if name.startswith('WANDB_'):
            monkeypatch.delenv(name)
    for name in ('HOME', 'USERPROFILE', 'WANDB_CONFIG_DIR', 'WANDB_CACHE_DIR', 'WANDB_DATA_DIR'):
        monkeypatch.setenv(name, str(tmp_path / 'home'))
    monkeypatch.setenv('NETRC', str(tmp_path / 'home' / 'netrc'))
    monkeypatch.setenv('https_proxy', 'http://127.0.0.1:9')
    # Child processes start elsewhere, and the package may be found by a relative path.
    monkeypatch.setenv('PYTHONPATH', str(Path(monitors.__file__).parents[2]))
    (tmp_path / 'home').mkdir()
    (tmp_path / 'work').mkdir()
    monkeypatch.chdir(tmp_path / 'work')
    yield monkeypatch
    if 'wandb' in sys.modules:
        sys.modules['wandb'].teardown()  # it remembers who is logged in


NO_LOGIN = r'needs a W&B login: run `wandb login` once, or set WANDB_MODE=offline'


@needs_wandb
@pytest.mark.parametrize(
    ('key', 'said'),
    [(None, f' {NO_LOGIN}'), ('not a key', r': the W&B login cannot be used .*WANDB_MODE=offline'), ('0' * 40, None)],
)
def test_without_a_usable_login_wandb_is_refused_in_one_line_and_the_network_is_not_asked(key, said, stranger, capfd):
    if key is not None:
        stranger.setenv('WANDB_API_KEY', key)  # the last one has a key's form
    refused = pytest.raises(ValueError, match=f'^--monitor-session{said}$') if said else contextlib.nullcontext()
    with refused:
        check_wandb()
    assert capfd.readouterr() == ('', '')


@needs_wandb
@pytest.mark.parametrize('mode', ['offline', 'disabled', 'OFFLINE'])
def test_offline_modes_need_no_login(stranger, mode):
    stranger.setenv('WANDB_MODE', mode)
    check_wandb()


def read_offline_run(path):
    """The records of a .wandb file: a LevelDB log of 32 KiB blocks after a header of 7 bytes."""
    from wandb.proto.wandb_internal_pb2 import Record

    data, position, content = path.read_bytes(), 7, b''
    while position + 7 <= len(data):
        left = 32768 - position % 32768
        if left < 7:
            position += left
            continue
        length, kind = int.from_bytes(data[position + 4 : position + 6], 'little'), data[position + 6]
        content += data[position + 7 : position + 7 + length]
        position += 7 + length
        if position > len(data):  # torn by a kill
            return
        if kind in (1, 4):  # whole, or the last part of one
            yield Record.FromString(content)
            content = b''


def logged_offline():
    """What the segments of an offline run hold, oldest first: (step, metrics) each; and the runs' names and options."""
    rows, runs = [], {}
    for path in sorted(Path('wandb').glob('offline-run-*/run-*.wandb')):
        for record in read_offline_run(path):
            if record.HasField('history'):
                items = {'/'.join(item.nested_key) or item.key: item.value_json for item in record.history.item}
                row = {name: json.loads(value) for name, value in items.items() if name == '_step' or name[0] != '_'}
                rows.append((row.pop('_step'), row))
            if record.HasField('run'):
                config = runs.setdefault((record.run.run_id, record.run.display_name), {})
                config |= {item.key: json.loads(item.value_json) for item in record.run.config.update}
    return rows, runs


def log(steps, **more):
    monitor = WandbMonitor('my run', {'lr': 0.25, 'env': 'CartPole-v1'}, **more)
    for step in steps:
        monitor.write(step, {'loss/policy': -step / 4, 'games': step})
    return monitor


KILLED = f"""
import os, signal, sys, time
from xagents.logs import monitors
from xagents.logs.monitors import WandbMonitor
monitors.WANDB_FLUSH_SECONDS = 0.1
{inspect.getsource(log)}
monitor = log(range(0, 1500, 10), id_file=sys.argv[1])
for step in range(1500, 1510):  # each writes out what came before, where that is due
    time.sleep(0.1)
    monitor.write(step, {{'games': 1}})
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.slow
@needs_wandb
@pytest.mark.skipif(sys.platform == 'win32', reason='needs SIGKILL')
def test_a_killed_offline_run_holds_everything_and_goes_on_as_the_same_run(stranger, tmp_path, capfd):
    stranger.setenv('WANDB_MODE', 'offline')
    memory = tmp_path / 'wandb.json'
    subprocess.run([sys.executable, '-c', KILLED, str(memory)], timeout=60)
    killed, runs = logged_offline()
    rows = [(step, {'loss/policy': -step / 4, 'games': step}) for step in range(0, 1800, 10)]
    assert killed[:150] == rows[:150], 'what was logged a while ago is there'
    monitor = log(range(1200, 1800, 10), id_file=memory, resumed_at=1205)
    monitor.close()
    monitor.close()
    sys.modules['wandb'].teardown()  # it has written everything then
    # what lies between the checkpoint and the kill stands twice; W&B's own process may write on after the kill
    logged, both = logged_offline()
    assert (logged[: len(killed)], logged[-59:], both) == (killed, rows[121:], runs)
    late = logged[150:-59]
    assert late == [(1500 + index, {'games': 1}) for index in range(len(late))]
    (((_, name), config),) = runs.items()
    assert (name, config['lr'], config['env']) == ('my run', 0.25, 'CartPole-v1')
    assert os.listdir() == ['wandb']
    assert capfd.readouterr() == ('', '')


@needs_wandb
def test_an_online_run_goes_on_behind_what_the_server_has(stranger, tmp_path):
    import wandb

    stranger.setenv('WANDB_MODE', 'offline')
    memory, asked = tmp_path / 'wandb.json', []

    def init(**keywords):
        asked.append((keywords['id'], keywords['resume']))
        run = FakeRun()
        run.starting_step = 95 if keywords['id'] else 0
        return run

    stranger.setattr(wandb, 'init', init)
    logged = []
    for resumed_at, steps in ((None, (10, 50, 90, 94)), (50, (60, 90, 100, 110)), (None, (120,))):
        monitor = WandbMonitor('n', {}, id_file=memory, resumed_at=resumed_at)
        for step in steps:
            monitor.write(step, {})
        monitor.close()
        logged += monitor.run.logged
        assert monitor.run.finished == 0
    assert asked == [(None, None), ('abc', 'allow'), ('abc', 'allow')]
    assert logged == [10, 50, 90, 94, 100, 110, 120]


class FakeRun:
    """Stands for a W&B run that fails at a step."""

    id, starting_step = 'abc', 0

    def __init__(self, fails_at=None):
        self.fails_at, self.logged, self.finished = fails_at, [], None

    def log(self, metrics, step, commit):
        if step == self.fails_at:
            raise OSError('disk full')
        self.logged.append(step)

    def finish(self, exit_code):
        self.finished = exit_code


@needs_wandb
def test_an_error_of_wandb_reaches_the_run(stranger):
    import wandb

    stranger.setenv('WANDB_MODE', 'offline')
    stranger.setattr(wandb, 'init', lambda **keywords: FakeRun(fails_at=20))
    monitor = WandbMonitor('n', {})
    with pytest.raises(RuntimeError, match='disk full'):
        for step in range(50):
            monitor.write(step, {'a': 1.0})
    monitor.close()
    assert (monitor.run.logged, monitor.run.finished) == ([*range(20)], 1)
