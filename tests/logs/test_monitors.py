"""Monitors: what was written is read back; W&B never asks and never needs the network to say that it cannot log."""

import json
import math
import os
import re
import subprocess
import sys
import tempfile
import threading
import zlib
from collections import defaultdict
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from xagents.logs import monitors
from xagents.logs.monitors import TensorBoardMonitor, WandbMonitor, check_wandb
from xagents.logs.wandb_log import cut_offline_log

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
        monitor.flush()  # a checkpoint on the way out may come after it
    assert before.path != after.path
    assert not any(event.HasField('session_log') for event in read_events(before.path))
    start = read_events(after.path)[1]
    assert (start.step, start.session_log.status) == (70, SessionLog.START)


def test_event_files_sort_in_the_order_in_which_they_were_made(tmp_path, monkeypatch):
    made = [TensorBoardMonitor(tmp_path) for _ in range(12)]  # all in one second or so
    monkeypatch.setattr(monitors.time, 'time', lambda: 1e9)  # a clock that was set back
    monkeypatch.setattr(monitors.socket, 'gethostname', lambda: 'a')
    made.append(TensorBoardMonitor(tmp_path))
    for monitor in made:
        monitor.close()
    assert sorted(tmp_path.iterdir()) == [monitor.path for monitor in made]


def test_tensorboard_refuses_a_file_as_its_folder(tmp_path):
    (tmp_path / 'log').write_text('')
    with pytest.raises(ValueError, match=r'tensorboard: .*log'):
        TensorBoardMonitor(tmp_path / 'log')


def test_tensorboard_files_need_no_tensorflow(tmp_path):
    code = (
        'import sys; from xagents.logs.monitors import TensorBoardMonitor\n'
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
    monkeypatch.setenv('PYTHONPATH', str(Path(monitors.__file__).parents[2]))
    (tmp_path / 'home').mkdir()
    (tmp_path / 'work').mkdir()
    monkeypatch.chdir(tmp_path / 'work')
    return monkeypatch


CHECK = 'from xagents.logs.monitors import check_wandb\ntry: check_wandb()\nexcept ValueError as error: print("refused:", error)'


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
        code = CHECK + '\nfrom xagents.logs.monitors import WandbMonitor\nWandbMonitor("n", {})'
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
        if position > len(data):  # torn by a kill
            return
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


KILLED = (
    'import os, signal, sys, time\n'
    'from xagents.logs.monitors import WandbMonitor\n'
    "monitor = WandbMonitor('my run', {'lr': 0.25}, folder=sys.argv[1], memory=sys.argv[2])\n"
    "for step in range(0, 1500, 10): monitor.write(step, {'x': float(step)})\n"
    'time.sleep(2.5)\n'
    "for step in range(1500, 2000, 10): monitor.write(step, {'x': float(step)})\n"
    'os.kill(os.getpid(), signal.SIGKILL)\n'
)


def offline_steps(folder):
    """The steps of all segments of an offline run, oldest first, and the ids of the runs."""
    steps, ids = [], set()
    for path in sorted((folder / 'wandb').glob('offline-run-*/run-*.wandb')):
        for record in read_offline_run(path):
            if record.HasField('history'):
                (step,) = (json.loads(item.value_json) for item in record.history.item if item.nested_key == ['_step'])
                assert step == record.history.step.num
                steps.append(step)
            if record.HasField('run'):
                ids.add(record.run.run_id)
    return steps, ids


@needs_wandb
@pytest.mark.skipif(sys.platform == 'win32', reason='needs SIGKILL')
def test_a_killed_offline_run_goes_on_and_no_step_stands_twice(stranger, tmp_path):
    import wandb

    stranger.setenv('WANDB_MODE', 'offline')
    folder, memory = tmp_path / 'files', tmp_path / 'wandb.json'
    subprocess.run([sys.executable, '-c', KILLED, str(folder), str(memory)], timeout=60)
    killed, (first_id,) = offline_steps(folder)
    assert killed[:150] == list(range(0, 1500, 10)), 'what was logged a while ago is there'
    try:
        for resumed_at, last in ((1205, 1700), (None, 1900)):  # and once more in the same process
            monitor = WandbMonitor('my run', {'lr': 0.25}, folder=folder, memory=memory, resumed_at=resumed_at)
            for step in range(1210 if resumed_at else 1710, last + 1, 10):
                monitor.write(step, {'x': float(step)})
            monitor.close()
            steps, ids = offline_steps(folder)
            assert steps == list(range(0, last + 1, 10)) and ids == {first_id}
        # a segment that is on W&B's server stays as it is, and the next one goes on behind it
        for path in (folder / 'wandb').glob('offline-run-*/run-*.wandb'):
            path.with_name(path.name + '.synced').write_text('')
        monitor = WandbMonitor('my run', {'lr': 0.25}, folder=folder, memory=memory, resumed_at=1500)
        for step in range(1510, 2110, 10):
            monitor.write(step, {'x': float(step)})
        monitor.close()
    finally:
        wandb.teardown()
    assert offline_steps(folder)[0] == list(range(0, 2110, 10))


def log_file(path, records):
    """A log in LevelDB's format, cut into fragments at each block's end; returns where each record ends."""
    data, ends = bytearray(b':W&B\xbe\xe1\x00'), []
    for record in records:
        rest, first = record, True
        while first or rest:
            room = 32768 - len(data) % 32768
            if room < 7:
                data += bytes(room)
                continue
            part, rest = rest[: room - 7], rest[room - 7 :]
            kind = {(True, True): 1, (True, False): 2, (False, False): 3, (False, True): 4}[first, not rest]
            checksum = zlib.crc32(bytes([kind]) + part)
            data += checksum.to_bytes(4, 'little') + len(part).to_bytes(2, 'little') + bytes([kind]) + part
            first = False
        ends.append(len(data))
    path.write_bytes(data)
    return ends


@needs_wandb
@settings(max_examples=60)
@given(st.lists(st.tuples(st.booleans(), st.integers(0, 70_000)), max_size=12), st.integers(-1, 12), st.integers(0, 9))
def test_a_log_is_cut_before_the_first_step_beyond(records, step, torn):
    from wandb.proto.wandb_internal_pb2 import Record

    messages = []
    for i, (is_history, size) in enumerate(records):
        record = Record(num=i, uuid='x' * size)
        if is_history:
            record.history.step.num = i
        messages.append(record)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / 'offline-run-1-x' / 'run-x.wandb'
        path.parent.mkdir()
        log_file(path, [message.SerializeToString() for message in [*messages, Record(uuid='a torn one')]])
        whole = path.read_bytes()
        path.write_bytes(whole[: len(whole) - 1 - torn])  # killed while it wrote the last one
        last = cut_offline_log(path, step)
        beyond = next((i for i, (is_history, _) in enumerate(records) if is_history and i > step), len(records))
        assert [record.num for record in read_offline_run(path)] == list(range(beyond))
        assert last == max((i for i in range(beyond) if records[i][0]), default=-1)
        if beyond == len(records):
            assert path.read_bytes() == whole[: len(whole) - 1 - torn]


@needs_wandb
def test_only_what_was_logged_offline_is_cut(tmp_path):
    path = tmp_path / 'run-1-x' / 'run-x.wandb'
    assert cut_offline_log(path, 0) == -1
    path.parent.mkdir()
    path.write_bytes(b'anything')
    assert cut_offline_log(path, 0) == -1 and path.read_bytes() == b'anything'


@needs_wandb
def test_an_online_run_goes_on_behind_what_the_server_has(stranger, tmp_path):
    import wandb

    stranger.setenv('WANDB_MODE', 'offline')
    memory, asked = tmp_path / 'wandb.json', []

    def init(**keywords):
        asked.append((keywords['id'], keywords['resume']))
        run = SlowRun(None)
        run.id, run.starting_step = 'abc', 95 if keywords['id'] else 0
        run.settings = wandb.Settings()
        return run

    stranger.setattr(wandb, 'init', init)
    logged = []
    for resumed_at, steps in ((None, (10, 50, 90, 94)), (50, (60, 90, 100, 110)), (None, (120,))):
        monitor = WandbMonitor('n', {}, memory=memory, resumed_at=resumed_at)
        for step in steps:
            monitor.write(step, {})
        monitor.close()
        logged += [step for step, _ in monitor.run.logged]
    assert asked == [(None, None), ('abc', 'allow'), ('abc', 'allow')]
    assert logged == [10, 50, 90, 94, 100, 110, 120]


@needs_wandb
@pytest.mark.parametrize('content', ['', '[]', '{"id": "a"}', '{"files": []}'])
def test_a_memory_that_cannot_be_read_begins_a_new_run(tmp_path, content):
    (tmp_path / 'wandb.json').write_text(content)
    assert monitors._read_memory(tmp_path / 'wandb.json') == {'id': None, 'files': []}


class SlowRun:
    """Stands for a W&B run that fails at a step."""

    def __init__(self, fails_at):
        self.fails_at, self.logged, self.finished = fails_at, [], None

    def log(self, metrics, step, commit):
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
