"""The history: equal to a list of rows whatever happens in between, and whole at whatever instant the run dies."""

import math
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from xagents.logs import tailed
from xagents.logs.history import COLUMNS, HistoryWriter, check_history_path, read_history, write_from_dict


def row(number):
    """A row that cannot be taken for another one."""
    mean = math.nan if number % 7 == 0 else number + 0.25
    return mean, number + 0.5, -float(number), 10 * number, number / 8


def rows(start, stop):
    return [row(number) for number in range(start, stop)]


def as_rows(frame):
    assert list(frame.columns) == list(COLUMNS)
    return frame.to_numpy(float)


def assert_rows(frame, expected):
    np.testing.assert_array_equal(as_rows(frame), np.array(expected, float).reshape(-1, 5))


def force_rewrite(writer):
    writer._next_rewrite = 0.0


@pytest.fixture
def path(tmp_path):
    return tmp_path / 'ppo.parquet'


def test_an_open_history_is_readable_by_pandas_at_once(path):
    with HistoryWriter(path) as writer:
        assert len(pd.read_parquet(path)) == 0
        writer.append(rows(0, 3))
        assert_rows(pd.read_parquet(path), rows(0, 3))


def test_rows_between_rewritings_stand_in_the_tail_and_are_merged(path):
    with HistoryWriter(path) as writer:
        writer.append(rows(0, 2))
        writer.append(rows(2, 9))
        writer.flush()
        assert_rows(pd.read_parquet(path), rows(0, 2))
        assert path.with_name('ppo.parquet.tail').stat().st_size == 7 * 52
        assert_rows(read_history(path), rows(0, 9))
        assert read_history(path)['step'].dtype == np.int64


def test_a_flush_reaches_the_disk_but_only_with_something_new(path, monkeypatch):
    writer = HistoryWriter(path)
    writer.append([row(0)])
    synced = []
    monkeypatch.setattr(os, 'fsync', synced.append)
    writer.flush()
    assert synced == []  # the parquet file has it
    writer.append([row(1)])
    writer.flush()
    writer.flush()
    assert len(synced) == 1 and synced[0] == writer._tail.fileno()


def test_a_closed_history_is_one_file(path):
    writer = HistoryWriter(path)
    for number in range(20):
        writer.append([row(number)])
        writer.flush()
    writer.close()
    writer.close()
    assert os.listdir(path.parent) == ['ppo.parquet']
    assert_rows(pd.read_parquet(path), rows(0, 20))
    with pytest.raises(ValueError, match='closed'):
        writer.append([row(20)])


def test_rows_reach_the_disk_without_a_flush(path, monkeypatch):
    writer = HistoryWriter(path)
    writer.append([row(0)])
    writer.append([row(1)])
    monkeypatch.setattr(tailed, 'TAIL_SECONDS', 0.0)
    writer._next_tail = 0.0
    writer.append([row(2)])
    assert_rows(read_history(path), rows(0, 3))


def test_the_same_name_again_keeps_the_old_history(path):
    for number in range(3):
        with HistoryWriter(path) as writer:
            expected = None if number == 0 else path.with_name(f'ppo.{number}.parquet')
            assert writer.renamed == expected
            writer.append([row(number)])
    assert_rows(read_history(path.with_name('ppo.1.parquet')), [row(0)])
    assert_rows(read_history(path.with_name('ppo.2.parquet')), [row(1)])
    assert_rows(read_history(path), [row(2)])


def test_setting_aside_takes_the_tail_of_a_killed_run_along(path):
    killed = HistoryWriter(path)
    killed.append(rows(0, 2))
    killed.append(rows(2, 5))
    killed.flush()
    HistoryWriter(path).close()
    assert_rows(pd.read_parquet(path.with_name('ppo.1.parquet')), rows(0, 5))
    assert sorted(os.listdir(path.parent)) == ['ppo.1.parquet', 'ppo.parquet']


def test_a_history_without_rows_is_not_kept(path):
    HistoryWriter(path).close()
    assert HistoryWriter(path).renamed is None
    assert os.listdir(path.parent) == ['ppo.parquet']


def test_a_file_that_is_no_history_is_kept_too(path):
    path.write_text('precious')
    assert HistoryWriter(path).renamed.read_text() == 'precious'


def test_resume_knows_where_it_was(path):
    fresh = HistoryWriter(path, resume=True)
    assert (fresh.n_rows, fresh.last_step, fresh.last_time) == (0, 0, 0.0)
    fresh.append(rows(0, 4))
    fresh.close()
    resumed = HistoryWriter(path, resume=True)
    assert (resumed.n_rows, resumed.last_step, resumed.last_time) == (4, 30, 3 / 8)
    assert resumed.renamed is None


def test_resume_continues_what_another_program_wrote(path):
    pd.DataFrame(rows(0, 3), columns=COLUMNS).assign(seed=1).to_parquet(path)
    with HistoryWriter(path, resume=True) as writer:
        writer.append([row(3)])
    assert_rows(read_history(path), rows(0, 4))


def test_a_folder_of_version_1_is_read_and_continued(path):
    path.mkdir()
    for number in (2, 0, 1):
        pd.DataFrame([row(number)], columns=COLUMNS).to_parquet(path / f'{number}-part.parquet')
    assert_rows(read_history(path), rows(0, 3))
    with HistoryWriter(path, resume=True) as writer:
        writer.append([row(3)])
    assert_rows(read_history(path), rows(0, 4))
    assert_rows(read_history(writer.renamed), rows(0, 3))


def test_torn_and_foreign_records_are_not_read(path, tmp_path):
    tail = path.with_name('ppo.parquet.tail')
    writer = HistoryWriter(path)
    writer.append(rows(0, 2))
    writer.append(rows(2, 6))
    writer.flush()
    whole = tail.read_bytes()
    for length in range(len(whole) + 1):
        tail.write_bytes(whole[:length])
        assert_rows(read_history(path), rows(0, 2 + length // 52))
    for position in (0, 51, 52 + 20, 3 * 52 + 48):  # one flipped bit
        spoiled = bytearray(whole)
        spoiled[position] ^= 4
        tail.write_bytes(spoiled)
        assert_rows(read_history(path), rows(0, 2 + position // 52))
    tail.write_bytes(whole[:104] + whole[52:])  # a record twice: its number does not continue the rows
    assert_rows(read_history(path), rows(0, 4))
    tail.write_bytes(whole)
    other = tmp_path / 'other.parquet'
    with HistoryWriter(other) as foreign:
        foreign.append(rows(100, 102))
    os.replace(other, path)
    assert_rows(read_history(path), rows(100, 102))


def test_a_tail_left_from_before_a_rewriting_repeats_no_row(path):
    tail = path.with_name('ppo.parquet.tail')
    writer = HistoryWriter(path)
    writer.append(rows(0, 2))
    writer.append(rows(2, 6))
    writer.flush()
    old = tail.read_bytes()
    force_rewrite(writer)
    writer.append(rows(6, 8))
    assert tail.stat().st_size == 0
    tail.write_bytes(old)  # as if it was killed between the replacement and the truncation
    assert_rows(read_history(path), rows(0, 8))
    resumed = HistoryWriter(path, resume=True)
    resumed.append([row(8)])
    resumed.append([row(9)])
    resumed.flush()
    assert_rows(read_history(path), rows(0, 10))


def test_cut_drops_what_lies_beyond_a_step(path):
    with HistoryWriter(path) as writer:
        writer.append(rows(0, 3))
        writer.append(rows(3, 9))
        writer.flush()
        writer.cut(45)
        assert_rows(read_history(path), rows(0, 5))
        assert (writer.last_step, writer.n_rows) == (40, 5)
        writer.append(rows(5, 7))
        writer.flush()
        assert_rows(read_history(path), rows(0, 7))
        writer.cut(-1)
        assert (writer.last_step, writer.last_time) == (0, 0.0)
    assert len(read_history(path)) == 0


OPERATIONS = st.one_of(
    st.tuples(st.just('append'), st.lists(st.integers(0, 50), max_size=5)),
    st.tuples(st.sampled_from(['flush', 'rewrite', 'close', 'kill', 'read']), st.none()),
    st.tuples(st.just('cut'), st.integers(-10, 510)),
)


@given(st.lists(OPERATIONS, max_size=15))
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_history_equals_a_list_of_rows(tmp_path_factory, operations):
    path = tmp_path_factory.mktemp('model') / 'h.parquet'
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, 'fsync', lambda descriptor: None)  # a disk's speed is not what is tested
        writer, model = HistoryWriter(path), []
        for operation, argument in operations:
            if operation == 'append':
                new = [row(number) for number in argument]
                writer.append(new)
                model += new
            elif operation == 'rewrite':
                force_rewrite(writer)
            elif operation == 'cut':
                writer.cut(argument)
                model = [kept for kept in model if kept[3] <= argument]
            else:
                writer.close() if operation == 'close' else writer.flush()
                assert_rows(read_history(path), model)
                if operation in ('close', 'kill'):
                    writer = HistoryWriter(path, resume=True)
            assert writer.n_rows == len(model)
            assert writer.last_step == (model[-1][3] if model else 0)
        writer.close()
        assert_rows(pd.read_parquet(path), model)


class Death(BaseException):
    """Thrown at the chosen system call, and at every later one: a dead process does nothing any more."""


class Mortal:
    """Counts the calls that change files; at number `dies_at` the process is dead."""

    def __init__(self, monkeypatch, dies_at):
        self.calls, self.dies_at = 0, dies_at
        for owner, name in ((os, 'replace'), (os, 'rename'), (os, 'fsync'), (Path, 'unlink')):
            monkeypatch.setattr(owner, name, self.mortal(getattr(owner, name)))
        monkeypatch.setattr(tailed, 'open', self.open, raising=False)

    def tick(self):
        self.calls += 1
        if self.calls >= self.dies_at:
            raise Death

    def mortal(self, function):
        def call(*arguments, **keywords):
            self.tick()
            return function(*arguments, **keywords)

        return call

    def open(self, *arguments, **keywords):
        file = open(*arguments, **keywords)  # noqa: SIM115 (as the one it stands for)
        mortal = self

        class MortalFile:
            def __enter__(self):
                return self

            def __exit__(self, *error):
                file.close()

            def write(self, data):
                try:
                    mortal.tick()
                except Death:
                    if mortal.calls == mortal.dies_at:  # half of it still reached the file
                        file.write(data[: len(data) // 2])
                    raise
                return file.write(data)

            def truncate(self, size):
                mortal.tick()
                return file.truncate(size)

            def __getattr__(self, name):
                return getattr(file, name)

        return MortalFile()


def test_dying_at_any_system_call_loses_and_repeats_nothing(tmp_path):
    dies_at = 0
    while True:
        dies_at += 1
        folder = tmp_path / str(dies_at)
        folder.mkdir()
        path, aside = folder / 'h.parquet', folder / 'h.1.parquet'
        safe, possible = None, []  # rows that must be there, rows that may be there
        first = rows(0, 16)
        with pytest.MonkeyPatch.context() as patch:
            Mortal(patch, dies_at)
            try:
                writer = HistoryWriter(path)
                safe = []
                for start, stop in ((0, 3), (3, 6), (6, 9), (9, 12), (12, 16)):
                    possible = rows(0, stop)
                    if start in (6, 12):
                        force_rewrite(writer)
                    writer.append(rows(start, stop))
                    writer.flush()
                    safe = possible
                safe = rows(0, 10)
                writer.cut(95)
                possible = safe
                writer.append(rows(10, 16))
                possible = first
                writer.flush()
                safe = first
                alive = HistoryWriter(path)  # while the tail of the first is still there: it is set aside whole
                alive.append([row(99)])
                alive.close()
                died = False
            except Death:
                died = True
        if not died:
            break
        if safe is None and not path.exists():
            continue  # died before there was a history
        kept = as_rows(read_history(aside if aside.exists() else path))
        assert len(safe or []) <= len(kept) <= len(possible), dies_at
        np.testing.assert_array_equal(kept, np.array(first, float)[: len(kept)])
        on_disk = as_rows(pd.read_parquet(aside if aside.exists() else path))
        np.testing.assert_array_equal(on_disk, kept[: len(on_disk)])
        if not aside.exists():
            with HistoryWriter(path, resume=True) as resumed:
                assert resumed.n_rows == len(kept)
                resumed.append([row(50)])
            assert_rows(pd.read_parquet(path), [*first[: len(kept)], row(50)])
            assert os.listdir(folder) == ['h.parquet']
    assert dies_at > 30  # the list of calls was really gone through


CHILD = """
import os, random, sys
from xagents.logs import history, tailed
tailed.REWRITE_SECONDS = tailed.TAIL_SECONDS = 0.0
tailed.REWRITE_COST_FACTOR = 0.5
writer = history.HistoryWriter(sys.argv[1], resume=True)
while True:
    n = writer.n_rows
    writer.append([(i + 0.25, i + 0.5, -float(i), 10 * i, i / 8) for i in range(n, n + random.randrange(1, 40))])
    if random.random() < 0.3:
        writer.flush()
        os.write(1, b'%d\\n' % writer.n_rows)
"""


@pytest.mark.skipif(not hasattr(signal, 'SIGKILL'), reason='needs SIGKILL')
def test_killed_at_random_instants_and_read_meanwhile(path):
    before = 0
    for round_ in range(4):
        child = subprocess.Popen([sys.executable, '-c', CHILD, str(path)], stdout=subprocess.PIPE)
        try:
            flushed = int(child.stdout.readline())
            assert flushed > before  # resumed, not begun anew
            end = time.monotonic() + random.Random(round_).uniform(0.0, 0.3)
            seen = flushed
            while time.monotonic() < end:
                frame = read_history(path)
                np.testing.assert_array_equal(frame['step'], 10 * np.arange(len(frame)))
                assert len(frame) >= seen  # what was there stays there
                seen = len(frame)
        finally:
            child.kill()
            output = child.communicate()[0].split(b'\n')
        flushed = max([seen, *(int(line) for line in output[:-1])])
        frame = read_history(path)
        assert len(frame) >= flushed
        number = np.arange(len(frame))
        expected = np.stack([number + 0.25, number + 0.5, -number, 10 * number, number / 8], axis=1)
        np.testing.assert_array_equal(as_rows(frame), expected)
        assert len(pd.read_parquet(path)) <= len(frame)
        before = len(frame)
    HistoryWriter(path, resume=True).close()
    assert os.listdir(path.parent) == ['ppo.parquet']
    assert len(pd.read_parquet(path)) == before


def test_rewriting_takes_a_hundredth_of_the_time(path, monkeypatch):
    class Clock:
        now, spent, rewritings = 0.0, 0.0, 0

        @classmethod
        def monotonic(cls):
            return cls.now

    def write_parquet(columns, path, metadata):
        cost = 1e-4 * len(columns['step'])
        Clock.now += cost
        Clock.spent += cost
        Clock.rewritings += 1

    monkeypatch.setattr(tailed, 'time', Clock)
    monkeypatch.setattr(tailed, 'write_parquet', write_parquet)
    writer = HistoryWriter(path)
    for number in range(20_000):
        writer.append([row(number)])
        Clock.now += 0.1
    assert Clock.spent < 0.01 * Clock.now
    assert 15 < Clock.rewritings < 400


def test_write_from_dict(path):
    write_from_dict({'mean_reward': [1.0, 2.0], 'step': np.array([5, 6])}, path)
    pd.testing.assert_frame_equal(pd.read_parquet(path), pd.DataFrame({'mean_reward': [1.0, 2.0], 'step': [5, 6]}))
    write_from_dict({'mean_reward': 3.0, 'step': 7}, str(path))
    assert pd.read_parquet(path).to_dict('list') == {'mean_reward': [3.0], 'step': [7]}
    with pytest.raises(ValueError, match=r"equally long, got .*'step': 1"):
        write_from_dict({'mean_reward': [1.0, 2.0], 'step': [5]}, path)
    assert os.listdir(path.parent) == ['ppo.parquet']


def one_line(error):
    message = str(error.value)
    assert '\n' not in message
    return message


@pytest.mark.parametrize('name', ['h.csv', 'h', 'h.parquet.gz', '.parquet'])
def test_a_history_path_must_be_a_parquet_file(tmp_path, name):
    for refuse in (check_history_path, HistoryWriter):
        with pytest.raises(ValueError) as error:
            refuse(tmp_path / name)
        message = one_line(error)
        assert 'history_checkpoint' in message and '.parquet' in message and name in message
    assert os.listdir(tmp_path) == []


def test_a_missing_folder_is_refused(tmp_path):
    with pytest.raises(ValueError) as error:
        check_history_path(tmp_path / 'missing' / 'h.parquet')
    assert 'history_checkpoint' in one_line(error) and 'missing' in one_line(error)


def test_a_good_path_is_checked_without_being_touched(path):
    assert check_history_path(str(path)) == path
    assert check_history_path(path, resume=True) == path
    assert os.listdir(path.parent) == []


def test_what_cannot_be_continued_is_refused_and_kept(path):
    path.write_text('precious')
    with pytest.raises(ValueError) as error:
        check_history_path(path, resume=True)
    assert 'ppo.parquet' in one_line(error)
    write_from_dict({'mean_reward': [1.0], 'steps': [1]}, path)
    with pytest.raises(ValueError) as error:
        HistoryWriter(path, resume=True)
    assert 'best_reward, episode_reward, step, time' in one_line(error) and 'steps' in one_line(error)
    assert pd.read_parquet(path)['steps'].tolist() == [1]


def test_reading_a_missing_file_names_the_nearest(path):
    HistoryWriter(path).close()
    with pytest.raises(ValueError) as error:
        read_history(path.with_name('pp0.parquet'))
    assert 'pp0.parquet' in one_line(error) and f"did you mean '{path}'" in one_line(error)


def test_the_modules_load_nothing_heavy():
    code = (
        'import sys, xagents.logs.history, xagents.reports.plotting, xagents.logs.recording, xagents.logs.monitors\n'
        "heavy = {'tensorflow', 'pandas', 'pyarrow', 'matplotlib', 'wandb', 'tensorboard', 'PIL'} & set(sys.modules)\n"
        'assert not heavy, heavy'
    )
    subprocess.run([sys.executable, '-c', code], check=True)
