"""Histories and metrics: equal to a list of rows whatever happens in between, whole at whatever instant a run dies."""

import errno
import math
import os
import shutil
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from xagents.logs import table
from xagents.logs.history import COLUMNS, HistoryWriter, check_history_path, read_history, write_from_dict
from xagents.logs.metrics import MetricsWriter, read_metrics
from xagents.logs.table_files import tail_path


class History:
    """One of two kinds of table: how row `number`, which cannot be taken for another, is written and read."""

    open, read, step = HistoryWriter, staticmethod(read_history), 'step'

    @staticmethod
    def row(number):
        mean = math.nan if number % 7 == 0 else number + 0.25
        row = mean, number + 0.5, -float(number), 10 * number, number / 8
        return dict(zip(('mean_reward', 'best_reward', 'episode_reward', 'step', 'time'), row, strict=True))

    @classmethod
    def add(cls, writer, numbers):
        writer.append([tuple(cls.row(number).values()) for number in numbers])


class Metrics:
    """The other kind: which columns a row has is in its number's digits."""

    open, read, step = MetricsWriter, staticmethod(read_metrics), 'steps'

    @staticmethod
    def row(number):
        names = 'loss/policy', 'loss/value', 'stats/kl', 'mean "réward"'
        return {'steps': 10 * number} | {name: number + i / 8 for i, name in enumerate(names) if number >> i & 1}

    @classmethod
    def add(cls, writer, numbers):
        for number in numbers:
            row = cls.row(number)
            writer.write(row.pop('steps'), row)


KINDS = pytest.mark.parametrize('kind', [History, Metrics])


def assert_rows(kind, frame, numbers):
    """Every number where it belongs and NaN everywhere else; columns that no row has may have been left by a cut."""
    assert {name: str(kind) for name, kind in frame.dtypes.items()} == {
        name: 'int64' if name == kind.step else 'float64' for name in frame.columns
    }
    got = [{name: value for name, value in row.items() if value == value} for row in frame.to_dict('records')]
    assert got == [{k: v for k, v in kind.row(number).items() if v == v} for number in numbers]


def force_rewrite(writer):
    writer._next_rewrite = 0.0


def one_line(error):
    message = str(error.value)
    assert '\n' not in message
    return message


@pytest.fixture
def path(tmp_path):
    return tmp_path / 'ppo.parquet'


@KINDS
def test_the_newest_rows_stand_in_the_tail_until_the_file_is_closed(kind, path, monkeypatch):
    synced, sync = [], os.fsync
    monkeypatch.setattr(os, 'fsync', lambda descriptor: synced.append(descriptor) or sync(descriptor))
    with kind.open(path) as writer:
        assert len(pd.read_parquet(path)) == len(kind.read(path)) == 0
        kind.add(writer, [1])
        assert_rows(kind, pd.read_parquet(path), [1])  # at once
        synced.clear()
        writer.flush()
        assert synced == []  # the parquet file has it
        kind.add(writer, range(2, 9))
        writer.flush()
        assert synced == [writer._tail.fileno()]
        assert_rows(kind, pd.read_parquet(path), [1])
        assert_rows(kind, kind.read(path), range(1, 9))
        assert (writer.n_rows, writer.last_step) == (8, 80)
    writer.close()
    assert os.listdir(path.parent) == ['ppo.parquet']
    assert_rows(kind, pd.read_parquet(path), range(1, 9))
    assert kind is Metrics or tuple(pd.read_parquet(path).columns) == COLUMNS
    with pytest.raises(ValueError, match=r'ppo\.parquet.* closed'):
        kind.add(writer, [9])


@KINDS
def test_rows_reach_the_system_without_a_flush(kind, path, monkeypatch):
    writer = kind.open(path)
    kind.add(writer, [0])
    monkeypatch.setattr(table, 'TAIL_SECONDS', 0.05)
    kind.add(writer, [1])
    kind.add(writer, [2])
    # metrics are seldom, and the next may be long in coming
    assert len(kind.read(path)) == (3 if kind is Metrics else 2)
    time.sleep(0.05)
    kind.add(writer, [3])
    assert_rows(kind, kind.read(path), range(4))


def test_columns_come_in_their_order_and_what_is_not_finite_is_kept(path):
    rows = [(5, {'b': 1.0, 'steps': 7.0}), (6, {'b': math.inf, 'a': np.float32(0.5)}), (7, {}), (8, {'b': -math.inf})]
    expected = pd.DataFrame({'steps': [5, 6, 7, 8], 'b': [1, math.inf, None, -math.inf], 'a': [None, 0.5, None, None]})
    with MetricsWriter(path) as writer:
        for step, row in rows:
            writer.write(step, row)
        pd.testing.assert_frame_equal(read_metrics(path), expected)
    pd.testing.assert_frame_equal(pd.read_parquet(path), expected)


def test_a_value_that_is_no_number_leaves_no_trace(path):
    with MetricsWriter(path) as writer:
        with pytest.raises((TypeError, ValueError)):
            writer.write(1, {'a': 1.0, 'b': 'much'})
        writer.write(2, {'c': 1.0})
        assert read_metrics(path).to_dict('list') == {'steps': [2], 'c': [1.0]}
    with HistoryWriter(path.with_name('h.parquet')) as writer:
        with pytest.raises((TypeError, ValueError)):
            writer.append([(1, 2, 3, 4, 5), (1, 2, 3, 'four', 5)])
        assert writer.n_rows == 0


# files that are there


@KINDS
def test_the_same_name_again_keeps_the_old_file(kind, path):
    path.write_text('precious, and no table')
    for number in range(1, 3):
        with kind.open(path) as writer:
            assert writer.renamed_to == path.with_name(f'ppo.{number}.parquet')
            kind.add(writer, [number])
    killed = kind.open(path)
    kind.add(killed, range(5, 9))
    killed.flush()
    kind.open(path).close()
    assert path.with_name('ppo.1.parquet').read_text() == 'precious, and no table'
    for name, numbers in (('ppo.2', [1]), ('ppo.3', [2]), ('ppo.4', range(5, 9)), ('ppo', [])):
        assert_rows(kind, pd.read_parquet(path.with_name(f'{name}.parquet')), numbers)
    assert kind.open(path).renamed_to is None  # nothing in it
    assert len(os.listdir(path.parent)) == 5  # no tail


def test_resume_continues_what_another_program_wrote(path):
    frame = pd.DataFrame([History.row(number) for number in range(3)])
    frame.assign(seed=1, step=frame['step'].astype('int32'), time=[0, 1, 2]).to_parquet(path)
    with HistoryWriter(path, resume=True) as writer:
        assert (writer.last_time, writer.renamed_to) == (2.0, None)
        History.add(writer, [3])
    assert read_history(path)['time'].tolist() == [0, 1, 2, 3 / 8]
    assert_rows(History, read_history(path).assign(time=[0, 1 / 8, 2 / 8, 3 / 8]), range(4))


def test_a_folder_of_version_1_is_read_and_continued(path):
    path.mkdir()
    for number in (2, 0, 1):
        pd.DataFrame([History.row(number)]).to_parquet(path / f'{number}-part.parquet')
    assert_rows(History, read_history(path), range(3))
    with HistoryWriter(path, resume=True) as writer:
        History.add(writer, [3])
    assert_rows(History, read_history(path), range(4))
    assert_rows(History, read_history(writer.renamed_to), range(3))


NO_HISTORY, NO_METRICS = {'mean_reward': [1.0], 'steps': [1]}, {'steps': [1], 'name': ['x']}


@pytest.mark.parametrize(
    'kind, content, reason',
    [(kind, 'text', 'not a readable parquet file') for kind in (History, Metrics)]
    + [(History, NO_HISTORY, 'no column best_reward, episode_reward, step, time; its columns are mean_reward, steps')]
    + [(Metrics, {'step': [1]}, 'the column steps is missing'), (Metrics, NO_METRICS, 'some columns are not numbers')],
)
def test_another_file_is_neither_continued_nor_touched(kind, path, content, reason):
    path.write_text(content) if isinstance(content, str) else pd.DataFrame(content).to_parquet(path)
    before = path.read_bytes()
    for refuse in (lambda: kind.open(path, resume=True), lambda: kind.read(path))[: 1 if content is NO_HISTORY else 2]:
        with pytest.raises(ValueError, match=rf'ppo\.parquet.*{reason}') as error:
            refuse()
        one_line(error)
    assert path.read_bytes() == before and os.listdir(path.parent) == ['ppo.parquet']


@KINDS
def test_reading_a_missing_file_names_the_nearest(kind, path):
    kind.open(path).close()
    with pytest.raises(ValueError, match=r'there is no file .*pp0\.parquet \(did you mean ppo\.parquet\?\)'):
        kind.read(path.with_name('pp0.parquet'))


@pytest.mark.parametrize('name', ['h.csv', 'h', 'h.parquet.gz', '.parquet', 'missing/h.parquet'])
def test_a_history_path_is_checked_without_being_touched(path, name):
    for refuse in (check_history_path, HistoryWriter):
        with pytest.raises(ValueError, match=rf'history_checkpoint: .*{name.partition("/")[0]}') as error:
            refuse(path.parent / name)
        assert ('there is no directory' if '/' in name else '.parquet') in one_line(error)
    assert check_history_path(str(path)) == check_history_path(path, resume=True) == path
    assert os.listdir(path.parent) == []


def test_write_from_dict_appends(path):
    write_from_dict({'mean_reward': [1.0, 2.0], 'step': np.array([5, 6])}, path)
    pd.testing.assert_frame_equal(pd.read_parquet(path), pd.DataFrame({'mean_reward': [1.0, 2.0], 'step': [5, 6]}))
    write_from_dict({'step': 7, 'mean_reward': 3}, str(path))
    expected = pd.DataFrame({'mean_reward': [1.0, 2.0, 3.0], 'step': [5, 6, 7]})
    pd.testing.assert_frame_equal(pd.read_parquet(path), expected)
    before = path.read_bytes()
    for wrong, message in (
        ({'mean_reward': [1.0, 2.0], 'step': [5]}, r"got columns of the lengths .*'step': 1"),
        ({'mean_reward': 'good', 'step': 8}, r'do not match the columns of .*ppo\.parquet'),
    ):
        with pytest.raises(ValueError, match=message) as error:
            write_from_dict(wrong, path)
        one_line(error)
    assert path.read_bytes() == before and os.listdir(path.parent) == ['ppo.parquet']


def test_write_from_dict_appends_to_what_a_killed_run_or_version_1_left(path):
    killed = HistoryWriter(path)
    History.add(killed, [0])
    History.add(killed, [1])
    killed.flush()
    write_from_dict(History.row(2), path)
    assert_rows(History, read_history(path), range(3))
    assert os.listdir(path.parent) == ['ppo.parquet']
    folder = path.with_name('a2c.parquet')
    folder.mkdir()
    path.rename(folder / 'part.parquet')
    write_from_dict(History.row(3), folder)
    assert_rows(History, pd.read_parquet(folder), range(4))
    assert sorted(os.listdir(path.parent)) == ['a2c.1.parquet', 'a2c.parquet']


# what a tail may hold


@KINDS
def test_torn_changed_and_foreign_rows_are_not_read(kind, path):
    tail, writer, ends = tail_path(path), kind.open(path), []
    kind.add(writer, [0])
    for number in range(1, 6):
        kind.add(writer, [number])
        writer.flush()
        ends.append(tail.stat().st_size)
    whole = tail.read_bytes()
    for length in {*ends, *range(0, len(whole), 61)}:
        tail.write_bytes(whole[:length])
        frame = kind.read(path)
        assert_rows(kind, frame, range(len(frame)))
        # the last 8 bytes of a stream only say that it ends
        assert sum(end <= length for end in ends) < len(frame) <= 1 + sum(end - 8 <= length for end in ends)
    for position in range(0, len(whole), 41):  # one flipped bit; in what only fills up it changes nothing
        spoiled = bytearray(whole)
        spoiled[position] ^= 4
        tail.write_bytes(spoiled)
        frame = kind.read(path)
        assert_rows(kind, frame, range(len(frame)))
        assert len(frame) > sum(end <= position for end in ends)
    tail.write_bytes(whole[: ends[1]] + whole[ends[0] :])  # a stream twice
    assert_rows(kind, kind.read(path), range(3))
    tail.write_bytes(whole)
    with kind.open(path.with_name('other.parquet')) as foreign:
        kind.add(foreign, [100])
    os.replace(foreign.path, path)
    assert_rows(kind, kind.read(path), [100])


# any order of what may happen


OPERATIONS = st.one_of(
    st.tuples(st.just('add'), st.lists(st.integers(0, 50), max_size=5)),
    st.tuples(st.sampled_from(['flush', 'rewrite', 'close', 'kill', 'read']), st.none()),
    st.tuples(st.just('cut'), st.integers(-10, 510)),
)


@KINDS
@given(st.lists(OPERATIONS, max_size=15))
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_table_equals_a_list_of_rows(kind, tmp_path_factory, operations):
    path = tmp_path_factory.mktemp('model') / 'h.parquet'
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, 'fsync', lambda descriptor: None)  # a disk's speed is not what is tested
        writer, model = kind.open(path), []
        for operation, argument in operations:
            if operation == 'add':
                kind.add(writer, argument)
                model += argument
            elif operation == 'rewrite':
                force_rewrite(writer)
            elif operation == 'cut':
                writer.truncate_after(argument)
                model = [number for number in model if 10 * number <= argument]
            else:
                writer.close() if operation == 'close' else writer.flush()
                assert_rows(kind, kind.read(path), model)
                if operation in ('close', 'kill'):
                    writer = kind.open(path, resume=True)
            if kind is Metrics:
                assert_rows(kind, kind.read(path), model)
            assert (writer.n_rows, writer.last_step) == (len(model), 10 * model[-1] if model else 0)
        writer.close()
        assert_rows(kind, pd.read_parquet(path), model)


# death


class Replaced:
    """A file some of whose methods are others."""

    def __init__(self, file, **methods):
        self.__dict__ |= {'file': file, **methods}

    def __getattr__(self, name):
        return getattr(self.file, name)


class Death(BaseException):
    """Thrown at the chosen system call, and at every later one: a dead process does nothing any more."""


class Mortal:
    """Counts the calls that change files; at number `dies_at` the process is dead."""

    def __init__(self, monkeypatch, dies_at):
        self.calls, self.dies_at = 0, dies_at
        monkeypatch.setattr(os, 'fsync', lambda descriptor: None)  # a disk's speed is not what is tested
        for owner, name in ((os, 'replace'), (os, 'rename'), (os, 'fsync'), (Path, 'unlink')):
            monkeypatch.setattr(owner, name, self.mortal(getattr(owner, name)))
        monkeypatch.setattr(table, 'open', self.open, raising=False)

    def mortal(self, function, last_deed=lambda *arguments: None):
        def call(*arguments, **keywords):
            self.calls += 1
            if self.calls == self.dies_at:
                last_deed(*arguments)
            if self.calls >= self.dies_at:
                raise Death
            return function(*arguments, **keywords)

        return call

    def open(self, *arguments, **keywords):
        file = open(*arguments, **keywords)  # noqa: SIM115 (as the one it stands for)
        return Replaced(
            file,
            truncate=self.mortal(file.truncate),
            write=self.mortal(file.write, lambda data: file.write(data[: len(data) // 2])),
        )


@KINDS
def test_dying_at_any_system_call_loses_and_repeats_nothing(kind, tmp_path):
    dies_at, died = 0, True
    while died:
        dies_at += 1
        folder = tmp_path / str(dies_at)
        folder.mkdir()
        path, aside = folder / 'h.parquet', folder / 'h.1.parquet'
        safe, possible = None, 0  # rows that must be there, rows that may be there
        with pytest.MonkeyPatch.context() as patch:
            Mortal(patch, dies_at)
            try:
                writer = kind.open(path)
                safe = 0
                for start, stop in ((0, 3), (3, 6), (6, 9), (9, 12), (12, 16)):
                    possible = stop
                    if start in (6, 12):
                        force_rewrite(writer)
                    kind.add(writer, range(start, stop))
                    writer.flush()
                    safe = stop
                safe = 10
                writer.truncate_after(95)
                possible = 10
                assert len(kind.read(path)) == 10
                possible = 16
                kind.add(writer, range(10, 16))
                writer.flush()
                safe = 16
                alive = kind.open(path)  # while the tail of the first is still there: it is set aside whole
                kind.add(alive, [99])
                alive.close()
                died = False
            except Death:
                pass
        if safe is None and not path.exists():
            continue  # died before there was a file
        left = aside if aside.exists() else path
        kept = len(kind.read(left))
        assert (safe or 0) <= kept <= possible, dies_at
        assert_rows(kind, kind.read(left), range(kept))
        assert_rows(kind, pd.read_parquet(left), range(len(pd.read_parquet(left))))
        if not aside.exists():
            with kind.open(path, resume=True) as resumed:
                assert resumed.n_rows == kept
                kind.add(resumed, [50])
            assert_rows(kind, pd.read_parquet(path), [*range(kept), 50])
            assert os.listdir(folder) == ['h.parquet']
    assert dies_at > 30  # the list of calls was really gone through


def full(*arguments):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_full_disk_is_an_error_that_names_the_file_and_loses_nothing(path, monkeypatch):
    writer = MetricsWriter(path)
    Metrics.add(writer, range(3))

    real = writer._tail
    writer._tail = Replaced(real, write=lambda data: full(real.write(data[: len(data) // 2])))
    with pytest.raises(OSError, match=r'No space left.*ppo\.parquet\.tail') as error:
        Metrics.add(writer, [3])
    assert error.value.errno == errno.ENOSPC
    assert_rows(Metrics, read_metrics(path), range(3))
    writer._tail = real
    with monkeypatch.context() as patch:
        patch.setattr(os, 'fsync', full)
        force_rewrite(writer)
        with pytest.raises(OSError, match=r"No space left.*ppo\.parquet'"):
            Metrics.add(writer, [4])
        with pytest.raises(OSError, match=r"No space left.*ppo\.parquet'"):
            writer.truncate_after(15)
    assert_rows(Metrics, read_metrics(path), range(3))
    writer._next_rewrite = math.inf
    Metrics.add(writer, [5])
    assert_rows(Metrics, read_metrics(path), range(6))
    assert sorted(os.listdir(path.parent)) == ['ppo.parquet', 'ppo.parquet.tail']


def test_a_vanished_folder_is_an_error_that_names_the_file(tmp_path):
    path = tmp_path / 'run' / 'metrics.parquet'
    with pytest.raises(OSError, match=r'No such file.*run/metrics\.parquet'):
        MetricsWriter(path)
    path.parent.mkdir()
    writer = MetricsWriter(path)
    Metrics.add(writer, range(2))
    shutil.rmtree(path.parent)
    force_rewrite(writer)
    with pytest.raises(OSError, match=r"No such file.*run/metrics\.parquet'"):
        Metrics.add(writer, [2])
