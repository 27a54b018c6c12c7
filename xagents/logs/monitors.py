"""Monitors, which log metrics to TensorBoard event files, to Weights & Biases (W&B) and to trackio.

Each has the methods `write(step, metrics)`, with a flat dict such as `{'loss/policy': 0.1}`, and `close()`.
"""

from __future__ import annotations

import contextlib
import errno
import importlib.util
import io
import itertools
import json
import os
import socket
import sqlite3
import time
import uuid
from collections.abc import Iterator, Mapping
from math import isfinite
from pathlib import Path
from typing import Any

from xagents.options.errors import one_line
from xagents.system.files import atomic_write
from xagents.system.paths import check_folder

# metrics are flushed to the event file by the first write after this many seconds
FLUSH_SECONDS = 2.0
# seconds between two flushes of W&B in offline mode; a killed run loses the metrics since the last flush
WANDB_FLUSH_SECONDS = 1.0
# project of W&B and of trackio that contains the runs
PROJECT = 'xagents'
# variables with which trackio sends metrics to a server, or downloads them from one
TRACKIO_REMOTE_VARIABLES = ('TRACKIO_SPACE_ID', 'TRACKIO_SERVER_URL', 'TRACKIO_BUCKET_ID', 'TRACKIO_DATASET_ID')

_file_numbers = itertools.count()


class TensorBoardMonitor:
    """A monitor that writes scalars to a TensorBoard event file, a TFRecord file of `Event` messages."""

    def __init__(self, folder: str | os.PathLike[str], purge_step: int | None = None) -> None:
        """Open a new event file.

        TensorBoard reads the event files in the order of their names. The new name sorts last even if the clock was
        set back.

        Args:
            folder: the folder of the file; it is created if it does not exist.
            purge_step: step at which a run resumes. TensorBoard hides the events of earlier files from this step on.

        Raises:
            ValueError: if `folder` is an existing file, or tensorboard is not installed.
            OSError: if the file cannot be written. The error names the file.
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
            for _ in range(2):  # TensorBoard ignores the first start event, and earlier files contain none
                self._write_event(step=purge_step, session_log=start)
        self.flush()

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        """Write the finite scalars; raise OSError if the file cannot be written."""
        values = [{'tag': name, 'simple_value': value} for name, value in metrics.items() if isfinite(value)]
        self._write_event(step=int(step), summary={'value': values})
        if time.time() - self._flushed >= FLUSH_SECONDS:
            self.flush()

    def flush(self) -> None:
        """Write buffered events to the file, so that TensorBoard shows them."""
        if not self._closed:
            with _file_errors(self.path):
                self._file.flush()
            self._flushed = time.time()

    def close(self) -> None:
        """Close the file. Later calls have no effect."""
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
    """Raise the file errors of TensorFlow as an OSError with the number, the reason and the path."""
    import tensorflow as tf

    try:
        yield
    except tf.errors.OpError as error:
        reason = error.message.rpartition('; ')[2]
        numbers = {os.strerror(number): number for number in errno.errorcode}
        raise OSError(numbers.get(reason, errno.EIO), reason, str(path)) from error


class WandbMonitor:
    """A monitor that logs metrics to a W&B run."""

    def __init__(
        self,
        name: str,
        config: Mapping[str, Any],
        id_file: str | os.PathLike[str] | None = None,
        resumed_at: int | None = None,
    ) -> None:
        """Start or continue a W&B run without output and without prompts.

        A resumed run logs only steps after `resumed_at` and after the last step on the W&B server. Steps that were
        logged offline after `resumed_at` cannot be deleted, so they are logged twice.

        Args:
            name: name of the W&B run.
            config: options of the run.
            id_file: file with the id of the W&B run. If the file exists, that run continues.
            resumed_at: step of the checkpoint at which the run resumes; None for a new run.
        """
        check_wandb()
        import wandb

        settings: dict[str, Any] = {'silent': True, 'console': 'off', 'disable_git': True, 'save_code': False}
        flushing = 'x_transaction_log_flush_interval'  # only newer versions of wandb have this setting
        if flushing in getattr(wandb.Settings, 'model_fields', {}):
            settings[flushing] = WANDB_FLUSH_SECONDS
        saved_id = _read_run(id_file).get('id')
        identity: dict[str, Any] = {'name': name, 'id': saved_id, 'resume': 'allow' if saved_id else None}
        run_settings = wandb.Settings(**settings)
        self.run: Any = wandb.init(project=PROJECT, config=dict(config), settings=run_settings, **identity)
        self._last_step = -1  # W&B already has the steps up to this one
        if resumed_at is not None:
            self._last_step = max(resumed_at, getattr(self.run, 'starting_step', 0) - 1)
        _write_run(id_file, {'id': self.run.id})
        self._failed = self._closed = False

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        """Log metrics, unless W&B already has this step; raise RuntimeError if W&B fails."""
        if step <= self._last_step:
            return
        try:
            self.run.log(dict(metrics), step=int(step), commit=True)  # send now, not with the next step
        except Exception as error:
            self._failed = True
            raise RuntimeError(f'W&B could not log a metric: {error}') from error

    def close(self) -> None:
        """Finish the run. Later calls have no effect."""
        if not self._closed:
            self._closed = True
            self.run.finish(exit_code=int(self._failed))


class TrackioMonitor:
    """A monitor that logs metrics to a trackio run in a database on this machine, without network calls.

    The monitor uses the storage of trackio (`SQLiteStorage`) instead of `trackio.init`, for three reasons:
    `trackio.init` sends a request to the Hugging Face Hub if a login is saved, it resumes a run by its name, which
    several runs may have, and it turns errors of the disk into warnings.
    """

    def __init__(
        self,
        name: str,
        config: Mapping[str, Any],
        id_file: str | os.PathLike[str] | None = None,
        resumed_at: int | None = None,
    ) -> None:
        """Start or continue a trackio run.

        Args:
            name: name of the trackio run. A resumed run keeps its first name.
            config: options of the run.
            id_file: file with the id and the name of the trackio run. If the file exists, that run continues.
            resumed_at: step of the checkpoint at which the run resumes; later steps are removed from the trackio run,
                because the resumed run logs them again. None for a new run.

        Raises:
            ValueError: if trackio cannot be used, see `check_trackio`.
            RuntimeError: if the database cannot be written.
        """
        check_trackio()
        saved = _read_run(id_file)
        self.id, self.name = str(saved.get('id') or uuid.uuid4().hex), str(saved.get('name') or name)
        # the next row contains the options; JSON text replaces values such as functions
        self._config: dict[str, Any] | None = json.loads(json.dumps(dict(config), default=str))
        if saved and resumed_at is not None:
            self._remove_after(resumed_at)
        _write_run(id_file, {'id': self.id, 'name': self.name})

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        """Log the finite metrics; raise RuntimeError if the database cannot be written. A row takes about 4 ms."""
        from trackio.sqlite_storage import SQLiteStorage
        from trackio.utils import RESERVED_KEYS

        finite = {name: float(value) for name, value in metrics.items() if isfinite(value)}
        # trackio.log renames reserved names in the same way; a column such as `step` would be overwritten
        row = {f'__{name}' if name in RESERVED_KEYS else name: value for name, value in finite.items()}
        with _trackio_errors():
            SQLiteStorage.bulk_log(PROJECT, self.name, [row], steps=[int(step)], config=self._config, run_id=self.id)
        self._config = None

    def close(self) -> None:
        """Do nothing: each row is already in the database."""

    def _remove_after(self, step: int) -> None:
        from trackio.sqlite_storage import SQLiteStorage

        path = SQLiteStorage.get_project_db_path(PROJECT)
        if path.exists():  # users may delete the database between two runs
            with _trackio_errors(), contextlib.closing(sqlite3.connect(path, timeout=30)) as database, database:
                database.execute('DELETE FROM metrics WHERE run_id = ? AND step > ?', (self.id, step))


@contextlib.contextmanager
def _trackio_errors() -> Iterator[None]:
    """Raise the errors of trackio's database as a RuntimeError."""
    try:
        yield
    except (OSError, sqlite3.Error) as error:
        raise RuntimeError(f'trackio could not log a metric: {one_line(error)}') from error


def _read_run(path: str | os.PathLike[str] | None) -> dict[str, str]:
    """Return the id, and the name if saved, of the run of a tracker; an empty dict if there is no file with an id."""
    try:
        run = json.loads(Path(path).read_bytes()) if path is not None else {}
        return run if 'id' in run else {}
    except (FileNotFoundError, ValueError, TypeError):
        return {}


def _write_run(path: str | os.PathLike[str] | None, run: Mapping[str, str]) -> None:
    """Write the identity of the run of a tracker, if there is a path."""
    if path is not None:
        with atomic_write(path) as temporary:
            temporary.write_text(json.dumps(run))


def check_monitor(monitor: str) -> None:
    """Raise ValueError if the tracker `monitor` ('wandb' or 'trackio') cannot be used. Do not use the network."""
    {'wandb': check_wandb, 'trackio': check_trackio}[monitor]()


def check_trackio() -> None:
    """Check that trackio can log to this machine.

    Raises:
        ValueError: if trackio is not installed, an environment variable requests a server, or the directory of its
            databases is on a network file system or cannot be written.
    """
    _require_module('trackio', '--monitor trackio', "pip install '.[trackio]'")
    if remote := next(filter(os.environ.get, TRACKIO_REMOTE_VARIABLES), None):
        raise ValueError(
            f'--monitor trackio logs to this machine only, but {remote} is set: unset it; '
            '`trackio sync` uploads a finished run'
        )
    from trackio import utils

    with contextlib.redirect_stdout(io.StringIO()):  # trackio prints what it would do instead
        is_database = utils.get_storage_mode() == 'sqlite'
    if not is_database:
        raise ValueError(
            f'--monitor trackio needs a database, which trackio does not use in {utils.TRACKIO_DIR} (a network file '
            'system, or TRACKIO_STORAGE_MODE): set TRACKIO_DIR to a local directory, or TRACKIO_STORAGE_MODE=sqlite'
        )
    check_folder('monitor', utils.TRACKIO_DIR)


def check_wandb() -> None:
    """Raise ValueError if W&B is not installed, or has neither a login nor an offline mode. Do not use the network."""
    _require_module('wandb', '--monitor-session', "pip install '.[wandb]'")
    if os.environ.get('WANDB_MODE', '').lower() in ('offline', 'disabled', 'dryrun'):
        return
    how = 'run `wandb login` once, or set WANDB_MODE=offline'
    from wandb.errors import Error as WandbError

    try:
        # wandb.login() verifies the key over the network; the two calls below read only the local configuration
        from wandb.sdk import wandb_setup
        from wandb.sdk.lib import wbauth

        settings = wandb_setup.singleton().settings
        if settings.mode in ('offline', 'disabled'):
            return
        login: Any = wbauth.authenticate_session(
            host=settings.base_url, source='xagents', prompt=False, update_session=False
        )
    except WandbError as error:
        raise ValueError(f'--monitor-session: the W&B login cannot be used ({one_line(error)}): {how}') from error
    except (ImportError, AttributeError, TypeError):  # another version of wandb: check only the variable
        login = os.environ.get('WANDB_API_KEY')
        how = 'set WANDB_API_KEY or WANDB_MODE=offline'
    if not login:
        raise ValueError(f'--monitor-session needs a W&B login: {how}')


def _require_module(module: str, flag: str, how: str) -> None:
    if importlib.util.find_spec(module) is None:
        raise ValueError(f'{flag} needs {module}, which is not installed: {how}')
