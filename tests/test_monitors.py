"""Monitors: what was written is read back; W&B never asks and never needs the network to say that it cannot log."""

import json
import math
import os
import re
import subprocess
import sys
import threading
from collections import defaultdict
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from xagents import monitors
from xagents.monitors import TensorBoardMonitor, WandbMonitor, check_wandb

needs_wandb = pytest.mark.skipif(find_spec('wandb') is None, reason='needs wandb')


def read_events(path):
    """All events of a file, by tensorboard's own reader, which checks lengths and checksums."""
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.tensorflow_stub import errors
    from tensorboard.compat.tensorflow_stub.pywrap_tensorflow import PyRecordReader_New

    reader = PyRecordReader_New(str(path))
    events = []
    while True:
        try:
            reader.GetNext()
        except errors.OutOfRangeError:
            return events
        events.append(Event.FromString(reader.record()))


def scalars(events):
    return [(event.step, {value.tag: value.simple_value for value in event.summary.value}) for event in events]


def test_the_checksum_is_tensorboards():
    from tensorboard.compat.tensorflow_stub.pywrap_tensorflow import crc32c, masked_crc32c

    assert monitors._crc32c(b'123456789') == 0xE3069283  # the check value of CRC-32C
    generator = np.random.default_rng(0)
    for length in [*range(12), 465, *range(1020, 1032), 2048, 2051, 5000]:
        data = generator.bytes(length)
        assert monitors._crc32c(data) == crc32c(data), length
        assert int.from_bytes(monitors._masked_crc32c(data), 'little') == masked_crc32c(data)


def test_tensorboard_gets_every_finite_scalar(tmp_path):
    folder = tmp_path / 'logs' / 'run'
    monitor = TensorBoardMonitor(folder)
    expected = []
    for step in range(0, 5000, 100):
        metrics = {f'loss/{i}': step + i / 8 for i in range(60)}  # records longer than one block of the checksum
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


def test_a_resumed_run_hides_what_lies_beyond_its_step(tmp_path):
    from tensorboard.compat.proto.event_pb2 import SessionLog

    before, after = TensorBoardMonitor(tmp_path), TensorBoardMonitor(tmp_path, purge_step=70)
    for monitor in (before, after):
        monitor.close()
    assert before.path != after.path
    assert not any(event.HasField('session_log') for event in read_events(before.path))
    start = read_events(after.path)[1]
    assert (start.step, start.session_log.status) == (70, SessionLog.START)


def test_tensorboard_refuses_a_file_as_its_folder(tmp_path):
    (tmp_path / 'log').write_text('')
    with pytest.raises(ValueError, match=r'tensorboard: .*log'):
        TensorBoardMonitor(tmp_path / 'log')


def test_tensorboard_files_need_no_tensorflow(tmp_path):
    code = (
        'import sys; from xagents.monitors import TensorBoardMonitor\n'
        "monitor = TensorBoardMonitor(sys.argv[1]); monitor.write(1, {'a': 1.0}); monitor.close()\n"
        "assert 'tensorflow' not in sys.modules"
    )
    subprocess.run([sys.executable, '-c', code, str(tmp_path)], check=True)


def test_what_is_not_installed_is_named_with_its_remedy(tmp_path, monkeypatch):
    monkeypatch.setattr(monitors.importlib.util, 'find_spec', lambda name: None)
    with pytest.raises(ValueError, match=r'^--monitor-session needs wandb.*xagents\[wandb\]'):
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
    monkeypatch.setenv('PYTHONPATH', str(Path(monitors.__file__).parents[1]))
    (tmp_path / 'home').mkdir()
    (tmp_path / 'work').mkdir()
    monkeypatch.chdir(tmp_path / 'work')
    return monkeypatch


CHECK = (
    'from xagents.monitors import check_wandb\ntry: check_wandb()\nexcept ValueError as error: print("refused:", error)'
)


def run_check(**keywords):
    return subprocess.run([sys.executable, '-c', CHECK], capture_output=True, text=True, timeout=60, **keywords)


@needs_wandb
def test_without_a_login_wandb_is_refused_in_one_line(stranger):
    result = run_check(stdin=subprocess.DEVNULL)
    assert re.fullmatch(r'refused: --monitor-session .*`wandb login`.*WANDB_MODE=offline\n', result.stdout)
    assert result.stderr == ''


@needs_wandb
@pytest.mark.skipif(not hasattr(os, 'openpty'), reason='needs a pseudo-terminal')
def test_on_a_terminal_nobody_is_asked(stranger):
    ours, theirs = os.openpty()
    try:
        code = CHECK + '\nfrom xagents.monitors import WandbMonitor\nWandbMonitor("n", {})'
        child = subprocess.Popen([sys.executable, '-c', code], stdin=theirs, stdout=theirs, stderr=theirs)
        try:
            assert child.wait(timeout=60) == 1  # WandbMonitor raises the same error
        finally:
            child.kill()
            child.wait()
        shown = os.read(ours, 65536).decode()
    finally:
        os.close(ours)
        os.close(theirs)
    assert shown.startswith('refused: --monitor-session needs a W&B login')
    assert shown.splitlines()[-1].startswith('ValueError: --monitor-session needs a W&B login')
    assert 'choice' not in shown and '(1)' not in shown


@needs_wandb
@pytest.mark.parametrize('mode', ['offline', 'disabled', 'OFFLINE'])
def test_offline_modes_need_no_login(stranger, mode):
    stranger.setenv('WANDB_MODE', mode)
    check_wandb()


@needs_wandb
def test_a_configured_key_is_believed_without_the_network_and_a_broken_one_is_not(stranger):
    stranger.setenv('WANDB_API_KEY', '0' * 40)  # a form, not a key
    result = run_check()
    assert (result.stdout, result.stderr) == ('', '')
    stranger.setenv('WANDB_API_KEY', 'not a key')
    result = run_check()
    assert re.fullmatch(r'refused: --monitor-session.*WANDB_MODE=offline\n', result.stdout)


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
        if kind in (1, 4):  # whole, or the last part of one
            yield Record.FromString(content)
            content = b''


@needs_wandb
def test_offline_wandb_holds_every_metric_and_the_configuration(stranger, tmp_path, capfd):
    import wandb

    stranger.setenv('WANDB_MODE', 'offline')
    try:
        monitor = WandbMonitor('my run', {'lr': 0.25, 'env': 'CartPole-v1'}, folder=tmp_path / 'files')
        expected = {}
        for step in range(0, 1500, 10):
            expected[step] = {'mean_reward': step / 4, 'loss/policy': -float(step), 'games': step}
            monitor.write(step, expected[step])
        monitor.close()
        monitor.close()
    finally:
        wandb.teardown()
    written, config, name = defaultdict(dict), {}, ''
    (path,) = (tmp_path / 'files' / 'wandb').glob('offline-run-*/run-*.wandb')
    for record in read_offline_run(path):
        if record.HasField('history'):
            items = {'/'.join(item.nested_key) or item.key: json.loads(item.value_json) for item in record.history.item}
            written[items['_step']] = {key: value for key, value in items.items() if not key.startswith('_')}
        if record.HasField('run'):
            name = record.run.display_name
            config |= {item.key: json.loads(item.value_json) for item in record.run.config.update}
    assert written == expected
    assert name == 'my run'
    assert (config['lr'], config['env']) == (0.25, 'CartPole-v1')
    assert os.listdir(tmp_path / 'work') == []
    assert capfd.readouterr() == ('', '')
    assert not any(thread.name == 'wandb' for thread in threading.enumerate())


class SlowRun:
    """Stands for a W&B run that fails at a step."""

    def __init__(self, fails_at):
        self.fails_at, self.logged, self.finished = fails_at, [], None

    def log(self, metrics, step):
        if step == self.fails_at:
            raise OSError('disk full')
        self.logged.append((step, metrics))

    def finish(self, exit_code):
        self.finished = exit_code


@needs_wandb
@pytest.mark.parametrize('size', [1, 1000])
def test_an_error_of_wandb_reaches_the_run_and_nobody_waits_for_ever(stranger, size):
    import wandb

    stranger.setenv('WANDB_MODE', 'offline')
    stranger.setattr(monitors, 'QUEUE_SIZE', size)
    for fails_at, logged in ((None, 50), (20, 20)):
        run = SlowRun(fails_at)
        stranger.setattr(wandb, 'init', lambda run=run, **keywords: run)
        monitor = WandbMonitor('n', {})
        metrics = {'a': 1.0}
        failed = False
        for step in range(50):
            try:
                monitor.write(step, metrics)
            except RuntimeError:
                failed = True
            metrics = {'a': float(step)}
        if fails_at is None:
            monitor.close()
        else:
            with pytest.raises(RuntimeError, match='disk full'):
                monitor.close()
            assert failed or size == 1000
        assert [step for step, _ in run.logged] == list(range(logged))
        assert run.finished == (0 if fails_at is None else 1)
