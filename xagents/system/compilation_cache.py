"""Compiled programs that outlive their process, in a folder of the user's cache; loads nothing heavy.

XLA reads and writes them in a folder that each process has for itself (`TF_XLA_FLAGS`), and runs whatever it finds
there. So what is lent to it is checked first, against the SHA-256 in its name, and what it has written is kept by a
hard link: a file that is damaged, half written or of somebody else costs the time to compile, and nothing else.
"""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import os
import platform
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from xagents.system.files import digest
from xagents.system.locks import lock_file
from xagents.system.processor import cpuinfo_lines

VARIABLE = 'XAGENTS_CACHE'
MAX_BYTES = 128 * 2**20  # bytes that are kept; above that go those that were not used for longest
MIN_FREE_BYTES = 4 * 2**20  # bytes that a process may write at least, or keeps nothing
_FLAG = '--tf_xla_persistent_cache_directory'
_LOCK_FILE = '.held'
_MIN_AGE_SECONDS = 60  # seconds in which a process has taken the folder that it made


class UnsafeFolderError(Exception):
    """Others than the user could write programs that would be run."""


def cache_folder() -> Path | None:
    """Return the folder of what is kept between processes; None where the user wants none.

    That is what XAGENTS_CACHE names, else `xagents` in the user's cache folder (XDG Base Directory Specification).

    Raises:
        OSError: where the user has no home.
    """
    chosen = os.environ.get(VARIABLE, '')
    if chosen.lower() == 'off':
        return None
    if chosen:
        return Path(chosen).absolute()
    cache = os.environ.get('XDG_CACHE_HOME', '')
    if os.path.isabs(cache):
        return Path(cache) / 'xagents'
    home = os.path.expanduser('~')
    if not os.path.isabs(home):
        raise FileNotFoundError(f'the user has no home (name a folder in {VARIABLE})')
    return Path(home) / '.cache' / 'xagents'


def cache_summary() -> str:
    """Return where compiled programs are kept and what they take, or why they are not, as a line for the user."""
    try:
        folder = cache_folder()
        if folder is None:
            return f'not kept: {VARIABLE} is off'
        private_folder(folder)
    except (OSError, UnsafeFolderError) as error:
        return f'not kept: {error}'
    programs = _program_files(folder)
    size = sum(file.stat().st_size for file in programs)
    return (
        f'{folder} ({len(programs)}, {size / 2**20:.1f} of at most {MAX_BYTES // 2**20} MB; {VARIABLE}=off keeps none)'
    )


def private_folder(folder: Path) -> Path:
    """Return a folder that only the user may write to, made where it is missing.

    Raises:
        Unsafe: where others may.
        OSError: where it cannot be made.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = folder.stat()
    if found.st_uid != os.geteuid() or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise UnsafeFolderError(f'others may write to {folder} (chmod 700 it, or name another in {VARIABLE})')
    for parent in folder.resolve().parents:
        found = parent.stat()
        others = found.st_mode & (stat.S_IWGRP | stat.S_IWOTH) and not found.st_mode & stat.S_ISVTX
        if others or found.st_uid not in (0, os.geteuid()):
            raise UnsafeFolderError(
                f'others may write to {parent}, and so exchange {folder} (name another in {VARIABLE})'
            )
    return folder


class CompilationCache:
    """The programs that are kept in `folder`, as this process sees them.

    Attributes:
        process_folder: the folder that XLA reads and writes, of this process alone.
    """

    def __init__(self, folder: Path):
        self.folder = private_folder(folder)
        processes = private_folder(folder / 'processes')
        _remove_stale_folders(processes)
        self.process_folder = Path(tempfile.mkdtemp(dir=processes))
        self._lock: IO[bytes] | None = lock_file(self.process_folder / _LOCK_FILE)
        self._linked: dict[str, set[str]] = {}
        self._process = os.getpid()
        try:  # XLA takes a disk that is full for an error of the program
            (self.process_folder / 'free_space_probe').write_bytes(bytes(MIN_FREE_BYTES))
        except OSError:
            self.close()
            raise
        (self.process_folder / 'free_space_probe').unlink()

    @contextlib.contextmanager
    def cached_compilation(self, kind: str) -> Iterator[None]:
        """Let XLA find the programs of a kind while the block runs, and keep what it makes there.

        A kind is of one TensorFlow, processor and number of threads: programs of others are not to be run.
        """
        with contextlib.suppress(OSError):  # no space or no permission: the program is compiled
            self._link_programs(private_folder(self.folder / _file_name(kind)))
        yield
        with contextlib.suppress(OSError):
            self._store_programs(self.folder / _file_name(kind))

    def _link_programs(self, programs_folder: Path) -> None:
        if programs_folder.name in self._linked:
            return
        linked: set[str] = set()
        self._linked[programs_folder.name] = linked
        for file in sorted(programs_folder.iterdir()):
            name, _, named = file.name.rpartition('.')
            with contextlib.suppress(FileNotFoundError):  # another process has removed it
                found = file.lstat()
                if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid() or digest(file) != named:
                    file.unlink()
                elif name not in linked:
                    os.link(file, self.process_folder / name)
                    linked.add(name)
                    os.utime(file)

    def _store_programs(self, programs_folder: Path) -> None:
        linked = self._linked.get(programs_folder.name, set())
        new = [file for file in self.process_folder.glob('*.pb') if file.name not in linked]
        for file in new:
            with contextlib.suppress(FileExistsError):  # another process has compiled the same
                os.link(file, programs_folder / f'{file.name}.{digest(file)}')
            linked.add(file.name)
        if new:
            _prune(self.folder)

    def redirect_writes(self) -> None:
        """Let XLA write elsewhere, because it cannot in the folder of this process."""
        elsewhere = tempfile.mkdtemp()
        atexit.register(shutil.rmtree, elsewhere, ignore_errors=True)
        if self.process_folder.is_dir():
            shutil.rmtree(self.process_folder, ignore_errors=True)
        else:
            self.process_folder.unlink(missing_ok=True)
        self.process_folder.symlink_to(elsewhere)

    def close(self) -> None:
        """Remove this process's own folder; in a process that has come of it by a fork, nothing."""
        if os.getpid() != self._process:
            return
        if self.process_folder.is_symlink():
            self.process_folder.unlink()
        shutil.rmtree(self.process_folder, ignore_errors=True)
        if self._lock is not None:
            self._lock.close()


# of this process; None before TensorFlow is loaded, and where nothing is kept
active_cache: CompilationCache | None = None


def enable_cache() -> str:
    """Let TensorFlow, which is not loaded yet, find the kept programs; returns why it must not, in one line."""
    global active_cache
    try:
        folder = cache_folder()
    except OSError:
        return ''
    # a process that started this one has a folder of its own
    flags = [f for f in os.environ.get('TF_XLA_FLAGS', '').split() if not f.startswith(f'{_FLAG}={folder}{os.sep}')]
    if os.name != 'posix' or folder is None or any(f.startswith(_FLAG) for f in flags):
        return ''
    try:
        private_folder(folder)
        active_cache = CompilationCache(folder / 'programs')
    except UnsafeFolderError as error:
        return f'compiled programs are not kept: {error}'
    except OSError as error:  # no space or no permission: no message for the default folder
        return f'compiled programs are not kept: {error}' if os.environ.get(VARIABLE) else ''
    atexit.register(active_cache.close)
    os.environ['TF_XLA_FLAGS'] = ' '.join([*flags, f'{_FLAG}={active_cache.process_folder}'])
    return ''


@contextlib.contextmanager
def cached_compilation(kind: str) -> Iterator[None]:
    """See `CompilationCache.cached_compilation`; where nothing is kept, it only compiles."""
    with contextlib.nullcontext() if active_cache is None else active_cache.cached_compilation(f'{kind}-{_machine()}'):
        yield


def recover_from_full_disk() -> bool:
    """Let XLA write elsewhere, as where kept programs are a disk is full; returns whether that may help."""
    if active_cache is None or active_cache.process_folder.is_symlink():
        return False
    try:
        active_cache.redirect_writes()
    except OSError:
        return False
    return True


def _machine() -> str:
    """Return what programs are compiled for: they would not run, or not as well, on another processor."""
    about = [platform.machine(), platform.processor(), os.environ.get('XLA_FLAGS', '')]
    return '\n'.join([*about, *cpuinfo_lines('model name', 'flags', 'Features')])


def _file_name(kind: str) -> str:
    return hashlib.sha256(kind.encode()).hexdigest()[:16]


def _program_files(folder: Path) -> list[Path]:
    """Return the files of programs below a folder, those of processes excepted."""
    return [file for file in folder.glob('**/*.pb.*') if file.is_file()]


def _prune(folder: Path) -> None:
    """Remove the oldest programs until the others fit."""
    ages = []
    for file in _program_files(folder):
        with contextlib.suppress(OSError):  # another process prunes, too
            found = file.stat()
            ages.append((found.st_mtime, found.st_size, file))
    total = 0
    for _, size, file in sorted(ages, reverse=True):
        total += size
        if total > MAX_BYTES:
            file.unlink(missing_ok=True)


def _remove_stale_folders(processes: Path) -> None:
    """Remove the folders of processes that were killed."""
    for folder in processes.iterdir():
        with contextlib.suppress(OSError):  # held by a process that lives, or just removed
            if time.time() - folder.stat().st_mtime < _MIN_AGE_SECONDS:
                continue
            held = lock_file(folder / _LOCK_FILE)
            shutil.rmtree(folder, ignore_errors=True)
            if held is not None:
                held.close()
