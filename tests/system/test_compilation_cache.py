"""Compiled programs that are kept: by whom they may be written, what is lent of them, and that results stay equal."""

import os
import stat
import subprocess
import sys
import time

import pytest

from xagents.system import compilation_cache
from xagents.system.compilation_cache import (
    CompilationCache,
    UnsafeFolderError,
    cache_folder,
    cache_summary,
    enable_cache,
    private_folder,
)
from xagents.system.locks import lock_file

pytestmark = pytest.mark.skipif(os.name != 'posix', reason='a matter of permissions')
PROGRAM = b'a program'
# trains a little, and prints a digest of the weights
SCRIPT = """
import hashlib
from xagents.system.startup import prepare_process
prepare_process()
import xagents
options = {'learning_starts': 32, 'buffer_batch_size': 8, 'buffer_max_size': 64}
agent = xagents.make('dqn', 'CartPole-v1', net=[4], n_envs=2, seed=1, quiet=True, **options)
agent.fit(max_steps=64)
print(hashlib.sha256(b''.join(weight.tobytes() for weight in agent.model.get_weights())).hexdigest())
"""


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv('XAGENTS_CACHE', str(tmp_path / 'cache'))
    monkeypatch.delenv('TF_XLA_FLAGS', raising=False)
    monkeypatch.setattr(compilation_cache, '_tensorflow_is_used', lambda: False)
    return tmp_path / 'cache'


@pytest.fixture
def programs(cache):
    kept = CompilationCache(cache / 'programs')
    yield kept
    kept.close()


def made(programs, name='one.pb', content=PROGRAM, kind='kind'):
    """Let XLA make a program, and return the file that is kept of it."""
    before = set(programs.folder.rglob('*.pb.*'))
    with programs.cached_compilation(kind):
        (programs.process_folder / name).write_bytes(content)
    (file,) = set(programs.folder.rglob('*.pb.*')) - before
    return file


def lent(programs, kind='kind'):
    """What XLA would find in another process."""
    other = CompilationCache(programs.folder)
    try:
        with other.cached_compilation(kind):
            return {file.name: file.read_bytes() for file in other.process_folder.glob('*.pb')}
    finally:
        other.close()


def test_what_one_process_has_compiled_another_finds(programs):
    file = made(programs)
    assert lent(programs) == {'one.pb': PROGRAM}
    assert stat.S_IMODE(file.parent.stat().st_mode) == stat.S_IMODE(programs.process_folder.stat().st_mode) == 0o700
    assert not lent(programs, 'another TensorFlow')


@pytest.mark.parametrize('damage', ['cut', 'empty', 'changed', 'a link', 'half a name'])
def test_what_is_damaged_is_not_lent_and_goes(programs, damage, tmp_path):
    file = made(programs)
    if damage == 'a link':
        (tmp_path / 'elsewhere').write_bytes(PROGRAM)
        file.unlink()
        file.symlink_to(tmp_path / 'elsewhere')
    elif damage == 'half a name':
        file = file.rename(file.with_name('one.pb'))
    else:
        file.write_bytes({'cut': PROGRAM[:3], 'empty': b'', 'changed': PROGRAM.upper()}[damage])
    assert not lent(programs) and not file.exists()
    assert made(programs, 'again.pb').exists(), 'what is compiled after that is kept'


def test_the_oldest_go_where_there_is_no_room(programs, monkeypatch):
    files = [made(programs, f'{n}.pb', bytes([n]) * 400_000) for n in range(4)]
    for age, file in enumerate(reversed(files)):
        os.utime(file, (time.time() - 100 * age,) * 2)
    monkeypatch.setattr(compilation_cache, 'MAX_BYTES', 10**6)
    last = made(programs, 'last.pb', bytes(400_000))
    assert [file.exists() for file in (*files, last)] == [False, False, False, True, True]


def test_folders_of_killed_processes_go_and_those_of_live_ones_stay(programs):
    processes = programs.process_folder.parent
    killed, new = processes / 'killed', processes / 'new'
    for folder in (killed, new):
        folder.mkdir()
    long_ago = (time.time() - 3600,) * 2
    os.utime(killed, long_ago)
    os.utime(programs.process_folder, long_ago)
    CompilationCache(programs.folder).close()
    assert not killed.exists() and new.exists() and programs.process_folder.exists()
    with pytest.raises(BlockingIOError):
        lock_file(programs.process_folder / '.held')


def full(*_):
    raise OSError(28, 'No space left on device')


def test_a_full_disk_costs_time_only(programs, monkeypatch):
    monkeypatch.setattr(os, 'link', full)
    with programs.cached_compilation('kind'):
        (programs.process_folder / 'one.pb').write_bytes(PROGRAM)
    assert not list(programs.folder.rglob('*.pb.*'))


def test_a_folder_without_room_keeps_nothing_and_is_left_as_it_was(cache, monkeypatch):
    monkeypatch.setattr(compilation_cache.Path, 'write_bytes', full)
    assert enable_cache() == 'compiled programs are not cached: [Errno 28] No space left on device'
    assert 'TF_XLA_FLAGS' not in os.environ and not list((cache / 'programs' / 'processes').iterdir())
    monkeypatch.delenv('XAGENTS_CACHE')
    monkeypatch.setenv('XDG_CACHE_HOME', str(cache))
    assert enable_cache() == '', 'nothing is said of a folder that nobody asked for'


@pytest.mark.parametrize('mode', [0o770, 0o707, 0o777])
def test_a_folder_that_others_may_write_to_is_refused_with_a_word(cache, mode):
    cache.mkdir()
    cache.chmod(mode)
    said = enable_cache()
    assert said == f'compiled programs are not cached: other users can write to {cache} (chmod 700 it, or set ' \
        'XAGENTS_CACHE to another directory)'  # fmt: skip
    assert cache_summary().startswith(f'not cached: other users can write to {cache}')
    assert not list(cache.iterdir()) and 'TF_XLA_FLAGS' not in os.environ


def test_a_folder_that_others_could_exchange_is_refused(cache):
    cache.parent.chmod(0o777)
    with pytest.raises(UnsafeFolderError, match=f'other users can write to {cache.parent} and replace {cache} '):
        private_folder(cache)
    cache.parent.chmod(0o1777)
    assert private_folder(cache) == cache


def test_the_place_is_the_users_choice(monkeypatch, tmp_path):
    monkeypatch.delenv('XAGENTS_CACHE', raising=False)
    monkeypatch.setenv('XDG_CACHE_HOME', str(tmp_path))
    assert cache_folder() == tmp_path / 'xagents'
    monkeypatch.setenv('XDG_CACHE_HOME', 'not/absolute')  # to be ignored, says the specification
    monkeypatch.setenv('HOME', str(tmp_path))
    assert cache_folder() == tmp_path / '.cache' / 'xagents'
    monkeypatch.setenv('XAGENTS_CACHE', 'off')
    assert cache_folder() is None and cache_summary() == 'not cached: XAGENTS_CACHE is off' and enable_cache() == ''


def test_a_cache_that_comes_too_late_says_so(cache, monkeypatch):
    import tensorflow as tf

    tf.constant(1)
    monkeypatch.undo()
    monkeypatch.delenv('TF_XLA_FLAGS', raising=False)
    assert enable_cache().startswith('compiled programs are not cached, because TensorFlow was used before xagents: ')
    monkeypatch.setenv('XAGENTS_CACHE', 'off')
    assert enable_cache() == ''


def test_a_process_does_not_use_the_folder_of_the_one_that_started_it(cache, monkeypatch):
    monkeypatch.setattr(compilation_cache, 'active_cache', None)
    monkeypatch.setattr(compilation_cache.atexit, 'register', lambda _: None)
    theirs = f'--tf_xla_persistent_cache_directory={cache}/programs/processes/theirs'
    monkeypatch.setenv('TF_XLA_FLAGS', f'{theirs} --tf_xla_clustering_debug')
    assert enable_cache() == ''
    process_folder = compilation_cache.active_cache
    assert os.environ['TF_XLA_FLAGS'].split() == [
        '--tf_xla_clustering_debug', f'--tf_xla_persistent_cache_directory={process_folder.process_folder}'
    ]  # fmt: skip
    process_folder.close()
    # what the user has chosen stays
    compilation_cache.active_cache = None
    monkeypatch.setenv('TF_XLA_FLAGS', '--tf_xla_persistent_cache_directory=/elsewhere')
    assert enable_cache() == '' and compilation_cache.active_cache is None


def digest_of(cache):
    environment = {**os.environ, 'XAGENTS_CACHE': str(cache), 'OMP_NUM_THREADS': '1'}
    environment.pop('TF_XLA_FLAGS', None)
    done = subprocess.run([sys.executable, '-c', SCRIPT], env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()[-1]


def kept_in(cache):
    return {file.name: file.stat().st_ino for file in cache.rglob('*.pb.*')}


@pytest.mark.slow
def test_equal_seeds_are_equal_with_an_empty_a_full_and_a_damaged_cache(tmp_path):
    cache = tmp_path / 'cache'
    expected = digest_of(cache)
    first = kept_in(cache)
    assert first
    assert digest_of(cache) == expected
    assert kept_in(cache) == first, 'nothing was compiled again'
    for number, file in enumerate(sorted(cache.rglob('*.pb.*'))):
        content = file.read_bytes()
        middle = len(content) // 2
        flipped = content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]
        file.write_bytes([flipped, content[:middle], b''][number % 3])
    assert digest_of(cache) == expected
    assert not list((cache / 'programs' / 'processes').iterdir()), 'nothing of the processes is left'
