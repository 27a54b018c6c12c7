"""Where metrics go besides the console: TensorBoard event files and Weights & Biases.

Both take flat dicts of metrics: `write(step, {'loss/policy': 0.1, …})`, and `close()` at the end.
"""

from __future__ import annotations

import contextlib
import errno
import importlib.util
import itertools
import json
import os
import socket
import time
from collections.abc import Iterator, Mapping
from math import isfinite
from pathlib import Path
from typing import Any

from xagents.options.errors import one_line
from xagents.system.files import atomic_write
from xagents.system.paths import check_folder

# the longest that metrics wait in memory before TensorBoard can see them, as long as more keep coming
FLUSH_SECONDS = 2.0
# how often W&B writes out what is logged offline: a kill loses what came since
WANDB_FLUSH_SECONDS = 1.0

_file_numbers = itertools.count()


class TensorBoardMonitor:
    """Writes scalars to a TensorBoard event file, which is a TFRecord file of `Event` messages."""

    def __init__(self, folder: str | os.PathLike[str], purge_step: int | None = None) -> None:
        """Open a new event file in a folder, which is made where there is none.

        For a resumed run TensorBoard hides what earlier files hold from `purge_step` on. It takes the files in the
        order of their names, so this one's name comes last whatever the clock says.

        Raises:
            ValueError: If `folder` is an existing file, or tensorboard is not installed.
            OSError: If the file cannot be written; names it.
        """
        _require_module('tensorboard', '--tensorboard', 'pip install tensorboard')
        import tensorflow as tf

        folder = Path(folder)
        check_folder('tensorboard', folder)
        folder.mkdir(parents=True, exist_ok=True)
        others = (path.name.split('.')[3] for path in folder.glob('events.out.tfevents.*'))
        seconds = max(int(time.time()), *(int(text) + 1 for text in others if text.isdigit()), 1)
        name = f'events.out.tfevents.{seconds:010d}.{socket.gethostname()}.{os.getpid()}.{next(_file_numbers)}'
        self.path = folder / name
        self._closed = False
        with _file_errors(self.path):
            self._file = tf.io.TFRecordWriter(str(self.path))
        self._write_event(file_version='brain.Event:2')
        if purge_step is not None:
            start = tf.compat.v1.SessionLog(status=tf.compat.v1.SessionLog.START)
            for _ in range(2):  # the first start of all hides nothing, and earlier files have none
                self._write_event(step=purge_step, session_log=start)
        self.flush()

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        """Write scalars, without those that are not finite; OSError where the file cannot be written."""
        values = [{'tag': name, 'simple_value': value} for name, value in metrics.items() if isfinite(value)]
        self._write_event(step=int(step), summary={'value': values})
        if time.time() - self._flushed >= FLUSH_SECONDS:
            self.flush()

    def flush(self) -> None:
        """Let TensorBoard see everything written so far."""
        if not self._closed:
            with _file_errors(self.path):
                self._file.flush()
            self._flushed = time.time()

    def close(self) -> None:
        """Close the file. Closing again does nothing."""
        if not self._closed:
            self._closed = True
            with _file_errors(self.path):
                self._file.close()

    def _write_event(self, **content: Any) -> None:
        import tensorflow as tf

        with _file_errors(self.path):
            self._file.write(tf.compat.v1.Event(wall_time=time.time(), **content).SerializeToString())


@contextlib.contextmanager
def _file_errors(path: Path) -> Iterator[None]:
    """Raise what TensorFlow says of a file as Python would."""
    import tensorflow as tf

    try:
        yield
    except tf.errors.OpError as error:
        reason = error.message.rpartition('; ')[2]
        numbers = {os.strerror(number): number for number in errno.errorcode}
        raise OSError(numbers.get(reason, errno.EIO), reason, str(path)) from error


class WandbMonitor:
    """Logs metrics to a W&B run."""

    def __init__(
        self,
        name: str,
        config: Mapping[str, Any],
        id_file: str | os.PathLike[str] | None = None,
        resumed_at: int | None = None,
    ) -> None:
        """Start a run, quietly and without ever asking for input.

        The file `id_file` remembers which W&B run it was: where it exists, that run goes on. Logging goes on behind the
        step `resumed_at` of a checkpoint, and behind what W&B's server has. What was logged offline beyond it cannot be
        taken back and stands twice.
        """
        check_wandb()
        import wandb

        settings: dict[str, Any] = {'silent': True, 'console': 'off', 'disable_git': True, 'save_code': False}
        flushing = 'x_transaction_log_flush_interval'  # newer versions have it
        if flushing in getattr(wandb.Settings, 'model_fields', {}):
            settings[flushing] = WANDB_FLUSH_SECONDS
        saved_id = _read_run_id(id_file)
        self.run: Any = wandb.init(
            project='xagents',
            name=name,
            config=dict(config),
            id=saved_id,
            resume='allow' if saved_id else None,
            settings=wandb.Settings(**settings),
        )
        self._last_step = -1  # what W&B has up to here is not logged again
        if resumed_at is not None:
            self._last_step = max(resumed_at, getattr(self.run, 'starting_step', 0) - 1)
        if id_file is not None:
            with atomic_write(id_file) as temporary:
                temporary.write_text(json.dumps({'id': self.run.id}))
        self._failed = self._closed = False

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        """Log metrics at a step, which W&B drops where it lies before the last one; RuntimeError if W&B failed."""
        if step <= self._last_step:
            return
        try:
            self.run.log(dict(metrics), step=int(step), commit=True)  # not only with the next one
        except Exception as error:
            self._failed = True
            raise RuntimeError(f'W&B could not log a metric: {error}') from error

    def close(self) -> None:
        """Finish the run. Closing again does nothing."""
        if not self._closed:
            self._closed = True
            self.run.finish(exit_code=int(self._failed))


def _read_run_id(path: str | os.PathLike[str] | None) -> str | None:
    """Return a W&B run's id, None where there is none."""
    try:
        return str(json.loads(Path(path).read_bytes())['id']) if path is not None else None
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None


def check_wandb() -> None:
    """Check, without the network, that W&B is installed and has a login or an offline mode; ValueError if not."""
    _require_module('wandb', '--monitor-session', 'pip install "xagents[wandb]"')
    if os.environ.get('WANDB_MODE', '').lower() in ('offline', 'disabled', 'dryrun'):
        return
    how = 'run `wandb login` once, or set WANDB_MODE=offline'
    from wandb.errors import Error as WandbError

    try:
        # wandb.login() would verify a key over the network; these two only look at what is configured here.
        from wandb.sdk import wandb_setup
        from wandb.sdk.lib import wbauth

        settings = wandb_setup.singleton().settings
        if settings.mode in ('offline', 'disabled'):
            return
        login: Any = wbauth.authenticate_session(
            host=settings.base_url, source='xagents', prompt=False, update_session=False
        )
    except WandbError as error:
        raise ValueError(f'--monitor-session: the W&B login is not usable ({one_line(error)}): {how}') from error
    except (ImportError, AttributeError, TypeError):  # another version of wandb: only the variable can be trusted
        login = os.environ.get('WANDB_API_KEY')
        how = 'set WANDB_API_KEY or WANDB_MODE=offline'
    if not login:
        raise ValueError(f'--monitor-session needs a W&B login: {how}')


def _require_module(module: str, flag: str, how: str) -> None:
    if importlib.util.find_spec(module) is None:
        raise ValueError(f'{flag} needs {module}, which is not installed: {how}')
