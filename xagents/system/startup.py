"""Preparation of a process before large libraries are imported. The module itself does not import them."""

from __future__ import annotations

import functools
import gc
import importlib.machinery
import importlib.util
import io
import os
import sys
import types
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib.abc import MetaPathFinder
from typing import Any

# Keras imports them with TensorFlow for functions that no command calls, which takes a quarter of the import time.
UNUSED_PACKAGES = ('matplotlib', 'pandas')


def prepare_process() -> None:
    """Set the variables that NumPy, MuJoCo and TensorFlow read at import, and silence the import of TensorFlow.

    Variables that the user has set do not change.
    """
    # Waking a second thread takes longer than a matrix product of a small network. TensorFlow's threads: --threads.
    os.environ.setdefault('OPENBLAS_NUM_THREADS', '1')
    os.environ.setdefault('OMP_NUM_THREADS', '1')
    if sys.platform == 'linux' and not (os.environ.get('DISPLAY') or os.environ.get('WAYLAND_DISPLAY')):
        os.environ.setdefault('MUJOCO_GL', 'egl')
        os.environ.setdefault('SDL_VIDEODRIVER', 'dummy')  # without a display, SDL would report an error
    silence_tensorflow(UNUSED_PACKAGES)


def silence_tensorflow(blocked_packages: Sequence[str] = ()) -> None:
    """Prepare the next import of TensorFlow: it prints nothing unless it fails, and uses cached compiled programs.

    If TensorFlow is imported already, only enable the cache of compiled programs.

    Args:
        blocked_packages: optional packages that TensorFlow must not import.
    """
    os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '3')
    if 'tensorflow' in sys.modules:
        _enable_cache()
    elif not any(isinstance(finder, _QuietImport) for finder in sys.meta_path):
        sys.meta_path.insert(0, _QuietImport('tensorflow', blocked_packages))


def replace_unencodable_characters() -> None:
    """Print a question mark instead of raising an error for characters that the console lacks, such as ±."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors='replace')


def prepare_exit() -> None:
    """Flush all open files, collect garbage, and exclude the remaining objects from further collections.

    Otherwise Python would check all objects of TensorFlow several times at exit, which takes most of a second.
    """
    for kind in (io.TextIOWrapper, io.BufferedWriter):  # text files first: they write to byte files
        for file in [thing for thing in gc.get_objects() if type(thing) is kind]:
            with suppress(OSError, ValueError):  # no space left, or the file is closed
                file.flush()
    gc.collect()
    gc.freeze()


@contextmanager
def quiet_stderr() -> Iterator[None]:
    """Hide output to file descriptor 2, also from C++ code, inside a `with` block; print it if the block raises."""
    if sys.stderr is not None:
        sys.stderr.flush()
    try:
        stderr = os.dup(2)
    except OSError:  # the process has no standard error
        yield
        return
    import tempfile  # slow to import, and many commands do not need it

    with tempfile.TemporaryFile() as held_back:
        os.dup2(held_back.fileno(), 2)
        failed = False
        try:
            yield
        except Exception:  # not for Ctrl-C, which needs no explanation
            failed = True
            raise
        finally:
            if sys.stderr is not None:
                sys.stderr.flush()
            os.dup2(stderr, 2)
            os.close(stderr)
            if failed:
                held_back.seek(0)
                with open(2, 'wb', closefd=False) as shown:
                    shown.write(held_back.read())


@contextmanager
def _block_imports(*names: str) -> Iterator[None]:
    """Make imports of optional packages fail inside a `with` block, unless they are already imported."""
    absent = [name for name in names if name not in sys.modules]
    sys.modules.update(dict.fromkeys(absent))  # type: ignore[arg-type]
    try:
        yield
    finally:
        for name in absent:
            del sys.modules[name]


@contextmanager
def _without_garbage_collection() -> Iterator[None]:
    """Disable garbage collection inside a `with` block: it takes a fifth of the import time of TensorFlow."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


@functools.cache
def _enable_cache() -> None:
    """Enable the cache of compiled programs, once in a process; print the reason if it cannot be used."""
    from xagents.system.compilation_cache import enable_cache

    refused = enable_cache()
    if refused and sys.stderr is not None:
        print(f'xagents: {refused}', file=sys.stderr)


class _QuietImport(MetaPathFinder):
    """An import hook that runs the first import of one module silently, and then removes itself."""

    def __init__(self, name: str, blocked_packages: Sequence[str]):
        self.name, self.blocked_packages = name, blocked_packages

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        if fullname != self.name:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is not None and spec.loader is not None:
            quiet = functools.partial(self._execute, spec.loader.exec_module)
            spec.loader.exec_module = quiet  # type: ignore[method-assign]
        return spec

    def _execute(self, execute: Callable[[types.ModuleType], None], module: types.ModuleType) -> None:
        _enable_cache()
        with quiet_stderr(), _block_imports(*self.blocked_packages), _without_garbage_collection():
            execute(module)
