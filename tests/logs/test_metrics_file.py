"""The metrics of a run: equal to a list of dicts whatever happens in between, and whole at whatever instant it dies."""

import errno
import inspect
import math
import os
import random
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.logs.test_history import Death, Mortal
from xagents.logs import metrics as metrics_file
from xagents.logs import tailed
from xagents.logs.metrics import MetricsWriter, read_metrics

NAMES = ('loss/policy', 'loss/value', 'stats/kl', 'mean "réward"')


def metrics(number):
    """What row `number` holds, which cannot be taken for another: which of the columns it has is in its digits."""
    return {name: number + i / 8 for i, name in enumerate(NAMES) if number >> i & 1}


def rows(start, stop):
    return [(10 * number, metrics(number)) for number in range(start, stop)]


def write(writer, new):
    for step, one in new:
        writer.write(step, one)


def assert_rows(frame, expected):
    """Every number where it belongs and NaN everywhere else; columns that no row has may have been left by a cut."""
    assert frame.columns[0] == 'steps' and frame['steps'].dtype == np.int64
    assert frame['steps'].tolist() == [step for step, _ in expected]
    assert set(frame.dtypes[1:]) <= {np.dtype(np.float64)}
    names = frame.columns[1:]
    for values, (_, one) in zip(frame.iloc[:, 1:].to_numpy().tolist(), expected, strict=True):
        assert {name: value for name, value in zip(names, values, strict=True) if value == value} == one


def force_rewrite(writer):
    writer._next_rewrite = 0.0


@pytest.fixture
def path(tmp_path):
    return tmp_path / 'metrics.parquet'


@pytest.fixture
def small_blocks(monkeypatch):
    monkeypatch.setattr(metrics_file, 'BLOCK_ROWS', 3)
    monkeypatch.setattr(metrics_file, '_MISSING', np.full(3, np.nan))


def test_pandas_reads_the_file_of_a_run_that_goes_on_and_read_metrics_all_of_it(path):
    with MetricsWriter(path) as writer:
        assert pd.read_parquet(path).columns.tolist() == ['steps'] and len(read_metrics(path)) == 0
        writer.write(5, {'loss/policy': 1.0, 'steps': 5.0})
        writer.write(6, {'loss/policy': np.float32(2.0), 'stats/kl': 3})
        writer.write(7, {})
        assert pd.read_parquet(path).to_dict('list') == {'steps': [5], 'loss/policy': [1.0]}
        seen = read_metrics(path)
        assert seen.columns.tolist() == ['steps', 'loss/policy', 'stats/kl']
        assert_rows(seen, [(5, {'loss/policy': 1.0}), (6, {'loss/policy': 2.0, 'stats/kl': 3.0}), (7, {})])
    pd.testing.assert_frame_equal(pd.read_parquet(path), seen)
    assert os.listdir(path.parent) == ['metrics.parquet']
    with pytest.raises(ValueError, match=r'metrics\.parquet.* closed'):
        writer.write(8, {})


def test_what_is_not_finite_is_kept(path):
    with MetricsWriter(path) as writer:
        write(writer, [(1, {'a': math.inf}), (2, {'a': -math.inf}), (3, {'a': math.nan})])
        np.testing.assert_array_equal(read_metrics(path)['a'], [math.inf, -math.inf, math.nan])


def test_a_value_that_is_no_number_leaves_no_trace(path):
    with MetricsWriter(path) as writer:
        with pytest.raises((TypeError, ValueError)):
            writer.write(1, {'a': 1.0, 'b': 'much'})
        assert writer.n_rows == 0
        writer.write(2, {'c': 1.0})
        assert read_metrics(path).to_dict('list') == {'steps': [2], 'c': [1.0]}


def test_a_flush_reaches_the_disk_but_only_with_something_new(path, monkeypatch):
    writer = MetricsWriter(path)
    write(writer, rows(0, 2))
    synced = []
    monkeypatch.setattr(os, 'fsync', synced.append)
    writer.flush()
    writer.flush()
    assert synced == [writer._tail.fileno()]


def test_resuming_at_a_step_drops_what_lies_beyond(path, small_blocks):
    killed = MetricsWriter(path)
    write(killed, rows(0, 7))
    force_rewrite(killed)
    write(killed, rows(7, 12))
    with MetricsWriter(path, resume=True, steps=85) as writer:
        assert (writer.n_rows, writer.last_step) == (9, 80)
        assert_rows(read_metrics(path), rows(0, 9))
        write(writer, rows(9, 14))
        assert_rows(read_metrics(path), rows(0, 14))
    with MetricsWriter(path, resume=True, steps=-1) as writer:
        assert (writer.n_rows, writer.last_step) == (0, 0)
        write(writer, rows(3, 5))
    assert_rows(pd.read_parquet(path), rows(3, 5))


def test_without_resume_an_older_file_is_kept_whole_under_another_name(path):
    killed = MetricsWriter(path)
    write(killed, rows(0, 5))
    writer = MetricsWriter(path)
    assert writer.renamed == path.with_name('metrics.1.parquet')
    assert_rows(pd.read_parquet(writer.renamed), rows(0, 5))
    assert len(read_metrics(path)) == 0
    writer.close()
    assert MetricsWriter(path).renamed is None  # nothing in it


OPERATIONS = st.one_of(
    st.tuples(st.just('write'), st.lists(st.integers(0, 40), max_size=6)),
    st.tuples(st.sampled_from(['flush', 'rewrite', 'close', 'kill', 'read']), st.none()),
    st.tuples(st.just('cut'), st.integers(-10, 410)),
)


@given(st.lists(OPERATIONS, max_size=12))
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_file_equals_a_list_of_rows(tmp_path_factory, small_blocks, operations):
    path = tmp_path_factory.mktemp('model') / 'm.parquet'
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, 'fsync', lambda descriptor: None)  # a disk's speed is not what is tested
        writer, model = MetricsWriter(path), []
        for operation, argument in operations:
            if operation == 'write':
                new = [(10 * number, metrics(number)) for number in argument]
                write(writer, new)
                model += new
            elif operation == 'rewrite':
                force_rewrite(writer)
            elif operation == 'cut':
                writer.cut(argument)
                model = [row for row in model if row[0] <= argument]
            elif operation == 'flush':
                writer.flush()
            elif operation in ('close', 'kill'):
                if operation == 'close':
                    writer.close()
                writer = MetricsWriter(path, resume=True)
            assert_rows(read_metrics(path), model)
            assert (writer.n_rows, writer.last_step) == (len(model), model[-1][0] if model else 0)
        writer.close()
        assert_rows(pd.read_parquet(path), model)


def test_torn_changed_and_foreign_records_are_not_read(path):
    tail = path.with_name('metrics.parquet.tail')
    writer, ends = MetricsWriter(path), [0]
    write(writer, rows(0, 2))  # the first stands in the parquet file
    for row in rows(2, 6):
        ends.append(tail.stat().st_size)
        write(writer, [row])
    whole = tail.read_bytes()
    ends.append(len(whole))
    for length in sorted({*ends, *range(0, len(whole), 5)}):
        tail.write_bytes(whole[:length])
        assert_rows(read_metrics(path), rows(0, 1 + sum(end <= length for end in ends[1:])))
    for position in range(0, len(whole), 11):  # one flipped bit
        spoiled = bytearray(whole)
        spoiled[position] ^= 4
        tail.write_bytes(spoiled)
        assert_rows(read_metrics(path), rows(0, 1 + sum(end <= position for end in ends[1:])))
    tail.write_bytes(whole[: ends[2]] + whole[ends[1] :])  # a record twice
    assert_rows(read_metrics(path), rows(0, 3))
    tail.write_bytes(whole)
    with MetricsWriter(path.with_name('other.parquet')) as foreign:
        write(foreign, rows(20, 21))
    os.replace(foreign.path, path)
    assert_rows(read_metrics(path), rows(20, 21))


def test_dying_at_any_system_call_loses_and_repeats_nothing(tmp_path):
    dies_at, died = 0, True
    while died:
        dies_at += 1
        folder = tmp_path / str(dies_at)
        folder.mkdir()
        path = folder / 'm.parquet'
        written = cut = 0
        with pytest.MonkeyPatch.context() as patch:
            Mortal(patch, dies_at)
            try:
                writer = MetricsWriter(path)
                for number in range(12):
                    if number in (4, 8):
                        force_rewrite(writer)
                    writer.write(10 * number, metrics(number))
                    written = number + 1
                cut = 6
                writer.cut(55)
                written = 6
                writer.close()
                died = False
            except Death:
                died = True
        if not path.exists():
            assert written == 0
            continue
        kept = len(read_metrics(path))
        assert min(written, cut or written) <= kept <= written + 1
        assert_rows(read_metrics(path), rows(0, kept))
        assert_rows(pd.read_parquet(path), rows(0, len(pd.read_parquet(path))))
        with MetricsWriter(path, resume=True) as resumed:
            write(resumed, rows(kept, kept + 2))
        assert_rows(pd.read_parquet(path), rows(0, kept + 2))
    assert dies_at > 20


CHILD = f"""
import os, sys
from xagents.logs import tailed
from xagents.logs.metrics import MetricsWriter
NAMES = {NAMES!r}
{inspect.getsource(metrics)}
tailed.REWRITE_SECONDS, tailed.REWRITE_COST_FACTOR = 0.0, 0.5
writer = MetricsWriter(sys.argv[1], resume=True)
while True:
    writer.write(10 * writer.n_rows, metrics(writer.n_rows))
    os.write(1, b'%d\\n' % writer.n_rows)
"""


@pytest.mark.skipif(not hasattr(signal, 'SIGKILL'), reason='needs SIGKILL')
def test_killed_at_random_instants_and_read_meanwhile(path):
    before = 0
    for round_ in range(2):
        child = subprocess.Popen([sys.executable, '-c', CHILD, str(path)], stdout=subprocess.PIPE)
        try:
            seen = int(child.stdout.readline())
            assert seen > before  # resumed, not begun anew
            end = time.monotonic() + random.Random(round_).uniform(0.05, 0.3)
            while time.monotonic() < end:
                frame = read_metrics(path)
                assert len(frame) >= seen  # what was there stays there
                seen = len(frame)
        finally:
            child.kill()
            output = child.communicate()[0].split(b'\n')
        written = max([seen, *(int(line) for line in output[:-1])])
        frame = read_metrics(path)
        assert len(frame) >= written  # every row that was written, though nothing was flushed
        assert_rows(frame, rows(0, len(frame)))
        before = len(frame)


def full(*arguments):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_full_disk_is_an_error_that_names_the_file_and_loses_nothing(path, monkeypatch):
    writer = MetricsWriter(path)
    write(writer, rows(0, 3))

    class Full:
        def write(self, data):
            real.write(data[: len(data) // 2])
            full()

        def __getattr__(self, name):
            return getattr(real, name)

    real, writer._tail = writer._tail, Full()
    with pytest.raises(OSError, match=r'No space left.*metrics\.parquet\.tail') as error:
        write(writer, rows(3, 4))
    assert error.value.errno == errno.ENOSPC
    assert_rows(read_metrics(path), rows(0, 3))
    writer._tail = real
    with monkeypatch.context() as patch:
        patch.setattr(os, 'fsync', full)
        force_rewrite(writer)
        with pytest.raises(OSError, match=r"No space left.*metrics\.parquet'"):
            write(writer, rows(4, 5))
    assert_rows(read_metrics(path), rows(0, 3))
    force_rewrite(writer)
    write(writer, rows(5, 6))
    assert_rows(pd.read_parquet(path), rows(0, 6))
    assert sorted(os.listdir(path.parent)) == ['metrics.parquet', 'metrics.parquet.tail']


def test_a_vanished_folder_is_an_error_that_names_the_file(tmp_path):
    path = tmp_path / 'run' / 'metrics.parquet'
    with pytest.raises(OSError, match=r'No such file.*run/metrics\.parquet'):
        MetricsWriter(path)
    path.parent.mkdir()
    writer = MetricsWriter(path)
    write(writer, rows(0, 2))
    shutil.rmtree(path.parent)
    force_rewrite(writer)
    with pytest.raises(OSError, match=r"No such file.*run/metrics\.parquet'"):
        write(writer, rows(2, 3))


@pytest.mark.parametrize('content', ['text', {'step': [1]}, {'steps': [1], 'name': ['x']}])
def test_another_file_is_neither_read_nor_continued_nor_touched(path, content):
    path.write_text(content) if isinstance(content, str) else pd.DataFrame(content).to_parquet(path)
    before = path.read_bytes()
    for refuse in (read_metrics, lambda path: MetricsWriter(path, resume=True)):
        with pytest.raises(ValueError, match=r'metrics\.parquet') as error:
            refuse(path)
        assert '\n' not in str(error.value)
    assert path.read_bytes() == before and os.listdir(path.parent) == ['metrics.parquet']


def test_reading_a_missing_file_names_the_nearest(path):
    MetricsWriter(path).close()
    with pytest.raises(ValueError, match=r"'.*metric\.parquet' does not exist \(did you mean '.*metrics\.parquet'\?\)"):
        read_metrics(path.with_name('metric.parquet'))


def test_memory_is_that_of_the_numbers(path, monkeypatch):
    monkeypatch.setattr(tailed, 'write_parquet', lambda *arguments: None)
    writer = MetricsWriter(path)
    for number in range(5000):
        writer.write(number, {name: 1.0 for name in 'abcdefgh'[: 1 + number // 1000]})
    held = sum(block.nbytes for block in [*writer._steps, *writer._blocks])
    assert held < 8 * sum(2 + number // 1000 + 1 for number in range(5120))


def test_the_module_loads_nothing_heavy():
    code = (
        'import sys, xagents.logs.metrics\n'
        "heavy = {'tensorflow', 'pandas', 'pyarrow', 'matplotlib'} & set(sys.modules)\n"
        'assert not heavy, heavy'
    )
    subprocess.run([sys.executable, '-c', code], check=True)
