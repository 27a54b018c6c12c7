"""A cache of compiled programs for later processes, in the user's cache folder. The module imports no large package.

XLA reads and writes programs in a folder of this process (`TF_XLA_FLAGS`), and executes every program that it finds
there. Each cached program is therefore checked against the SHA-256 in its name before it is linked into this folder.
New programs are added to the cache as hard links. A file that is damaged, incomplete or owned by another user only
costs the time to compile.
"""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import os
import platform
import shutil
import stat
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from xagents.system.files import digest
from xagents.system.locks import lock_file
from xagents.system.processor import cpuinfo_lines

VARIABLE = 'XAGENTS_CACHE'
MAX_BYTES = 128 * 2**20  # bytes of the cache; above this, the least recently used programs are removed
MIN_FREE_BYTES = 4 * 2**20  # bytes that must be free; with less, a process does not use the cache
_FLAG = '--tf_xla_persistent_cache_directory'
_LOCK_FILE = '.held'
_MIN_AGE_SECONDS = 60  # seconds within which a process locks its new folder


class UnsafeFolderError(Exception):
    """Other users can write to a folder of programs that would be executed."""


def cache_folder() -> Path | None:
    """Return the folder of the cache, or None if the cache is off.

    The folder is the value of XAGENTS_CACHE, else `xagents` in the user's cache folder (XDG Base Directory
    Specification).

    Raises:
        OSError: If the user has no home directory.
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
        raise FileNotFoundError(f'the user has no home directory (set {VARIABLE} to a directory)')
    return Path(home) / '.cache' / 'xagents'


def cache_summary() -> str:
    """Return the folder and the size of the cache, or the reason why it is not used, as one line."""
    try:
        folder = cache_folder()
        if folder is None:
            return f'not cached: {VARIABLE} is off'
        private_folder(folder)
    except (OSError, UnsafeFolderError) as error:
        return f'not cached: {error}'
    programs = _program_files(folder)
    size = f'{sum(file.stat().st_size for file in programs) / 2**20:.1f} of at most {MAX_BYTES // 2**20} MB'
    return f'{folder} ({len(programs)}, {size}; {VARIABLE}=off disables it)'


def private_folder(folder: Path) -> Path:
    """Create a folder if it does not exist, check that only the user can write to it, and return it.

    Raises:
        UnsafeFolderError: If other users can write to it or replace it.
        OSError: If it cannot be created.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    found, others, remedy = folder.stat(), stat.S_IWGRP | stat.S_IWOTH, f'set {VARIABLE} to another directory'
    if found.st_uid != os.geteuid() or found.st_mode & others:
        raise UnsafeFolderError(f'other users can write to {folder} (chmod 700 it, or {remedy})')
    for parent in folder.resolve().parents:
        found = parent.stat()
        if found.st_uid not in (0, os.geteuid()) or (found.st_mode & others and not found.st_mode & stat.S_ISVTX):
            raise UnsafeFolderError(f'other users can write to {parent} and replace {folder} ({remedy})')
    return folder


class CompilationCache:
    """The cache of compiled programs in `folder`, for this process.

    Attributes:
        folder: the folder of the cache, which processes share.
        process_folder: the folder in which XLA reads and writes; no other process uses it.
    """

    def __init__(self, folder: Path):
        self.folder = private_folder(folder)
        processes = private_folder(folder / 'processes')
        _remove_stale_folders(processes)
        self.process_folder = Path(tempfile.mkdtemp(dir=processes))
        self._lock: IO[bytes] | None = lock_file(self.process_folder / _LOCK_FILE)
        self._linked: dict[str, set[str]] = {}
        self._process = os.getpid()
        probe = self.process_folder / 'free_space_probe'
        try:  # on a full disk, XLA would raise an error that looks like an error of the program
            probe.write_bytes(bytes(MIN_FREE_BYTES))
            probe.unlink()
        except OSError:
            self.close()
            raise

    @contextlib.contextmanager
    def cached_compilation(self, kind: str) -> Iterator[None]:
        """Make the cached programs of a kind available to XLA inside a `with` block, and cache the new ones.

        A kind identifies the version of TensorFlow, the processor and the number of threads: XLA must not execute
        programs of another kind.
        """
        with contextlib.suppress(OSError):  # no space or no permission: XLA compiles the program
            self._link_programs(private_folder(self.folder / _file_name(kind)))
        yield
        with contextlib.suppress(OSError):
            self._store_programs(self.folder / _file_name(kind))

    def _link_programs(self, programs_folder: Path) -> None:
        if programs_folder.name in self._linked:
            return
        linked = self._linked[programs_folder.name] = set[str]()
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
            with contextlib.suppress(FileExistsError):  # another process has cached the same program
                os.link(file, programs_folder / f'{file.name}.{digest(file)}')
            linked.add(file.name)
        if new:
            _prune(self.folder)

    def redirect_writes(self) -> None:
        """Replace the folder of this process by a link to a temporary one, because XLA cannot write to it."""
        elsewhere = tempfile.mkdtemp()
        atexit.register(shutil.rmtree, elsewhere, ignore_errors=True)
        if self.process_folder.is_dir():
            shutil.rmtree(self.process_folder, ignore_errors=True)
        else:
            self.process_folder.unlink(missing_ok=True)
        self.process_folder.symlink_to(elsewhere)

    def close(self) -> None:
        """Remove the folder of this process; do nothing in a forked process."""
        if os.getpid() != self._process:
            return
        if self.process_folder.is_symlink():
            self.process_folder.unlink()
        shutil.rmtree(self.process_folder, ignore_errors=True)
        if self._lock is not None:
            self._lock.close()


# the cache of this process; None before `enable_cache`, and if the cache is not used
active_cache: CompilationCache | None = None


def enable_cache() -> str:
    """Enable the cache for TensorFlow, which reads the folder when it executes its first operation.

    Returns:
        The reason why the cache is not used, for the user; empty if it is used or off.
    """
    global active_cache
    try:
        folder = cache_folder()
    except OSError:
        return ''
    # TF_XLA_FLAGS may contain the folder of a parent process, which this process must not use
    flags = [f for f in os.environ.get('TF_XLA_FLAGS', '').split() if not f.startswith(f'{_FLAG}={folder}{os.sep}')]
    if os.name != 'posix' or folder is None or any(f.startswith(_FLAG) for f in flags):
        return ''
    if _tensorflow_is_used():
        remedy = 'import a name of xagents first, as in `from xagents import PPO`'
        return f'compiled programs are not cached, because TensorFlow was used before xagents: {remedy}'
    try:
        private_folder(folder)
        active_cache = CompilationCache(folder / 'programs')
    except UnsafeFolderError as error:
        return f'compiled programs are not cached: {error}'
    except OSError as error:  # no space or no permission: no message if the folder is the default
        return f'compiled programs are not cached: {error}' if os.environ.get(VARIABLE) else ''
    atexit.register(active_cache.close)
    os.environ['TF_XLA_FLAGS'] = ' '.join([*flags, f'{_FLAG}={active_cache.process_folder}'])
    return ''


def _tensorflow_is_used() -> bool:
    """Return whether TensorFlow is imported and has executed an operation."""
    module = sys.modules.get('tensorflow.python.eager.context')
    return module is not None and getattr(module.context_safe(), '_initialized', False)


@contextlib.contextmanager
def cached_compilation(kind: str) -> Iterator[None]:
    """Call `CompilationCache.cached_compilation` of the active cache, if there is one."""
    with contextlib.nullcontext() if active_cache is None else active_cache.cached_compilation(f'{kind}-{_machine()}'):
        yield


def recover_from_full_disk() -> bool:
    """Redirect the writes of XLA, because the disk of the cache is full; return whether another attempt may succeed."""
    if active_cache is None or active_cache.process_folder.is_symlink():
        return False
    try:
        active_cache.redirect_writes()
    except OSError:
        return False
    return True


def _machine() -> str:
    """Return a description of the processor and the flags for which programs are compiled."""
    about = [platform.machine(), platform.processor(), os.environ.get('XLA_FLAGS', '')]
    return '\n'.join([*about, *cpuinfo_lines('model name', 'flags', 'Features')])


def _file_name(kind: str) -> str:
    return hashlib.sha256(kind.encode()).hexdigest()[:16]


def _program_files(folder: Path) -> list[Path]:
    """Return the files of cached programs below a folder, without the folders of processes."""
    return [file for file in folder.glob('**/*.pb.*') if file.is_file()]


def _prune(folder: Path) -> None:
    """Remove the least recently used programs until the others have at most MAX_BYTES."""
    ages = []
    for file in _program_files(folder):
        with contextlib.suppress(OSError):  # another process has removed the file
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
        with contextlib.suppress(OSError):  # locked by a running process, or just removed
            if time.time() - folder.stat().st_mtime < _MIN_AGE_SECONDS:
                continue
            held = lock_file(folder / _LOCK_FILE)
            shutil.rmtree(folder, ignore_errors=True)
            if held is not None:
                held.close()
