"""What a command does to its own process before the heavy libraries are loaded; loads none of them itself."""

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

# Keras loads them with TensorFlow, for functions that no command calls: a quarter of the time that takes.
UNUSED_PACKAGES = ('matplotlib', 'pandas')


def prepare_process() -> None:
    """Set what NumPy, MuJoCo and TensorFlow read once, when they are loaded, and silence TensorFlow's import.

    What the user has set stays.
    """
    # Waking a second thread takes longer than a small network's product. TensorFlow's threads are others: --threads.
    os.environ.setdefault('OPENBLAS_NUM_THREADS', '1')
    os.environ.setdefault('OMP_NUM_THREADS', '1')
    if sys.platform == 'linux' and not (os.environ.get('DISPLAY') or os.environ.get('WAYLAND_DISPLAY')):
        os.environ.setdefault('MUJOCO_GL', 'egl')
        os.environ.setdefault('SDL_VIDEODRIVER', 'dummy')  # else SDL complains that it finds none
    silence_tensorflow(UNUSED_PACKAGES)


def silence_tensorflow(blocked_packages: Sequence[str] = ()) -> None:
    """Prepare TensorFlow's import, whoever makes it: it is silent unless it fails, and finds compiled programs.

    `blocked_packages` are packages it goes without.
    """
    os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '3')
    if 'tensorflow' not in sys.modules and not any(isinstance(finder, _QuietImport) for finder in sys.meta_path):
        sys.meta_path.insert(0, _QuietImport('tensorflow', blocked_packages))


def replace_unencodable_characters() -> None:
    """Let a console that lacks a character, such as ±, show a question mark instead of failing."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors='replace')


def prepare_exit() -> None:
    """Write what is still in the buffers of files, and collect garbage for the last time.

    Python would look through all of TensorFlow's objects several times more, which takes most of a second.
    """
    for kind in (io.TextIOWrapper, io.BufferedWriter):  # a text is written by way of bytes
        for file in [thing for thing in gc.get_objects() if type(thing) is kind]:
            with suppress(OSError, ValueError):  # no space, or closed
                file.flush()
    gc.collect()
    gc.freeze()


@contextmanager
def quiet_stderr() -> Iterator[None]:
    """Hold back what is written to file descriptor 2, by C++ code too; show it after all if the body raises."""
    if sys.stderr is not None:
        sys.stderr.flush()
    try:
        stderr = os.dup(2)
    except OSError:  # a process without a stderr has nothing to hold back
        yield
        return
    import tempfile  # slow to load, and many commands end before they get here

    with tempfile.TemporaryFile() as held_back:
        os.dup2(held_back.fileno(), 2)
        failed = False
        try:
            yield
        except Exception:  # not a Ctrl-C, which explains itself
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
    """Let imports of these optional packages fail for a while, unless they are loaded already."""
    absent = [name for name in names if name not in sys.modules]
    sys.modules.update(dict.fromkeys(absent))  # type: ignore[arg-type]
    try:
        yield
    finally:
        for name in absent:
            del sys.modules[name]


@contextmanager
def _without_garbage_collection() -> Iterator[None]:
    """Collect no garbage: a fifth of TensorFlow's import is spent on looking through what it has just made."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


class _QuietImport(MetaPathFinder):
    """Prepares the first import of one module, wherever in the program it happens, and is gone after that."""

    def __init__(self, name: str, blocked_packages: Sequence[str]):
        self.name, self.blocked_packages = name, blocked_packages

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != self.name:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is not None and spec.loader is not None:
            quiet = functools.partial(self._execute, spec.loader.exec_module)
            spec.loader.exec_module = quiet  # type: ignore[method-assign]
        return spec

    def _execute(self, execute: Callable[[types.ModuleType], None], module: types.ModuleType) -> None:
        from xagents.system.compilation_cache import enable_cache

        refused = enable_cache()
        if refused and sys.stderr is not None:
            print(f'xagents: {refused}', file=sys.stderr)
        with quiet_stderr(), _block_imports(*self.blocked_packages), _without_garbage_collection():
            execute(module)
