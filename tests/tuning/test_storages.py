"""Where studies are kept: what several processes do to one storage, what death leaves behind, and what is refused."""

import multiprocessing
import os
import re
import signal
import socket
import sqlite3
import sys
import threading
import time
from contextlib import closing

import optuna
import pytest
from hypothesis import given
from hypothesis import strategies as st

from xagents.options.errors import OptionError
from xagents.tuning import storages
from xagents.tuning.storages import JournalLock, check_storage, mask_password, open_storage

# processes come from one that has imported everything: what they do together does not wait for imports
forked = multiprocessing.get_context('forkserver')
forked.set_forkserver_preload(
    ['tests.tuning.test_storages', 'optuna.storages._rdb.models', 'alembic.command', 'psycopg2']
)


def refused(url, *words, create=True):
    """Check that a URL is refused on one line that holds all the words, and return it."""
    with pytest.raises(OptionError) as caught:
        open_storage(url, create=create)
    message = str(caught.value)
    assert caught.value.name == 'storage'
    assert '\n' not in message
    for word in words:
        assert word in message
    return message


def add_trials(storage, count, study='s'):
    study = optuna.create_study(storage=storage, study_name=study, load_if_exists=True)
    for index in range(count):
        trial = study.ask()
        trial.suggest_float('lr', 1e-4, 1e-2, log=True)
        study.tell(trial, float(index))


def run_processes(target, *arguments, count):
    """Run a function of a number and a barrier in processes of their own, and check that each one ended well."""
    barrier = forked.Barrier(count)
    processes = [forked.Process(target=target, args=(number, barrier, *arguments)) for number in range(count)]
    for process in processes:
        process.start()
    try:
        for process in processes:
            process.join(60)
        assert [process.exitcode for process in processes] == [0] * count
    finally:
        for process in processes:
            process.kill()
            process.join()


# --- what is opened


@pytest.mark.parametrize(
    ('url', 'files'), [(None, []), ('sqlite:///a {b} %c.db', ['a {b} %c.db']), ('journal:a.log', ['a.log'])]
)
def test_a_study_is_there_when_its_storage_is_opened_again(url, files, tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    storage = open_storage(url)
    add_trials(storage, 3)
    if url is not None:
        storage = open_storage(url, create=False)
    study = optuna.load_study(study_name='s', storage=storage)
    assert [trial.value for trial in study.trials] == [0, 1, 2]
    assert capfd.readouterr() == ('', '')
    assert os.listdir(tmp_path) == files


# --- several processes


def make_and_fill(number, barrier, url, count):
    barrier.wait(60)
    storage = open_storage(url)
    barrier.wait(60)
    add_trials(storage, count, f'study-{number}')


@pytest.mark.parametrize('kind', ['sqlite', 'journal', pytest.param('postgresql', marks=pytest.mark.slow)])
def test_processes_make_a_storage_at_the_same_instant_and_lose_nothing(kind, tmp_path, request):
    urls = {'sqlite': f'sqlite:///{tmp_path}/study', 'journal': f'journal:{tmp_path}/study'}
    url = urls[kind] if kind in urls else request.getfixturevalue(kind)
    trials = 50 if kind == 'journal' else 3
    run_processes(make_and_fill, url, trials, count=3)
    storage = open_storage(url)
    assert sorted(study.study_name for study in storage.get_all_studies()) == [f'study-{number}' for number in range(3)]
    for study in storage.get_all_studies():
        found = [(trial.number, trial.value) for trial in storage.get_all_trials(study._study_id)]
        assert found == [(index, index) for index in range(trials)]


# --- death


def hold_lock(path, held):
    JournalLock(path).acquire()
    held.send(True)
    time.sleep(60)


@pytest.mark.skipif(storages.fcntl is None, reason='needs the locks of Unix')
def test_a_killed_holder_of_the_lock_blocks_nobody(tmp_path):
    path = str(tmp_path / 'journal')
    storage = open_storage(f'journal:{path}')
    here, there = forked.Pipe()
    holder = forked.Process(target=hold_lock, args=(path, there))
    holder.start()
    try:
        assert here.recv()
        writer = threading.Thread(target=add_trials, args=(storage, 1))
        writer.start()
        writer.join(0.3)
        assert writer.is_alive(), 'the lock holds nobody'
        os.kill(holder.pid, signal.SIGKILL)
        writer.join(5)
        assert not writer.is_alive()
    finally:
        holder.kill()
        holder.join()
    assert len(storage.get_all_trials(0)) == 1
    assert os.listdir(tmp_path) == ['journal']


def test_an_entry_torn_at_any_byte_neither_breaks_reading_nor_swallows_the_next(tmp_path):
    path = tmp_path / 'journal'
    url = f'journal:{path}'
    add_trials(open_storage(url), 2)
    whole = path.read_bytes()
    before = whole[: whole[:-1].rfind(b'\n') + 1]  # without the entry that finished the second trial
    for end in range(len(before), len(whole)):
        path.write_bytes(whole[:end])
        reading = open_storage(url, create=False)
        assert [trial.state.name for trial in reading.get_all_trials(0)] == ['COMPLETE', 'RUNNING']
        assert path.read_bytes() == whole[:end]
        # a writer that was open before mends what another one left as well as one that is opened now
        writing = reading if end % 2 else open_storage(url)
        writing.set_study_user_attr(0, 'after', end)
        for storage in (reading, writing, open_storage(url)):  # the first one had seen the torn entry
            assert storage.get_study_user_attrs(0) == {'after': end}
            assert [trial.state.name for trial in storage.get_all_trials(0)] == ['COMPLETE', 'RUNNING']


def test_a_journal_torn_in_its_very_first_entry_begins_anew(tmp_path):
    path = tmp_path / 'journal'
    for torn in (b'', b'{', b'{"op_code":', b'{"op_code":0,"worker_id":"a'):
        path.write_bytes(torn)
        add_trials(open_storage(f'journal:{path}'), 1)
        assert len(open_storage(f'journal:{path}').get_all_trials(0)) == 1


# --- what is refused


@pytest.mark.parametrize(
    ('url', 'words'),
    [
        ('foo.db', ['got foo.db', 'sqlite:///foo.db']),
        ('sqllite:///a.db', ['sqllite', 'did you mean sqlite?']),
        ('sqlite://a.db', ['three slashes']),
        ('sqlite:///missing/a.db', ['/missing', 'mkdir -p']),
        ('sqlite:////proc/a.db', ['/proc is not writable']),
        ('journal://a.log', ['expected journal:FILE']),
        ('postgresql://h:port/d', ['is not the URL']),
        ('postgresql://h', ['without a database', 'postgresql://USER@HOST/DATABASE']),
        ('postgresql://127.0.0.1:1/d', ['refused', 'check that the server runs']),
        ('postgresql://nowhere.invalid/d', ['nowhere.invalid', 'check that the server runs']),
    ],
)
def test_bad_urls_are_refused_on_one_line(url, words, tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    if '/proc' in url and sys.platform != 'linux':
        pytest.skip('needs a folder that nobody can write to')
    message = refused(url, *words)
    if 'check that the server runs' not in message:  # what can be told at once is told in the same words
        with pytest.raises(OptionError, match=re.escape(message)):
            check_storage(url)
    assert capfd.readouterr() == ('', '')
    assert os.listdir(tmp_path) == []


@given(
    password=st.text(st.characters(codec='utf-8', exclude_characters='&'), min_size=1),
    kind=st.sampled_from(['postgresql', 'mysql+pymysql', 'oracle', '']),
)
def test_a_password_is_never_shown(password, kind):
    prefix = f'{kind}://' if kind else ''
    assert mask_password(f'{prefix}user:{password}@host/study') == f'{prefix}user:***@host/study'
    if '@' not in password:
        url = f'{prefix}host/study?user=u&password={password}'
        assert mask_password(url) in (f'{prefix}host/study?user=u&password=***', url.replace(password, '***'))


@pytest.mark.parametrize(
    ('url', 'shown'),
    [
        ('postgresql://u:se:cret@127.0.0.1:1/d', 'u:***@127.0.0.1:1/d'),  # in the words of the driver
        ('mysql+pymysql://u:secret@127.0.0.1:1/d', 'u:***@127.0.0.1:1/d'),
        ('postgresql://u:pass@secret@h/d', 'u:***@h/d'),
        ('u:secret@h/d', 'u:***@h/d'),
        ('oracle://u:secret@h/d', 'u:***@h/d'),
    ],
)
def test_no_refusal_shows_a_password(url, shown):
    assert 'cret' not in refused(url, shown)


@pytest.mark.slow
def test_a_database_that_does_not_exist_and_a_refused_user_are_named(postgresql_server):
    refused(f'{postgresql_server}nope', 'database "nope" does not exist', 'create the database first')
    stranger = postgresql_server.replace('postgres@', 'stranger:secret@')
    message = refused(f'{stranger}postgres', 'role "stranger" does not exist', 'check the user and the password')
    assert 'secret' not in message


@pytest.mark.parametrize('scheme', ['postgresql', 'mysql+pymysql'])
def test_a_server_that_says_nothing_is_given_up(scheme, monkeypatch):
    monkeypatch.setattr(storages, 'CONNECT_SECONDS', 1)
    monkeypatch.setattr(storages, 'BUSY_SECONDS', 0.2)
    with socket.create_server(('127.0.0.1', 0)) as server:
        start = time.monotonic()
        refused(f'{scheme}://u@127.0.0.1:{server.getsockname()[1]}/d', 'check that the server runs')
    assert time.monotonic() - start < 10


def test_files_that_are_something_else_are_refused_and_left_alone(tmp_path):
    path = tmp_path / 'notes'
    entry = b'{"op_code":0,"worker_id":"a","study_name":"s","directions":[2]}\n'
    for content, line in [
        (b'my notes', 1),
        (b'my notes\n', 1),
        (b'[]\n', 1),
        (entry + b'my notes\n', 2),
        (entry + b'\xff\n', 2),
    ]:
        path.write_bytes(content)
        refused(f'journal:{path}', 'not a journal of Optuna', f'line {line}')
        refused(f'sqlite:///{path}', 'not a database', 'or a new file')
        assert path.read_bytes() == content
    for unknown in (b'{"op_code":0,"worker_id":"a"}\n', b'{"op_code":99,"worker_id":"a"}\n'):
        path.write_bytes(unknown)
        refused(f'journal:{path}', 'a damaged journal of Optuna')


def test_a_missing_file_is_only_made_when_it_is_asked_for(tmp_path):
    for scheme in ('sqlite:///', 'journal:'):
        (tmp_path / 'study.db').touch()
        refused(f'{scheme}{tmp_path}/studi.db', 'there is no file', 'did you mean study.db?', create=False)
        assert os.listdir(tmp_path) == ['study.db']


def test_tables_of_another_version_of_optuna_are_refused_with_its_words(tmp_path):
    url = f'sqlite:///{tmp_path}/old.db'
    open_storage(url)
    with closing(sqlite3.connect(tmp_path / 'old.db')) as database, database:
        database.execute("UPDATE alembic_version SET version_num = 'v2.6.0.a'")
    refused(url, 'no longer compatible', 'optuna storage upgrade --storage')
